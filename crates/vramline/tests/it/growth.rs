//! Memory that grows, in recordings written here: told by what it grows with, and named by what the program lists.

use std::fs;
use std::path::Path;

use vramline::analysis::report::ReportOptions;
use vramline::event::{How, Phase};
use vramline::recording::folder::ProcessId;
use vramline::recording::process::ProcessRecorder;
use vramline::recording::rows::{Counters, Inventory, Mark, Moment, RecordedMarkKind, Variable};
use vramline::snapshot::Role;
use vramline::units::Bytes;
use vramline::view::findings::FindingView;

use crate::writer::{Plane, Value, memory_stats, space};
use crate::{checked_report, fixture, report_on};

const MIB: i64 = 1 << 20;
const GROWTH: [&str; 3] = ["leak", "staircase", "growing-inputs"];

/// A program that is being recorded; a tick is a millisecond.
struct Job<'a> {
    recorder: ProcessRecorder,
    folder: &'a Path,
    now: i64,
    steps: i64,
}

impl Job<'_> {
    fn new(folder: &Path) -> Job<'_> {
        let recorder = ProcessRecorder::new(folder, &ProcessId::new("host", 7, 1));
        Job { recorder, folder, now: 1_000_000_000, steps: 0 }
    }

    fn tick(&mut self) -> Moment {
        self.now += 1_000_000;
        Moment { monotonic: self.now, wall: self.now }
    }

    fn counters(current: i64, peak: i64) -> Vec<Counters> {
        let device = "CPU:0".to_owned();
        vec![Counters { device, current: Some(current), peak: Some(peak), ..Counters::default() }]
    }

    /// A step, with what is in use at its end and at most.
    fn step(&mut self, epoch: Option<i64>, current: i64, peak: i64) {
        let (begin, time) = (self.tick().monotonic, self.tick());
        let how = if epoch.is_some() { How::Keras } else { How::Inferred };
        let mark = Mark {
            kind: RecordedMarkKind::Step,
            phase: Some(Phase::Train),
            how: Some(how),
            step: Some(self.steps),
            epoch,
            begin: Some(begin),
            time,
            counters: Job::counters(current, peak),
            ..Mark::default()
        };
        self.steps += 1;
        self.recorder.mark(&mark).unwrap();
    }

    fn fit(&mut self, current: impl Fn(i64) -> i64) {
        let begin = self.tick().monotonic;
        self.steps = 0;
        for step in 0..6 {
            self.step(Some(0), current(step), current(step) + 3 * MIB);
        }
        let time = self.tick();
        let mark = Mark {
            kind: RecordedMarkKind::Phase,
            label: Some("fit".to_owned()),
            phase: Some(Phase::Train),
            how: Some(How::Keras),
            begin: Some(begin),
            time,
            ..Mark::default()
        };
        self.recorder.mark(&mark).unwrap();
    }

    fn retrace(&mut self, function: &str) {
        let time = self.tick();
        let mark = Mark {
            kind: RecordedMarkKind::Retrace,
            label: Some(function.to_owned()),
            time,
            ..Mark::default()
        };
        self.recorder.mark(&mark).unwrap();
    }

    /// Variables of these names, with their width: squares of float32.
    fn list(&mut self, variables: &[(&str, u64)]) {
        let variable = |&(name, width): &(&str, u64)| Variable {
            name: name.to_owned(),
            role: Role::Parameters,
            shape: Some(format!("[{width},{width}]")),
            dtype: Some("float32".to_owned()),
            bytes: Bytes(4 * width * width),
            device: Some("CPU:0".to_owned()),
            ..Variable::default()
        };
        let variables = variables.iter().map(variable).collect();
        let time = self.tick();
        self.recorder.inventory(&Inventory { time, variables }).unwrap();
    }

    /// What is found about growth.
    fn found(self) -> Vec<FindingView> {
        self.recorder.close();
        let reading = vramline::read(self.folder).unwrap();
        let mut found = checked_report(&reading, &ReportOptions::default()).findings;
        found.retain(|finding| GROWTH.contains(&finding.rule));
        found
    }
}

fn only(found: Vec<FindingView>, rule: &str) -> FindingView {
    assert_eq!(found.iter().map(|finding| finding.rule).collect::<Vec<_>>(), [rule], "{found:?}");
    found.into_iter().next().unwrap()
}

