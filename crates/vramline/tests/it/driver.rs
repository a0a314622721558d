//! The driver's side: NVIDIA's library as a stub of the same form plays it, and the whole catalogue of what a driver can do, as
//! the fake plays it, up to a recording.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use proptest::prelude::*;
use vramline::recording::folder::{self, RunPlace};
use vramline::recording::manifest::RunManifest;
use vramline::recording::reader;
use vramline::recording::rows::{DriverRow, DriverState, HOST, Subject};
use vramline::recording::watch::{DriverFacts, Watch};
use vramline::source::driver::fake::{Fake, FakeDevice, FakeProcess, Pid, PidWord, Script, Used};
use vramline::source::driver::nvml::NvmlDriver;
use vramline::source::driver::probe::{Cost, Probe};
use vramline::source::driver::{DeviceMemory, DeviceProcess, Driver, DriverError, Identity, Work, open};
use vramline::source::procfs::Standing;
use vramline::units::Bytes;

const GIB: u64 = 1 << 30;

/// A library of NVML's form, built with these words defined.
fn stub(folder: &Path, defined: &[&str]) -> PathBuf {
    let library = folder.join(format!("libstub{}.so", defined.concat()));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/stub_nvml.c");
    let words = defined.iter().map(|word| format!("-D{word}"));
    let built =
        Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).args(words).status();
    assert!(built.unwrap().success());
    library
}

#[test]
fn nvmls_answers_become_facts() {
    let folder = tempfile::tempdir().unwrap();
    let library = stub(folder.path(), &[]);
    let mut driver = NvmlDriver::open_at(library.as_os_str()).unwrap();
    assert_eq!(driver.library().driver_version.as_deref(), Some("535.1.2"));
    assert_eq!(driver.library().nvml_version.as_deref(), Some("12.535.1.2"));
    assert_eq!(driver.cuda_version().as_deref(), Ok("12.2"));
    assert_eq!(driver.memory(0), Err(DriverError::NotFound), "nothing is listed yet");
    let devices = driver.devices().unwrap();
    let uuids: Vec<&str> = devices.iter().map(|facts| facts.uuid.as_str()).collect();
    assert_eq!(uuids, ["GPU-aa", "MIG-cc", "MIG-dd", "GPU-bb"]);
    assert_eq!(devices.iter().map(|facts| facts.index).collect::<Vec<_>>(), [0, 0, 0, 1]);
    assert_eq!((devices[0].is_divided, devices[0].is_accounting), (Some(true), Some(true)));
    let part = devices[2].part.as_ref().unwrap();
    assert_eq!((part.index, part.of.as_str()), (2, "GPU-aa"));
    assert_eq!(devices[1].capability, Some((8, 6)), "the whole's");
    assert_eq!(devices[1].pci_bus_id.as_deref(), Some("00000000:1B:00.0"));
    assert_eq!((&devices[3].name, devices[3].capability, devices[3].is_divided), (&None, None, None));

    let memory = driver.memory(0).unwrap();
    assert_eq!((memory.total, memory.used), (Bytes(100_000), Bytes(9_000)));
    assert_eq!(memory.identity(), Identity::UsedExcludesReserved);
    assert_eq!(driver.memory(2), Err(DriverError::NotSupported));
    assert_eq!(driver.memory(3), Err(DriverError::GpuLost));
    let process = |pid, used: Option<u64>, work| DeviceProcess { pid, used: used.map(Bytes), work };
    assert_eq!(
        driver.processes(0).unwrap(),
        [
            process(11, Some(6000), Work::Both),
            process(12, None, Work::Compute),
            process(13, Some(2000), Work::Graphics)
        ]
    );
    assert_eq!(driver.processes(1), Ok(Vec::new()));
    assert_eq!(driver.processes(3), Err(DriverError::GpuLost));
    assert_eq!(driver.accounted_peak(0, 11), Ok(Bytes(7000)));
    assert_eq!(driver.accounted_peak(0, 12), Err(DriverError::NotFound));
}

