//! The document of `top`: its bars add up whatever is known, and every null has a reason.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use vramline::analysis::doctor::DeviceLook;
use vramline::analysis::top::{
    BarPart, DeviceHistory, DriverSight, LiveJob, MAX_STEPS_PER_PROCESS, MachineSight, SeenProcess, top,
};
use vramline::recording::folder::ProcessId;
use vramline::recording::live::{Live, News};
use vramline::recording::manifest::{Device, Exit, RunManifest};
use vramline::recording::reader::ProcessFacts;
use vramline::recording::rows::{Counters, Mark, Moment, RecordedMarkKind};
use vramline::recording::running::State;
use vramline::source::driver::fake::{Fake, FakeDevice, FakeProcess, Pid, Script, Used};
use vramline::source::driver::{Driver, DriverError, Identity};
use vramline::source::procfs::HostMemory;
use vramline::units::{Bytes, Nanos};
use vramline::view::top::Top;

use crate::document::paths;
use crate::fixture;

pub(crate) fn asked(script: &Script) -> Result<DriverSight, DriverError> {
    let mut driver = Fake::new(script.clone())?;
    let library = driver.library();
    let facts = driver.devices()?;
    let look = |(at, facts)| DeviceLook {
        facts,
        memory: driver.memory(at),
        processes: driver.processes(at),
        seen_here: vec![77],
    };
    let devices = facts.into_iter().enumerate().map(look).collect();
    Ok(DriverSight { library, devices, age_ns: Nanos(0) })
}

fn device(used: Used, identity: Option<Identity>) -> FakeDevice {
    let process = |pid, used| FakeProcess { pid: Pid::Number(pid), used, ..FakeProcess::default() };
    FakeDevice {
        name: Some("NVIDIA H200".to_owned()),
        total: 1000,
        reserved: 10,
        unlisted: 30,
        identity,
        processes: vec![process(77, used), process(99, Used::Bytes(100))],
        ..FakeDevice::default()
    }
}

/// A machine with one device, on which two processes are.
pub(crate) fn script() -> Script {
    Script { devices: vec![device(Used::Bytes(300), None)], ..Script::default() }
}

/// A job with a pool on GPU:0, as far as its framework tells.
pub(crate) fn job(current: Option<i64>, pool: Option<i64>, limit: Option<i64>) -> LiveJob {
    let mut job = LiveJob::new("train.vram".into());
    let fixture = RunManifest::read(&fixture("tf221_cpu_keras.vram")).ok();
    let uuid = Some("GPU-fake-0".to_owned());
    if let Some(mut manifest) = fixture {
        manifest.devices = vec![Device { uuid, ..Device::default() }];
        manifest.exit = None;
        manifest.environment.clear();
        manifest.settings.gpus = None;
        job.take(News::Manifest(Box::new(manifest)));
    }
    let id = ProcessId::new("here", 77, 1);
    let counters = Counters {
        device: "GPU:0".to_owned(),
        current,
        peak: current,
        pool,
        limit,
        peak_since: Some(1),
        ..Counters::default()
    };
    let step = Mark {
        kind: RecordedMarkKind::Step,
        step: Some(3),
        begin: Some(1),
        time: Moment { monotonic: 5, wall: 5 },
        counters: vec![counters],
        ..Mark::default()
    };
    job.take(News::Marks(&id, vec![step]));
    job.pids = vec![(77, vec![77])];
    job
}

pub(crate) fn sight(driver: Result<DriverSight, DriverError>, jobs: &[LiveJob]) -> MachineSight<'_> {
    let seen = SeenProcess { command: "python train.py".to_owned(), resident: Some(Bytes(400)) };
    MachineSight {
        now: Moment { monotonic: 10, wall: 10 },
        host: "here".to_owned(),
        memory: Some(HostMemory { total: Bytes(5000), available: Bytes(3000) }),
        driver,
        jobs,
        seen: BTreeMap::from([(77, seen)]),
    }
}

fn shown(driver: Result<DriverSight, DriverError>, jobs: &[LiveJob]) -> Top {
    let document = Top::from(&top(&sight(driver, jobs)));
    for device in document.devices.iter().filter(|device| device.total_bytes.is_some()) {
        let sum: i64 = device.parts.iter().map(|part| part.bytes).sum();
        assert_eq!(u64::try_from(sum).ok().map(Bytes), device.total_bytes, "{:?}", device.parts);
    }
    explained(&serde_json::to_value(&document).unwrap());
    document
}

