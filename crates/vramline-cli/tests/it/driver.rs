//! The driver's side of the binary, with a driver that plays a script: what `run` writes down, and what `doctor` says.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

/// A folder with a script for the driver, and a program that answers as Python would.
struct Place(TempDir);

impl Place {
    fn new(script: &Value, python: &Value) -> Place {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("driver.json"), script.to_string()).unwrap();
        let program = folder.path().join("python");
        fs::write(&program, format!("#!/bin/sh\necho chatter\ncat <<'END'\n{python}\nEND\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        Place(folder)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn told(&self, words: &[&str], variables: &[(&str, &str)]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vramline"));
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .current_dir(self.path())
            .args(words);
        command.env("VRAMLINE_FAKE_DRIVER", self.path().join("driver.json")).envs(variables.iter().copied());
        command.stdin(Stdio::null()).output().unwrap()
    }

    fn manifest(&self, name: &str) -> Value {
        serde_json::from_slice(&fs::read(self.path().join(name).join("run.json")).unwrap()).unwrap()
    }
}

fn h200(processes: &Value) -> Value {
    json!({"name": "NVIDIA H200", "capability": [9, 0], "total": 150_754_820_096_u64, "reserved": 644_939_776,
           "accounting": false, "processes": processes})
}

#[test]
fn a_run_knows_its_devices_and_what_asking_cost() {
    let job = json!([{"pid": "job", "used": 500_000_000}]);
    let script = json!({"driver_version": "580.159.04", "devices": [h200(&job)]});
    let place = Place::new(&script, &json!({}));
    let output =
        place.told(&["run", "-o", "a.vram", "--rate", "100", "--", "sh", "-c", "sleep 0.5; exit 3"], &[]);
    assert_eq!(output.status.code(), Some(3));
    let manifest = place.manifest("a.vram");
    let device = &manifest["devices"][0];
    assert_eq!(device["name"], "NVIDIA H200");
    assert_eq!(device["identity"], "used-excludes-reserved");
    assert_eq!(device["total_bytes"], 150_754_820_096_u64);
    let driver = &manifest["driver"];
    assert_eq!(driver["library"]["driver_version"], "580.159.04");
    assert_eq!(driver["standing"], "by-own-number");
    assert!(driver["costs"]["memory"]["calls"].as_u64() > Some(2), "{driver}");
    assert!(driver["costs"]["processes"]["nanos"].as_u64() > Some(0));
    assert_eq!(manifest["settings"]["stand_in"], "not-needed");
    let rows = vramline::recording::reader::read(&place.path().join("a.vram")).unwrap().driver;
    let held = rows.iter().find(|row| row.device == "GPU-fake-0" && row.pid.is_some()).unwrap();
    assert_eq!((held.is_job, held.used.map(|bytes| bytes.0)), (Some(true), Some(500_000_000)));
    assert_eq!(held.command.as_deref(), Some("sh"));
}

#[test]
fn a_gpu_that_is_not_there_is_refused() {
    let place = Place::new(&json!({"devices": [h200(&json!([])), h200(&json!([]))]}), &json!({}));
    let output = place.told(&["run", "-o", "a.vram", "--gpus", "0,99", "--", "true"], &[]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.starts_with("error: there is no GPU 99: this machine has 2 GPUs, 0 to 1\nhint: "), "{said}");
    assert_eq!(place.told(&["run", "-o", "a.vram", "--gpus", "1", "--", "true"], &[]).status.code(), Some(0));
}

/// On a GPU a limit is applied inside the process. Where that cannot be, the job does not run without it.
#[test]
fn a_limit_that_cannot_be_applied_is_refused() {
    let place = Place::new(&json!({"devices": [h200(&json!([]))]}), &json!({}));
    let without = [("VRAMLINE_PACKAGE", "/no/such/folder")];
    let output = place.told(&["run", "-o", "a.vram", "--limit", "8GiB", "--", "touch", "ran"], &without);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.starts_with("error: cannot apply --limit inside the job") && said.contains("\nhint: install"),
        "{said}"
    );
    assert!(!place.path().join("ran").exists() && !place.path().join("a.vram").exists());
    // TensorFlow's pool on the CPU takes it from a variable.
    let hidden = [without[0], ("CUDA_VISIBLE_DEVICES", "")];
    let words =
        ["run", "-o", "a.vram", "--limit", "8GiB", "--", "sh", "-c", "exit $TF_CPU_BFC_MEM_LIMIT_IN_MB"];
    assert_eq!(place.told(&words, &hidden).status.code(), Some(8192 % 256));
    assert_eq!(place.told(&["run", "-o", "b.vram", "--", "true"], &without).status.code(), Some(0));
}

