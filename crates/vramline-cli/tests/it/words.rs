//! The words that people read: no phrase that must be translated first, nothing wider than a screen, and every answer on one screen.

use std::path::PathBuf;

use super::{root, run, told};

/// Phrases that readers stumbled over, in lower case.
const BANNED: &[&str] = &[
    "so often",
    "so many",
    "how manieth",
    "what stands there",
    "as it comes",
    "whatever it is called",
    "would do",
    "in one piece",
    "in pieces",
    " is told",
    "not told",
    "is not told",
    "tells of",
    "asked for",
    "held open",
    "holds open",
    "must meet",
    "to be had",
    "not in these figures",
    "goes on from there",
    "no more than that",
    "what is left of these",
    "beside this",
    "beside the pool",
    "beside its pool",
    "neighbour",
    "chunks larger than",
    "cached free",
    "largest hole",
    " holes",
    "nobody told",
    "nothing tells",
    "no stack told",
    "come again",
    "comes on top",
    "come on top",
    "at that moment",
    "this pool",
    "held for long",
    "ask for",
    "is none of",
    "nobody",
    "is not known",
    "to be had",
    "least limit",
    "missed by",
    "of this has no name",
    "x (no name)",
    "0 b less",
    "replay path",
    "probably fits",
    "passes in most",
    "what would need",
];

/// Nouns that follow a number in outputs: after 1, their plural is wrong.
const COUNTED: [&str; 16] = [
    "allocations",
    "blocks",
    "devices",
    "epochs",
    "events",
    "failures",
    "files",
    "jobs",
    "ops",
    "processes",
    "regions",
    "requests",
    "rows",
    "segments",
    "steps",
    "variables",
];

/// Lines and columns of a first screen.
const LINES: usize = 32;
const COLUMNS: usize = 100;

/// What is wrong with the words of a text.
fn stumbles(text: &str) -> Vec<String> {
    let lower = text.to_lowercase();
    let found = BANNED.iter().filter(|phrase| lower.contains(**phrase));
    let mut stumbles: Vec<String> = found
        .map(|phrase| {
            let line = lower.lines().find(|line| line.contains(phrase)).unwrap_or_default();
            format!("'{phrase}' in: {}", line.trim())
        })
        .collect();
    for line in lower.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_wrong = |pair: &&[&str]| {
            pair.first() == Some(&"1")
                && pair
                    .last()
                    .is_some_and(|noun| COUNTED.contains(&noun.trim_matches(|c: char| !c.is_alphabetic())))
        };
        // A table has numbers in other columns; words of a sentence have one space between them.
        let wrong = words.windows(2).find(is_wrong).map(|pair| pair.join(" "));
        stumbles.extend(wrong.filter(|wrong| line.contains(wrong.as_str())));
    }
    stumbles
}

fn too_wide(text: &str) -> Vec<String> {
    text.lines().filter(|line| line.chars().count() > COLUMNS).map(str::to_owned).collect()
}

/// Standard output of a command; its exit code is for other tests.
fn shown(args: &[&str]) -> String {
    String::from_utf8(run(args).stdout).expect("text")
}

fn assert_first_screen(args: &[&str]) {
    let text = shown(args);
    assert!(!text.is_empty(), "{args:?} prints nothing");
    assert!(text.lines().count() <= LINES, "{args:?} has {} lines:\n{text}", text.lines().count());
    assert_eq!(too_wide(&text), Vec::<String>::new(), "{args:?} is wider than {COLUMNS} columns");
    // Names of files are not ours to choose.
    let paths = args.iter().filter(|arg| arg.contains('/'));
    let words = paths.fold(text.clone(), |words, path| words.replace(path, ""));
    assert_eq!(stumbles(&words), Vec::<String>::new(), "{args:?}:\n{text}");
}

/// Files of ours in a folder, as commands name them.
fn fixtures(folder: &str, is_it: impl Fn(&str) -> bool) -> Vec<String> {
    let entries = std::fs::read_dir(root().join(folder)).expect("fixtures");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .filter(|name| is_it(name))
        .map(|name| format!("{folder}/{name}"))
        .collect();
    names.sort();
    names
}

#[test]
fn every_report_is_one_screen() {
    let is_it = |name: &str| {
        [".vram", ".xplane.pb", ".prof", ".pickle.gz", ".hlo.pb"].iter().any(|end| name.ends_with(end))
    };
    let all = [fixtures("fixtures", is_it), fixtures("fixtures/torch", is_it)].concat();
    assert!(all.len() > 20, "{all:?}");
    for path in &all {
        assert_first_screen(&["report", path]);
    }
    assert_first_screen(&["report", "fixtures/tf221_cpu_keras.vram", "--by", "layer"]);
}

#[test]
fn every_post_mortem_is_one_screen() {
    let logs = fixtures("fixtures", |name| {
        name.contains("oom") && (name.ends_with(".log") || name.ends_with(".memorydump.pb"))
    });
    assert!(logs.len() > 8, "{logs:?}");
    for path in &logs {
        assert_first_screen(&["oom", path]);
    }
    assert_first_screen(&["oom", "fixtures/torch/out_of_memory.pickle.gz"]);
}

