//! A real recording of `vramline run`, whose truths stand in `fixtures/README.md`.

use std::fs;
use std::path::Path;

use vramline::analysis::limit::LimitSetter;
use vramline::analysis::report::ReportOptions;
use vramline::event::Framework;
use vramline::recording::folder::Part;
use vramline::recording::process::ProcessRecorder;
use vramline::recording::reader;
use vramline::recording::rows::{RecordedMarkKind, TraceState};
use vramline::snapshot::Role;
use vramline::units::Bytes;
use vramline::view::report::Report;

use crate::{checked_report, fixture};

fn report() -> Report {
    let reading = vramline::read(&fixture("tf221_cpu_keras.vram")).unwrap();
    checked_report(&reading, &ReportOptions::default())
}

#[test]
fn the_trace_begins_before_the_first_allocation_and_names_nearly_everything() {
    let report = report();
    let pool = &report.pools[0];
    assert_eq!((pool.from_start, pool.limit_bytes), (Some(true), Some(Bytes(64 << 30))));
    // Nobody set it, and no memory backs it: nothing is measured against it.
    assert_eq!((pool.limit_by, report.verdict.limit_bytes), (Some(LimitSetter::BuiltIn), None));
    let said = report.explanation.iter().chain([&report.headline]);
    assert!(said.into_iter().all(|text| !text.contains("limit")), "{:?}", report.explanation);
    let held = pool.at_peak.as_ref().unwrap();
    assert_eq!(held.before_recording_bytes, Bytes::ZERO);
    assert!(held.named_bytes.0 * 100 >= (held.named_bytes + held.unnamed_bytes).0 * 95);
    // TensorFlow's own figure at the end of the job.
    assert_eq!(pool.lifetime_peak_bytes, Some(Bytes(83_556_608)));
}

#[test]
fn parameters_and_optimizer_are_what_the_program_lists() {
    let report = report();
    let held = report.pools[0].at_peak.as_ref().unwrap();
    for (role, word, bytes) in
        [(Role::Parameters, "parameters", 3_291_688), (Role::Optimizer, "optimizer", 2 * 3_291_688 + 12)]
    {
        let entry = report.inventory.iter().find(|entry| entry.role == role).unwrap();
        assert_eq!(entry.bytes, Bytes(bytes), "{word}");
        // The learning rate, a scalar, lies outside the pool.
        let in_pool = entry.in_pool_bytes.unwrap();
        assert!(bytes - in_pool.0 <= 4, "{word}");
        assert_eq!(held.by_role.get(role), in_pool, "{word}");
    }
    assert!(held.rows.iter().any(|row| row.variable == "sequential/conv2d/kernel"));
}

#[test]
fn steps_epochs_and_phases_are_counted() {
    let report = report();
    let phases: Vec<_> = report
        .phases
        .iter()
        .map(|phase| (phase.phase.word(), phase.steps, phase.batches, phase.how.word()))
        .collect();
    assert_eq!(
        phases,
        [("train", 12, 12, "keras"), ("validation", 4, 4, "keras"), ("predict", 2, 2, "keras")]
    );
    assert_eq!(report.epochs.iter().map(|epoch| epoch.epoch).collect::<Vec<_>>(), [0, 1]);
    assert!(
        report.marks.iter().any(|mark| mark.kind == RecordedMarkKind::Mark && mark.label == "after training")
    );
    let run = report.run.unwrap();
    assert_eq!((run.exit.as_deref(), run.processes.len()), (Some("code 0"), 1));
}

/// The trace covers the first five steps: each has a peak, and the highest of them is the trace's.
#[test]
fn trace_and_marks_are_on_one_clock() {
    let report = report();
    let traced: Vec<Bytes> = report.steps.iter().take(5).map(|step| step.peak_bytes.unwrap()).collect();
    assert_eq!(traced.iter().max().copied(), report.pools[0].peak_bytes);
    let peak_at = report.pools[0].peak_at_ns.unwrap();
    let highest = report.steps.iter().take(5).position(|step| step.peak_bytes == report.pools[0].peak_bytes);
    let begins: Vec<_> = report.steps.iter().map(|step| step.begin_ns).collect();
    let at = highest.unwrap();
    assert!(begins[at] <= peak_at && peak_at <= begins[at + 1], "{begins:?} {peak_at:?}");
}

fn report_of(name: &str) -> Report {
    checked_report(&vramline::read(&fixture(name)).unwrap(), &ReportOptions::default())
}

