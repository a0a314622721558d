//! Recordings with several traces of a process: which is shown, on which clock, and whose the blocks from before a later one are.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use vramline::analysis::redaction::Redaction;
use vramline::analysis::report::ReportOptions;
use vramline::event::{How, Phase};
use vramline::recording::folder::{Part, ProcessId};
use vramline::recording::process::ProcessRecorder;
use vramline::recording::reader;
use vramline::recording::rows::{
    Counters, Inventory, LayerPath, Mark, Moment, OwnerKind, OwnerRow, RecordedMarkKind, TraceState,
    Variable, WindowReason,
};
use vramline::snapshot::Role;
use vramline::trace::PoolTrace;
use vramline::units::Bytes;
use vramline::view::report::Report;

use crate::{checked_report, fixture};

const POOL: &str = "bfc_cpu_allocator_for_gpu";
/// A window of a program that had allocated before, and a trace from the start with a higher peak.
const WINDOW: &str = "tf221_cpu_mlp_window.xplane.pb";
const WINDOW_PEAK: u64 = 30_214_400;
const HIGHER: &str = "tf221_cpu_cnn_from_start.xplane.pb";
const HIGHER_PEAK: u64 = 72_718_080;
const SECOND: i64 = 1_000_000_000;
/// When the first trace begins.
const BEGIN: i64 = 1_000 * SECOND;

fn id() -> ProcessId {
    ProcessId::new("host", 7, 8)
}

fn moment(monotonic: i64) -> Moment {
    Moment { monotonic, wall: 0 }
}

/// The wall clock at the beginning of a fixture.
fn zero_of(file: &str) -> i64 {
    let reading = vramline::read(&fixture(file)).unwrap();
    reading.hosts[0].trace.history.wall_clock_zero.unwrap().0
}

/// Writes a trace of the process: its file, and the marks that tell of it.
fn window(folder: &Path, number: i64, file: &str, reason: WindowReason, begin: i64, place: Option<&Path>) {
    let own = folder.join(match number {
        1 => Part::Trace.name(&id()),
        later => format!("{}.{later}", Part::Trace.name(&id())),
    });
    let target = place.unwrap_or(&own);
    fs::create_dir_all(target).unwrap();
    fs::copy(fixture(file), target.join("host.xplane.pb")).unwrap();
    let recorder = ProcessRecorder::new(folder, &id());
    let path = place.map(|place| place.display().to_string());
    for (state, at) in [
        (TraceState::Begun, begin),
        (TraceState::Stopped, begin + 60 * SECOND),
        (TraceState::Written, begin + 61 * SECOND),
    ] {
        let mark = Mark {
            kind: RecordedMarkKind::Trace,
            label: Some("for people".to_owned()),
            time: Moment { monotonic: at, wall: zero_of(file) + at - begin },
            trace_state: Some(state),
            window: Some(number),
            opened_for: Some(reason),
            path: path.clone(),
            ..Mark::default()
        };
        recorder.mark(&mark).unwrap();
    }
    recorder.close();
}

fn reported(folder: &Path) -> Report {
    checked_report(&vramline::read(folder).unwrap(), &ReportOptions::default())
}

fn codes(report: &Report) -> Vec<&str> {
    report.warnings.iter().map(|warning| warning.code).collect()
}

/// A step of the process, and what the framework counted at its end.
fn step(number: i64, begin: i64, end: i64, peak: u64) -> Mark {
    let read = Counters {
        device: "CPU:0".to_owned(),
        current: Some(1),
        peak: i64::try_from(peak).ok(),
        ..Counters::default()
    };
    Mark {
        kind: RecordedMarkKind::Step,
        phase: Some(Phase::Train),
        how: Some(How::Inferred),
        step: Some(number),
        begin: Some(begin),
        time: moment(end),
        counters: vec![read],
        ..Mark::default()
    }
}

