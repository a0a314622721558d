//! The examples, run on fixtures: the same cargo command has built them, beside this binary.

use std::path::Path;
use std::process::Command;

use crate::fixture;

/// What an example prints.
fn run(example: &str, arguments: &[&str]) -> String {
    let deps = std::env::current_exe().unwrap();
    let binary = deps.parent().and_then(Path::parent).unwrap().join("examples").join(example);
    assert!(binary.is_file(), "{} is not there: `cargo test` without a target builds it", binary.display());
    let output = Command::new(binary).args(arguments).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{example} {arguments:?}: {said}");
    assert!(said.is_empty(), "{example}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

fn path(name: &str) -> String {
    fixture(name).to_str().unwrap().to_owned()
}

const CNN: &str = "tf221_cpu_cnn_from_start.xplane.pb";

#[test]
fn peak_is_to_the_byte() {
    let text = run("peak", &[&path(CNN)]);
    assert!(text.contains("bfc_cpu_allocator_for_gpu: 72718080 bytes in use at its peak"), "{text}");
    assert!(text.contains("activations"), "{text}");
    assert!(text.contains("largest: 12.2 MiB by"), "{text}");
}

#[test]
fn allocations_are_all_there() {
    let text = run("allocations", &[&path(CNN)]);
    assert!(text.contains("bfc_cpu_allocator_for_gpu: 5060 allocations in 20 steps"), "{text}");
    assert!(text.contains("  max_pooling2d_1\n"), "{text}");
    let torch = run("allocations", &[&path("torch2110_h200_resnet50_b64.snapshot.pickle.gz")]);
    assert!(torch.contains("cuda:0: 3177 allocations in 3 steps"), "{torch}");
}

#[test]
fn what_if_answers_each_setting() {
    let text = run("what_if", &[&path(CNN), "limit=50MiB", "growth=off,limit=128MiB"]);
    assert!(
        text.starts_with("Exact replay of bfc_cpu_allocator_for_gpu: 5,060 of 5,060 allocations"),
        "{text}"
    );
    assert!(text.contains("limit=50MiB: does not fit"), "{text}");
    assert!(text.contains("growth=off,limit=128MiB: fits, takes 134217728 bytes"), "{text}");
    assert!(text.contains("(smallest that fits): fits"), "{text}");
}

#[test]
fn post_mortem_finds_what_is_missing() {
    let text = run("post_mortem", &[&path("tf221_cpu_oom.log")]);
    assert!(
        text.starts_with(
            "Out of memory (rounding): an allocation of 19.1 MiB in bfc_cpu_allocator_for_gpu failed"
        ),
        "{text}"
    );
    assert!(text.contains("short by 17903104 bytes"), "{text}");
    let three = run("post_mortem", &[&path("jax0112_h200_oom_three_failures.log")]);
    assert_eq!(three.matches("\nfailure ").count(), 3, "{three}");
}

/// An unrecorded run at batch 64 had this peak: `fixtures/plan/truths.jsonl`.
#[test]
fn plan_predicts_what_a_run_took() {
    let probes =
        [2, 4, 8].map(|batch| format!("{batch}={}", path(&format!("plan/gpt-adamw-{batch}.pickle.gz"))));
    let [one, two, three] = &probes;
    let text = run("plan", &["64", "16GiB", one, two, three]);
    assert!(text.starts_with("Batch size 64 fits in 16.0 GiB"), "{text}");
    assert!(text.contains("batch 64: 11945836544 bytes in use at the peak"), "{text}");
    assert!(text.contains("largest batch within 16.0 GiB: 32"), "{text}");
}