#[test]
fn a_library_may_be_missing_old_or_without_a_driver() {
    let folder = tempfile::tempdir().unwrap();
    let missing = NvmlDriver::open_at("/no/such/libnvidia-ml.so.1".as_ref()).unwrap_err();
    assert!(matches!(missing, DriverError::LibraryMissing { .. }), "{missing}");
    assert!(missing.hint().contains("--gpus all"));
    let text = folder.path().join("libnvidia-ml.so.1");
    fs::write(&text, "not a library").unwrap();
    assert_eq!(NvmlDriver::open_at(text.as_os_str()).unwrap_err().code(), "library-missing");
    let mut old = NvmlDriver::open_at(stub(folder.path(), &["OLD"]).as_os_str()).unwrap();
    assert_eq!(old.devices().unwrap().len(), 4);
    let function = |name: &str| DriverError::LibraryTooOld { function: name.to_owned() };
    assert_eq!(old.memory(0), Err(function("nvmlDeviceGetMemoryInfo_v2")));
    assert_eq!(old.processes(0), Err(function("nvmlDeviceGetComputeRunningProcesses_v3")));
    let broken = NvmlDriver::open_at(stub(folder.path(), &["BROKEN"]).as_os_str()).unwrap_err();
    assert_eq!(broken, DriverError::DriverNotLoaded);
}

fn device(processes: Vec<FakeProcess>) -> FakeDevice {
    FakeDevice {
        name: Some("NVIDIA H200".to_owned()),
        capability: Some((9, 0)),
        total: 140 * GIB,
        reserved: GIB,
        processes,
        ..FakeDevice::default()
    }
}

fn process(pid: u32, used: Used) -> FakeProcess {
    FakeProcess { pid: Pid::Number(pid), used, ..FakeProcess::default() }
}

fn fake(devices: Vec<FakeDevice>) -> Fake {
    let mut fake = Fake::new(Script { devices, ..Script::default() }).unwrap();
    fake.set_time(0);
    fake
}

#[test]
fn processes_come_and_go_and_the_sum_holds() {
    let steps = Used::Steps(vec![(10, GIB), (20, 3 * GIB), (40, 2 * GIB)]);
    let guest = FakeProcess { from_ms: 15, until_ms: Some(35), ..process(8, Used::Bytes(5 * GIB)) };
    let mut fake = fake(vec![device(vec![FakeProcess { from_ms: 10, ..process(7, steps) }, guest])]);
    let mut pids = Vec::new();
    for time in 0..50 {
        fake.set_time(time);
        let (memory, listed) = (fake.memory(0).unwrap(), fake.processes(0).unwrap());
        assert_eq!(memory.reserved + memory.free + memory.used, memory.total);
        let held: Bytes = listed.iter().filter_map(|process| process.used).sum();
        assert_eq!(memory.in_processes(), Some(held), "at {time}");
        pids.push(listed.iter().map(|process| process.pid).collect::<Vec<_>>());
    }
    pids.dedup();
    assert_eq!(pids, [vec![], vec![7], vec![7, 8], vec![7]]);
}

#[test]
fn figures_may_not_be_had() {
    let unified = FakeDevice {
        memory_error: Some(DriverError::NotSupported),
        ..device(vec![process(7, Used::Unknown)])
    };
    let closed = FakeDevice { processes_error: Some(DriverError::NoPermission), ..device(Vec::new()) };
    let mut fake = fake(vec![unified, closed]);
    assert_eq!(fake.memory(0), Err(DriverError::NotSupported));
    assert_eq!(fake.processes(0).unwrap()[0].used, None);
    assert_eq!(fake.processes(1), Err(DriverError::NoPermission));
    assert_eq!(fake.memory(2), Err(DriverError::NotFound));
    assert_eq!(fake.accounted_peak(0, 7), Err(DriverError::NotSupported));
}

#[test]
fn a_device_falls_off_the_bus_and_comes_back() {
    let mut fake = fake(vec![FakeDevice { lost_at_ms: Some(5), back_at_ms: Some(9), ..device(Vec::new()) }]);
    for (time, is_there) in [(0, true), (4, true), (5, false), (8, false), (9, true)] {
        fake.set_time(time);
        assert_eq!(fake.memory(0).is_ok(), is_there, "at {time}");
        assert_eq!(fake.processes(0).is_ok(), is_there, "at {time}");
    }
}

