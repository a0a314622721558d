//! Who held the memory when it ran out, or when a job was killed: the newest trace of TensorFlow, and snapshots of single moments. PyTorch
//! from its hooks to the answer: `tests/python/test_until_oom.py`.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use vramline::analysis::moments::HeldSource;
use vramline::analysis::oom::oom;
use vramline::analysis::report::ReportOptions;
use vramline::recording::folder::{Part, ProcessId};
use vramline::recording::process::ProcessRecorder;
use vramline::recording::rows::{Mark, Moment, RecordedMarkKind, TraceState, WindowReason};
use vramline::view::oom::OomReport;

use crate::{checked_report, fixture};

const FIRST: &str = "tf221_cpu_mlp_window.xplane.pb";
const FIRST_PEAK: u64 = 30_214_400;
const NEWEST: &str = "tf221_cpu_cnn_from_start.xplane.pb";
const NEWEST_PEAK: u64 = 72_718_080;
const SECOND: i64 = 1_000_000_000;

fn id() -> ProcessId {
    ProcessId::new("host", 7, 8)
}

/// Writes a file of the process, and the marks that tell of its trace or moment.
fn written(folder: &Path, number: i64, place: &str, file: &str, reason: WindowReason) {
    let target = folder.join(place);
    fs::create_dir_all(&target).unwrap();
    fs::copy(fixture(file), target.join(file)).unwrap();
    let recorder = ProcessRecorder::new(folder, &id());
    for (state, at) in [(TraceState::Begun, 1), (TraceState::Stopped, 60), (TraceState::Written, 61)] {
        let at = (100 * number + at) * SECOND;
        recorder
            .mark(&Mark {
                kind: RecordedMarkKind::Trace,
                time: Moment { monotonic: at, wall: at },
                trace_state: Some(state),
                window: Some(number),
                opened_for: Some(reason),
                ..Mark::default()
            })
            .unwrap();
    }
    recorder.close();
}

fn explained(folder: &Path) -> OomReport {
    let read = vramline::read_failures(&[folder.to_owned()], None, &Arc::default()).unwrap();
    OomReport::from(&oom(&read))
}

/// A recording of TensorFlow with two traces, whose process ran out of memory.
pub(crate) fn ran_out(folder: &Path) {
    written(folder, 1, &Part::Trace.name(&id()), FIRST, WindowReason::Start);
    written(folder, 2, &format!("{}.2", Part::Trace.name(&id())), NEWEST, WindowReason::Rise);
    let text = "ResourceExhaustedError: OOM when allocating tensor with shape[64,1000] and type float on \
                /job:localhost/replica:0/task:0/device:CPU:0 by allocator bfc_cpu_allocator_for_gpu [Op:Mul]";
    fs::write(folder.join(format!("exception-{}.txt", id())), text).unwrap();
}

/// A recording of TensorFlow with two traces, whose process was killed.
pub(crate) fn was_killed(folder: &Path) {
    written(folder, 1, &Part::Trace.name(&id()), FIRST, WindowReason::Start);
    written(folder, 2, &format!("{}.2", Part::Trace.name(&id())), NEWEST, WindowReason::Rise);
    let run = fs::read_to_string(fixture("tf221_cpu_keras.vram/run.json")).unwrap();
    let mut run: serde_json::Value = serde_json::from_str(&run).unwrap();
    run["exit"] = serde_json::json!({"signal": 9});
    fs::write(folder.join("run.json"), run.to_string()).unwrap();
}

#[test]
fn a_job_that_was_killed_says_what_it_held() {
    let folder = tempfile::tempdir().unwrap();
    was_killed(folder.path());
    let document = explained(folder.path());
    assert_eq!((document.verdict.word.word(), document.failures.len()), ("killed", 0));
    let held = document.killed.unwrap();
    assert_eq!(
        (held.signal, held.shown_by, held.in_use_bytes.0),
        (Some(9), HeldSource::NewestTrace, NEWEST_PEAK)
    );
    assert!(
        document.headline.starts_with("No allocation failed; signal 9 (SIGKILL) ended the job"),
        "{}",
        document.headline
    );
}

#[test]
fn tensorflow_is_explained_by_its_newest_trace_and_compared_with_the_first() {
    let folder = tempfile::tempdir().unwrap();
    ran_out(folder.path());
    let document = explained(folder.path());
    let [failure] = document.failures.as_slice() else { panic!("{document:?}") };
    let held = failure.held.as_ref().unwrap();
    assert_eq!((held.shown_by, held.window), (HeldSource::NewestTrace, Some(2)));
    assert_eq!(
        (held.in_use_bytes.0, held.before_bytes.map(|bytes| bytes.0)),
        (NEWEST_PEAK, Some(FIRST_PEAK))
    );
    let owned: u64 = held.owners.iter().map(|owner| owner.bytes.0).sum();
    assert_eq!(owned + held.other_owners_bytes.0 + held.slack_bytes.0, NEWEST_PEAK);
    assert!(
        held.growth
            .as_ref()
            .unwrap()
            .starts_with("Memory in use grew from 28.8 MiB in the first steps to 69.3 MiB:")
    );
    assert!(document.headline.contains("grew from 28.8 MiB in the first steps"), "{}", document.headline);
}

#[test]
fn a_snapshot_of_one_moment_is_a_pool_of_the_report() {
    let folder = tempfile::tempdir().unwrap();
    written(
        folder.path(),
        2,
        &format!("moment-{}.2", id()),
        "jax0112_h200.memory.prof",
        WindowReason::Request,
    );
    let report = checked_report(&vramline::read(folder.path()).unwrap(), &ReportOptions::default());
    let alone = checked_report(
        &vramline::read(&fixture("jax0112_h200.memory.prof")).unwrap(),
        &ReportOptions::default(),
    );
    assert!(!alone.pools.is_empty());
    for (pool, truth) in report.pools.iter().zip(&alone.pools) {
        assert_eq!((&pool.name, pool.peak_bytes, pool.window), (&truth.name, truth.peak_bytes, Some(2)));
    }
    let [window] = report.windows.as_slice() else { panic!("{:?}", report.windows) };
    assert_eq!((window.opened_for, window.is_read), (Some(WindowReason::Request), true));
    assert_eq!(window.peak_bytes, alone.pools.iter().filter_map(|pool| pool.peak_bytes).max());
}

#[test]
fn damaged_moments_cost_a_warning_at_most() {
    let folder = tempfile::tempdir().unwrap();
    written(folder.path(), 1, &Part::Trace.name(&id()), FIRST, WindowReason::Start);
    written(folder.path(), 2, &format!("moment-{}.2", id()), "jax0112_h200.memory.prof", WindowReason::Oom);
    let file = folder.path().join(format!("moment-{}.2/jax0112_h200.memory.prof", id()));
    fs::write(&file, b"\x80\x04]q\x00(").unwrap();
    let report = checked_report(&vramline::read(folder.path()).unwrap(), &ReportOptions::default());
    assert_eq!(report.pools[0].peak_bytes.unwrap().0, FIRST_PEAK);
    // A moment whose folder is gone, as that of an older failure is, and a name that only looks like one.
    fs::remove_dir_all(file.parent().unwrap()).unwrap();
    fs::create_dir_all(folder.path().join("moment-host-7-8.x")).unwrap();
    assert_eq!(explained(folder.path()).verdict.word.word(), "none");
}