/// Whatever the driver does, the job has its own exit code and ends when it ends.
#[test]
fn no_driver_disturbs_a_job() {
    let scripts = [
        json!({"error": {"code": "library-missing", "detail": "no file"}}),
        json!({"error": {"code": "library-too-old", "function": "nvmlX"}}),
        json!({"devices": []}),
        json!({"devices": [{"lost_at_ms": 0, "total": 5}]}),
        json!({"devices": [{"memory_error": {"code": "not-supported"}, "processes_error": {"code": "no-permission"}}]}),
        json!({"memory_takes_ms": 3_600_000, "devices": [h200(&json!([]))]}),
        json!({"list_takes_ms": 3_600_000, "devices": [h200(&json!([]))]}),
        json!("no script"),
    ];
    for script in scripts {
        let place = Place::new(&script, &json!({}));
        let output = place.told(&["run", "-o", "a.vram", "--", "sh", "-c", "echo done; exit 5"], &[]);
        assert_eq!(output.status.code(), Some(5), "{script}");
        assert_eq!(output.stdout, b"done\n", "{script}");
        assert_eq!(place.manifest("a.vram")["exit"]["code"], 5, "{script}");
    }
}

fn python() -> Value {
    json!({"executable": "/usr/bin/python3", "version": [3, 12, 1], "packages": {"tensorflow": "2.21.0", "torch": "2.11.0+cpu"}})
}

#[test]
fn doctor_says_what_can_be_measured() {
    let script = json!({"driver_version": "580.159.04", "cuda_version": "13.0", "devices": [h200(&json!([])), h200(&json!([]))]});
    let place = Place::new(&script, &python());
    let variables = [("CUDA_VISIBLE_DEVICES", "1"), ("TF_GPU_ALLOCATOR", "cuda_malloc_async")];
    let output = place.told(&["doctor", "--python", "./python", "--json"], &variables);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["kind"], "doctor");
    assert_eq!(document["devices"][1]["visible_as"], "GPU:0");
    assert_eq!(document["devices"][0]["visible_as"], Value::Null);
    assert_eq!(document["driver"]["cuda_version"], "13.0");
    let codes: Vec<&str> = document["measures"]
        .as_array()
        .unwrap()
        .iter()
        .map(|measure| measure["code"].as_str().unwrap())
        .collect();
    for code in ["hidden-device", "async-allocator", "process-peak", "no-gpu-build", "package"] {
        assert!(codes.contains(&code), "{code} in {codes:?}");
    }
    let text = place.told(&["doctor", "--full", "--python", "./python"], &variables);
    let text = String::from_utf8(text.stdout).unwrap();
    for line in [
        "NVIDIA H200",
        "checked: total = reserved + free + used",
        "to enable: unset TF_GPU_ALLOCATOR",
        "TensorFlow 2.21.0",
    ] {
        assert!(text.contains(line), "{line} in\n{text}");
    }
}

#[test]
fn doctor_without_anything() {
    let place = Place::new(&json!({"error": {"code": "driver-not-loaded"}}), &json!("nothing"));
    let output = place.told(&["doctor", "--python", "./python", "--json"], &[]);
    assert_eq!(output.status.code(), Some(0));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["driver"]["error"], "driver-not-loaded");
    assert!(document["python"]["error"].as_str().unwrap().contains("is not Python"));
    let text = place.told(&["doctor", "--python", "./none"], &[]);
    assert_eq!(text.status.code(), Some(0));
    assert!(String::from_utf8(text.stdout).unwrap().contains("modprobe nvidia"));
}