#[test]
fn the_trace_with_the_highest_moment_is_shown_on_the_clock_of_the_first() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    let later = BEGIN + 100 * SECOND;
    window(path, 1, WINDOW, WindowReason::Start, BEGIN, None);
    window(path, 2, HIGHER, WindowReason::Fit, later, None);
    let recorder = ProcessRecorder::new(path, &id());
    // One within the second trace, one after it, in which the peak of the run was reached.
    recorder.mark(&step(0, later + 1, later + 50 * SECOND, HIGHER_PEAK)).unwrap();
    recorder.mark(&step(1, later + 70 * SECOND, later + 71 * SECOND, HIGHER_PEAK + 1)).unwrap();
    recorder.close();
    let report = reported(path);
    let alone = checked_report(&vramline::read(&fixture(HIGHER)).unwrap(), &ReportOptions::default());
    let [pool] = report.pools.as_slice() else { panic!("{} pools", report.pools.len()) };
    assert_eq!((pool.name.as_str(), pool.peak_bytes.unwrap().0, pool.window), (POOL, HIGHER_PEAK, Some(2)));
    let since = pool.peak_at_ns.unwrap().0 - alone.pools[0].peak_at_ns.unwrap().0;
    // The two clocks of a fixture's profiler do not agree to the nanosecond with ours.
    assert!((since - 100 * SECOND).abs() < SECOND / 1000, "{since}");
    assert_eq!(pool.peak_in.as_ref().map(|place| place.step), Some(Some(0)));
    let peaks: Vec<_> = report.steps.iter().map(|step| step.peak_bytes).collect();
    assert_eq!(peaks, [Some(Bytes(HIGHER_PEAK)), None]);
    // A byte more than what is shown: the moment is named, and no other recording is suggested.
    assert_eq!(pool.rose_in.as_ref().map(|place| place.step), Some(Some(1)));
    assert!(
        report.headline.contains("in training step 1. The details below are for the highest traced moment"),
        "{}",
        report.headline
    );
    let told: Vec<_> = report
        .windows
        .iter()
        .map(|window| (window.window, window.opened_for, window.is_read, window.peak_bytes.unwrap().0))
        .collect();
    assert_eq!(
        told,
        [(1, Some(WindowReason::Start), true, WINDOW_PEAK), (2, Some(WindowReason::Fit), true, HIGHER_PEAK)]
    );
    // Whoever replays, exports or compares gets the first.
    let reading = vramline::read(path).unwrap();
    assert_eq!((reading.hosts.len(), reading.later.len()), (1, 1));
}

#[test]
fn a_peak_of_the_run_that_no_trace_shows_is_placed_in_the_program() {
    let folder = tempfile::tempdir().unwrap();
    window(folder.path(), 1, WINDOW, WindowReason::Start, BEGIN, None);
    let recorder = ProcessRecorder::new(folder.path(), &id());
    let begin = BEGIN + 100 * SECOND;
    recorder.mark(&step(5, begin, begin + SECOND, 2 * WINDOW_PEAK)).unwrap();
    recorder.mark(&step(6, begin + SECOND, begin + 2 * SECOND, 2 * WINDOW_PEAK)).unwrap();
    recorder.close();
    let report = reported(folder.path());
    let place = ", in training step 5. No trace covers that moment (`vramline run --trace all` would).";
    assert!(report.headline.contains(place), "{}", report.headline);
}

/// The least and the highest address of a pool's events, and where nothing was allocated between them.
fn gap(pool: &PoolTrace, events: &vramline::event::Events) -> (u64, u64) {
    let mut blocks: Vec<(u64, u64)> = pool
        .events_in_order()
        .map(|event| events.at(event))
        .filter_map(|event| Some((event.address()?, event.address()? + event.size()?.0)))
        .collect();
    blocks.sort_unstable();
    let mut reach = blocks[0].1;
    let mut widest = (0, 0);
    for (begin, end) in blocks {
        if begin > reach && begin - reach > widest.1 - widest.0 {
            widest = (reach, begin);
        }
        reach = reach.max(end);
    }
    widest
}

