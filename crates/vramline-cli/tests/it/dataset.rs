//! `vramline export --to dataset`: the rows are the report's, an export replaces what it exported before, and bad input is explained.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;
use serde_json::Value;

use crate::{root, run, told};

const KERAS: &str = "fixtures/tf221_cpu_keras.vram";
const CNN: &str = "fixtures/tf221_cpu_cnn_from_start.xplane.pb";
const LOG: &str = "fixtures/tf221_cpu_oom.log";

/// A row by its columns, without those of the folders.
type Row = BTreeMap<String, Field>;

fn export(paths: &[&str], folder: &Path) -> String {
    let folder = folder.to_str().unwrap();
    let output = run(&[&["export"], paths, &["--to", "dataset", folder]].concat());
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// The partitions of recordings.
fn partitions(folder: &Path) -> Vec<PathBuf> {
    let list = |folder: &Path, start: &str| -> Vec<PathBuf> {
        let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let is_one = |path: &PathBuf| path.file_name().unwrap().to_str().unwrap().starts_with(start);
        entries.filter(is_one).collect()
    };
    let jobs = list(folder, "job=").into_iter().filter(|job| !job.ends_with("job=_schema"));
    let recordings = jobs.flat_map(|job| list(&job, "recording="));
    let mut all: Vec<PathBuf> = recordings.flat_map(|recording| list(&recording, "host=")).collect();
    all.sort();
    all
}

fn rows(folder: &Path, table: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    for partition in partitions(folder) {
        let Ok(file) = File::open(partition.join(format!("{table}.parquet"))) else { continue };
        let reader = SerializedFileReader::new(file).unwrap();
        for row in reader.get_row_iter(None).unwrap() {
            let row = row.unwrap();
            rows.push(row.get_column_iter().map(|(name, value)| (name.clone(), value.clone())).collect());
        }
    }
    rows
}

fn text(row: &Row, column: &str) -> String {
    match &row[column] {
        Field::Str(text) => text.clone(),
        other => panic!("{column} is {other:?}"),
    }
}

fn int(row: &Row, column: &str) -> i64 {
    match &row[column] {
        Field::Long(number) => *number,
        other => panic!("{column} is {other:?}"),
    }
}

#[test]
fn the_rows_are_the_reports() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("fleet");
    export(&[KERAS, CNN, LOG], &folder);
    assert_eq!(rows(&folder, "jobs").len(), 3);
    for path in [KERAS, CNN] {
        let report: Value = serde_json::from_slice(&run(&["report", path, "--json"]).stdout).unwrap();
        let of = |table: &str| -> Vec<Row> {
            let recording = partitions(&folder).into_iter().find(|partition| {
                let file = File::open(partition.join("jobs.parquet")).unwrap();
                let row = SerializedFileReader::new(file)
                    .unwrap()
                    .get_row_iter(None)
                    .unwrap()
                    .next()
                    .unwrap()
                    .unwrap();
                row.get_column_iter()
                    .any(|(name, value)| name == "source" && *value == Field::Str(path.to_owned()))
            });
            let Ok(file) = File::open(recording.unwrap().join(format!("{table}.parquet"))) else {
                return Vec::new();
            };
            let reader = SerializedFileReader::new(file).unwrap();
            let row = |row: parquet::record::Row| {
                row.get_column_iter().map(|(name, value)| (name.clone(), value.clone())).collect()
            };
            reader.get_row_iter(None).unwrap().map(|found| row(found.unwrap())).collect()
        };
        let pools = of("pools");
        assert_eq!(pools.len(), report["pools"].as_array().unwrap().len());
        for (pool, told) in pools.iter().zip(report["pools"].as_array().unwrap()) {
            let held = &told["at_peak"];
            assert_eq!(Some(int(pool, "in_use_bytes")), held["in_use_bytes"].as_i64());
            let peaks: Vec<Row> =
                of("peaks").into_iter().filter(|peak| peak["pool_number"] == pool["pool_number"]).collect();
            let sum: i64 = peaks.iter().map(|peak| int(peak, "bytes")).sum();
            assert_eq!(sum, int(pool, "in_use_bytes"), "the holders add up");
            let roles = [
                "parameters",
                "gradients",
                "optimizer",
                "activations",
                "inputs",
                "state",
                "temporaries",
                "unknown",
            ];
            for role in roles {
                assert_eq!(
                    Some(int(pool, &format!("{role}_bytes"))),
                    held["by_role"][role].as_i64(),
                    "{role}"
                );
            }
            let others = ["rounding", "before_recording"];
            let parts: i64 =
                roles.iter().chain(&others).map(|part| int(pool, &format!("{part}_bytes"))).sum();
            assert_eq!(parts, int(pool, "in_use_bytes"), "the columns add up");
        }
        for (table, list) in [("steps", "steps"), ("ledger", "ledger"), ("findings", "findings")] {
            assert_eq!(of(table).len(), report[list].as_array().unwrap().len(), "{table}");
        }
    }
    let failures = rows(&folder, "failures");
    assert_eq!(failures.iter().map(|row| text(row, "verdict")).collect::<Vec<_>>(), ["slack"]);
}