/// PyTorch 2.11 on an H200, `--step-peaks`: no trace, so what held the memory is not known, but every figure is PyTorch's.
#[test]
fn pytorch_on_a_gpu_is_recorded_by_its_counters() {
    let report = report_of("torch2110_h200_loop.vram");
    assert_eq!(report.source.framework.map(Framework::word), Some("pytorch"));
    let pool = &report.pools[0];
    assert_eq!((pool.name.as_str(), pool.peak_bytes), ("GPU:0", Some(Bytes(155_048_960))));
    assert!(pool.at_peak.is_none() && pool.allocs.is_none());
    let phase = &report.phases[0];
    assert_eq!((phase.phase.word(), phase.steps, phase.how.word()), ("train", 8, "inferred"));
    // Where the first step begins, a loop does not show.
    assert_eq!((phase.first_peak_bytes, phase.later_peaks_known), (None, 7));
    let listed: Vec<_> = report.inventory.iter().map(|entry| (entry.role, entry.bytes.0)).collect();
    assert_eq!(listed, [(Role::Optimizer, 33_914_976), (Role::Parameters, 16_957_480)]);
}

/// Keras 3 on PyTorch on an H200.
#[test]
fn keras_on_pytorch_counts_its_own_steps() {
    let report = report_of("torch2110_h200_keras.vram");
    let phases: Vec<_> =
        report.phases.iter().map(|phase| (phase.phase.word(), phase.steps, phase.how.word())).collect();
    assert_eq!(phases, [("train", 16, "keras"), ("validation", 4, "keras"), ("predict", 1, "keras")]);
    assert_eq!(report.pools[0].lifetime_peak_bytes, Some(Bytes(74_939_392)));
    assert_eq!(report.run.unwrap().processes[0].backend.as_deref(), Some("torch"));
    // JAX is imported beside it and holds nothing.
    assert_eq!(report.source.framework.map(Framework::word), Some("pytorch"));
}

pub(crate) fn copy(from: &Path, to: &Path) {
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            fs::copy(&path, target).unwrap();
        }
    }
}

/// These recordings were made before marks had a column for the trace's state; written anew, with it, they say the same.
#[test]
fn older_recordings_say_what_became_of_the_trace() {
    let scratch = tempfile::tempdir().unwrap();
    for name in ["tf221_cpu_keras.vram", "tf215_cpu_keras2.vram", "jax0112_h200_loop.vram"] {
        let path = scratch.path().join(name);
        copy(&fixture(name), &path);
        let document = || {
            let report = checked_report(&vramline::read(&path).unwrap(), &ReportOptions::default());
            serde_json::to_string(&report).unwrap()
        };
        let before = document();
        let process = reader::read(&path).unwrap().processes.remove(0);
        let states: Vec<_> = process.marks.iter().filter_map(|mark| mark.trace_state).collect();
        assert_eq!(states, [TraceState::Begun, TraceState::Stopped, TraceState::Written], "{name}");
        fs::remove_file(path.join(Part::Marks.name(&process.id))).unwrap();
        let recorder = ProcessRecorder::new(&path, &process.id);
        process.marks.iter().for_each(|mark| assert!(!recorder.mark(mark).unwrap()));
        recorder.close();
        assert_eq!(reader::read(&path).unwrap().processes[0].marks, process.marks, "{name}");
        assert_eq!(document(), before, "{name}");
    }
}

/// JAX 0.11 on an H200: the trace begins when the backend is open, before the first array.
#[test]
fn jax_on_a_gpu_is_traced_from_the_start() {
    let report = report_of("jax0112_h200_loop.vram");
    let pool = report.pools.iter().find(|pool| pool.device == "GPU:0").unwrap();
    assert_eq!((pool.from_start, pool.peak_bytes), (Some(true), Some(Bytes(243_597_568))));
    assert_eq!(pool.lifetime_peak_bytes, Some(Bytes(243_597_568)));
    assert_eq!(pool.at_peak.as_ref().unwrap().before_recording_bytes, Bytes::ZERO);
    // Nothing announces the steps of a plain loop: they are those that the trace shows.
    let steps: Vec<_> =
        report.steps.iter().filter(|step| step.pool == pool.name && step.pid == pool.pid).collect();
    assert_eq!((steps.len(), steps[0].how.word(), steps[0].peak_bytes), (8, "inferred", pool.peak_bytes));
}

/// TensorFlow 2.15 does not say when its profiler began; the recording does.
#[test]
fn an_older_trace_gets_its_clock_from_the_recording() {
    let report = report_of("tf215_cpu_keras2.vram");
    let held = report.pools[0].at_peak.as_ref().unwrap();
    assert_eq!(held.by_role.get(Role::Parameters), Bytes(6_496_728));
    assert_eq!(held.by_role.get(Role::Optimizer), Bytes(12_993_464));
    assert!(report.steps.iter().take(5).all(|step| step.peak_bytes.is_some()));
}