/// Every null has its reason.
fn explained(document: &Value) {
    fn nulls(value: &Value, at: &str, found: &mut BTreeSet<String>) {
        match value {
            Value::Object(map) => {
                map.iter().for_each(|(key, value)| nulls(value, &format!("{at}.{key}"), found));
            }
            Value::Array(items) => items.iter().for_each(|item| nulls(item, &format!("{at}[]"), found)),
            Value::Null => {
                found.insert(at.trim_start_matches('.').to_owned());
            }
            _ => {}
        }
    }
    let mut found = BTreeSet::new();
    nulls(document, "", &mut found);
    found.remove("unknowns[].switch");
    let told: BTreeSet<String> = document["unknowns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|unknown| unknown["path"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(found, told);
}

#[test]
fn bars_add_up_whatever_is_told() {
    let identities = [
        None,
        Some(Identity::UsedExcludesReserved),
        Some(Identity::UsedIncludesReserved),
        Some(Identity::Neither),
    ];
    for used in [Used::Bytes(300), Used::Unknown, Used::Bytes(50)] {
        for identity in identities {
            for (current, pool, limit) in [
                (Some(120), Some(200), Some(250)),
                (Some(120), None, None),
                (None, None, None),
                (None, Some(200), None),
            ] {
                let script = Script { devices: vec![device(used.clone(), identity)], ..Script::default() };
                let document = shown(asked(&script), &[job(current, pool, limit)]);
                assert_eq!(document.processes.len(), 2);
            }
        }
    }
    let lost = FakeDevice { memory_error: Some(DriverError::GpuLost), ..device(Used::Bytes(1), None) };
    let document = shown(asked(&Script { devices: vec![lost], ..Script::default() }), &[]);
    assert_eq!((document.devices[0].error, document.devices[0].parts.len()), (Some("gpu-lost"), 0));
}

#[test]
fn a_recorded_process_has_its_place_in_the_bar() {
    let script = script();
    let document = shown(asked(&script), &[job(Some(120), Some(200), Some(250))]);
    let parts: BTreeMap<&str, i64> =
        document.devices[0].parts.iter().map(|part| (part.part.word(), part.bytes)).collect();
    let expected = [
        ("driver reserved", 10),
        ("in use", 120),
        ("cached free", 80),
        ("context and outside", 100),
        ("other processes", 100),
        ("unattributed", 30),
        ("free", 560),
    ];
    assert_eq!(parts, BTreeMap::from(expected));
    let row = document.processes.iter().find(|row| row.pid == 77).unwrap();
    assert_eq!((row.job, row.device.as_str(), row.command.as_str()), (Some(0), "GPU 0", "python train.py"));
    assert_eq!(
        (row.cached_bytes, row.step, row.step_peak_bytes),
        (Some(Bytes(80)), Some(3), Some(Bytes(120)))
    );
    // The pool may grow to its limit; the device would give more.
    assert_eq!(row.headroom_bytes, Some(Bytes(250 - 120)));
    let other = document.processes.iter().find(|row| row.pid == 99).unwrap();
    assert_eq!((other.job, other.held_bytes, other.in_use_bytes), (None, Some(Bytes(100)), None));
    // Without a limit the device is the limit.
    let document = shown(asked(&script), &[job(Some(120), Some(200), None)]);
    let row = document.processes.iter().find(|row| row.pid == 77).unwrap();
    assert_eq!(row.headroom_bytes, Some(Bytes(200 + 560 - 120)));
    // What is free here is nothing to a job that has ended.
    let mut gone = job(Some(120), Some(200), None);
    gone.state = State::Gone;
    let document = shown(asked(&script), &[gone]);
    assert!(document.processes.iter().all(|row| row.headroom_bytes.is_none()));
}

#[test]
fn without_a_driver_jobs_are_shown_all_the_same() {
    let missing = DriverError::LibraryMissing { detail: "none".to_owned() };
    let document = shown(Err(missing), &[job(Some(120), Some(200), None)]);
    assert_eq!(document.driver.error, Some("library-missing"));
    assert_eq!(document.devices.len(), 1);
    assert_eq!(document.processes[0].device, "GPU:0");
    assert_eq!(document.processes[0].in_use_bytes, Some(Bytes(120)));
    assert!(!document.warnings[0].hint.is_empty());
}

/// A recording of PyTorch on an H200 with its driver calls.
fn with_driver_calls() -> Top {
    let path = fixture("beside/torch_graph.vram");
    let (mut live, mut job) = (Live::new(&path), LiveJob::new(path));
    live.look(u64::MAX, &mut |news| job.take(news)).unwrap();
    // Nothing has changed since.
    live.look(u64::MAX, &mut |news| panic!("{news:?}")).unwrap();
    shown(asked(&Script::default()), &[job])
}

/// A process that is rank 0 of a job.
fn with_a_rank() -> Top {
    let mut job = job(Some(120), Some(200), None);
    let facts = ProcessFacts { rank: Some(0), ..ProcessFacts::default() };
    job.take(News::Facts(&ProcessId::new("here", 77, 1), Box::new(facts)));
    shown(asked(&script()), &[job])
}

#[test]
fn driver_calls_show_what_lies_outside_the_pool() {
    let document = with_driver_calls();
    let row = document.processes.iter().find(|row| row.device.starts_with("GPU")).unwrap();
    let lines: Vec<(&str, i64)> =
        row.outside.iter().map(|held| (held.line.word(), held.bytes >> 20)).collect();
    // The device grew by 526.8 MiB with the context.
    assert_eq!(lines, [("context", 526), ("first launches", 92), ("streams", 70), ("library memory", 64)]);
    assert!(row.outside[2].detail.starts_with("PyTorch, 128 streams"));
}

/// A recording of TensorFlow's pool on the CPU, as it was a while before its end.
#[test]
fn the_stand_in_is_a_device() {
    let path = fixture("tf221_cpu_keras.vram");
    let (mut live, mut job) = (Live::new(&path), LiveJob::new(path));
    live.look(u64::MAX, &mut |news| job.take(news)).unwrap();
    let id = job.ids().next().unwrap().clone();
    job.state = State::Running;
    job.pids = vec![(77, vec![77, id.pid()])];
    let document = shown(asked(&Script::default()), &[job]);
    assert_eq!((document.devices.len(), document.devices[0].is_stand_in), (1, true));
    let row = &document.processes[0];
    assert_eq!((row.device.as_str(), row.held_bytes, row.pid), ("CPU", Some(Bytes(400)), id.pid()));
    assert!(row.in_use_bytes <= row.peak_bytes && row.peak_bytes.is_some());
    assert_eq!(row.roles.iter().map(|role| role.variables).sum::<u64>(), 26);
    assert_eq!(row.steps.last().map(|step| step.step), row.step);
    assert!(document.jobs[0].is_traced);
    let mut found = BTreeSet::new();
    paths(&serde_json::to_value(&document).unwrap(), "", &mut found);
    paths(&serde_json::to_value(with_driver_calls()).unwrap(), "", &mut found);
    paths(&serde_json::to_value(with_a_rank()).unwrap(), "", &mut found);
    let table: BTreeSet<String> = crate::table::<Top>();
    // A list may be empty in one document and filled in the other.
    found.retain(|path| !table.iter().any(|entry| entry.starts_with(&format!("{path}[]"))));
    let missing: Vec<_> = found.difference(&table).collect();
    assert!(missing.is_empty(), "in a document but not in the table: {missing:?}");
    let unused: Vec<_> = table.difference(&found).collect();
    assert!(unused.is_empty(), "in the table but in no document: {unused:?}");
}

/// However long a job runs, what is kept of it has an end.
#[test]
fn a_long_job_is_kept_in_bounds() {
    let mut job = LiveJob::new("long.vram".into());
    let id = ProcessId::new("here", 77, 1);
    for number in 0..5000_i64 {
        let kind = if number < 1000 { RecordedMarkKind::Call } else { RecordedMarkKind::Step };
        let counters = Counters {
            device: "CPU:0".to_owned(),
            current: Some(number),
            peak: Some(number),
            peak_since: Some(10 * number),
            ..Counters::default()
        };
        let mark = Mark {
            kind,
            step: Some(number),
            begin: Some(10 * number),
            time: Moment { monotonic: 10 * number + 5, wall: 0 },
            counters: vec![counters],
            ..Mark::default()
        };
        job.take(News::Marks(&id, vec![mark]));
    }
    let document = shown(Err(DriverError::NotSupported), &[job]);
    let steps = &document.processes[0].steps;
    assert!(
        steps.len() >= MAX_STEPS_PER_PROCESS / 2 && steps.len() <= MAX_STEPS_PER_PROCESS,
        "{}",
        steps.len()
    );
    assert!(
        steps
            .iter()
            .zip(5000 - i64::try_from(steps.len()).unwrap()..)
            .all(|(step, number)| step.step == number)
    );
    assert!(steps.iter().all(|step| step.peak_bytes == step.current_bytes));
    assert_eq!(document.processes[0].peak_bytes, Some(Bytes(4999)));
}

#[test]
fn the_past_keeps_its_peaks() {
    let script = script();
    let mut analysis = top(&sight(asked(&script), &[]));
    let mut history = DeviceHistory::default();
    for at in 0..5000_i64 {
        let held = if at == 4900 { 900 } else { 100 };
        analysis.devices[0].free = Some(Bytes(1000 - held));
        history.take(Moment { monotonic: at, wall: 0 }, &analysis, &[]);
    }
    let now = Moment { monotonic: 4999, wall: 0 };
    let columns = history.columns("GPU-fake-0", now, Nanos(1000), 10);
    assert_eq!(columns.len(), 10);
    assert_eq!(columns.iter().filter(|column| column.summary.max == 900).count(), 1);
    assert!(history.columns("GPU-none", now, Nanos(1000), 10).is_empty());
}

/// The words of the parts and of the states are what the document promises.
#[test]
fn enums_are_their_words_in_the_document() {
    for part in BarPart::ALL {
        assert_eq!(serde_json::to_value(part).unwrap(), part.word());
    }
    for state in [State::Running, State::Ended(Exit::Code(3)), State::Gone, State::Elsewhere] {
        assert_eq!(serde_json::to_value(state).unwrap(), state.word());
    }
    let entries = vramline::document::entries::<Top>();
    let field = entries.iter().find(|entry| entry.path == "devices[].parts[].part").unwrap();
    assert!(BarPart::ALL.iter().all(|part| field.meaning.contains(&format!("`{}`", part.word()))));
}
