//! What lies beside the pool: recordings of an H200 with driver calls, and calls made by hand.

use std::collections::BTreeMap;
use std::sync::Arc;

use proptest::prelude::*;
use vramline::analysis::accounts::{Accounts, DeviceLedger};
use vramline::analysis::report::{ReportAnalysis, ReportOptions, report as analyse};
use vramline::event::Framework;
use vramline::ledger::moments::LedgerMoment;
use vramline::ledger::{
    Cause, Facts, Growth, JobProcess, Ledger, OutsideEstimate, PoolFigures, SourcedBytes, Teller, What,
};
use vramline::recording::driver_calls::{DriverCall, DriverCalls, NoLine, PythonLine};
use vramline::recording::folder::ProcessId;
use vramline::trace::driver_holdings::{DriverHoldings, DriverUse, HoldingsAt};
use vramline::units::{Bytes, Nanos};

use super::{checked_report, fixture};

const MIB: i64 = 1 << 20;

/// Every recording, with what NVML counts for the process that its ledger is about at the peak and at the end, in MiB.
const RECORDINGS: [(&str, i64, i64); 7] = [
    ("torch_graph", 852, 852),
    ("torch_async", 720, 810),
    ("torch_processes", 728, 728),
    ("jax_growing", 904, 892),
    ("jax_preallocated", 107_998, 107_986),
    ("cupy", 816, 682),
    ("cupy_torch", 728, 1022),
];

fn sum(ledger: &Ledger, word: &str) -> i64 {
    ledger.lines.iter().filter(|line| line.what.word() == word).filter_map(|line| line.bytes).sum()
}

fn detail(ledger: &Ledger, word: &str) -> String {
    ledger.lines.iter().find(|line| line.what.word() == word).map_or(String::new(), |line| line.what.detail())
}

/// What NVML counts for the first process of a ledger, and how much of it has a name, in tenths of a percent.
fn named(ledger: &DeviceLedger) -> (i64, i64) {
    let lines = &ledger.ledger.lines;
    let place = lines.iter().position(|line| line.what.word() == "this job").expect("a process");
    let held = lines[place].bytes.expect("its figure");
    let parts = lines.iter().filter(|line| line.of == Some(place));
    let unexplained = parts.filter(|line| line.what.word() == "unexplained").filter_map(|line| line.bytes);
    (held / MIB, (held - unexplained.map(i64::abs).sum::<i64>()) * 1000 / held)
}

#[test]
fn recordings_of_a_real_gpu_have_a_name_for_nearly_everything() {
    for (name, at_peak, at_end) in RECORDINGS {
        let reading = vramline::read(&fixture(&format!("beside/{name}.vram"))).unwrap();
        checked_report(&reading, &ReportOptions::default());
        let report = analyse(&reading, &ReportOptions::default());
        let gpu = |ledgers: &[DeviceLedger]| {
            ledgers.iter().find(|each| each.ledger.device == "GPU:0").cloned().expect("the ledger of the GPU")
        };
        let (peak, end) = (gpu(&report.ledgers), gpu(&report.ledgers_at_end));
        assert_eq!(end.moment, LedgerMoment::End, "{name}");
        for (ledger, held) in [(&peak, at_peak), (&end, at_end)] {
            assert!(ledger.ledger.adds_up(), "{name}");
            let (counted, share) = named(ledger);
            assert_eq!(counted, held, "{name}");
            assert!(share >= 980, "{name}: {share} of 1000 at {:?}", ledger.moment);
            // One process or two: each context takes the same.
            assert_eq!(sum(&ledger.ledger, "context") % (518 * MIB), 0, "{name}");
        }
    }
}

/// The lines add up at every moment, whichever reading of the driver is taken, and no pool is counted twice.
#[test]
fn every_moment_adds_up() {
    for (name, ..) in RECORDINGS {
        let reading = vramline::read(&fixture(&format!("beside/{name}.vram"))).unwrap();
        let pools = analyse(&reading, &ReportOptions::default()).pools;
        let accounts = Accounts::of(&reading, &pools).unwrap();
        let recorded = reading.recorded.as_ref().unwrap();
        let rows = recorded.driver.iter().map(|row| row.time.monotonic);
        let calls = recorded.driver_calls.iter().flat_map(|calls| &calls.calls).map(|call| call.end.0);
        for time in rows.chain(calls) {
            for books in &accounts.books {
                let ledger = accounts.at(books, time);
                assert!(ledger.adds_up(), "{name} at {time}: {ledger:#?}");
            }
        }
    }
}

