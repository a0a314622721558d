//! The ledger adds up, whatever is known and whatever is not.

use proptest::prelude::*;
use vramline::analysis::accounts::Accounts;
use vramline::analysis::report::{ReportOptions, report as analyse};
use vramline::ledger::{
    DeviceFigures, Facts, Growth, JobProcess, Ledger, OtherProcess, Parts, PoolFigures, SourcedBytes, Teller,
    What,
};
use vramline::snapshot::Role;
use vramline::units::{Bytes, Nanos};

use super::{checked_report, fixture};

fn told(bytes: u64, by: Teller) -> Option<SourcedBytes> {
    Some(SourcedBytes { bytes: Bytes(bytes), by })
}

fn bytes_of(ledger: &Ledger, is_it: impl Fn(&What) -> bool) -> i64 {
    ledger.find(is_it).expect("the line").bytes.expect("its bytes")
}

/// The figures of an H200 with a PyTorch process beside a small one of somebody else.
fn h200() -> Facts {
    Facts {
        device: "GPU:0".to_owned(),
        memory: Some(DeviceFigures {
            total: Bytes(150_754_820_096),
            reserved: Some(Bytes(644_939_776)),
            free: Bytes(148_000_000_000),
        }),
        job: vec![JobProcess {
            pid: 7,
            held: Some(Bytes(1_600_000_000)),
            context: Some(Bytes(640_000_000)),
            growths: vec![Growth {
                after: Nanos(1),
                by: Nanos(2),
                bytes: 69_000_000,
                came_with: "step 3".to_owned(),
            }],
            pools: vec![PoolFigures {
                name: "GPU:0".to_owned(),
                taken: told(880_000_000, Teller::Framework),
                in_use: told(700_000_000, Teller::Framework),
                parts: Some(Parts {
                    by_role: vec![
                        (Role::Parameters, Bytes(400_000_000)),
                        (Role::Activations, Bytes(290_000_000)),
                    ],
                    slack: Bytes(10_000_000),
                    before: Bytes::ZERO,
                }),
                ..PoolFigures::default()
            }],
            ..JobProcess::default()
        }],
        others: vec![OtherProcess { pid: 9, name: "python".to_owned(), held: Some(Bytes(500_000_000)) }],
        ..Facts::default()
    }
}

#[test]
fn every_level_is_an_identity() {
    let ledger = Ledger::of(&h200());
    assert!(ledger.adds_up());
    let processes = 150_754_820_096 - 644_939_776 - 148_000_000_000;
    assert_eq!(bytes_of(&ledger, |what| *what == What::Processes), processes);
    assert_eq!(
        bytes_of(&ledger, |what| *what == What::Unattributed),
        processes - 1_600_000_000 - 500_000_000
    );
    assert_eq!(bytes_of(&ledger, |what| *what == What::Cached), 180_000_000);
    assert_eq!(
        bytes_of(&ledger, |what| *what == What::Unexplained),
        1_600_000_000 - 640_000_000 - 880_000_000 - 69_000_000
    );
    let role = ledger.find(|what| *what == What::Role(Role::Parameters)).unwrap();
    assert_eq!((ledger.depth(role), role.by), (5, Teller::Trace));
}

#[test]
fn a_pool_that_nobody_knows_is_merged() {
    let mut facts = h200();
    facts.job[0].pools[0].taken = None;
    let ledger = Ledger::of(&facts);
    assert!(ledger.adds_up());
    assert_eq!(bytes_of(&ledger, |what| *what == What::Merged), 1_600_000_000);
    assert_eq!(bytes_of(&ledger, |what| *what == What::Rest), 900_000_000);
    assert!(ledger.find(|what| *what == What::Context).is_none());
}

#[test]
fn what_the_driver_does_not_tell_is_unknown_and_said() {
    let mut facts = h200();
    facts.job[0].held = None;
    facts.job[0].not_held = "no per-process figures in this container".to_owned();
    facts.others[0].held = None;
    facts.memory.as_mut().unwrap().reserved = None;
    let ledger = Ledger::of(&facts);
    assert!(ledger.adds_up());
    let job = ledger.find(|what| *what == What::Job(7)).unwrap();
    assert_eq!((job.bytes, job.why.as_str()), (None, "no per-process figures in this container"));
    let reserved = ledger.find(|what| *what == What::Reserved).unwrap();
    assert!(reserved.bytes.is_none() && !reserved.why.is_empty());
    // Everything that processes hold is then unattributed.
    assert_eq!(
        bytes_of(&ledger, |what| *what == What::Unattributed),
        bytes_of(&ledger, |what| *what == What::Processes)
    );
    // The pool is known all the same.
    assert_eq!(bytes_of(&ledger, |what| matches!(what, What::Pool(_))), 880_000_000);
}

/// On the CPU a pool may have taken more than the process has touched.
#[test]
fn pages_that_were_never_touched_are_taken_off_again() {
    let mut facts = h200();
    facts.is_stand_in = true;
    facts.memory.as_mut().unwrap().reserved = None;
    facts.job[0].held = Some(Bytes(1_000_000_000));
    let ledger = Ledger::of(&facts);
    assert!(ledger.adds_up());
    assert_eq!(
        bytes_of(&ledger, |what| *what == What::NotResident),
        1_000_000_000 - 640_000_000 - 880_000_000 - 69_000_000
    );
    assert_eq!(bytes_of(&ledger, |what| *what == What::Unexplained), 0);
    assert!(ledger.find(|what| *what == What::Reserved).is_none());
}

