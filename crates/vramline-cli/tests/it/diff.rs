//! `vramline diff`: the text, the exit codes, hostile and missing files.

use serde_json::Value;

use crate::{assert_told, run, told};

const CNN: &str = "fixtures/tf221_cpu_cnn_from_start.xplane.pb";
const KERAS: &str = "fixtures/tf221_cpu_keras.vram";
const TORCH: &str = "fixtures/torch/late.pickle.gz";

fn code(args: &[&str]) -> i32 {
    run(args).status.code().unwrap()
}

#[test]
fn the_difference_comes_first() {
    assert_told("diff.txt", &["diff", CNN, KERAS, "--top", "3", "--fail-over", "2%"]);
    assert_told("diff_by_layer.txt", &["diff", CNN, KERAS, "--top", "3", "--by", "layer"]);
}

/// The gate first, then the peaks; what is long has to be unfolded. Exit codes stay.
#[test]
fn a_comment_begins_with_the_gate() {
    assert_told("diff.md", &["diff", CNN, KERAS, "--top", "3", "--fail-over", "2%", "--markdown"]);
    assert_eq!(code(&["diff", KERAS, TORCH, "--fail-over", "2%", "--markdown"]), 4);
    assert_eq!(code(&["diff", CNN, KERAS, "--markdown", "--json"]), 2);
    let text = told(&["diff", CNN, KERAS, "--markdown"]);
    assert!(text.starts_with("exit 0\n### GPU memory\n\n**"), "{text}");
}

/// A name in a file formats nothing, mentions nobody and ends no table.
#[test]
fn names_in_a_comment_are_text() {
    let scratch = tempfile::tempdir().unwrap();
    let hostile = scratch.path().join("a|b`c` @team #7 <img src=x> [d](e).pickle.gz");
    std::fs::copy(crate::root().join(TORCH), &hostile).unwrap();
    let hostile = hostile.to_str().unwrap();
    let text = told(&["diff", CNN, hostile, "--markdown"]);
    let named: Vec<&str> = text.lines().filter(|line| line.contains("team")).collect();
    assert!(!named.is_empty(), "{text}");
    for line in named {
        assert!(line.contains("a\\|b\\`c\\` @\u{200b}team \\#\u{200b}7 &lt;img"), "{line}");
    }
    let rows: Vec<&str> = text.lines().filter(|line| line.starts_with("| ")).collect();
    let cells = |row: &str| row.replace("\\|", "").matches('|').count();
    assert!(rows.len() == 4 && rows.iter().all(|row| cells(row) == cells(rows[0])), "{text}");
}

#[test]
fn exit_codes_of_the_gate() {
    assert_eq!(code(&["diff", KERAS, KERAS, "--fail-over", "0%"]), 0);
    assert_eq!(code(&["diff", CNN, KERAS]), 0);
    assert_eq!(code(&["diff", CNN, KERAS, "--fail-over", "2%"]), 3);
    assert_eq!(code(&["diff", CNN, KERAS, "--fail-over", "11MiB"]), 0);
    assert_eq!(code(&["diff", KERAS, CNN, "--fail-over", "0%"]), 0);
    assert_eq!(code(&["diff", CNN, CNN, KERAS, "--fail-over", "2%", "--json"]), 3);
    assert_eq!(code(&["diff", KERAS, TORCH, "--fail-over", "2%"]), 4);
    assert_eq!(code(&["diff", CNN]), 2);
    assert_eq!(code(&["diff"]), 2);
    assert_eq!(code(&["diff", CNN, KERAS, "--fail-over", "two"]), 2);
}

#[test]
fn repeats_stand_together() {
    let args = ["diff", "--repeats", CNN, CNN, KERAS, "--repeats", KERAS, CNN, "--json", "--fail-over", "2%"];
    let output = run(&args);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["sides"][0]["repeats"], 3);
    assert_eq!(document["sides"][1]["repeats"], 2);
    assert_eq!(document["gate"], "pass");
    // A run alone comes after the repeats that it is compared with.
    let output = run(&["diff", KERAS, "--json", "--repeats", CNN, CNN]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["runs"][1], "tf221_cpu_keras.vram");
    assert_eq!(document["rows"][0]["spread_bytes"], 0);
}

