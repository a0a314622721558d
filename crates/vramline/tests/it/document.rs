//! The JSON document, its table of fields and `docs/json.md` say the same.

use std::collections::BTreeSet;
use std::fs;

use serde_json::Value;
use vramline::units::Nanos;
use vramline::view::fields::REPORT;
use vramline::view::report::Wanted;

use crate::{checked_report, fixture, root};

/// The paths of all values in a document.
fn paths(value: &Value, at: &str, found: &mut BTreeSet<String>) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            for (key, value) in map {
                let path = if at.is_empty() { key.clone() } else { format!("{at}.{key}") };
                paths(value, &path, found);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            items.iter().for_each(|item| paths(item, &format!("{at}[]"), found));
        }
        _ => {
            found.insert(at.to_owned());
        }
    }
}

#[test]
fn every_field_is_in_the_table_and_every_entry_in_a_report() {
    let mut found = BTreeSet::new();
    for name in
        ["jax0112_h200_growth_window.xplane.pb", "tf221_cpu_cnn_from_start.xplane.pb", "tf221_cpu_keras.vram"]
    {
        let wanted = Wanted { top: Some(5), at: Some(Nanos(20_000_000)), ..Wanted::default() };
        let report = checked_report(&vramline::read(&fixture(name)).unwrap(), &wanted);
        paths(&serde_json::to_value(&report).unwrap(), "", &mut found);
    }
    // `--at` has the fields of the peak, as the table says.
    let found: BTreeSet<String> =
        found.into_iter().map(|path| path.replace("pools[].at.", "pools[].at_peak.")).collect();
    let table: BTreeSet<String> = REPORT.iter().map(|field| field.id.to_owned()).collect();
    let whole = |path: &String| table.iter().any(|other| other.starts_with(&format!("{path}.")));
    // A list may be empty in one report and filled in the other.
    let missing: Vec<_> =
        found.iter().filter(|path| !table.contains(*path) && !whole(&path.replace("[]", ""))).collect();
    let empty_lists = ["warnings", "pools[].at", "epochs", "phases", "marks", "inventory"];
    let missing: Vec<_> = missing.into_iter().filter(|path| !empty_lists.contains(&path.as_str())).collect();
    assert!(missing.is_empty(), "in a report but not in the table: {missing:?}");
    let unused: Vec<_> = table.iter().filter(|path| !found.contains(*path) && !whole(path)).collect();
    assert!(unused.is_empty(), "in the table but in no report: {unused:?}");
}

/// A null has its reason in `unknowns`.
#[test]
fn every_null_is_explained() {
    fn nulls(value: &Value, at: &str, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(map) => {
                map.iter().for_each(|(key, value)| nulls(value, &format!("{at}.{key}"), found));
            }
            Value::Array(items) => {
                let is_pool = at == ".pools";
                for (i, item) in items.iter().enumerate() {
                    nulls(item, &if is_pool { format!("{at}[{i}]") } else { format!("{at}[]") }, found);
                }
            }
            Value::Null => {
                found.insert(at.trim_start_matches('.').to_owned());
            }
            _ => {}
        }
    }
    for entry in fs::read_dir(root().join("fixtures")).unwrap() {
        let path = entry.unwrap().path();
        if !path.to_string_lossy().ends_with(".xplane.pb") && !path.is_dir() {
            continue;
        }
        let mut report =
            serde_json::to_value(checked_report(&vramline::read(&path).unwrap(), &Wanted::default()))
                .unwrap();
        let unknowns = report["unknowns"].take();
        let explained: BTreeSet<&str> =
            unknowns.as_array().unwrap().iter().map(|unknown| unknown["path"].as_str().unwrap()).collect();
        let mut found = BTreeSet::new();
        nulls(&report, "", &mut found);
        found.remove("unknowns");
        let unexplained: Vec<_> = found.iter().filter(|path| !explained.contains(path.as_str())).collect();
        assert!(unexplained.is_empty(), "{}: {unexplained:?}", path.display());
    }
}

#[test]
fn the_docs_hold_the_table() {
    let docs = fs::read_to_string(root().join("docs/json.md")).unwrap();
    let table: String = REPORT
        .iter()
        .map(|field| format!("| `{}` | {} | {} |\n", field.id, field.unit, field.meaning))
        .collect();
    assert!(
        docs.contains(&table),
        "docs/json.md does not hold the table of fields; it should read:\n{table}"
    );
}
