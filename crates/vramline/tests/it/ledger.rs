//! The ledger adds up, whatever is known and whatever is not.

use proptest::prelude::*;
use vramline::analysis::accounts::Accounts;
use vramline::analysis::report::{ReportOptions, report as analyse};
use vramline::ledger::moments::{Books, Did, DriverMoment, LedgerMoment, PoolSeries};
use vramline::ledger::{
    Cause, DeviceFigures, Facts, Growth, GrowthGroup, JobProcess, Ledger, OtherProcess, Parts, PoolFigures,
    SourcedBytes, Teller, What,
};
use vramline::recording::rows::{DriverRow, Moment, Subject};
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
                cause: Cause::Steps { first: 3, last: 3 },
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
        bytes_of(&ledger, |what| matches!(what, What::Unexplained(_))),
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
    assert!(ledger.find(|what| matches!(what, What::Context(_))).is_none());
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
    assert_eq!(bytes_of(&ledger, |what| matches!(what, What::Pool(..))), 880_000_000);
}

/// The figures of a job whose pool lies in host memory, and which held so much before the pool began.
fn on_host(held: u64, at_start: Option<u64>) -> Facts {
    let mut facts = h200();
    facts.is_stand_in = true;
    facts.memory.as_mut().unwrap().reserved = None;
    facts.job[0].held = Some(Bytes(held));
    facts.job[0].context = at_start.map(Bytes);
    facts.job[0].growths.clear();
    facts
}

/// On the CPU a pool may have taken more than the process has touched.
#[test]
fn pages_that_were_never_touched_are_taken_off_again() {
    let ledger = Ledger::of(&on_host(1_000_000_000, Some(640_000_000)));
    assert!(ledger.adds_up());
    assert_eq!(
        bytes_of(&ledger, |what| *what == What::NotResident),
        1_000_000_000 - 640_000_000 - 880_000_000
    );
    assert_eq!(bytes_of(&ledger, |what| matches!(what, What::Unexplained(_))), 0);
    assert!(ledger.find(|what| *what == What::Reserved).is_none());
}

/// Host memory has no driver, and Python is no CUDA context.
#[test]
fn host_memory_has_words_of_its_own() {
    let ledger = Ledger::of(&on_host(1_600_000_000, Some(640_000_000)));
    assert!(ledger.adds_up());
    // What it held before its pool, and what it holds beyond that and the pool.
    assert_eq!(bytes_of(&ledger, |what| *what == What::Host), 1_600_000_000 - 880_000_000);
    let unknown = Ledger::of(&on_host(800_000_000, None));
    let own = unknown.find(|what| *what == What::Host).unwrap();
    assert!(unknown.adds_up() && own.bytes.is_none() && !own.why.is_empty());
    let mut facts = on_host(1_600_000_000, None);
    facts.job[0].pools[0].taken = None;
    let merged = Ledger::of(&facts);
    assert!(merged.adds_up());
    assert_eq!(bytes_of(&merged, |what| *what == What::HostMerged), 1_600_000_000);
    assert_eq!(bytes_of(&merged, |what| *what == What::HostRest), 900_000_000);
    for ledger in [&ledger, &unknown, &merged] {
        for line in &ledger.lines {
            assert!(line.by != Teller::Driver, "{line:?}");
            assert!(
                !line.what.word().contains("context") && !line.what.word().contains("driver"),
                "{line:?}"
            );
        }
        let told = [What::Device, What::Free, What::Job(7)];
        assert!(told.iter().all(|what| ledger.find(|is| is == what).unwrap().by == Teller::Host));
    }
}

/// Ten growths of one cause are one line with their sum, their number and their moments.
#[test]
fn growths_are_one_line_for_each_cause() {
    let growth =
        |by: i64, bytes: i64, cause: Cause| Growth { after: Nanos(by - 1), by: Nanos(by), bytes, cause };
    let steps = |first, last| Cause::Steps { first, last };
    let mut growths: Vec<Growth> = (1..=10).map(|by| growth(by, 2 << 20, Cause::Unmarked)).collect();
    growths.push(growth(11, 5, steps(4, 5)));
    growths.push(growth(12, -2, Cause::Mark("loaded".to_owned())));
    growths.push(growth(13, 7, steps(2, 2)));
    let mut facts = h200();
    facts.job[0].growths.clone_from(&growths);
    let ledger = Ledger::of(&facts);
    assert!(ledger.adds_up());
    let groups: Vec<&GrowthGroup> = ledger
        .lines
        .iter()
        .filter_map(|line| match &line.what {
            What::Outside(group) => Some(group),
            _ => None,
        })
        .collect();
    let told: Vec<(i64, usize, i64, i64, String)> = groups
        .iter()
        .map(|group| (group.bytes, group.growths, group.first.0, group.last.0, group.to_string()))
        .collect();
    let texts = ["outside all steps and marks, 10 changes", "steps 2 to 5, 2 changes", "mark 'loaded'"];
    let [unmarked, of_steps, mark] = texts.map(str::to_owned);
    assert_eq!(told, [(20 << 20, 10, 1, 10, unmarked), (12, 2, 11, 13, of_steps), (-2, 1, 12, 12, mark)]);
    assert_eq!(
        groups.iter().map(|group| group.bytes).sum::<i64>(),
        growths.iter().map(|growth| growth.bytes).sum::<i64>()
    );
}