#[test]
fn every_other_answer_is_one_screen() {
    let keras = "fixtures/tf221_cpu_keras.vram";
    assert_first_screen(&["replay", keras, "--what-if", "growth=off", "--find", "limit"]);
    assert_first_screen(&["replay", "fixtures/torch2110_h200_resnet50_b64.snapshot.pickle.gz"]);
    assert_first_screen(&["diff", keras, "fixtures/tf215_cpu_keras2.vram"]);
    assert_first_screen(&["diff", keras, "fixtures/tf215_cpu_keras2.vram", "--by", "layer"]);
    assert_first_screen(&["pack", keras, "fixtures/jax0112_h200_loop.vram", "--device-memory", "16GiB"]);
    assert_first_screen(&["doctor"]);
    let probe = |batch: u32| format!("{batch}=fixtures/plan/tf221_cpu_autoencoder-{batch}.xplane.pb.gz");
    let probes = [probe(5), probe(7), probe(13)];
    let mut plan: Vec<&str> = vec!["plan"];
    plan.extend(probes.iter().flat_map(|probe| ["--probe", probe.as_str()]));
    for more in
        [vec!["--batch", "64", "--limit", "64MiB"], vec!["--limit", "256MiB"], vec!["--batch", "20,30,40"]]
    {
        assert_first_screen(&[plan.clone(), more].concat());
    }
}

#[test]
fn every_help_page_is_plain() {
    let verbs = shown(&["--help"]);
    let mut pages = vec![vec!["--help".to_owned()]];
    let listed = verbs.lines().skip_while(|line| !line.starts_with("Commands:")).skip(1);
    for line in listed.take_while(|line| line.starts_with("  ")) {
        let verb = line.split_whitespace().next().unwrap_or_default();
        if verb != "help" && line.starts_with("  ") && !line.starts_with("    ") {
            pages.push(vec![verb.to_owned(), "--help".to_owned()]);
        }
    }
    assert!(pages.len() > 12, "{pages:?}");
    for page in &pages {
        let args: Vec<&str> = page.iter().map(String::as_str).collect();
        let text = shown(&args);
        assert_eq!(too_wide(&text), Vec::<String>::new(), "{args:?}");
        assert_eq!(stumbles(&text), Vec::<String>::new(), "{args:?}");
    }
}

/// Prose and outputs of the documentation, without what is quoted to explain it: code, tables of old words, and file names.
#[test]
fn every_page_of_the_documentation_is_plain() {
    let of_root = [
        "README",
        "ARCHITECTURE",
        "CHANGELOG",
        "CONTRIBUTING",
        "RELEASING",
        "examples/README",
        "fixtures/README",
    ];
    let mut pages: Vec<PathBuf> = of_root.iter().map(|name| root().join(format!("{name}.md"))).collect();
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "md") {
                pages.push(path);
            }
        }
    }
    assert!(pages.len() > 30, "{pages:?}");
    for page in &pages {
        let text = std::fs::read_to_string(page).expect("text");
        assert_eq!(stumbles(&without_code(&text)), Vec::<String>::new(), "{}", page.display());
    }
}

/// A page without the text between backticks, which names of files and fields are written in.
fn without_code(page: &str) -> String {
    let mut text = String::new();
    let mut is_output = false;
    for line in page.lines() {
        if line.starts_with("```") {
            is_output = !is_output && line.starts_with("```console");
            continue;
        }
        let outside: Vec<&str> = line.split('`').step_by(2).collect();
        // Outputs contain paths of fixtures, whose names are not sentences.
        let kept = if is_output { line.replace("oom_neighbour", "") } else { outside.join(" ") };
        text.push_str(&kept);
        text.push('\n');
    }
    text
}

#[test]
fn every_expected_output_is_plain() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/expected");
    for entry in std::fs::read_dir(folder).expect("expected outputs") {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("text");
        assert_eq!(stumbles(&text), Vec::<String>::new(), "{}", path.display());
    }
}

#[test]
fn full_has_more_than_the_first_screen() {
    let path = "fixtures/tf221_cpu_keras.vram";
    let full = shown(&["report", path, "--full"]);
    assert!(full.lines().count() > LINES && full.contains("The ledger of CPU:0"), "{full}");
    let full = shown(&["oom", "fixtures/tf221_cpu_oom.log", "--full"]);
    assert!(full.contains("Arithmetic"), "{full}");
}

#[test]
fn colour_is_for_terminals_or_on_request() {
    let path = "fixtures/tf221_cpu_keras.vram";
    assert!(!told(&["report", path]).contains('\x1b'));
    assert!(told(&["report", path, "--color", "always"]).contains("\x1b[1m"));
    assert!(told(&["report", path, "--color", "always"]).contains('█'));
    assert!(!told(&["--color", "never", "report", path]).contains('\x1b'));
}
