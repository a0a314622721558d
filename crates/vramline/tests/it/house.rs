//! Who imports whom: folders are stages of the data flow, and imports only point back.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use crate::root;

/// The stages, in the order in which data passes through them.
const STAGES: [&str; 27] = [
    "units",
    "names",
    "stack",
    "document",
    "words",
    "opaque",
    "warning",
    "pages",
    "worker",
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
    "analysis",
    "view",
    "surface",
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
                let other = STAGES.iter().position(|&known| known == name);
                assert!(other.is_some_and(|other| other <= rank), "{file} imports crate::{name}");
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

/// Whoever meets a module that only the feature `internals` shows, reads first that nothing of it is promised.
#[test]
fn internal_modules_say_so() {
    let src = root().join("crates/vramline/src");
    let lib = fs::read_to_string(src.join("lib.rs")).unwrap();
    let stages = lib.split_once("mod stages {").unwrap().1.split_once("\n}\n").unwrap().0;
    let public: Vec<&str> =
        stages.lines().filter_map(|line| line.trim().strip_prefix("pub mod ")?.strip_suffix(';')).collect();
    assert!(public.len() > 20, "{public:?}");
    for stage in public {
        let file = [format!("{stage}.rs"), format!("{stage}/mod.rs")].map(|name| src.join(name));
        let text = file.iter().find_map(|file| fs::read_to_string(file).ok()).unwrap();
        assert!(text.starts_with("//! *Internal.* "), "the head of {stage} does not say that it is internal");
    }
}

/// Our crates need each other in exactly this version, which so stands in the manifest more than once.
#[test]
fn versions_of_our_crates_agree() {
    let manifest = fs::read_to_string(root().join("Cargo.toml")).unwrap();
    let version =
        manifest.lines().find_map(|line| line.strip_prefix("version = ")).unwrap().trim_matches('"');
    let ours: Vec<&str> = manifest.lines().filter(|line| line.contains("path = \"crates/")).collect();
    assert_eq!(ours.len(), 2, "{ours:?}");
    for line in ours {
        assert!(line.contains(&format!("version = \"={version}\"")), "{line}");
    }
}

/// Documents are plain data: no file of `view/` starts a replay, reads a file, chooses among pools or makes a verdict.
#[test]
fn views_decide_nothing() {
    const DECISIONS: [&str; 12] = [
        "max_by",
        "min_by",
        "sort",
        "partition",
        "replay::run",
        "replay::replay",
        "remedies(",
        "conclude(",
        "advise::findings",
        "recording::reader",
        "highest_pool",
        "Plan::new",
    ];
    for (file, text) in sources(&root().join("crates/vramline/src/view")) {
        let code: String = text.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
        for decision in DECISIONS {
            assert!(!code.contains(decision), "{file} has {decision}: that is for analysis/");
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
        let is_ours = name.starts_with("vramline");
        let has_reason =
            map.lines().any(|line| line.starts_with("| `") && line.contains(&format!("`{name}`")));
        assert!(is_ours || has_reason, "ARCHITECTURE.md gives no reason for {name}");
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

/// What reads files compiles for other systems: calls of one system are in items for that system. What only the features for recordings and
/// the driver have is left to them: they need Linux.
#[test]
fn calls_of_the_system_are_behind_a_cfg() {
    let src = root().join("crates/vramline/src");
    let mut seen = 0;
    for (file, text) in sources(&src) {
        let path = Path::new(&file).strip_prefix(&src).unwrap();
        if path.ancestors().any(|module| is_declared_for_a_feature(&src, module)) {
            continue;
        }
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap();
        // An item ends where its brace at the margin does.
        for item in code.split("\n}\n") {
            let lines: Vec<&str> = item.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
            let is_call = |line: &&&str| {
                line.contains("libc::") || line.contains("std::os::") || line.contains("rustix::")
            };
            for call in lines.iter().filter(is_call) {
                seen += 1;
                let of_system =
                    ["#[cfg(target_os", "#[cfg(unix)]", "#[cfg(windows)]", "#[cfg(feature = \"recording\")]"];
                let is_behind = lines.iter().any(|line| of_system.iter().any(|cfg| line.starts_with(cfg)));
                assert!(is_behind, "{file}: {call}");
            }
        }
    }
    assert!(seen > 8, "{seen}");
}

/// Whether the declaration of a module begins with a feature that it is for, or is for tests.
fn is_declared_for_a_feature(src: &Path, module: &Path) -> bool {
    let Some(name) = module.file_stem().and_then(|name| name.to_str()) else { return false };
    let folder = src.join(module.parent().unwrap());
    let above = if folder == *src { folder.join("lib.rs") } else { folder.join("mod.rs") };
    let text = fs::read_to_string(above).unwrap_or_default();
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let declaration = format!("mod {name};");
    let at = lines.iter().position(|line| line.ends_with(&declaration));
    at.is_some_and(|at| {
        at > 0 && (lines[at - 1].starts_with("#[cfg(feature = ") || lines[at - 1] == "#[cfg(test)]")
    })
}

fn sources(path: &Path) -> Vec<(String, String)> {
    if path.is_dir() {
        return fs::read_dir(path).unwrap().flat_map(|entry| sources(&entry.unwrap().path())).collect();
    }
    vec![(path.display().to_string(), fs::read_to_string(path).unwrap())]
}

/// The modules of a program around the core: where they are, and the stages that data passes through, in order. Modules of one stage may
/// import each other, but not in a circle.
struct Program {
    folder: &'static str,
    endings: &'static [&'static str],
    stages: &'static [&'static [&'static str]],
    /// What a module imports of the program, by its own name and its text.
    imports: fn(&str, &str, &BTreeSet<&str>) -> Vec<String>,
}

const BINARY: Program = Program {
    folder: "crates/vramline-cli/src",
    endings: &["rs"],
    stages: &[
        &["variables", "exit", "bug", "output", "progress", "input"],
        &["launch"],
        &["lookout"],
        &["metrics"],
        &["printer", "page", "answer", "tui", "serve", "export"],
        &["commands"],
        &["main"],
    ],
    imports: imports_of_rust,
};

const PACKAGE: Program = Program {
    folder: "python/vramline",
    endings: &["py", "pyi"],
    stages: &[
        &["_vramline", "words", "shown", "command"],
        &["frameworks"],
        &["recording"],
        &["attach"],
        &["reading"],
        &["callbacks"],
        &["planning"],
        &["notebooks"],
        &["keras", "huggingface", "lightning", "fleet", "spark", "tracking", "testing"],
        &["__init__"],
        // Scripts that others start.
        &["_boot", "_demo", "_probe"],
    ],
    imports: imports_of_python,
};

const PAGE: Program = Program {
    folder: "web/src",
    endings: &["ts"],
    stages: &[
        &["documents"],
        &["data"],
        &["clock", "chart", "dom", "remember", "print", "words"],
        &["timeline", "map", "table", "ledger", "answer", "sections", "ranks"],
        &["report", "diff", "server"],
        &["main"],
    ],
    imports: imports_of_typescript,
};

#[test]
fn imports_of_the_binary_point_back() {
    BINARY.check();
}

#[test]
fn imports_of_the_package_point_back() {
    PACKAGE.check();
}

#[test]
fn imports_of_the_page_point_back() {
    PAGE.check();
}

impl Program {
    fn check(&self) {
        let modules = self.modules();
        let known: BTreeSet<&str> = modules.keys().map(String::as_str).collect();
        let mut left: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
        for (name, text) in &modules {
            let place = self.place(name);
            let mut imported = BTreeSet::from_iter((self.imports)(name, text, &known));
            imported.remove(name);
            for other in &imported {
                assert!(
                    self.place(other) <= place,
                    "{}: {name} imports {other}, which comes after it",
                    self.folder
                );
            }
            left.insert(name, imported);
        }
        // Modules that import nothing that is left can be taken away; what never can is a circle.
        while let Some(free) = left
            .iter()
            .find(|(_, imported)| !imported.iter().any(|other| left.contains_key(other.as_str())))
            .map(|(&name, _)| name)
        {
            left.remove(free);
        }
        assert!(left.is_empty(), "{}: imports go in a circle: {left:?}", self.folder);
        self.check_map(&known);
    }

    /// Every stage is there, and has its line in ARCHITECTURE.md.
    fn check_map(&self, known: &BTreeSet<&str>) {
        let map = fs::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
        let row = format!("| `{}", self.folder.trim_end_matches("src"));
        let rows: Vec<&str> =
            map.lines().filter(|line| line.starts_with(row.trim_end_matches('/'))).collect();
        for &stage in self.stages.iter().copied().flatten() {
            let is_there = known.iter().any(|name| name.split('/').next() == Some(stage));
            assert!(is_there, "{} has no {stage}", self.folder);
            let forms = ["`{}`", "`{}/`", "`{}.rs`", "/{}`"].map(|form| form.replace("{}", stage));
            let is_told = |row: &&str| forms.iter().any(|form| row.contains(form));
            let is_root = ["main", "__init__"].contains(&stage);
            assert!(
                is_root || rows.iter().any(is_told),
                "ARCHITECTURE.md does not name {stage} of {}",
                self.folder
            );
        }
    }

    /// Each module with its text; its name is its path, that of a folder for the file which stands for it.
    fn modules(&self) -> BTreeMap<String, String> {
        let folder = root().join(self.folder);
        let mut modules = BTreeMap::new();
        for path in files(&folder, self.endings) {
            let name = path.strip_prefix(&folder).unwrap().with_extension("");
            let is_folder =
                name.ends_with("mod") || (name.ends_with("__init__") && name.components().count() > 1);
            let name = if is_folder { name.parent().unwrap() } else { &name };
            modules.insert(name.to_str().unwrap().to_owned(), fs::read_to_string(&path).unwrap());
        }
        modules
    }

    fn place(&self, module: &str) -> usize {
        let first = module.split('/').next().unwrap();
        let place = self.stages.iter().position(|stage| stage.contains(&first));
        place.unwrap_or_else(|| panic!("{}: {module} has no place in the list of stages", self.folder))
    }
}

/// The module that a path begins with, `otherwise` where it names something at the root.
fn module_of(path: &str, known: &BTreeSet<&str>, otherwise: &str) -> String {
    let mut path = path;
    while !known.contains(path) {
        match path.rsplit_once('/') {
            Some((above, _)) => path = above,
            None => return otherwise.to_owned(),
        }
    }
    path.to_owned()
}

/// `crate::` and `super::` anywhere but in tests. What a module takes from its own parts is no import.
fn imports_of_rust(own: &str, text: &str, known: &BTreeSet<&str>) -> Vec<String> {
    let code = text.split("#[cfg(test)]").next().unwrap();
    let lines: Vec<&str> = code.lines().filter(|line| !line.trim_start().starts_with("//")).collect();
    let code = lines.join("\n");
    let above = own.rsplit_once('/').map_or(String::new(), |(above, _)| format!("{above}/"));
    let from = |keyword: &str, above: &str| -> Vec<String> {
        let paths = code.split(keyword).skip(1).flat_map(paths_of_rust);
        paths.map(|path| module_of(&format!("{above}{path}"), known, "main")).collect()
    };
    [from("crate::", ""), from("super::", &above)].concat()
}

/// The paths that begin here: `a/b` and `a/c/d` of `a::{b, c::d}`.
fn paths_of_rust(text: &str) -> Vec<String> {
    let text = text.trim_start();
    if let Some(several) = text.strip_prefix('{') {
        let (mut depth, mut parts) = (0, vec![String::new()]);
        for letter in several.chars() {
            match letter {
                '{' => depth += 1,
                '}' if depth == 0 => break,
                '}' => depth -= 1,
                ',' if depth == 0 => {
                    parts.push(String::new());
                    continue;
                }
                _ => {}
            }
            parts.last_mut().unwrap().push(letter);
        }
        return parts.iter().flat_map(|part| paths_of_rust(part)).collect();
    }
    let name: String = text.chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
    let inner = text[name.len()..].strip_prefix("::").map_or(Vec::new(), paths_of_rust);
    match inner.as_slice() {
        [] if name.is_empty() => Vec::new(),
        [] => vec![name],
        inner => inner.iter().map(|path| format!("{name}/{path}")).collect(),
    }
}

/// Imports at the top, inside functions, for type checkers, and by a name in quotes. They are absolute.
fn imports_of_python(own: &str, text: &str, known: &BTreeSet<&str>) -> Vec<String> {
    let module = |path: &str| module_of(&path.replace('.', "/"), known, "__init__");
    // Every second part is a docstring.
    let code: Vec<&str> = text.split("\"\"\"").step_by(2).collect();
    let code = code.join("\n");
    let mut lines = code.lines().map(|line| line.split('#').next().unwrap().trim());
    let mut found = Vec::new();
    while let Some(line) = lines.next() {
        assert!(!line.starts_with("from ."), "{own} imports by a relative name");
        if let Some((place, names)) =
            line.strip_prefix("from vramline").and_then(|rest| rest.split_once(" import "))
        {
            let mut names = names.to_owned();
            while names.contains('(') && !names.contains(')') {
                names += lines.next().unwrap();
            }
            for name in
                names.trim_matches(['(', ')']).split(',').map(str::trim).filter(|name| !name.is_empty())
            {
                let name = name.split(' ').next().unwrap();
                found.push(module(format!("{place}.{name}").trim_start_matches('.')));
            }
        }
        for name in line.strip_prefix("import ").into_iter().flat_map(|names| names.split(',')) {
            match name.trim().split(' ').next().unwrap() {
                "vramline" => found.push("__init__".to_owned()),
                name => found.extend(name.strip_prefix("vramline.").map(module)),
            }
        }
        for named in line.split("\"vramline.").skip(1) {
            let name = named.split('"').next().unwrap();
            if name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '.') {
                found.push(module(name));
            }
        }
    }
    found
}

fn imports_of_typescript(_: &str, text: &str, _: &BTreeSet<&str>) -> Vec<String> {
    let named = text.split("\"./").skip(1).map(|rest| rest.split('"').next().unwrap());
    named.map(|name| name.trim_end_matches(".js").to_owned()).collect()
}

/// The binary names each environment variable in one place.
#[test]
fn variables_of_the_environment_have_one_place() {
    let looks_like_one = |text: &str| {
        text.contains('_')
            && text.starts_with(|c: char| c.is_ascii_uppercase())
            && text.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')
            // Known when it is compiled, and no variable of a user's.
            && !text.starts_with("CARGO_")
    };
    for path in files(&root().join("crates/vramline-cli/src"), &["rs"]) {
        if path.ends_with("variables.rs") {
            continue;
        }
        let file = path.display();
        let text = fs::read_to_string(&path).unwrap();
        let code = text.split("#[cfg(test)]").next().unwrap();
        for call in ["env::var(\"", "env::var_os(\"", ".env(\"", ".env_remove(\""] {
            assert!(!code.contains(call), "{file} has {call}: variables.rs is the place for its name");
        }
        for part in code.split('"') {
            assert!(!looks_like_one(part), "{file} names {part}: variables.rs is the place for it");
        }
    }
}

const MAX_LINES_PER_FILE: usize = 700;

/// No file is too long to be read at once, but for tests and the simulators (an allocator is one piece).
#[test]
fn files_are_short() {
    let mut long = BTreeSet::new();
    for folder in ["crates", "python", "web/src", "benches", "examples", "fuzz/fuzz_targets"] {
        for path in files(&root().join(folder), &["rs", "py", "pyi", "ts", "css"]) {
            let file = path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned();
            let excepted = ["/tests/", "/tests.rs", "/src/allocator/"];
            let is_excepted = excepted.iter().any(|part| file.contains(part));
            if !is_excepted && fs::read_to_string(&path).unwrap().lines().count() > MAX_LINES_PER_FILE {
                long.insert(file);
            }
        }
    }
    assert!(long.is_empty(), "more than {MAX_LINES_PER_FILE} lines: {long:?}");
}

/// The files of a folder with these endings.
fn files(folder: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, endings));
        } else if path.extension().is_some_and(|ending| endings.iter().any(|known| ending == *known)) {
            found.push(path);
        }
    }
    found
}