fn peak_of(name: &str) -> Ledger {
    let reading = vramline::read(&fixture(&format!("beside/{name}.vram"))).unwrap();
    analyse(&reading, &ReportOptions::default()).ledgers.remove(0).ledger
}

#[test]
fn parts_have_their_libraries_and_numbers() {
    let graph = peak_of("torch_graph");
    assert_eq!((sum(&graph, "context"), sum(&graph, "streams")), (518 * MIB, 70 * MIB));
    assert_eq!((sum(&graph, "first launches"), sum(&graph, "pool")), (92 * MIB, 106 * MIB));
    assert!(detail(&graph, "streams").starts_with("PyTorch, 128 streams, streams.py:"));
    assert!(detail(&graph, "library memory").starts_with("cuBLAS, 3 allocations"));
    assert!(detail(&graph, "context").contains("without 8.81 MiB that NVML counts for the device only"));
    assert!(
        detail(&graph, "pool").starts_with("cuda:0, 5 segments of PyTorch"),
        "{}",
        detail(&graph, "pool")
    );
    // Memory of cuBLAS by its requests; pages of 2 MiB are the rounding.
    let asked = sum(&graph, "library memory");
    assert_eq!(asked + sum(&graph, "page rounding"), 66 * MIB);
    assert!(asked < 65 * MIB);
    let jax = peak_of("jax_preallocated");
    assert_eq!(sum(&jax, "pool"), 107_368 * MIB);
    assert!(detail(&jax, "pool").starts_with("GPU_0_bfc, 1 segment of JAX"), "{}", detail(&jax, "pool"));
    // A profiler took 12 MiB while it traced, with calls that are not recorded.
    assert_eq!(sum(&jax, "unexplained"), 14 * MIB);
    assert!(detail(&jax, "unexplained").contains("14.0 MiB changed between recorded calls"));
}

/// The driver's own pool, whose size no trace of PyTorch shows.
#[test]
fn a_pool_of_the_driver_is_the_frameworks() {
    let ledger = peak_of("torch_async");
    assert_eq!(sum(&ledger, "pool"), 64 * MIB);
    let pool = ledger.lines.iter().find(|line| line.what.word() == "pool").unwrap();
    assert_eq!(pool.by, Teller::Calls);
    assert!(pool.what.detail().contains("cudaMallocAsync of PyTorch"), "{}", pool.what.detail());
}

/// The report on those files of a recording whose names begin so.
fn report_of_files(recording: &str, starts: &[&str]) -> ReportAnalysis {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("part.vram");
    std::fs::create_dir(&path).unwrap();
    for entry in std::fs::read_dir(fixture(recording)).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if !starts.iter().any(|start| name.starts_with(start)) {
            continue;
        }
        if entry.path().is_dir() {
            std::fs::create_dir(path.join(&name)).unwrap();
            for file in std::fs::read_dir(entry.path()).unwrap().map(Result::unwrap) {
                std::fs::copy(file.path(), path.join(&name).join(file.file_name())).unwrap();
            }
        } else {
            std::fs::copy(entry.path(), path.join(name)).unwrap();
        }
    }
    let reading = vramline::read(&path).unwrap();
    checked_report(&reading, &ReportOptions::default());
    analyse(&reading, &ReportOptions::default())
}

/// A program without a framework that Vramline knows: everything is its own or a library's.
#[test]
fn a_job_without_a_framework_has_a_ledger() {
    let report = report_of_files("beside/torch_graph.vram", &["run.json", "driver.arrows", "calls-"]);
    let ledger = &report.ledgers[0];
    assert_eq!(ledger.moment, LedgerMoment::ProcessPeak);
    assert!(ledger.ledger.adds_up() && named(ledger) == (852, 1000), "{:#?}", ledger.ledger);
    assert!((0..60_000_000_000).contains(&ledger.at.0), "{:?}", ledger.at);
    assert_eq!(sum(&ledger.ledger, "library memory"), 106 * MIB + 67_240_960);
    assert!(
        report
            .answer
            .headline
            .contains("nvidia-smi shows 852 MiB for this job on GPU:0: context 518 MiB, PyTorch 106 MiB"),
        "{}",
        report.answer.headline
    );
}