#[test]
fn models_that_live_on_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let mut job = Job::new(folder.path());
    for fit in 0..4 {
        job.fit(|step| 20 * MIB + 4 * MIB * fit - step * 1024);
        let model: [(&str, u64); 2] = [("net512/dense/kernel", 512), ("net512/dense_1/kernel", 512)];
        job.list(&model.repeat(usize::try_from(fit + 1).unwrap()));
    }
    let found = only(job.found(), "staircase");
    assert!(
        found.text.contains(
            "grows by 4.00 MiB with each fit and is not freed: 12.0 MiB in total, at fits 2, 3 and 4."
        ),
        "{found:?}"
    );
    // A layer that is there twice in each model has the same name but for its number.
    assert!(
        found.text.contains("net512/dense/kernel float32[512,512] (8 instead of 2, 6.00 MiB)"),
        "{found:?}"
    );
    assert!(found.fix.contains("keras.backend.clear_session()"), "{found:?}");
}

#[test]
fn two_stairs_are_enough_where_the_variables_confirm_them() {
    for confirms in [true, false] {
        let folder = tempfile::tempdir().unwrap();
        let mut job = Job::new(folder.path());
        for fit in 0..3 {
            job.fit(|_| 20 * MIB + 2 * MIB * fit);
            let count = if confirms { usize::try_from(fit + 1).unwrap() } else { 1 };
            job.list(&[("net/kernel", 700)].repeat(count));
        }
        assert_eq!(job.found().len(), usize::from(confirms));
    }
}

#[test]
fn larger_models_are_no_staircase() {
    let folder = tempfile::tempdir().unwrap();
    let mut job = Job::new(folder.path());
    for fit in 0..5 {
        let width = 512 + 128 * u64::try_from(fit).unwrap();
        job.fit(|_| 20 * MIB + i64::try_from(4 * width * width).unwrap());
        job.list(&[("net/dense/kernel", width), ("net/dense/bias", 8)]);
    }
    assert!(job.found().is_empty());
}

#[test]
fn variables_that_become_more_name_a_leak() {
    let folder = tempfile::tempdir().unwrap();
    let mut job = Job::new(folder.path());
    for step in 0..40 {
        job.step(None, 20 * MIB + MIB * step, 30 * MIB + MIB * step);
        if step == 4 || step == 39 {
            job.list(&[("moving_average:0", 512)].repeat(usize::try_from(step + 1).unwrap()));
        }
    }
    let found = only(job.found(), "leak");
    assert!(
        found.text.contains("moving_average:0 float32[512,512] (40 instead of 5, 35.0 MiB)"),
        "{found:?}"
    );
    assert!(found.fix.contains("outside the step"), "{found:?}");
}

#[test]
fn traces_of_a_function_name_their_stairs() {
    let folder = tempfile::tempdir().unwrap();
    let mut job = Job::new(folder.path());
    for step in 0..40 {
        if step > 0 && step % 5 == 0 {
            job.retrace("train");
        }
        job.step(None, 20 * MIB + MIB * (step / 5), 30 * MIB + MIB * (step / 5));
    }
    let found = only(job.found(), "staircase");
    assert!(
        found.text.contains("with each retrace of a tf.function")
            && found
                .text
                .contains("at steps 5, 10, 15, 20, ..., 35 (7 in total). Retraced: train (7 times)."),
        "{found:?}"
    );
    assert!(
        found.fix.contains("reduce_retracing=True") && found.fix.contains("input_signature"),
        "{found:?}"
    );
}

#[test]
fn longer_inputs_are_no_leak() {
    for (peak, rule) in [(9 * MIB, "growing-inputs"), (MIB, "leak")] {
        let folder = tempfile::tempdir().unwrap();
        let mut job = Job::new(folder.path());
        for step in 0..40 {
            job.step(None, 20 * MIB + MIB * step, 40 * MIB + peak * step);
        }
        only(job.found(), rule);
    }
}