#[test]
fn variables_from_before_a_later_trace_are_named_where_that_is_certain() {
    let alone = vramline::read(&fixture(WINDOW)).unwrap();
    let trace = &alone.hosts[0].trace;
    let events = &trace.history.events;
    let pool = trace.pools.iter().find(|pool| pool.peak().unwrap().bytes.0 == WINDOW_PEAK).unwrap();
    let (begin, end) = gap(pool, events);
    let size = (end - begin).min(1 << 20) / 2;
    assert!(size > 1024, "{size}");
    // Freed in the trace, without having been allocated in it.
    let births: BTreeSet<usize> = pool.lives().map(|life| life.birth).collect();
    let mut seen = BTreeSet::new();
    let mut of_before = pool
        .events_in_order()
        .enumerate()
        .filter(|(_, event)| seen.insert(events.at(*event).address()) && !births.contains(event));
    let (freed_at, freed) = of_before.next().unwrap();
    let (freed_address, freed_size) =
        (events.at(freed).address().unwrap(), events.at(freed).size().unwrap().0);
    let allocated = events.at(*births.first().unwrap());
    let variable = |name: &str, address: u64, bytes: u64, device: &str| Variable {
        name: name.to_owned(),
        role: Role::Parameters,
        bytes: Bytes(bytes),
        device: Some(device.to_owned()),
        address: Some(address),
        dtype: Some("float32".to_owned()),
        ..Variable::default()
    };
    let variables = vec![
        variable("stays", begin, size, "CPU:0"),
        variable("shares its value", begin, size, "CPU:0"),
        variable("goes", freed_address, freed_size, "CPU:0"),
        variable("elsewhere", begin + size, 256, "GPU:0"),
        variable("not a block of the pool", begin + 8, 256, "CPU:0"),
        variable("allocated meanwhile", allocated.address().unwrap() - 256, 512, "CPU:0"),
        variable("far away", 4096 + begin % 256, 256, "CPU:0"),
    ];
    let before = checked_report(&alone, &ReportOptions::default()).pools.remove(0).at_peak.unwrap();
    let named_at = |times: &[i64]| {
        let folder = tempfile::tempdir().unwrap();
        // The trace of the start is not there.
        window(folder.path(), 2, WINDOW, WindowReason::Rise, BEGIN, None);
        fs::create_dir(folder.path().join(Part::Trace.name(&id()))).unwrap();
        let recorder = ProcessRecorder::new(folder.path(), &id());
        for &time in times {
            recorder.inventory(&Inventory { time: moment(time), variables: variables.clone() }).unwrap();
        }
        recorder.close();
        let report = reported(folder.path());
        let held = report.pools.into_iter().next().unwrap().at_peak.unwrap();
        let names: Vec<String> =
            held.rows.iter().map(|row| row.variable.clone()).filter(|name| !name.is_empty()).collect();
        let bytes = before.before_recording_bytes.0 - held.before_recording_bytes.0;
        assert_eq!(held.named_bytes.0 - before.named_bytes.0, bytes);
        assert_eq!(held.by_role.get(Role::Parameters).0 - before.by_role.get(Role::Parameters).0, bytes);
        (names, bytes)
    };
    let peak_at = pool.peak().unwrap().position;
    let is_there = freed_at > peak_at;
    let at_begin = named_at(&[BEGIN + trace.history.origin.0]);
    let both = if is_there { size + freed_size } else { size };
    let mut names = at_begin.0.clone();
    names.sort_unstable();
    let expected = if is_there { vec!["goes", "stays"] } else { vec!["stays"] };
    assert_eq!((names, at_begin.1), (expected.into_iter().map(str::to_owned).collect(), both));
    // Listed after it was freed, or only before the trace, nothing shows that it is the same block.
    assert_eq!(named_at(&[BEGIN + 59 * SECOND]), (vec!["stays".to_owned()], size));
    assert_eq!(named_at(&[BEGIN - SECOND]), (Vec::new(), 0));
    assert_eq!(named_at(&[BEGIN - SECOND, BEGIN + 90 * SECOND]), (vec!["stays".to_owned()], size));
}