/// A framework that reports nothing about its pool, and whose allocator records no events: calls tell its size and its use.
#[test]
fn a_silent_pool_is_known_by_calls() {
    let report =
        report_of_files("beside/torch_async.vram", &["run.json", "driver.arrows", "process-", "calls-"]);
    // Four blocks of 4 MiB and a workspace of 32 MiB.
    assert_eq!(report.pools[0].peak, Some(Bytes(48 << 20)));
    assert!(report.warnings.iter().any(|warning| warning.code == "pool-by-calls"), "{:?}", report.warnings);
    let ledger = &report.ledgers[0];
    assert!(ledger.ledger.adds_up() && named(ledger).1 == 1000, "{:#?}", ledger.ledger);
    assert_eq!((sum(&ledger.ledger, "pool"), sum(&ledger.ledger, "in use")), (64 * MIB, 48 * MIB));
    assert!(
        report.answer.headline.starts_with("Peak memory: 48.0 MiB on GPU:0"),
        "{}",
        report.answer.headline
    );
}

#[test]
fn findings_name_streams_launches_and_cublas() {
    let reading = vramline::read(&fixture("beside/torch_graph.vram")).unwrap();
    let report = analyse(&reading, &ReportOptions::default());
    let rules: Vec<&str> = report.findings.iter().map(|finding| finding.rule).collect();
    assert_eq!(rules, ["first-launch", "many-streams", "cublas-memory"]);
    let answer = report.answer.explanation.join(" ");
    assert!(
        answer.contains("746 MiB outside the pool (context 518 MiB, first launches of PyTorch 92.0 MiB"),
        "{answer}"
    );
}

/// Names of the program's own libraries and lines are private; what everybody has is not.
#[test]
fn redaction_keeps_the_figures() {
    let path = fixture("beside/torch_graph.vram");
    let plain = vramline::read(&path).unwrap();
    let mut hidden = vramline::read(&path).unwrap();
    vramline::analysis::redaction::Redaction::default().reading(&mut hidden);
    let ledger = |reading| analyse(reading, &ReportOptions::default()).ledgers.remove(0).ledger;
    let (plain, hidden) = (ledger(&plain), ledger(&hidden));
    let figures = |ledger: &Ledger| ledger.lines.iter().map(|line| line.bytes).collect::<Vec<_>>();
    assert_eq!(figures(&plain), figures(&hidden));
    assert!(
        detail(&hidden, "streams").starts_with("PyTorch, 128 streams, file-"),
        "{}",
        detail(&hidden, "streams")
    );
}

/// Without driver calls the context is known where it was measured with the same versions, and nowhere else.
#[test]
fn a_context_is_estimated_for_known_versions_only() {
    let of = |driver, gpu, version| OutsideEstimate::of(Some(driver), Some(gpu), Some(("torch", version)));
    let known = of("580.159.04", "NVIDIA H200", "2.11.0+cu130");
    assert_eq!(known.context(), Some(Bytes(518 << 20)));
    for other in [
        of("580.159.05", "NVIDIA H200", "2.11.0+cu130"),
        of("580.159.04", "NVIDIA H100", "2.11.0+cu130"),
        of("580.159.04", "NVIDIA H200", "2.12.0"),
    ] {
        let OutsideEstimate::NotMeasured(why) = other else { panic!("{other:?}") };
        assert!(why.starts_with("not split: no context was measured with driver 580.159.0"), "{why}");
    }
    assert_eq!(OutsideEstimate::of(None, Some("NVIDIA H200"), None), OutsideEstimate::None);
    let reading = vramline::read(&fixture("torch2110_h200_near_full.vram")).unwrap();
    let ledger = analyse(&reading, &ReportOptions::default()).ledgers.remove(0).ledger;
    assert!(ledger.adds_up());
    let parts = |ledger: &Ledger| -> Vec<(&'static str, i64, Teller)> {
        let whole = ledger.lines.iter().position(|line| line.what.word() == "context at start");
        let parts = ledger.lines.iter().filter(|line| line.of.is_some() && line.of == whole);
        parts.map(|line| (line.what.word(), line.bytes.unwrap() / MIB, line.by)).collect()
    };
    let by = Teller::Estimated;
    assert_eq!(
        parts(&ledger),
        [("context", 518, by), ("first launches", 92, by), ("library memory", 66, by)]
    );
    let jax = vramline::read(&fixture("jax0112_h200_preallocated_pool.vram")).unwrap();
    let ledger = analyse(&jax, &ReportOptions::default()).ledgers.remove(0).ledger;
    assert_eq!(parts(&ledger), [("context", 518, by), ("code, streams and libraries", 32, by)]);
    assert_eq!(detail(&ledger, "library memory"), "cuBLAS, outside all steps and marks, by its size");
}