#[test]
fn an_export_replaces_what_it_exported_before() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("fleet");
    export(&[KERAS, CNN], &folder);
    let (before, peaks) = (partitions(&folder), rows(&folder, "peaks"));
    assert!(rows(&folder, "allocations").is_empty());
    // In another order, and one of them with other tables.
    export(&[CNN], &folder);
    let options = ["export", KERAS, "--allocations", "--to", "dataset", "-o", folder.to_str().unwrap()];
    assert!(run(&options).status.success());
    assert_eq!(partitions(&folder), before);
    assert_eq!(rows(&folder, "peaks"), peaks);
    assert!(!rows(&folder, "allocations").is_empty());
    let left = fs::read_dir(folder.join(".writing")).unwrap().count();
    assert_eq!(left, 0);
}

#[test]
fn a_source_that_cannot_be_read_is_one_row() {
    let scratch = tempfile::tempdir().unwrap();
    let (folder, path) = (scratch.path().join("fleet"), scratch.path().join("job.vram"));
    fs::create_dir(&path).unwrap();
    fs::write(path.join("run.json"), r#"{"kind":"vramline-recording","schema":99}"#).unwrap();
    let broken = path.to_str().unwrap();
    let said = export(&[KERAS, broken, CNN], &folder);
    assert!(said.contains("2 sources exported") && said.contains("1 source could not be read"), "{said}");
    let errors = rows(&folder, "errors");
    assert_eq!(errors.len(), 1);
    assert_eq!(
        (text(&errors[0], "source"), text(&errors[0], "code")),
        (broken.to_owned(), "unreadable".to_owned())
    );
    assert!(
        text(&errors[0], "text").contains("newer version") && text(&errors[0], "hint").contains("update")
    );
    assert_eq!(rows(&folder, "jobs").len(), 2);
    // Once it can be read, the row is gone.
    fs::remove_dir_all(&path).unwrap();
    fs::copy(root().join(CNN), &path).unwrap();
    export(&[broken], &folder);
    assert!(rows(&folder, "errors").is_empty());
}

#[test]
fn exports_at_the_same_time_lose_and_mix_nothing() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("fleet");
    let start = |paths: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vramline"));
        command.current_dir(root()).arg("export").args(paths).args(["--to", "dataset", "-o"]).arg(&folder);
        command.stdout(Stdio::null()).spawn().unwrap()
    };
    for _ in 0..3 {
        let both = [start(&[KERAS, CNN, "--allocations"]), start(&[CNN, KERAS, LOG]), start(&[LOG, KERAS])];
        for mut export in both {
            assert!(export.wait().unwrap().success());
        }
        assert_eq!(rows(&folder, "jobs").len(), 3);
        for partition in partitions(&folder) {
            // Each file is complete, and each partition is of one export.
            let files: Vec<PathBuf> =
                fs::read_dir(&partition).unwrap().map(|file| file.unwrap().path()).collect();
            assert!(files.iter().any(|file| file.ends_with("jobs.parquet")), "{files:?}");
            for file in files {
                SerializedFileReader::new(File::open(file).unwrap()).unwrap();
            }
        }
    }
    let alone = scratch.path().join("alone");
    export(&[KERAS, CNN, LOG], &alone);
    assert_eq!(rows(&folder, "peaks"), rows(&alone, "peaks"));
}