/// The largest block at the peak of a trace from the start: its op, its address and when it was allocated.
fn largest_at_peak() -> (String, u64, i64) {
    let alone = vramline::read(&fixture(HIGHER)).unwrap();
    let trace = &alone.hosts[0].trace;
    let events = &trace.history.events;
    let pool = &trace.pools[0];
    let peak = pool.peak().unwrap().position;
    let lives =
        pool.lives().filter(|life| life.born_at <= peak && life.freed_at.is_none_or(|freed| freed > peak));
    let event = lives.map(|life| events.at(life.birth)).max_by_key(|event| event.size()).unwrap();
    let born = BEGIN + trace.history.origin.0 + event.time().0 / 1000;
    (trace.history.names.get(event.op()).to_owned(), event.address().unwrap(), born)
}

/// What is at the peak of that trace, with rows of owners beside it.
fn held_with(rows: &[OwnerRow], listed: Option<&Inventory>) -> Vec<(String, String, &'static str)> {
    let folder = tempfile::tempdir().unwrap();
    window(folder.path(), 1, HIGHER, WindowReason::Start, BEGIN, None);
    let recorder = ProcessRecorder::new(folder.path(), &id());
    recorder.owners(rows).unwrap();
    listed.into_iter().for_each(|inventory| recorder.inventory(inventory).unwrap());
    recorder.close();
    let report = reported(folder.path());
    assert_eq!(report.pools[0].peak_bytes, Some(Bytes(HIGHER_PEAK)));
    let held = report.pools.into_iter().next().unwrap().at_peak.unwrap();
    held.rows.into_iter().map(|row| (row.variable, row.layer, row.role)).collect()
}

/// A variable that a step makes may be given another value before the variables are listed again: its first value is known by where it
/// lay when it was made.
#[test]
fn the_first_value_of_a_variable_is_known_by_its_place() {
    let (_, address, born) = largest_at_peak();
    let kernel = |role| OwnerRow {
        kind: OwnerKind::Value,
        time: moment(born + 1_000),
        layer: LayerPath { model: Some("net".to_owned()), layer: Some("dense".to_owned()) },
        variable: Some("dense/kernel".to_owned()),
        role,
        address: Some(address),
        ..OwnerRow::default()
    };
    let found = |row: OwnerRow| -> Vec<(String, &'static str)> {
        let held = held_with(&[row], None);
        held.into_iter()
            .filter(|(variable, ..)| !variable.is_empty())
            .map(|(name, layer, role)| (name + " of " + &layer, role))
            .collect()
    };
    assert_eq!(found(kernel(Role::Parameters)), [("dense/kernel of dense".to_owned(), "parameters")]);
    // Before the block was there, and somewhere else.
    let earlier = moment(born - SECOND);
    assert_eq!(found(OwnerRow { time: earlier, ..kernel(Role::Parameters) }), []);
    assert_eq!(found(OwnerRow { address: Some(address + 8), ..kernel(Role::Parameters) }), []);
    // That a variable is trained may show later; and it must have room.
    let listed = |bytes| Inventory {
        time: moment(BEGIN + 50 * SECOND),
        variables: vec![Variable {
            name: "dense/kernel".to_owned(),
            layer: kernel(Role::State).layer,
            role: Role::Parameters,
            bytes: Bytes(bytes),
            ..Variable::default()
        }],
    };
    let role = |bytes| {
        let held = held_with(&[kernel(Role::State)], Some(&listed(bytes)));
        held.into_iter().find(|(variable, ..)| variable == "dense/kernel").map(|(.., role)| role)
    };
    assert_eq!(role(64), Some("parameters"));
    assert_eq!(role(HIGHER_PEAK), None);
}

