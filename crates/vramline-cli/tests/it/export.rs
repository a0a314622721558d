//! `vramline export`: what is written can be read, adds up, and errors are told. Other tools read the files in `tests/python`.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{run, told};

const CNN: &str = "fixtures/tf221_cpu_cnn_from_start.xplane.pb";

fn exported(format: &str) -> Vec<u8> {
    let output = run(&["export", CNN, "--to", format, "-o", "-"]);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

#[test]
fn rows_at_the_peak_are_the_reports() {
    let report: Value = serde_json::from_slice(&run(&["report", CNN, "--json"]).stdout).unwrap();
    let pool = &report["pools"][0];
    let document: Value = serde_json::from_slice(&exported("json")).unwrap();
    let rows = document["allocations"].as_array().unwrap();
    assert_eq!(rows.len() as u64, pool["allocs"].as_u64().unwrap());
    let mut by_role: BTreeMap<&str, u64> = BTreeMap::new();
    let mut chunks = 0;
    for row in rows.iter().filter(|row| row["at_peak"] == true) {
        *by_role.entry(row["role"].as_str().unwrap()).or_default() += row["bytes"].as_u64().unwrap();
        chunks += row["chunk_bytes"].as_u64().unwrap();
    }
    assert_eq!(Some(chunks), pool["peak_bytes"].as_u64());
    for (role, bytes) in by_role {
        assert_eq!(pool["at_peak"]["by_role"][role], bytes, "{role}");
    }
}

#[test]
fn the_counter_reaches_the_peak() {
    let report: Value = serde_json::from_slice(&run(&["report", CNN, "--json"]).stdout).unwrap();
    let trace: Value = serde_json::from_slice(&exported("perfetto")).unwrap();
    let events = trace["traceEvents"].as_array().unwrap();
    let counters = events.iter().filter(|event| event["ph"] == "C");
    let highest = counters.filter_map(|event| event["args"]["bytes"].as_u64()).max();
    assert_eq!(highest, report["pools"][0]["peak_bytes"].as_u64());
}

#[test]
fn parquet_begins_and_ends_as_it_must() {
    let bytes = exported("parquet");
    assert!(bytes.starts_with(b"PAR1") && bytes.ends_with(b"PAR1"));
}

#[test]
fn csv_has_a_cell_for_each_column() {
    let text = String::from_utf8(exported("csv")).unwrap();
    let mut lines = text.split_terminator("\r\n");
    let columns = lines.next().unwrap().split(',').count();
    // Cells of this trace that hold commas are quoted; none holds a quote.
    let cells =
        |line: &str| line.split('"').step_by(2).map(|part| part.matches(',').count()).sum::<usize>() + 1;
    assert!(lines.clone().count() > 1000);
    assert!(lines.all(|line| cells(line) == columns));
}

#[test]
fn what_cannot_be_exported_is_told() {
    let told_of = |path: &str| told(&["export", path, "--to", "csv", "-o", "-"]);
    assert!(told_of("fixtures/tf221_cpu_oom.memorydump.pb").contains("has no history of allocations"));
    assert!(told_of("no such file").starts_with("exit 1\n"));
    let told = told(&["export", CNN, "--to", "csv", "-o", "-", "--pool", "no such pool"]);
    assert!(told.starts_with("exit 1\n") && told.contains("hint: leave out --pool"), "{told}");
}
