//! Every rule finds what it is for, and is silent just below its threshold.

use vramline::advise::{Device, Fragments, Largest, StepFigures, findings};
use vramline::event::Framework;
use vramline::ledger::{HeldLine, LineKind, Teller};
use vramline::trace::Phase;
use vramline::trace::cuda_library::CudaLibrary;
use vramline::units::Bytes;

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

fn some(bytes: u64) -> Option<Bytes> {
    Some(Bytes(bytes))
}

fn device() -> Device {
    Device { name: "GPU:0".to_owned(), ..Device::default() }
}

fn rules(devices: &[Device]) -> Vec<&'static str> {
    findings(devices).into_iter().map(|finding| finding.rule).collect()
}

/// The rule reports the first device, with the given bytes, and not the second.
fn reports(rule: &str, bytes: u64, found: Device, silent: Device) {
    let spoken = findings(&[found]);
    let finding =
        spoken.iter().find(|finding| finding.rule == rule).unwrap_or_else(|| panic!("{rule}: {spoken:?}"));
    assert_eq!(finding.bytes, Bytes(bytes), "{rule}");
    assert!(
        finding.text.contains("GPU:0") && !finding.fix.is_empty() && !finding.verify.is_empty(),
        "{finding:?}"
    );
    assert!(!rules(&[silent]).contains(&rule), "{rule}");
}

#[test]
fn a_pool_that_took_everything() {
    let took = |taken, framework, grows| Device {
        taken: some(taken),
        peak: some(GIB),
        framework: Some(framework),
        grows,
        ..device()
    };
    reports(
        "preallocation",
        106 * GIB,
        took(107 * GIB, Framework::Jax, None),
        took(2 * GIB - 1, Framework::Jax, None),
    );
    // A pool that grows took what it took because it was asked for.
    assert!(rules(&[took(107 * GIB, Framework::TensorFlow, Some(true))]).is_empty());
    assert!(rules(&[took(107 * GIB, Framework::PyTorch, None)]).is_empty());
}

#[test]
fn a_cache_that_stays() {
    let kept = |in_use| Device {
        at_end: Some((Bytes(4 * GIB), Bytes(in_use))),
        framework: Some(Framework::PyTorch),
        ..device()
    };
    reports("cache-not-returned", 3 * GIB, kept(GIB), kept(4 * GIB - 255 * MIB));
}

#[test]
fn memory_outside_the_pool() {
    let grown = |bytes| Device {
        held: some(2 * GIB),
        grown_outside: vec![(-(2 << 20), String::new()), (bytes, "step 3".to_owned())],
        ..device()
    };
    reports("outside-the-pool", 220 * MIB, grown(222 << 20), grown(100 << 20));
    assert!(findings(&[grown(222 << 20)])[0].text.contains("(the largest part: 222 MiB, step 3)"));
}

/// A line of what driver calls took.
fn held(kind: LineKind, library: &str, bytes: i64) -> HeldLine {
    HeldLine {
        kind,
        library: CudaLibrary::of(Some(library)),
        count: 128,
        place: None,
        bytes: bytes << 20,
        by: Teller::Calls,
        largest: (bytes - 2) << 20,
        used: None,
        device_only: None,
    }
}

#[test]
fn memory_beside_the_pool_by_name() {
    let with = |lines| Device { held: some(GIB), beside: lines, ..device() };
    let streams = |bytes| with(vec![held(LineKind::Streams, "libc10_cuda.so", bytes)]);
    reports("many-streams", 70 * MIB, streams(70), streams(50));
    assert!(
        findings(&[streams(70)])[0]
            .text
            .starts_with("PyTorch made 128 streams on GPU:0, which hold 70.0 MiB (6 %")
    );
    let cublas = |bytes| with(vec![held(LineKind::LibraryMemory, "libcublas.so.13", bytes)]);
    reports("cublas-memory", 64 * MIB, cublas(64), cublas(51));
    let launches = |bytes| with(vec![held(LineKind::FirstLaunches, "libtorch_cuda.so", bytes)]);
    reports("first-launch", 92 * MIB, launches(92), launches(51));
    // Many small launches are no such thing.
    let mut small = launches(92);
    small.beside[0].largest = 2 << 20;
    assert!(rules(&[small]).is_empty());
    let others = |bytes| {
        let cupy = held(LineKind::ProgramMemory, "/site-packages/cupy/cuda/x.so", bytes);
        with(vec![cupy, held(LineKind::LibraryMemory, "libcublas.so.13", 40)])
    };
    reports("outside-the-pool", 288 * MIB, others(288), others(127));
    assert!(findings(&[others(288)])[0].text.contains("CuPy 288 MiB"));
}

