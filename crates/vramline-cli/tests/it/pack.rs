//! `vramline pack`: exit codes, names and batches, hostile files.

use serde_json::Value;

use crate::run;

const TORCH: &str = "fixtures/torch2110_h200_near_full.vram";
const JAX: &str = "fixtures/jax0112_h200_preallocated_pool.vram";
const EXACT: &str = "fixtures/tf221_cpu_cnn_from_start.xplane.pb";

fn code(args: &[&str]) -> i32 {
    run(args).status.code().unwrap()
}

#[test]
fn exit_codes() {
    assert_eq!(code(&["pack", EXACT, "--device-memory", "1GiB", "--context", "100MiB"]), 0);
    assert_eq!(code(&["pack", TORCH, JAX, "--device-memory", "100GiB"]), 3);
    assert_eq!(code(&["pack", JAX, "--device-memory", "100GiB"]), 4);
    assert_eq!(code(&["pack"]), 2);
    assert_eq!(code(&["pack", EXACT, "--device-memory", "much"]), 2);
    assert_eq!(code(&["pack", "nothing.vram", "--device-memory", "1GiB"]), 1);
}

#[test]
fn jobs_have_names_and_plans_batches() {
    let folder = tempfile::tempdir().unwrap();
    let plan = folder.path().join("plan.json");
    let text = r#"{"kind":"plan","headline":"","framework":"tensorflow","certain":true,"limit_bytes":null,"warnings":[],
        "largest_batch":{"sure":null,"likely":null},"predictions":[
        {"batch":8,"peak_bytes":9,"low_bytes":9,"high_bytes":9,"minimum_bytes":1048576},
        {"batch":16,"peak_bytes":9,"low_bytes":9,"high_bytes":9,"minimum_bytes":2097152}]}"#;
    std::fs::write(&plan, text).unwrap();
    let job = format!("small={}@16", plan.display());
    let args =
        ["pack", &job, EXACT, "--device-memory", "1GiB", "--context", "10MiB", "--headroom", "0", "--json"];
    let output = run(&args);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["jobs"][0]["name"], "small");
    assert_eq!(document["jobs"][0]["batch"], 16);
    assert_eq!(document["jobs"][0]["limit_bytes"], 2_097_152);
    assert_eq!(document["jobs"][1]["name"], "tf221_cpu_cnn_from_start.xplane");
    let shown = run(&args[..args.len() - 1]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.starts_with("2 jobs fit in 1.00 GiB"), "{shown}");
    assert!(shown.contains("vramline run --limit 2MiB -- CMD"), "{shown}");
    // A plan of recordings on a GPU tells what its process holds beside the pool; a batch may be uncertain by itself.
    let known = text.replace(r#""certain":true"#, r#""certain":false,"outside_bytes":3145728"#);
    let known = known.replace(r#""batch":16"#, r#""batch":16,"certain":true"#);
    std::fs::write(&plan, known).unwrap();
    let device = ["--device-memory", "1GiB", "--reserved", "1MiB"];
    let output = run(&[&["pack", &job, "--headroom", "0", "--json"], device.as_slice()].concat());
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["jobs"][0]["outside_bytes"], 3_145_728);
    assert_eq!((&document["warnings"], output.status.code()), (&serde_json::json!([]), Some(0)));
    let other = format!("{}@8", plan.display());
    assert_eq!(code(&["pack", &other, "--device-memory", "1GiB"]), 4);
    // No such batch; a batch of what is no plan; a plan that is none.
    let other = format!("{}@7", plan.display());
    assert_eq!(code(&["pack", &other, "--device-memory", "1GiB"]), 2);
    assert_eq!(code(&["pack", &format!("{EXACT}@7"), "--device-memory", "1GiB"]), 2);
    for text in ["{", "{}", "{\"kind\": 3}", "{\u{0}"] {
        std::fs::write(&plan, text).unwrap();
        assert_eq!(code(&["pack", &plan.display().to_string(), "--device-memory", "1GiB"]), 1, "{text}");
    }
}