#[test]
fn private_texts_stay_out() {
    let scratch = tempfile::tempdir().unwrap();
    let (folder, path) = (scratch.path().join("fleet"), scratch.path().join("secret-place.vram"));
    fs::create_dir(&path).unwrap();
    for entry in fs::read_dir(root().join(KERAS)).unwrap().map(|entry| entry.unwrap().path()) {
        let name = entry.file_name().unwrap().to_str().unwrap().replace("-vm-", "-secret_host-");
        if entry.is_dir() {
            continue;
        }
        let mut bytes = fs::read(&entry).unwrap();
        if name.ends_with(".json") {
            let mut json: Value = serde_json::from_slice(&bytes).unwrap();
            json["host"] = "secret_host".into();
            if name == "run.json" {
                json["command"] = serde_json::json!(["python", "secret_script.py"]);
                json["identity"] =
                    serde_json::json!({"job": "secret_job", "labels": {"owner": "secret_person"}});
            }
            bytes = serde_json::to_vec(&json).unwrap();
        }
        fs::write(path.join(name), bytes).unwrap();
    }
    let path = path.to_str().unwrap();
    let missing = scratch.path().join("secret-missing.vram");
    // First as it is: what the redacted export replaces.
    export(&[path], &folder);
    assert!(folder.join("job=secret_job").exists());
    assert_eq!(rows(&folder, "labels").len(), 1);
    export(&[path, missing.to_str().unwrap(), "--redact"], &folder);
    let mut files = vec![folder.clone()];
    let mut seen = 0;
    while let Some(file) = files.pop() {
        assert!(
            !file.strip_prefix(scratch.path()).unwrap().to_str().unwrap().contains("secret"),
            "{}",
            file.display()
        );
        if file.is_dir() {
            files.extend(fs::read_dir(&file).unwrap().map(|entry| entry.unwrap().path()));
        }
        seen += usize::from(file.is_file());
    }
    assert!(seen > 10);
    for table in
        ["jobs", "labels", "processes", "devices", "pools", "steps", "peaks", "ledger", "findings", "errors"]
    {
        let shown = format!("{:?}", rows(&folder, table));
        assert!(!shown.contains("secret"), "{table}: {shown}");
    }
    assert_eq!((rows(&folder, "jobs").len(), rows(&folder, "errors").len()), (1, 1));
    let jobs: Vec<PathBuf> = partitions(&folder);
    assert!(jobs.iter().any(|job| job.to_str().unwrap().contains("job=job-")), "{jobs:?}");
}

#[test]
fn bad_arguments_are_explained() {
    let scratch = tempfile::tempdir().unwrap();
    let folder = scratch.path().join("fleet");
    let shown = folder.to_str().unwrap();
    let said = told(&["export", KERAS, "--to", "dataset"]);
    assert!(said.starts_with("exit 2\n") && said.contains("the folder of the dataset is missing"), "{said}");
    let said = told(&["export", KERAS, CNN, "--to", "csv", "-o", "-"]);
    assert!(said.starts_with("exit 2\n") && said.contains("takes one path"), "{said}");
    let said = told(&["export", KERAS, "--to", "csv"]);
    assert!(said.starts_with("exit 2\n") && said.contains("-o FILE"), "{said}");
    let said = told(&["export", "-", "--to", "dataset", shown]);
    assert!(said.starts_with("exit 2\n"), "{said}");
    // A recording that was meant as a source is not taken for the dataset.
    let said = told(&["export", CNN, KERAS, "--to", "dataset"]);
    assert!(said.starts_with("exit 1\n") && said.contains("it is not a dataset"), "{said}");
    export(&[CNN], &folder);
    fs::write(
        folder.join("vramline-dataset.json"),
        r#"{"kind":"vramline-dataset","schema":99,"vramline":"9.0"}"#,
    )
    .unwrap();
    let said = told(&["export", CNN, "--to", "dataset", shown]);
    assert!(
        said.starts_with("exit 1\n") && said.contains("schema 99") && said.contains("hint: update vramline"),
        "{said}"
    );
}

#[test]
fn questions_can_be_listed_and_printed() {
    let list = String::from_utf8(run(&["export", "--queries"]).stdout).unwrap();
    assert_eq!(list.lines().count(), 12);
    for name in list.lines().map(|line| line.split(' ').next().unwrap()).chain(["views"]) {
        let sql = run(&["export", "--queries", name]).stdout;
        assert!(sql.starts_with(b"-- ") && sql.ends_with(b"\n"), "{name}");
    }
    let said = told(&["export", "--queries", "no such"]);
    assert!(said.starts_with("exit 2\n") && said.contains("vramline export --queries"), "{said}");
}