/// The lines of a ledger whose library is known, in MiB, with their word.
fn of_libraries(ledger: &Ledger) -> Vec<(String, String, i64)> {
    let line = |line: &vramline::ledger::Line| {
        let library = match &line.what {
            What::Held(held) => held.library.name.clone(),
            What::EstimatedStep(step) => step.library.clone(),
            _ => return None,
        };
        Some((line.what.word().to_owned(), library, line.bytes? / MIB))
    };
    ledger.lines.iter().filter_map(line).collect()
}

/// Recordings with driver calls, read without these: whatever is named by its size has the name that the calls give it.
#[test]
fn sizes_give_the_names_that_calls_give() {
    let files = ["run.json", "driver.arrows", "marks-", "process-", "samples-", "trace-"];
    // The bytes outside the pool and the context, and how many of them were named, in MiB.
    for (name, outside, named) in [
        ("torch_graph", 228, 228),
        ("torch_async", 138, 136),
        ("torch_processes", 250, 250),
        ("jax_growing", 112, 64),
        ("jax_preallocated", 110, 0),
        // 288 MiB of it are CuPy's.
        ("cupy_torch", 452, 0),
    ] {
        let calls = of_libraries(&peak_of(name));
        let report = report_of_files(&format!("beside/{name}.vram"), &files);
        let ledger = &report.ledgers[0].ledger;
        assert!(ledger.adds_up(), "{name}");
        let estimated = of_libraries(ledger);
        for (word, library, mib) in &estimated {
            let is_it = |by_calls: &&(String, String, i64)| {
                by_calls.0 == *word && by_calls.1 == *library && (by_calls.2 - mib).abs() <= 2
            };
            assert!(
                calls.iter().any(|line| is_it(&line)),
                "{name}: {word} of {library}, {mib} MiB: {calls:?}"
            );
        }
        assert_eq!(estimated.iter().map(|line| line.2).sum::<i64>(), named, "{name}");
        let whole = sum(ledger, "context at start") + sum(ledger, "outside the pools");
        let in_context: i64 = ledger
            .lines
            .iter()
            .filter(|line| matches!(&line.what, What::EstimatedStep(step) if step.growth.is_none()))
            .filter_map(|line| line.bytes)
            .sum();
        let later = named * MIB - in_context;
        assert_eq!((whole + later - sum(ledger, "context")) / MIB, outside, "{name}");
    }
    let graph = report_of_files("beside/torch_graph.vram", &files);
    let answer = graph.answer.explanation.join(" ");
    assert!(
        answer.contains(
            "746 MiB for context and libraries (estimated: context 518 MiB, first launches of PyTorch 92.0 MiB, streams of PyTorch 70.0 MiB \
             and more)"
        ),
        "{answer}"
    );
}

/// A process that held so many MiB outside its pool at first, and then grew by these.
fn estimated(at_start: u64, growths: &[i64]) -> Ledger {
    let growth = |(time, mib): (i64, &i64)| Growth {
        after: Nanos(time - 1),
        by: Nanos(time),
        bytes: mib * MIB,
        cause: Cause::Unmarked,
    };
    let pool = SourcedBytes { bytes: Bytes(100 << 20), by: Teller::Framework };
    let held = i64::try_from(at_start).unwrap() + 100 + growths.iter().sum::<i64>();
    let process = JobProcess {
        pid: 7,
        held: Some(Bytes(u64::try_from(held.max(0)).unwrap() << 20)),
        context: Some(Bytes(at_start << 20)),
        estimate: OutsideEstimate::of(
            Some("580.159.04"),
            Some("NVIDIA H200"),
            Some(("torch", "2.11.0+cu130")),
        ),
        growths: (1..).zip(growths).map(growth).collect(),
        pools: vec![PoolFigures { taken: Some(pool), ..PoolFigures::default() }],
        ..JobProcess::default()
    };
    Ledger::of(&Facts { device: "GPU:0".to_owned(), job: vec![process], ..Facts::default() })
}

