//! Labels that differ, and that stay the same as long as what they name is there.
//!
//! Two recordings may have the same name, and two processes of a job the same rank. Prometheus refuses two series with equal labels, and a
//! label that changed would end one series and begin another.

use std::collections::{BTreeMap, BTreeSet};

/// Gives labels to keys. Within a scope no two keys have the same label.
#[derive(Debug)]
pub(super) struct Distinct<K> {
    known: BTreeMap<K, (String, String)>,
    used: BTreeSet<K>,
}

impl<K: Ord + Clone> Distinct<K> {
    pub(super) fn new() -> Distinct<K> {
        Distinct { known: BTreeMap::new(), used: BTreeSet::new() }
    }

    /// The label of a key: the wanted one, with a number if another key has it.
    pub(super) fn label(&mut self, key: &K, scope: &str, wanted: &str) -> String {
        self.used.insert(key.clone());
        if let Some((of, label)) = self.known.get(key)
            && of == scope
        {
            return label.clone();
        }
        let is_free = |label: &str| {
            !self.known.iter().any(|(other, (of, taken))| other != key && of == scope && taken == label)
        };
        let numbered = (2_u64..).map(|number| format!("{wanted} #{number}"));
        let label = std::iter::once(wanted.to_owned()).chain(numbered).find(|label| is_free(label));
        let label = label.unwrap_or_default();
        self.known.insert(key.clone(), (scope.to_owned(), label.clone()));
        label
    }

    /// Forgets the keys that nobody asked for since the last call.
    pub(super) fn forget_unused(&mut self) {
        let used = std::mem::take(&mut self.used);
        self.known.retain(|key, _| used.contains(key));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_stays_until_its_key_is_gone() {
        let mut names = Distinct::new();
        assert_eq!(names.label(&1, "", "run"), "run");
        assert_eq!(names.label(&2, "", "run"), "run #2");
        assert_eq!(names.label(&3, "elsewhere", "run"), "run");
        names.forget_unused();
        // The first has gone; the second keeps its label, and a new one takes the free one.
        assert_eq!(names.label(&2, "", "run"), "run #2");
        names.forget_unused();
        assert_eq!(names.label(&4, "", "run"), "run");
        assert_eq!(names.label(&2, "", "run"), "run #2");
    }
}