fn row(time: i64, used: u64) -> DriverRow {
    DriverRow {
        time: Moment { monotonic: time, ..Moment::default() },
        subject: Subject::Process,
        device: "GPU-1".to_owned(),
        pid: Some(7),
        start: None,
        command: None,
        is_job: Some(true),
        work: None,
        total: None,
        reserved: None,
        free: None,
        used: Some(Bytes(used)),
        peak: None,
        reason: None,
    }
}

/// The ledger stands at the peak; the driver's figures are those of the nearest moment at which the pool was as large.
#[test]
fn the_drivers_figures_are_of_a_pool_of_the_same_size() {
    let rows = [row(100, 1_000), row(400, 1_500), row(900, 1_540)];
    let point = |at: i64, bytes: u64| (at, SourcedBytes { bytes: Bytes(bytes), by: Teller::Framework });
    let pool = PoolSeries {
        name: "pool".to_owned(),
        pid: 7,
        taken: vec![point(50, 600), point(200, 600), point(250, 1_100), point(800, 1_100), point(950, 1_100)],
        in_use: vec![point(50, 500), point(260, 1_050)],
        peak: Some((Bytes(1_060), 255)),
        ..PoolSeries::default()
    };
    let did = vec![Did { span: (850, 910), what: Cause::Phase("validation".to_owned()) }];
    let mut books = Books {
        device: "GPU:0".to_owned(),
        rows: rows.iter().collect(),
        pools: vec![pool],
        did,
        ..Books::default()
    };
    assert_eq!(books.peak_moment(), Some((255, LedgerMoment::Peak)));
    // The last figure before is of a smaller pool.
    assert_eq!(books.driver_moment(255), DriverMoment::At(400));
    assert_eq!(books.driver_moment(210), DriverMoment::At(210), "it still holds");
    let ledger = books.at(255, &books.driver_moment(255), &|_, _| None);
    assert!(ledger.adds_up());
    assert_eq!(bytes_of(&ledger, |what| *what == What::Job(7)), 1_500);
    assert_eq!(bytes_of(&ledger, |what| matches!(what, What::Context(_))), 400);
    assert_eq!(bytes_of(&ledger, |what| matches!(what, What::Unexplained(_))), 0);
    let highest = books.highest();
    assert_eq!((highest.held, highest.taken), (Some(Bytes(1_540)), Some(Bytes(1_100))));
    // Nobody asked while the pool was so large: nothing is better than something of another moment.
    books.rows.truncate(1);
    assert_eq!(books.driver_moment(255), DriverMoment::NotThen);
    let ledger = books.at(255, &DriverMoment::NotThen, &|_, _| None);
    let job = ledger.find(|what| *what == What::Job(7)).unwrap();
    assert!(
        ledger.adds_up()
            && job.bytes.is_none()
            && job.why.contains("while the pool of this process had this size")
    );
    // Without a trace it is the highest that the framework told, and where the run went higher, that is said.
    books.pools[0].ran_higher = true;
    assert_eq!(books.peak_moment(), Some((255, LedgerMoment::TracedPeak)));
    books.pools[0].peak = None;
    assert_eq!(books.peak_moment(), Some((260, LedgerMoment::HighestReading)));
    books.pools[0].in_use.clear();
    assert_eq!(books.peak_moment(), Some((100, LedgerMoment::LastReading)));
}

/// Recordings of an H200 whose driver was asked: every level adds up at every moment, and the figures are those that were seen there.
#[test]
fn recordings_of_a_real_gpu() {
    let mib = |bytes: i64| bytes << 20;
    for (name, held, pool, context, outside, free) in [
        ("torch2110_h200_near_full.vram", 136_068, 135_392, 676, 0, 7_079),
        // Of the 68 MiB that came later, 66 have the size of what cuBLAS takes.
        ("jax0112_h200_preallocated_pool.vram", 43_566, 42_948, 550, 2, 99_581),
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
        let at_peak = accounts.at_peaks().remove(0);
        assert!(at_peak.ledger.adds_up() && at_peak.moment == LedgerMoment::HighestReading, "{name}");
        let best = at_peak.ledger;
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
    assert_eq!((line("pool").source, in_use.moment), (Teller::Replay, LedgerMoment::Peak));
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
        let growth = |bytes| Growth { after: Nanos(0), by: Nanos(1), bytes, cause: Cause::Unmarked };
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
