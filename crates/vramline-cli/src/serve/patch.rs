//! The difference between two documents, so that an open page gets only the changes.
//!
//! A patch is `{"v": value}` (a new value), `{"o": {key: patch}}` (changed keys of an object) or
//! `{"n": length, "e": {index: patch}, "a": [values]}` (a list: new length, changed elements, appended elements). `web/src/server.ts`
//! applies it.

use serde_json::{Map, Value, json};

/// Returns the patch from `old` to `new`; `None` if they are equal.
pub(super) fn patch(old: &Value, new: &Value) -> Option<Value> {
    match (old, new) {
        _ if old == new => None,
        (Value::Object(old), Value::Object(new)) if old.keys().all(|key| new.contains_key(key)) => {
            let changed = new.iter().filter_map(|(key, value)| {
                let patch = match old.get(key) {
                    Some(old) => patch(old, value)?,
                    None => json!({ "v": value }),
                };
                Some((key.clone(), patch))
            });
            Some(json!({ "o": changed.collect::<Map<String, Value>>() }))
        }
        (Value::Array(old), Value::Array(new)) => {
            let pairs = old.iter().zip(new).enumerate();
            let changed = pairs.filter_map(|(at, (old, new))| Some((at.to_string(), patch(old, new)?)));
            let changed: Map<String, Value> = changed.collect();
            let more: Vec<&Value> = new.iter().skip(old.len()).collect();
            Some(json!({ "n": old.len().min(new.len()), "e": changed, "a": more }))
        }
        _ => Some(json!({ "v": new })),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apply(old: &Value, patch: &Value) -> Value {
        if let Some(value) = patch.get("v") {
            return value.clone();
        }
        if let Some(changed) = patch.get("o").and_then(Value::as_object) {
            let mut out = old.as_object().unwrap().clone();
            for (key, patch) in changed {
                let value = apply(old.get(key).unwrap_or(&Value::Null), patch);
                out.insert(key.clone(), value);
            }
            return Value::Object(out);
        }
        let mut out = old.as_array().unwrap().clone();
        out.truncate(patch.get("n").and_then(Value::as_u64).unwrap() as usize);
        for (at, patch) in patch.get("e").and_then(Value::as_object).unwrap() {
            let slot = out.get_mut(at.parse::<usize>().unwrap()).unwrap();
            *slot = apply(slot, patch);
        }
        out.extend(patch.get("a").and_then(Value::as_array).unwrap().iter().cloned());
        Value::Array(out)
    }

    #[test]
    fn makes_the_new_one_of_the_old_one() {
        let all = [
            json!({"steps": [1, 2], "run": {"exit": null}, "pools": [{"name": "a", "peak": 3}]}),
            json!({"steps": [1, 2, 3], "run": {"exit": null}, "pools": [{"name": "a", "peak": 4}]}),
            json!({"steps": [9], "run": {"exit": 0, "more": []}, "pools": []}),
            json!({"steps": [], "pools": [[1], {"x": "y"}]}),
            json!([1, "a"]),
        ];
        for old in &all {
            for new in &all {
                let made = patch(old, new).map_or(old.clone(), |patch| apply(old, &patch));
                assert_eq!(made, *new);
            }
        }
    }

    #[test]
    fn a_patch_contains_only_what_is_new() {
        let (old, new) =
            (json!({"long": [1, 2, 3], "same": "x"}), json!({"long": [1, 2, 3, 4], "same": "x"}));
        assert_eq!(patch(&old, &new), Some(json!({"o": {"long": {"n": 3, "e": {}, "a": [4]}}})));
    }
}