#[test]
fn neighbours_on_the_device() {
    let beside = |bytes| Device { others: Some((2, Bytes(bytes))), held: some(GIB), ..device() };
    reports("other-processes", 3 * GIB, beside(3 * GIB), beside(255 * MIB));
}

#[test]
fn a_limit_that_is_none_on_the_process() {
    let limited =
        |held| Device { limit: some(512 * MIB), held: some(held), context: some(600 * MIB), ..device() };
    reports("limit-without-context", 1357 * MIB, limited(1869 * MIB), limited(512 * MIB));
}

#[test]
fn a_peak_where_nobody_looks() {
    let step = |number, peak| StepFigures {
        number,
        phase: Phase::Train,
        peak: some(peak),
        ..StepFigures::default()
    };
    let first = |peak: u64, place: Option<&str>| Device {
        peak: some(peak),
        peak_in: place.map(str::to_owned),
        steps: vec![step(0, peak), step(1, 200 * MIB), step(2, 210 * MIB)],
        ..device()
    };
    reports(
        "peak-elsewhere",
        90 * MIB,
        first(300 * MIB, Some("the first step (step 0)")),
        first(300 * MIB, None),
    );
    assert!(rules(&[first(225 * MIB, Some("the first step (step 0)"))]).is_empty());
}

#[test]
fn fragmentation_and_its_cause() {
    let torn = |pool, churn| Device {
        fragments: Some(Fragments { pool: Bytes(pool), peak: Bytes(GIB), cause: None, churn }),
        framework: Some(Framework::PyTorch),
        ..device()
    };
    reports("fragmentation", GIB, torn(2 * GIB, None), torn(GIB + 100 * MIB, None));
    let churn = Some((Bytes(300 * MIB), "Pad".to_owned()));
    reports("shape-churn", GIB, torn(2 * GIB, churn.clone()), torn(GIB + 100 * MIB, churn));
}

#[test]
fn one_thing_and_nothing() {
    let held = |bytes, count| Device {
        peak: some(GIB),
        largest: Some(Largest {
            what: "logits".to_owned(),
            bytes: Bytes(bytes),
            count,
            is_of_compiler: false,
        }),
        ..device()
    };
    reports("one-tensor", 500 * MIB, held(500 * MIB, 1), held(400 * MIB, 1));
    assert!(rules(&[held(500 * MIB, 2)]).is_empty());
    let slack = |bytes| Device { peak: some(GIB), slack: some(bytes), ..device() };
    reports("slack", 200 * MIB, slack(200 * MIB), slack(100 * MIB));
}

#[test]
fn devices_that_need_different_amounts() {
    let kind = "GPU".to_owned();
    let needs = |name: &str, peak| Device {
        name: name.to_owned(),
        kind: kind.clone(),
        peak: some(peak),
        ..Device::default()
    };
    assert_eq!(rules(&[needs("GPU:0", 4 * GIB), needs("GPU:1", 2 * GIB)]), ["imbalance"]);
    assert!(rules(&[needs("GPU:0", 4 * GIB), needs("GPU:1", 4 * GIB - 300 * MIB)]).is_empty());
    assert!(rules(&[needs("GPU:0", 4 * GIB)]).is_empty());
}

/// Eight devices that hold the same are one finding.
#[test]
fn what_holds_of_several_devices_is_said_once() {
    let holds = |name: &str, what: &str| Device {
        name: name.to_owned(),
        peak: some(GIB),
        largest: Some(Largest {
            what: what.to_owned(),
            bytes: Bytes(500 * MIB),
            count: 1,
            is_of_compiler: false,
        }),
        ..Device::default()
    };
    let devices =
        [holds("TPU:0", "logits"), holds("TPU:1", "logits"), holds("TPU:2", "logits"), holds("TPU:3", "")];
    let found = findings(&devices);
    assert_eq!(found.len(), 2);
    assert!(
        found[0].text.starts_with("One block takes 500 MiB, 48 % of the peak of TPU:0: logits."),
        "{}",
        found[0].text
    );
    assert!(found[0].text.ends_with(" The same holds for 2 more devices."), "{}", found[0].text);
    assert!(found[1].text.ends_with("48 % of the peak of TPU:3: its name is unknown."));
}

#[test]
fn a_leak_comes_first() {
    let step = |number: i64| StepFigures {
        number,
        phase: Phase::Train,
        current: some(100 * MIB + number.unsigned_abs() * MIB),
        ..StepFigures::default()
    };
    let leaking =
        Device { steps: (0..40).map(step).collect(), others: Some((1, Bytes(50 * GIB))), ..device() };
    assert_eq!(rules(&[leaking]), ["leak", "other-processes"]);
    assert!(rules(&[device()]).is_empty());
}