/// A trace of six steps: one op asks for other sizes in each, another for the same.
pub(crate) fn ragged_steps() -> Vec<u8> {
    let mut plane = Plane::host();
    let mut events = Vec::new();
    for (step, size) in (0..).zip([512, 2048, 1024, 4096, 3072, 1536]) {
        let begin = 10_000 * (step + 1);
        events.push(plane.event("train", begin, 9_000, &[("step_num", Value::Int(step))]));
        let asked = [(size, "model/dense/MatMul", 4096), (1024, "model/dense/BiasAdd", 65_536)];
        for (at, (bytes, op, address)) in (0..).zip(asked) {
            let in_use = if at == 0 { bytes } else { size + bytes };
            let mut stats = memory_stats("GPU_0_bfc", bytes, bytes, address, in_use);
            stats.push(("tf_op", Value::Ref(op.to_owned())));
            events.push(plane.event("MemoryAllocation", begin + 100 * (at + 1), 0, &stats));
        }
        for (at, (bytes, _, address)) in (0..).zip(asked) {
            let in_use = if at == 0 { 1024 } else { 0 };
            let stats = memory_stats("GPU_0_bfc", bytes, bytes, address, in_use);
            events.push(plane.event("MemoryDeallocation", begin + 1_000 + 100 * at, 0, &stats));
        }
    }
    plane.line("python", 0, &events);
    space(&[&plane])
}

#[test]
fn ops_that_ask_for_other_sizes_are_told() {
    let report = report_on(&ragged_steps(), &ReportOptions::default());
    let patterns = report.pools[0].patterns.as_ref().unwrap();
    assert_eq!((patterns.steps, patterns.steady_from_step, patterns.churning_ops), (6, None, 1));
    // Half of the requests come again: the other op's.
    assert!((patterns.repeated_requests.unwrap() - 0.5).abs() < 1e-9, "{patterns:?}");
    let repeated = f64::from(5 * 1024) / f64::from(5 * 1024 + 2048 + 1024 + 4096 + 3072 + 1536);
    assert!((patterns.repeated_bytes.unwrap() - repeated).abs() < 1e-9, "{patterns:?}");
    let op = &patterns.churning[0];
    assert_eq!((op.op.as_str(), op.layer.as_str()), ("model/dense/MatMul", "dense"));
    assert_eq!((op.steps, op.sizes), (5, 5));
    assert_eq!(
        (op.smallest_bytes, op.largest_bytes, op.total_bytes),
        (Bytes(1024), Bytes(4096), Bytes(11_776))
    );
    // Addresses that no allocator gave are not replayed.
    assert_eq!((patterns.pool_bytes, patterns.padded_pool_bytes), (None, None));
    assert!(report.findings.iter().all(|finding| !GROWTH.contains(&finding.rule)));
}

/// No fixture grows, whatever its framework; and what is said of steps that repeat holds together.
#[test]
fn fixtures_do_not_grow() {
    let mut patterns = 0;
    for entry in fs::read_dir(fixture("")).unwrap().chain(fs::read_dir(fixture("torch")).unwrap()) {
        let path = entry.unwrap().path();
        let Ok(reading) = vramline::read(&path) else { continue };
        let report = checked_report(&reading, &ReportOptions::default());
        let found = report.findings.iter().filter(|finding| GROWTH.contains(&finding.rule)).count();
        assert_eq!(found, 0, "{}: {:?}", path.display(), report.findings);
        for pool in report.pools.iter().filter(|pool| pool.patterns.is_some()) {
            let pattern = pool.patterns.as_ref().unwrap();
            assert!(
                pattern.repeated_requests.is_some_and(|share| (0.0..=1.0).contains(&share)),
                "{}",
                path.display()
            );
            assert!(
                pattern.repeated_bytes.is_some_and(|share| (0.0..=1.0).contains(&share)),
                "{}",
                path.display()
            );
            assert!(pattern.churning.len() == pattern.churning_ops.min(10), "{}", path.display());
            let exact = pool.replay.as_ref().filter(|replay| replay.exact).map(|replay| replay.pool_bytes);
            assert_eq!(pattern.pool_bytes, exact, "{}", path.display());
            if pattern.churning_ops == 0 {
                assert_eq!(pattern.padded_pool_bytes, exact, "{}", path.display());
            }
            patterns += 1;
        }
    }
    assert!(patterns > 5, "{patterns}");
}