/// Where only the noise of repeats saves a run, the gate does not say that nothing grew; nor does the page.
#[test]
fn a_gate_that_noise_opens_says_so() {
    let of = |batch: u32| format!("fixtures/plan/torch2110_h200_small-{batch}.vram");
    let (two, four, eight) = (of(2), of(4), of(8));
    let args = ["diff", "--repeats", &two, &four, "--repeats", &eight, &four, "--fail-over", "2%", "--full"];
    let text = told(&args);
    assert!(text.starts_with("exit 0\n"), "{text}");
    assert!(text.contains("The gate passes: a peak grew by more than 2 %, but repeats of one run differ by as much:\n  - cuda:0, peak of torch2110_h200_small-8.vram and 1 more: "), "{text}");
    assert!(
        text.contains(" more than in the first run, but repeats of one run differ by 65.2 MiB\n"),
        "{text}"
    );
    assert!(!text.contains("no peak grew"), "{text}");
    // Of two repeats the lower one is not the median.
    let text = told(&["diff", "--repeats", &two, &two, "--repeats", &two, &eight, "--fail-over", "2%"]);
    assert!(
        !text.contains("use the same memory") && text.contains("a peak grew by more than 2 %, but"),
        "{text}"
    );
    let scratch = tempfile::tempdir().unwrap();
    let page = scratch.path().join("page.html");
    assert_eq!(code(&[&args[..], &["--html", page.to_str().unwrap()]].concat()), 0);
    let page = std::fs::read_to_string(page).unwrap();
    assert!(page.contains(
        "<p>The gate passes: a peak grew by more than 2 %, but repeats of one run differ by as much.</p>"
    ));
    assert!(page.contains("repeats of one run differ by 65.2 MiB</p>"));
}

/// A log of CI shows no page: the gate speaks beside it, and only where there is a gate.
#[test]
fn a_page_leaves_the_gate_in_the_log() {
    let scratch = tempfile::tempdir().unwrap();
    let page = scratch.path().join("page.html");
    let page = page.to_str().unwrap();
    let text = told(&["diff", CNN, KERAS, "--fail-over", "2%", "--html", page]);
    assert!(text.starts_with("exit 3\n"), "{text}");
    assert!(
        text.contains(
            "open it in a browser\nThe gate fails:\n  - bfc_cpu_allocator_for_gpu, peak of the process of "
        ),
        "{text}"
    );
    let text = told(&["diff", KERAS, TORCH, "--fail-over", "2%", "--html", page]);
    assert!(text.starts_with("exit 4\n") && text.contains("The gate cannot decide"), "{text}");
    let text = told(&["diff", CNN, KERAS, "--html", page]);
    assert!(text.ends_with("open it in a browser\n") && !text.contains("gate"), "{text}");
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let scratch = tempfile::tempdir().unwrap();
    let other = scratch.path().join("noise");
    std::fs::write(&other, [0x80, 0xff, 0x00, 0x12].repeat(1000)).unwrap();
    for path in [other.to_str().unwrap(), "no such file", "Cargo.toml"] {
        let told = told(&["diff", CNN, path, "--fail-over", "2%"]);
        assert!(told.starts_with("exit 1\n--- stderr\n"), "{told}");
        assert!(told.contains(&format!("cannot compare '{path}'")), "{told}");
    }
    // What is left of a trace that was cut is compared, with a note.
    let whole = std::fs::read(crate::root().join(CNN)).unwrap();
    let cut = scratch.path().join("cut.xplane.pb");
    std::fs::write(&cut, &whole[..whole.len() / 2]).unwrap();
    let told = told(&["diff", CNN, cut.to_str().unwrap()]);
    assert!(told.starts_with("exit 0\n"), "{told}");
    assert!(told.contains("cut.xplane.pb: "), "{told}");
}
