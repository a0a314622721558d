//! What the project is built from: no package needs a newer compiler than we promise, or has a licence that users could not accept.

use std::process::Command;

use serde_json::Value;

use crate::root;

/// Licences that ask for a notice and their text at most.
const ACCEPTED_LICENCES: [&str; 10] = [
    "0BSD",
    "Apache-2.0",
    "Apache-2.0 WITH LLVM-exception",
    "BSD-2-Clause",
    "BSD-3-Clause",
    "CC0-1.0",
    "ISC",
    "MIT",
    "Unicode-3.0",
    "Zlib",
];

/// The packages of the lock file that are compiled for Linux.
fn packages() -> Vec<Value> {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap());
    command.args([
        "metadata",
        "--format-version=1",
        "--locked",
        "--filter-platform=x86_64-unknown-linux-gnu",
    ]);
    let output = command.current_dir(root()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let mut metadata: Value = serde_json::from_slice(&output.stdout).unwrap();
    let compiled: Vec<String> = metadata["resolve"]["nodes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|node| node["id"].as_str().unwrap().to_owned())
        .collect();
    let Value::Array(mut packages) = metadata["packages"].take() else { panic!("no list of packages") };
    packages.retain(|package| compiled.iter().any(|id| package["id"] == **id));
    assert!(packages.len() > 50, "{} packages are too few to be all", packages.len());
    packages
}

fn version(text: &str) -> Vec<u64> {
    text.split('.').map(|part| part.parse().unwrap()).collect()
}

#[test]
fn none_needs_a_newer_compiler_than_we_promise() {
    let packages = packages();
    let ours = packages.iter().find(|package| package["name"] == "vramline").unwrap();
    let ours = version(ours["rust_version"].as_str().unwrap());
    for package in &packages {
        if let Some(theirs) = package["rust_version"].as_str() {
            let theirs = &version(theirs)[..2];
            assert!(theirs <= &ours[..2], "{} {} needs Rust {theirs:?}", package["name"], package["version"]);
        }
    }
}

#[test]
fn each_has_a_licence_that_users_can_accept() {
    for package in packages() {
        let licence = package["license"].as_str().unwrap_or_default();
        assert!(is_accepted(licence), "{} has the licence {licence:?}", package["name"]);
    }
}

/// Whether one of the alternatives of an SPDX expression is accepted in all its parts. Older packages write `/` for `OR`.
fn is_accepted(expression: &str) -> bool {
    let expression = expression.replace('/', " OR ").replace('(', " ( ").replace(')', " ) ");
    let mut words = expression.split_whitespace().peekable();
    let accepted = alternatives(&mut words);
    accepted && words.next().is_none()
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn alternatives(words: &mut Words<'_>) -> bool {
    let mut accepted = parts(words);
    while words.next_if_eq(&"OR").is_some() {
        accepted |= parts(words);
    }
    accepted
}

fn parts(words: &mut Words<'_>) -> bool {
    let mut accepted = part(words);
    while words.next_if_eq(&"AND").is_some() {
        accepted &= part(words);
    }
    accepted
}

fn part(words: &mut Words<'_>) -> bool {
    if words.next_if_eq(&"(").is_some() {
        return alternatives(words) & words.next_if_eq(&")").is_some();
    }
    let Some(mut licence) = words.next().map(str::to_owned) else { return false };
    if words.next_if_eq(&"WITH").is_some() {
        licence = format!("{licence} WITH {}", words.next().unwrap_or_default());
    }
    ACCEPTED_LICENCES.contains(&licence.as_str())
}

#[test]
fn expressions_of_licences_are_understood() {
    for accepted in ["MIT", "GPL-3.0 OR MIT", "MIT/GPL-3.0", "(GPL-3.0 OR MIT) AND Unicode-3.0"] {
        assert!(is_accepted(accepted), "{accepted}");
    }
    for refused in
        ["", "GPL-3.0", "MIT AND GPL-3.0", "(MIT", "MIT)", "Apache-2.0 WITH Classpath-exception-2.0"]
    {
        assert!(!is_accepted(refused), "{refused}");
    }
}