#[test]
fn scripts_are_read_and_hostile_ones_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("script.json");
    let written = Script {
        devices: vec![device(vec![
            FakeProcess { pid: Pid::Word(PidWord::Own), ..process(0, Used::Bytes(GIB)) },
            process(9, Used::Steps(vec![(0, 1)])),
            process(10, Used::Unknown),
        ])],
        ..Script::default()
    };
    fs::write(&path, serde_json::to_string(&written).unwrap()).unwrap();
    let mut driver = open(Some(&path)).unwrap();
    assert_eq!(driver.devices().unwrap()[0].name.as_deref(), Some("NVIDIA H200"));
    let own = std::process::id();
    assert!(
        driver.processes(0).unwrap().iter().any(|found| found.pid == own && found.used == Some(Bytes(GIB)))
    );
    fs::write(&path, r#"{"error": {"code": "library-too-old", "function": "nvmlX"}}"#).unwrap();
    assert_eq!(open(Some(&path)).unwrap_err(), DriverError::LibraryTooOld { function: "nvmlX".to_owned() });
    fs::write(&path, r#"{"error": {"code": "word-of-tomorrow", "more": 1}}"#).unwrap();
    assert_eq!(open(Some(&path)).unwrap_err(), DriverError::Other);
    for hostile in
        ["", "[7]", "{\"devices\":[{\"total\":-1}]}", "{\"devices\":7}", "{\"unknown\":1}", "\u{0}"]
    {
        fs::write(&path, hostile).unwrap();
        assert_eq!(open(Some(&path)).unwrap_err().code(), "failed", "{hostile}");
    }
    assert_eq!(open(Some(&folder.path().join("none"))).unwrap_err().code(), "failed");
    let extreme = FakeDevice { total: 5, reserved: u64::MAX, unlisted: u64::MAX, ..device(Vec::new()) };
    let memory = fake(vec![extreme]).memory(0).unwrap();
    assert_eq!((memory.free, memory.in_processes()), (Bytes(0), None));
}

#[test]
fn asking_is_counted() {
    let mut probe = Probe::open(|| Ok(Box::new(fake(vec![device(Vec::new())])))).unwrap();
    for _ in 0..3 {
        probe.memory(0).unwrap();
    }
    probe.memory(1).unwrap_err();
    probe.processes(0).unwrap();
    let costs = probe.costs();
    assert_eq!((costs.memory.calls, costs.memory.failed), (4, 1));
    assert_eq!((costs.processes.calls, costs.start.calls), (1, 1));
    assert!(costs.memory.longest_nanos <= costs.memory.nanos);
    assert!(costs.memory.to_string().starts_with("4 calls, "), "{}", costs.memory);
    assert_eq!(Cost::default().to_string(), "no call");
    let none = Probe::open(|| Err(DriverError::DriverNotLoaded));
    assert_eq!(none.unwrap_err(), DriverError::DriverNotLoaded);
}

/// A job that lives until it is told to end.
struct Job(Child);

impl Job {
    fn start() -> Job {
        // A shell and its child; both end when nothing more can come in.
        let mut shell = Command::new("sh");
        Job(shell.args(["-c", "cat; :"]).stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap())
    }

    fn end(&mut self) {
        drop(self.0.stdin.take());
        self.0.wait().unwrap();
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.end();
    }
}

/// Watches a job under a script until `is_enough` of what is on disk; then the job ends, and the watch after it.
fn watched(script: Script, is_enough: impl Fn(&[DriverRow]) -> bool) -> (Vec<DriverRow>, DriverFacts, u32) {
    watched_with(|_| script, is_enough)
}

/// The same with a script that knows the job's number.
fn watched_with(
    script: impl FnOnce(u32) -> Script,
    is_enough: impl Fn(&[DriverRow]) -> bool,
) -> (Vec<DriverRow>, DriverFacts, u32) {
    let folder = tempfile::tempdir().unwrap();
    let mut job = Job::start();
    let pid = job.0.id();
    let script = script(pid);
    let open = move || Ok(Box::new(Fake::new(script)?) as Box<dyn Driver>);
    let watch =
        Watch::start(&RunPlace::first(folder.path()), pid, Some(Duration::from_millis(2)), open, |_| ())
            .unwrap();
    let rows = || {
        // A recording is one with its manifest, or a process; here the stream alone is looked at.
        fs::write(folder.path().join("process-x-1-1.json"), "{}").unwrap();
        reader::read(folder.path()).unwrap().driver
    };
    for _ in 0..3000 {
        if is_enough(&rows()) {
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(is_enough(&rows()), "{:?}", rows());
    job.end();
    let found = watch.stop(Duration::from_secs(60)).unwrap();
    (rows(), found, pid)
}

fn on<'a>(rows: &'a [DriverRow], device: &str) -> Vec<&'a DriverRow> {
    rows.iter().filter(|row| row.device == device).collect()
}

#[test]
fn a_watch_notes_changes_only() {
    let own =
        FakeProcess { pid: Pid::Word(PidWord::Own), until_ms: Some(40), ..process(0, Used::Bytes(GIB)) };
    let listed = vec![own, FakeProcess { from_ms: 20, ..process(4_000_000, Used::Unknown) }];
    let script = Script { step_ms: Some(1), devices: vec![device(listed)], ..Script::default() };
    let (rows, found, job) = watched(script, |rows| {
        rows.iter().any(|row| row.subject == Subject::Gone)
            && rows.iter().any(|row| row.pid == Some(4_000_000))
    });
    let device: Vec<&DriverRow> =
        on(&rows, "GPU-fake-0").into_iter().filter(|row| row.subject == Subject::Device).collect();
    // Hundreds of looks, two figures.
    assert_eq!(device.iter().map(|row| row.used).collect::<Vec<_>>(), [Some(Bytes(GIB)), Some(Bytes(0))]);
    assert!(found.run.costs.memory.calls > 40, "{:?}", found.run.costs);
    let others: Vec<_> =
        on(&rows, "GPU-fake-0").into_iter().filter(|row| row.subject == Subject::Process).collect();
    // The tests' own process is no part of the job, nor is one that nobody sees.
    assert_eq!(others.iter().map(|row| (row.pid, row.is_job)).collect::<Vec<_>>()[0].1, Some(false));
    let unknown = others.iter().find(|row| row.pid == Some(4_000_000)).unwrap();
    assert_eq!((unknown.used, unknown.reason.as_deref()), (None, Some("not-supported")));
    assert_eq!(found.devices[0].identity, Some(Identity::UsedExcludesReserved));
    // The job's host memory, and its end.
    let host = on(&rows, HOST);
    assert!(
        host.iter().any(|row| row.pid == Some(job) && row.is_job == Some(true) && row.used > Some(Bytes(0)))
    );
    assert!(host.iter().any(|row| row.subject == Subject::Gone && row.pid == Some(job)));
    assert!(host.iter().any(|row| row.subject == Subject::Device && row.total > row.free));
    let end = DriverState::at(&rows, i64::MAX);
    assert!(end.processes.iter().all(|row| row.pid != Some(job)));
    assert!(rows.windows(2).all(|pair| pair[0].time <= pair[1].time));
}

#[test]
fn a_job_is_found_on_its_device_and_by_its_children() {
    let script = |job: u32| {
        let own =
            FakeProcess { peak: Some(9 * GIB), ..process(job, Used::Steps(vec![(0, GIB), (50, 2 * GIB)])) };
        let devices = vec![FakeDevice { accounting: Some(true), ..device(vec![own]) }];
        Script { step_ms: Some(1), devices, ..Script::default() }
    };
    let is_on_device = |row: &&DriverRow| row.device != HOST && row.subject == Subject::Process;
    let (rows, found, job) = watched_with(script, |rows| {
        let members = rows.iter().filter(|row| row.device == HOST && row.subject == Subject::Process);
        let commands: Vec<_> = members.filter_map(|row| row.command.as_deref()).collect();
        commands.contains(&"cat")
            && rows.iter().filter(is_on_device).any(|row| row.used == Some(Bytes(2 * GIB)))
    });
    assert_eq!(found.run.standing, Some(Standing::ByOwnNumber));
    let listed: Vec<&DriverRow> = rows.iter().filter(is_on_device).collect();
    assert!(listed.iter().all(|row| row.pid == Some(job) && row.is_job == Some(true)), "{listed:?}");
    assert!(listed.iter().all(|row| row.peak == Some(Bytes(9 * GIB)) && row.start.is_some()));
    let on_host: std::collections::BTreeSet<_> = on(&rows, HOST).iter().filter_map(|row| row.pid).collect();
    assert!(on_host.len() >= 2, "the shell and what it started: {rows:?}");
}

#[test]
fn lost_missing_and_silent_drivers_are_rows_and_words() {
    let lost = FakeDevice { lost_at_ms: Some(20), ..device(Vec::new()) };
    let script = Script { step_ms: Some(1), devices: vec![lost], ..Script::default() };
    let (rows, found, _) =
        watched(script, |rows| rows.iter().any(|row| row.reason.as_deref() == Some("gpu-lost")));
    assert_eq!(found.devices[0].error, None, "it was there at first");
    let lost: Vec<_> = on(&rows, "GPU-fake-0").into_iter().filter(|row| row.reason.is_some()).collect();
    assert!(lost.iter().all(|row| row.total.is_none() && row.used.is_none()));
    assert_eq!(lost.iter().filter(|row| row.subject == Subject::Device).count(), 1, "said once");

    let unified = FakeDevice {
        memory_error: Some(DriverError::NotSupported),
        ..device(vec![process(4_000_001, Used::Bytes(5))])
    };
    let script = Script { devices: vec![unified], ..Script::default() };
    let (rows, found, _) = watched(script, |rows| rows.iter().any(|row| row.pid == Some(4_000_001)));
    assert_eq!(found.devices[0].error, Some(DriverError::NotSupported));
    assert_eq!((found.devices[0].identity, found.devices[0].total_bytes), (None, None));
    assert!(rows.iter().any(|row| row.reason.as_deref() == Some("not-supported")));

    let error = DriverError::LibraryMissing { detail: "no file".to_owned() };
    let script = Script { error: Some(error.clone()), ..Script::default() };
    let (rows, found, job) = watched(script, |rows| !rows.is_empty());
    assert_eq!((found.run.error, found.devices.len()), (Some(error), 0));
    // The machine's own memory stands in.
    assert!(rows.iter().all(|row| row.device == HOST));
    assert!(rows.iter().any(|row| row.pid == Some(job)));
}

#[test]
fn numbers_of_another_namespace_are_not_taken_for_ours() {
    let far = (0..5).map(|number| process(4_100_000 + number, Used::Bytes(GIB))).collect();
    let script = Script { devices: vec![device(far)], ..Script::default() };
    let (rows, found, _) = watched(script, |rows| rows.iter().any(|row| row.pid == Some(4_100_004)));
    assert_eq!(found.run.standing, Some(Standing::OfAnotherNamespace));
    let is_outermost = found.run.namespace.is_outermost == Some(true);
    let expected = is_outermost.then_some(false);
    let listed = on(&rows, "GPU-fake-0").into_iter().filter(|row| row.subject == Subject::Process);
    assert!(listed.into_iter().all(|row| row.is_job == expected && row.start.is_none()), "{rows:?}");
}

#[test]
fn eight_devices_and_two_hundred_processes() {
    let crowd = |device: u32| {
        (0..200).map(move |n| process(4_200_000 + device * 200 + n, Used::Bytes(u64::from(n) << 20)))
    };
    let devices = (0..8).map(|number| device(crowd(number).collect())).collect();
    let script = Script { devices, ..Script::default() };
    let (rows, found, _) = watched(script, |rows| rows.len() >= 8 * 201);
    assert_eq!(found.devices.len(), 8);
    let state = DriverState::at(&rows, i64::MAX);
    for device in &found.devices {
        let uuid = device.uuid.as_deref().unwrap();
        let held: Bytes =
            state.processes.iter().filter(|row| row.device == uuid).filter_map(|row| row.used).sum();
        let whole = state.devices.iter().find(|row| row.device == uuid).unwrap();
        assert_eq!(whole.used, Some(held));
        assert_eq!(whole.total.unwrap(), whole.reserved.unwrap() + whole.free.unwrap() + held);
    }
    assert_eq!(found.run.lost_rows, 0);
}

/// A driver that hangs is left behind; the caller does not wait for it.
#[test]
fn a_driver_that_hangs_is_left_behind() {
    let folder = tempfile::tempdir().unwrap();
    let script =
        Script { memory_takes_ms: 3_600_000, devices: vec![device(Vec::new())], ..Script::default() };
    let open = move || Ok(Box::new(Fake::new(script)?) as Box<dyn Driver>);
    let watch =
        Watch::start(&RunPlace::first(folder.path()), 1, Some(Duration::from_millis(1)), open, |_| ())
            .unwrap();
    assert_eq!(watch.stop(Duration::from_millis(50)), None);
    assert!(!folder.path().join(folder::DRIVER).exists());
    assert!(RunManifest::read(folder.path()).is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, rng_seed: proptest::test_runner::RngSeed::Fixed(6), failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever processes do: the device's figures sum, its processes are in them, and both ways of counting give the same.
    #[test]
    fn any_script_sums(
        processes in prop::collection::vec((1_u32..50, 0_u64..60, prop::option::of(0_u64..60), prop::option::of(0_u64..GIB)), 0..30),
        unlisted in 0_u64..GIB,
        includes in any::<bool>(),
        time in 0_u64..60,
    ) {
        let listed = processes.iter().map(|&(pid, from_ms, until_ms, used)| FakeProcess {
            from_ms, until_ms, ..process(pid, used.map_or(Used::Unknown, Used::Bytes))
        });
        let identity = if includes { Identity::UsedIncludesReserved } else { Identity::UsedExcludesReserved };
        let mut fake = fake(vec![FakeDevice { unlisted, identity: Some(identity), ..device(listed.collect()) }]);
        fake.set_time(time);
        let memory: DeviceMemory = fake.memory(0).unwrap();
        prop_assert_eq!(memory.identity(), identity);
        let held = memory.in_processes().unwrap();
        prop_assert_eq!(memory.reserved + memory.free + held, memory.total);
        let told: Bytes = fake.processes(0).unwrap().iter().filter_map(|process| process.used).sum();
        prop_assert_eq!(told + Bytes(unlisted), held);
    }
}
