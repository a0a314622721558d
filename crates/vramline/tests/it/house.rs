//! Who imports whom: folders are stages of the data flow, and imports only point back.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::root;

/// The stages, in the order in which data passes through them.
const STAGES: [&str; 21] = [
    "units",
    "names",
    "stack",
    "warning",
    "pages",
    "dtype",
    "executable",
    "event",
    "snapshot",
    "failure",
    "source",
    "recording",
    "trace",
    "allocator",
    "replay",
    "plan",
    "ledger",
    "postmortem",
    "timeline",
    "advise",
    "view",
];

#[test]
fn imports_point_back() {
    let src = root().join("crates/vramline/src");
    let mut seen = BTreeSet::new();
    for entry in fs::read_dir(&src).unwrap() {
        let path = entry.unwrap().path();
        let stage = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if stage == "lib" {
            continue;
        }
        let rank =
            STAGES.iter().position(|&known| known == stage).expect("a stage that ARCHITECTURE.md knows");
        seen.insert(stage);
        for (file, text) in sources(&path) {
            let code: String = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
            for imported in code.split("crate::").skip(1) {
                let name: String =
                    imported.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
                // `Reading`, at the root, holds finished traces; only views may take it.
                let allowed = match STAGES.iter().position(|&known| known == name) {
                    Some(other) => other <= rank,
                    None => ["Reading", "Host", "OutOfMemory"].contains(&&*name) && STAGES[rank] == "view",
                };
                assert!(allowed, "{file} imports crate::{name}");
            }
        }
    }
    assert_eq!(seen.len(), STAGES.len());
}

/// The core leaves printing, arguments and threads of its own to others, and files to `source/` and `recording/`.
#[test]
fn the_core_keeps_to_itself() {
    for (file, text) in sources(&root().join("crates/vramline/src")) {
        let code = text.split("#[cfg(test)]").next().unwrap();
        for forbidden in ["println!", "eprintln!", "dbg!", "std::env", "clap", "process::exit"] {
            assert!(!code.contains(forbidden), "{file} has {forbidden}");
        }
        if !file.contains("source") && !file.contains("recording") {
            assert!(!code.contains("std::fs") && !code.contains("File"), "{file} touches files");
        }
        if !file.ends_with("pages.rs") && !file.ends_with("room.rs") {
            assert!(!code.contains("unsafe"), "{file} has unsafe code");
        }
    }
}

/// Every folder and file of the house has its line in ARCHITECTURE.md, and every dependency its reason.
#[test]
fn the_map_is_complete() {
    let map = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    for stage in STAGES {
        assert!(map.contains(&format!("`{stage}")), "ARCHITECTURE.md does not name {stage}");
    }
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let (_, dependencies) = manifest.split_once("[workspace.dependencies]").unwrap();
    let (dependencies, _) = dependencies.split_once("\n[").unwrap();
    for line in dependencies.lines().filter(|line| line.contains(" = ")) {
        let name = line.split(" = ").next().unwrap();
        assert!(
            name == "vramline" || map.contains(&format!("| `{name}`")),
            "ARCHITECTURE.md gives no reason for {name}"
        );
    }
}

/// The head of each test binary says what every one of its modules shows.
#[test]
fn the_map_of_tests_is_complete() {
    for tests in ["crates/vramline/tests/it", "crates/vramline-cli/tests/it"] {
        let main = fs::read_to_string(root().join(tests).join("main.rs")).unwrap();
        let head: String = main.lines().take_while(|line| line.starts_with("//!")).collect();
        let modules: Vec<&str> =
            main.lines().filter_map(|line| line.strip_prefix("mod ")?.strip_suffix(';')).collect();
        assert!(!modules.is_empty());
        for module in &modules {
            assert!(
                head.contains(&format!("- `{module}`: ")),
                "the head of {tests} does not say what {module} shows"
            );
        }
        let listed = head.matches("//! - `").count();
        assert_eq!(listed, modules.len(), "the head of {tests} names a module that is not there");
    }
}

fn sources(path: &Path) -> Vec<(String, String)> {
    if path.is_dir() {
        return fs::read_dir(path).unwrap().flat_map(|entry| sources(&entry.unwrap().path())).collect();
    }
    vec![(path.display().to_string(), fs::read_to_string(path).unwrap())]
}