/// A change is named if one step only has its size, once, and if nothing of it may have been freed.
#[test]
fn a_size_that_does_not_tell_has_no_name() {
    let named = |at_start, growths: &[i64]| {
        let lines = of_libraries(&estimated(at_start, growths));
        lines.into_iter().map(|(_, library, mib)| (library, mib)).collect::<Vec<_>>()
    };
    let of = |lines: &[(&str, i64)]| {
        lines.iter().map(|&(library, mib)| (library.to_owned(), mib)).collect::<Vec<_>>()
    };
    assert_eq!(named(518, &[66, 92]), of(&[("cuBLAS", 66), ("PyTorch", 92)]));
    // Pages may differ by one; never more than was measured here.
    assert_eq!(named(518, &[90, 64]), of(&[("PyTorch", 90), ("cuBLAS", 64)]));
    assert_eq!(named(518, &[94]), of(&[("PyTorch", 92)]));
    // The streams of PyTorch or cuBLAS.
    assert_eq!(named(518, &[68]), []);
    assert_eq!(named(518, &[40, 96, -92]), []);
    // Each once.
    assert_eq!(named(518, &[66, 66]), of(&[("cuBLAS", 66)]));
    assert_eq!(named(518 + 66, &[66]), of(&[("cuBLAS", 66)]));
    assert_eq!(named(518, &[66, 10, -12]), []);
    assert_eq!(named(518, &[66, 12, -12]), of(&[("cuBLAS", 66)]));
    assert_eq!(named(518 + 92 + 70 + 66 + 2, &[]), of(&[("PyTorch", 92), ("PyTorch", 70), ("cuBLAS", 66)]));
    assert_eq!(named(518 + 92 + 70 + 66 + 6, &[]), []);
    assert_eq!(named(400, &[]), []);
}

/// A successful call of a library at a time, which changed memory by so many MiB.
fn call(time: i64, function: &str, library: &str, grew: i64) -> DriverCall {
    DriverCall {
        function: function.into(),
        thread: 1,
        begin: Nanos(time - 1),
        end: Nanos(time),
        bytes: None,
        handle: None,
        other: None,
        result: 0,
        is_overlapping: false,
        is_guess: false,
        before: Some(Bytes(0)),
        after: Some(Bytes(0)),
        gap: 0,
        grew: grew * MIB,
        listed: None,
        is_shared: false,
        pool: None,
        library: Some(library.into()),
        device: 0,
        nth: 1,
        line: Err(NoLine::NoLock),
        stack: Vec::new(),
    }
}

fn with(mut call: DriverCall, bytes: Option<i64>, handle: u64, other: Option<u64>) -> DriverCall {
    call.bytes = bytes.map(|bytes| Bytes(u64::try_from(bytes * MIB).unwrap()));
    (call.handle, call.other) = (Some(handle), other);
    call
}

fn all(calls: Vec<DriverCall>) -> DriverCalls {
    DriverCalls {
        id: ProcessId::new("host", 1, 2),
        calls,
        devices: BTreeMap::new(),
        communicators: Vec::new(),
        notes: Vec::new(),
        dropped: 0,
        torn_bytes: 0,
    }
}

fn mib(now: &HoldingsAt<'_>, purpose: DriverUse) -> Vec<(String, i64, i64, i64)> {
    let of = now.parts.iter().filter(|part| part.part.purpose == purpose);
    of.map(|part| {
        let sum = part.sum;
        (part.part.library.name.clone(), sum.grew / MIB, sum.requested / MIB, sum.count)
    })
    .collect()
}