/// Recordings of an H200 whose driver was asked: every level adds up at every moment, and the figures are those that were seen there.
#[test]
fn recordings_of_a_real_gpu() {
    let mib = |bytes: i64| bytes << 20;
    for (name, held, pool, context, outside, free) in [
        ("torch2110_h200_near_full.vram", 136_068, 135_392, 676, 0, 7_079),
        ("jax0112_h200_preallocated_pool.vram", 43_566, 42_948, 550, 68, 99_581),
    ] {
        let reading = vramline::read(&fixture(name)).unwrap();
        let report = checked_report(&reading, &ReportOptions::default());
        let pools = analyse(&reading, &ReportOptions::default()).pools;
        let accounts = Accounts::of(&reading, &pools).unwrap();
        let [books] = accounts.books.as_slice() else { panic!("{name}: one device") };
        let recorded = reading.recorded.as_ref().unwrap();
        let times = recorded.driver.iter().map(|row| row.time.monotonic);
        let marks = recorded
            .processes
            .iter()
            .flat_map(|process| &process.samples)
            .map(|sample| sample.time.monotonic);
        for time in times.chain(marks) {
            let ledger = accounts.at(books, time);
            assert!(ledger.adds_up(), "{name} at {time}: {ledger:#?}");
        }
        // When the process has ended, nobody holds anything.
        let end = recorded.driver.last().map(|row| row.time.monotonic).unwrap();
        let processes =
            accounts.at(books, end).find(|what| *what == What::Processes).and_then(|line| line.bytes);
        assert_eq!(processes, Some(0), "{name}");
        let best = accounts.at(books, books.best_moment().unwrap());
        let sum = |word: &str| -> i64 {
            best.lines.iter().filter(|line| line.what.word() == word).filter_map(|line| line.bytes).sum()
        };
        assert_eq!(sum("this job"), mib(held), "{name}");
        assert_eq!(sum("pool"), mib(pool), "{name}");
        assert_eq!(sum("context at start"), mib(context), "{name}");
        assert_eq!(sum("outside the pools"), mib(outside), "{name}");
        assert_eq!(sum("unexplained"), 0, "{name}");
        // The driver's list adds up with the driver's own total, but for a few megabytes of its own: both are of one moment.
        assert_eq!(sum("free") >> 20, free, "{name}");
        assert!((0..mib(10)).contains(&sum("unattributed")), "{name}: {}", sum("unattributed"));
        let rules: Vec<&str> = report.findings.iter().map(|finding| finding.rule).collect();
        assert_eq!(rules.contains(&"preallocation"), name.starts_with("jax"), "{rules:?}");
    }
}

/// Where a trace tells the peak, the ledger is of that moment, whoever tells what the pool had taken.
#[test]
fn a_traced_peak_is_the_ledgers_moment() {
    let reading = vramline::read(&fixture("jax0112_h200_loop.vram")).unwrap();
    let report = checked_report(&reading, &ReportOptions::default());
    let pool = report.pools.iter().find(|pool| pool.name == "GPU_0_bfc").unwrap();
    let line = |word: &str| {
        let mut lines = report.ledger.iter().filter(|line| line.device == "GPU:0");
        lines.find(|line| line.line.word() == word).unwrap()
    };
    let in_use = line("in use");
    assert_eq!(in_use.bytes, pool.peak_bytes.map(|bytes| i64::try_from(bytes.0).unwrap()));
    assert_eq!(in_use.at_ns.0, pool.peak_at_ns.unwrap().0 + 1);
    assert_eq!(line("pool").source, Teller::Framework);
}

prop_compose! {
    fn pool()(taken in proptest::option::of(0..1_u64 << 40), in_use in proptest::option::of(0..1_u64 << 40)) -> PoolFigures {
        let by_role = in_use.map_or(Vec::new(), |bytes| vec![(Role::Unknown, Bytes(bytes / 2))]);
        PoolFigures {
            taken: taken.and_then(|bytes| told(bytes, Teller::Replay)),
            in_use: in_use.and_then(|bytes| told(bytes, Teller::Framework)),
            parts: in_use.map(|bytes| Parts { by_role, slack: Bytes(bytes / 3), before: Bytes(bytes - bytes / 2 - bytes / 3) }),
            ..PoolFigures::default()
        }
    }
}

prop_compose! {
    fn process()(
        held in proptest::option::of(0..1_u64 << 40),
        context in proptest::option::of(0..1_u64 << 40),
        pools in proptest::collection::vec(pool(), 0..3),
        grown in proptest::collection::vec(-(1_i64 << 30)..1 << 30, 0..3),
    ) -> JobProcess {
        let growth = |bytes| Growth { after: Nanos(0), by: Nanos(1), bytes, came_with: String::new() };
        JobProcess {
            held: held.map(Bytes),
            context: context.map(Bytes),
            growths: grown.into_iter().map(growth).collect(),
            pools,
            ..JobProcess::default()
        }
    }
}

proptest! {
    /// Figures that contradict each other show as lines; nothing disappears.
    #[test]
    fn it_adds_up_whatever_the_figures(
        job in proptest::collection::vec(process(), 0..3),
        others in proptest::collection::vec(proptest::option::of(0..1_u64 << 40), 0..4),
        memory in proptest::option::of((0..1_u64 << 40, 0..1_u64 << 40, 0..1_u64 << 40)),
        is_stand_in in any::<bool>(),
    ) {
        let memory = memory.map(|(total, reserved, free)| DeviceFigures {
            total: Bytes(total),
            reserved: reserved.checked_sub(1).map(Bytes),
            free: Bytes(free),
        });
        let others = others.into_iter().map(|held| OtherProcess { held: held.map(Bytes), ..OtherProcess::default() });
        let ledger = Ledger::of(&Facts { job, others: others.collect(), memory, is_stand_in, ..Facts::default() });
        prop_assert!(ledger.adds_up(), "{ledger:#?}");
    }
}