/// Graphs of two functions may use one name for two things: the function that was being called tells.
#[test]
fn equal_names_in_two_functions_are_told_apart_by_what_was_called() {
    let (op, _, born) = largest_at_peak();
    let row = |function: i64| OwnerRow {
        kind: OwnerKind::Op,
        name: op.clone(),
        time: moment(BEGIN + function),
        layer: LayerPath { model: Some(format!("net{function}")), layer: Some("dense".to_owned()) },
        function: Some(function),
        ..OwnerRow::default()
    };
    let call = |function: i64| OwnerRow {
        kind: OwnerKind::Call,
        time: moment(born + SECOND),
        span: Some((born - 1_000, born + SECOND)),
        function: Some(function),
        ..OwnerRow::default()
    };
    let layers = |calls: Vec<OwnerRow>| -> BTreeSet<String> {
        let rows = [vec![row(1), row(2)], calls].concat();
        let named = held_with(&rows, None).into_iter().map(|(_, layer, _)| layer);
        named.filter(|layer| layer.starts_with("net")).collect()
    };
    let only = |name: &str| BTreeSet::from([name.to_owned()]);
    assert_eq!(layers(vec![call(1)]), only("net1/dense"));
    assert_eq!(layers(vec![call(2)]), only("net2/dense"));
    // Without a call, and in one of a function that made no such op, what was learned last.
    assert_eq!(layers(vec![]), only("net2/dense"));
    assert_eq!(layers(vec![call(3)]), only("net2/dense"));
}

#[test]
fn the_programs_own_profile_is_read_where_it_lies_and_missed_where_it_does_not() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("job.vram");
    fs::create_dir(&path).unwrap();
    let logs = folder.path().join("logs/plugins/profile/run");
    window(&path, 1, WINDOW, WindowReason::Start, BEGIN, None);
    window(&path, 2, HIGHER, WindowReason::Program, BEGIN + 100 * SECOND, Some(&logs));
    let report = reported(&path);
    assert_eq!((report.pools[0].peak_bytes, report.pools[0].window), (Some(Bytes(HIGHER_PEAK)), Some(2)));
    assert_eq!(codes(&report), ["own-profile"]);
    assert!(report.warnings[0].text.contains(&logs.display().to_string()), "{}", report.warnings[0].text);
    assert_eq!(report.windows[1].path.as_deref(), logs.to_str());
    fs::remove_dir_all(&logs).unwrap();
    let report = reported(&path);
    assert_eq!((report.pools[0].peak_bytes, report.windows[1].is_read), (Some(Bytes(WINDOW_PEAK)), false));
    let missing = report.warnings.iter().find(|warning| warning.code == "own-profile-missing").unwrap();
    assert!(missing.text.contains(&logs.display().to_string()), "{}", missing.text);
    // Neither place is told where names are to be hidden.
    let mut reading = vramline::read(&path).unwrap();
    Redaction::default().reading(&mut reading);
    let hidden = serde_json::to_string(&checked_report(&reading, &ReportOptions::default())).unwrap();
    assert!(!hidden.contains("logs") && !hidden.contains("plugins"), "{hidden}");
}

#[test]
fn traces_of_one_process_are_told_apart_by_their_marks() {
    let folder = tempfile::tempdir().unwrap();
    window(folder.path(), 1, WINDOW, WindowReason::Start, BEGIN, None);
    window(folder.path(), 3, WINDOW, WindowReason::Rise, BEGIN + 100 * SECOND, None);
    let process = reader::read(folder.path()).unwrap().processes.remove(0);
    let windows = process.windows();
    assert_eq!(windows.iter().map(|window| window.number).collect::<Vec<_>>(), [1, 3]);
    assert!(windows[0].covers(0, BEGIN) && !windows[1].covers(BEGIN, BEGIN + 101 * SECOND));
    assert!(windows[1].covers(BEGIN + 100 * SECOND, BEGIN + 160 * SECOND));
    assert!(windows[1].place.as_ref().unwrap().is_dir());
    // An earlier Vramline knows of the first only.
    assert_eq!(process.trace_began(), Some(windows[0].begun.unwrap()));
    let parts = vramline::recording::folder::parts(folder.path()).unwrap();
    assert_eq!(parts.iter().filter(|(part, _)| *part == Part::Trace).count(), 1);
}