/// What one library frees is taken off the library that allocated it.
#[test]
fn frees_go_to_whoever_allocated() {
    let holdings = DriverHoldings::of(&all(vec![
        with(call(10, "cuMemAlloc", "libcublas.so.13", 4), Some(3), 0x100, None),
        with(call(20, "cuMemAlloc", "/job/own.so", 2), Some(1), 0x900, None),
        with(call(30, "cuMemFree", "libother.so", -4), None, 0x100, None),
        with(call(40, "cuStreamCreate", "libcudnn_graph.so.9", 2), None, 0x7, None),
        with(call(50, "cuStreamDestroy", "libcudart.so.13", -2), None, 0x7, None),
        // Nobody knows what this frees.
        with(call(60, "cuMemFree", "libother.so", -6), None, 0xdead, None),
    ]));
    let at = |time| holdings.at(0, time);
    assert_eq!(mib(&at(15), DriverUse::Memory), [("cuBLAS".to_owned(), 4, 3, 1)]);
    assert_eq!(mib(&at(35), DriverUse::Memory), [("own".to_owned(), 2, 1, 1)]);
    assert_eq!(mib(&at(45), DriverUse::Streams), [("cuDNN".to_owned(), 2, 0, 1)]);
    assert!(mib(&at(55), DriverUse::Streams).is_empty());
    assert_eq!(at(65).grew(), -4 * MIB);
    assert!(!holdings.is_steady(0, 10) && holdings.is_steady(0, 100_000_000));
}

/// Memory that is mapped stays after its handle was released, until it is unmapped; a handle may then return.
#[test]
fn mapped_memory_lives_until_both_are_gone() {
    let mut holdings = DriverHoldings::of(&all(vec![
        with(call(10, "cuMemCreate", "libc10_cuda.so", 20), Some(20), 0x5, None),
        with(call(20, "cuMemMap", "libc10_cuda.so", 0), Some(20), 0x1000_0000, Some(0x5)),
        with(call(30, "cuMemRelease", "libc10_cuda.so", 0), None, 0x5, None),
        with(call(40, "cuMemCreate", "libc10_cuda.so", 2), Some(2), 0x5, None),
        with(call(50, "cuMemMap", "libc10_cuda.so", 0), Some(2), 0x1000_0000 + (20 << 20), Some(0x5)),
        with(call(60, "cuMemUnmap", "libc10_cuda.so", -20), Some(22), 0x1000_0000, None),
        with(call(70, "cuMemRelease", "libc10_cuda.so", -2), None, 0x5, None),
    ]));
    holdings.claim(0, Framework::PyTorch, [(0x1000_0000 + (21 << 20), Some(55))].into_iter(), &[(0, 100)]);
    // Only the second is in the trace.
    let series: Vec<(i64, u64)> =
        holdings.pool_series(0).iter().map(|(at, bytes)| (*at, bytes.0 >> 20)).collect();
    assert_eq!(series, [(40, 2), (70, 0)]);
    assert_eq!(mib(&holdings.at(0, 55), DriverUse::Memory), [("PyTorch".to_owned(), 20, 20, 1)]);
    assert!(mib(&holdings.at(0, 65), DriverUse::Memory).is_empty());
    assert_eq!(holdings.at(0, 100).grew(), 0);
    assert_eq!(holdings.reserved_by(0).unwrap().library.name, "PyTorch");
}

/// A pool of the driver tells what it has; whatever else changed belongs to no call.
#[test]
fn a_pool_of_the_driver_tells_its_own_size() {
    let pool = |time, function: &str, grew, reserved: u64, used: u64| {
        let mut call =
            with(call(time, function, "/site-packages/cupy/cuda/x.so", grew), None, 0x1, Some(0x77));
        call.before = None;
        call.pool = Some((Bytes(reserved << 20), Bytes(used << 20)));
        call
    };
    let holdings = DriverHoldings::of(&all(vec![
        pool(10, "cuMemAllocAsync", 34, 32, 4),
        pool(20, "cuMemFreeAsync", 0, 32, 0),
        with(call(30, "cuMemPoolTrimTo", "libcudart.so", -30), None, 0x77, Some(0x77)),
    ]));
    let at = |time| holdings.at(0, time);
    assert_eq!(mib(&at(15), DriverUse::DriverPool), [("CuPy".to_owned(), 32, 32, 0)]);
    assert_eq!((at(15).parts[0].used, at(25).parts[0].used), (Some(Bytes(4 << 20)), Some(Bytes(0))));
    assert_eq!(at(15).between, 2 * MIB);
    assert_eq!(mib(&at(35), DriverUse::DriverPool), [("CuPy".to_owned(), 2, 2, 0)]);
}

/// With its context everything of a device ends.
#[test]
fn a_context_ends_with_everything_in_it() {
    let holdings = DriverHoldings::of(&all(vec![
        call(10, "cuDevicePrimaryCtxRetain", "libcudart.so.13", 500),
        with(call(20, "cuMemAlloc", "libcublas.so.13", 4), Some(4), 0x100, None),
        call(30, "cuDevicePrimaryCtxReset", "libcudart.so.13", -503),
        with(call(40, "cuMemFree", "libcublas.so.13", 0), None, 0x100, None),
    ]));
    let after = holdings.at(0, 100);
    assert_eq!(after.grew(), MIB);
    assert!(mib(&after, DriverUse::Memory).is_empty());
}

/// Lines of Python tell calls of the program apart.
#[test]
fn memory_of_the_program_is_apart_by_line() {
    let at_line = |time, line| {
        let mut call = with(call(time, "cuMemAlloc", "/job/own.so", 2), Some(2), time.unsigned_abs(), None);
        call.line = Ok(PythonLine { file: "/job/train.py".to_owned(), function: "f".to_owned(), line });
        call
    };
    let holdings = DriverHoldings::of(&all(vec![at_line(10, 3), at_line(20, 3), at_line(30, 7)]));
    let now = holdings.at(0, 40);
    let places: Vec<String> = now
        .parts
        .iter()
        .map(|part| part.part.place.as_ref().map_or(String::new(), ToString::to_string))
        .collect();
    assert_eq!(places, ["train.py:3", "train.py:7"]);
}

proptest! {
    /// However memory outside the pools changes: lines add up, and no more is named than there was.
    #[test]
    fn any_growth_adds_up(at_start in 0..1000_u64, growths in proptest::collection::vec(-100..100_i64, 0..12)) {
        let ledger = estimated(at_start, &growths);
        prop_assert!(ledger.adds_up());
        let named: i64 = of_libraries(&ledger).iter().map(|line| line.2).sum();
        let taken: i64 = growths.iter().filter(|mib| **mib > 0).sum();
        prop_assert!(named <= taken + i64::try_from(at_start).unwrap().saturating_sub(518).max(0));
    }

    /// Whatever calls come, in whatever order: nothing panics, and what parts took adds up to what calls took.
    #[test]
    fn any_calls_add_up(
        calls in proptest::collection::vec(
            (0..22_usize, -8_i64..8, 0..4_u64, 0..4_u64, proptest::option::of(0..9_i64), any::<bool>()),
            0..60,
        ),
    ) {
        const FUNCTIONS: [&str; 22] = [
            "cuInit", "cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxReset", "cuCtxSetLimit", "cuStreamCreate", "cuStreamDestroy",
            "cuEventCreate", "cuEventDestroy", "cuGraphInstantiate", "cuGraphExecDestroy", "cuModuleLoadData", "cuModuleUnload",
            "cuMemAlloc", "cuMemFree", "cuMemCreate", "cuMemMap", "cuMemUnmap", "cuMemRelease", "cuMemPoolTrimTo", "cuMemPoolDestroy",
            "cuLaunchKernel", "",
        ];
        let mut total = 0;
        let mut made = Vec::new();
        for (time, (function, grew, handle, other, bytes, has_failed)) in (1..).zip(calls) {
            let mut call = with(call(time, FUNCTIONS[function], "lib.so", grew), bytes, handle, Some(other));
            call.result = i32::from(has_failed);
            total += call.grew;
            made.push(call);
        }
        let mut holdings = DriverHoldings::of(&all(made));
        prop_assert_eq!(holdings.at(0, i64::MAX).grew(), total);
        holdings.claim(0, Framework::Jax, [(1, None), (2, Some(3))].into_iter(), &[]);
        prop_assert_eq!(holdings.at(0, i64::MAX).grew(), total);
        prop_assert_eq!(Arc::new(holdings).grown_between(0, (0, i64::MAX), false), total);
    }
}
