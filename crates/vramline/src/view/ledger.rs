//! The ledger of each device of a recording, as rows: at the moment that shows most, or at one that was asked for.

use serde::Serialize;

use super::report::{PoolView, Report};
use super::run::Whole;
use crate::Reading;
use crate::ledger::moments::{Books, Did, PoolSeries};
use crate::ledger::{Ledger, Line, Parts, Teller, Told};
use crate::recording::manifest::RunManifest;
use crate::recording::reader::{Recorded, RecordedProcess};
use crate::recording::rows::{Counters, DriverRow, HOST, Mark};
use crate::snapshot::Role;
use crate::source::driver::DeviceFacts;
use crate::source::driver::visible::visible;
use crate::trace::{PoolTrace, Trace};
use crate::units::{Bytes, Nanos, Picos};

/// A line of the ledger of a device.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct LedgerView {
    pub device: String,
    pub at_ns: Nanos,
    pub line: &'static str,
    pub detail: String,
    pub part_of: Option<usize>,
    pub depth: usize,
    pub bytes: Option<i64>,
    pub source: &'static str,
    pub reason: String,
}

/// The books of each device of a recording, and the traces that tell what its pools' bytes are.
pub struct Accounts<'a> {
    /// The recording.
    recorded: &'a Recorded,
    /// One for each device.
    pub books: Vec<Books<'a>>,
    /// The trace of each process that has one, with its pools.
    traces: Vec<(u32, &'a Trace)>,
    /// Where the clock of each process begins on the monotonic clock: with its trace, else with its first mark.
    begins: Vec<(u32, i64)>,
}

impl<'a> Accounts<'a> {
    /// Opens the books of a recording; `None` where there is none.
    #[must_use]
    pub fn of(reading: &'a Reading, pools: &[PoolView]) -> Option<Accounts<'a>> {
        let recorded = reading.recorded.as_ref()?;
        let mut accounts = Accounts { recorded, books: Vec::new(), traces: Vec::new(), begins: Vec::new() };
        for (number, process) in recorded.processes.iter().enumerate() {
            let host = reading.hosts.iter().find(|host| host.process == Some(number));
            let trace = host.map(|host| &host.trace);
            accounts.traces.extend(trace.map(|trace| (process.id.pid(), trace)));
            let zero = trace.and_then(|trace| trace.history.monotonic_zero).map(|zero| zero.0);
            let first = process.marks.first().map(|mark| mark.time.monotonic);
            accounts.begins.extend(zero.or(first).map(|begin| (process.id.pid(), begin)));
            let whole = Whole { process, trace, pools: std::collections::BTreeMap::default() };
            for device in whole.lifetime_peaks().into_keys().filter(|device| !device.is_empty()) {
                let is_it = |pool: &&PoolView| {
                    pool.device == device && pool.pid.is_none_or(|pid| pid == u64::from(process.id.pid()))
                };
                let series = series(process, &device, trace, pools.iter().find(is_it));
                let place = accounts.place(&device);
                if let Some(books) = accounts.books.get_mut(place) {
                    books.pools.push(series);
                    books.did.extend(process.marks.iter().filter_map(did));
                }
            }
        }
        for books in &mut accounts.books {
            books.did.sort_by_key(|did| did.span);
            name_as_driver(books);
        }
        Some(accounts)
    }

    /// The place of a device's books; they are opened where there are none.
    fn place(&mut self, device: &str) -> usize {
        if let Some(place) = self.books.iter().position(|books| books.device == device) {
            return place;
        }
        let uuid = self.uuid(device);
        let is_of = |row: &&DriverRow| uuid.as_ref().is_some_and(|uuid| row.device == *uuid);
        let rows: Vec<&DriverRow> = self.recorded.driver.iter().filter(is_of).collect();
        let driver = self.recorded.manifest.as_ref().and_then(|manifest| manifest.driver.as_ref());
        let error = driver.and_then(|driver| driver.error.as_ref()).map(ToString::to_string);
        let no_rows = match (self.recorded.driver.is_empty(), error) {
            (_, Some(error)) => error,
            (true, None) => "nobody asked the driver: only vramline run does".to_owned(),
            (false, None) => "the driver's list has no device that answers to this name".to_owned(),
        };
        self.books.push(Books {
            device: device.to_owned(),
            is_stand_in: device.starts_with("CPU"),
            rows,
            no_rows,
            ..Books::default()
        });
        self.books.len() - 1
    }

    /// What the driver calls a device.
    fn uuid(&self, device: &str) -> Option<String> {
        let (kind, number) = device.split_once(':')?;
        if kind == "CPU" {
            return Some(HOST.to_owned());
        }
        uuid_of(self.recorded.manifest.as_ref()?, number.parse().ok()?)
    }

    /// The ledger of a device at a moment of the monotonic clock.
    #[must_use]
    pub fn at(&self, books: &Books<'_>, time: i64) -> Ledger {
        let parts = |series: &PoolSeries, time: i64| {
            let pids = self.recorded.processes.iter().map(|process| process.id.pid());
            // The driver may number processes otherwise; the trace knows its own.
            let only = pids.clone().next().filter(|_| pids.count() == 1);
            let is_of = |pid: u32| pid == series.pid || only == Some(pid);
            let (_, trace) = self.traces.iter().find(|(pid, _)| is_of(*pid))?;
            let pool = trace.pools.iter().find(|pool| name_of(trace, pool) == series.name)?;
            parts(trace, pool, time)
        };
        books.at(time, &parts)
    }

    /// A moment of the monotonic clock on the clock that a process has in the report.
    pub(super) fn clock(&self, pid: u32, time: i64) -> Nanos {
        // The driver may number the only process otherwise.
        let of_pid = self.begins.iter().find(|(of, _)| *of == pid).or(self.begins.first());
        Nanos(time.saturating_sub(of_pid.map_or(0, |(_, begin)| *begin)))
    }

    /// The same on the clock of the process that held the most of a device.
    fn clock_of(&self, books: &Books<'_>, time: i64) -> Nanos {
        let fullest = books.pools.iter().max_by_key(|pool| pool.peak);
        self.clock(fullest.map_or(0, |pool| pool.pid), time)
    }

    fn rows(&self) -> Vec<LedgerView> {
        let mut rows: Vec<LedgerView> = Vec::new();
        for books in &self.books {
            let Some(time) = books.best_moment() else { continue };
            let before = rows.len();
            rows.extend(lines(&self.at(books, time), self.clock_of(books, time), before));
        }
        rows
    }

    /// The ledgers of all devices at moments of the monotonic clock.
    #[must_use]
    pub fn at_times(&self, times: &[i64]) -> Vec<Vec<LedgerView>> {
        let each = |&time: &i64| {
            self.books.iter().map(move |books| lines(&self.at(books, time), self.clock_of(books, time), 0))
        };
        times.iter().flat_map(each).collect()
    }
}

/// What the driver calls the device that has this number in a job.
pub(super) fn uuid_of(manifest: &RunManifest, number: usize) -> Option<String> {
    let facts = |device: &crate::recording::manifest::Device| DeviceFacts {
        index: device.index.unwrap_or_default(),
        uuid: device.uuid.clone().unwrap_or_default(),
        name: device.name.clone(),
        capability: device.capability,
        pci_bus_id: device.pci_bus_id.clone(),
        is_divided: device.is_divided,
        part: device.part.clone(),
        is_accounting: device.is_accounting,
    };
    let devices: Vec<DeviceFacts> = manifest.devices.iter().map(facts).collect();
    let told = |name: &str| manifest.environment.get(name).map(String::as_str);
    let list = manifest.settings.gpus.as_deref().or_else(|| told("CUDA_VISIBLE_DEVICES"));
    let seen = visible(&devices, list, told("CUDA_DEVICE_ORDER"));
    let place = *seen.devices.get(number)?;
    devices.get(place).map(|facts| facts.uuid.clone()).filter(|uuid| !uuid.is_empty())
}

/// A ledger as rows; `before` of others stand before them.
#[must_use]
pub fn lines(ledger: &Ledger, at: Nanos, before: usize) -> Vec<LedgerView> {
    let row = |line: &Line| LedgerView {
        device: ledger.device.clone(),
        at_ns: at,
        line: line.what.word(),
        detail: line.what.detail(),
        part_of: line.of.map(|place| before + place),
        depth: ledger.depth(line),
        bytes: line.bytes,
        source: line.by.word(),
        reason: line.why.clone(),
    };
    ledger.lines.iter().map(row).collect()
}

/// The ledgers of a report.
pub(super) fn ledger(report: &Report, reading: &Reading) -> Vec<LedgerView> {
    Accounts::of(reading, &report.pools).map_or(Vec::new(), |accounts| accounts.rows())
}

fn name_of<'a>(trace: &'a Trace, pool: &PoolTrace) -> &'a str {
    trace.history.pool(pool.id).map_or("", |pool| &pool.name)
}

/// What a process' pool did on a device.
fn series(
    process: &RecordedProcess,
    device: &str,
    trace: Option<&Trace>,
    pool: Option<&PoolView>,
) -> PoolSeries {
    let is_it = |(_, read): &(i64, &Counters)| read.device == device;
    let marks =
        process.marks.iter().flat_map(|mark| mark.counters.iter().map(|read| (mark.time.monotonic, read)));
    let samples =
        process.samples.iter().filter_map(|sample| Some((sample.time.monotonic, sample.counters.as_ref()?)));
    let mut told: Vec<(i64, &Counters)> = marks.chain(samples).filter(is_it).collect();
    told.sort_by_key(|(time, _)| *time);
    let figure = |bytes: Option<i64>, by| Some(Told { bytes: Bytes(u64::try_from(bytes?).ok()?), by });
    let mut series = PoolSeries {
        name: pool.map_or_else(|| device.to_owned(), |pool| pool.name.clone()),
        pid: process.id.pid(),
        in_use: told
            .iter()
            .filter_map(|(time, read)| Some((*time, figure(read.current, Teller::Framework)?)))
            .collect(),
        taken: told
            .iter()
            .filter_map(|(time, read)| Some((*time, figure(read.pool, Teller::Framework)?)))
            .collect(),
        not_taken: "the framework does not tell what its pool took; a trace from the start would".to_owned(),
        not_in_use: told.iter().find_map(|(_, read)| read.reason.clone()).unwrap_or_default(),
        ..PoolSeries::default()
    };
    let zero = trace.and_then(|trace| trace.history.monotonic_zero).map(|zero| zero.0);
    // A nanosecond later everything of that moment has happened.
    let at = pool
        .and_then(|pool| pool.peak_at_ns)
        .zip(zero)
        .map(|(at, zero)| zero.saturating_add(at.0).saturating_add(1));
    series.peak = pool.and_then(|pool| pool.peak_bytes).zip(at);
    let replayed = pool.and_then(|pool| pool.replay.as_ref()).filter(|replayed| replayed.exact);
    if let (true, Some(replayed), Some(zero), Some(trace)) = (series.taken.is_empty(), replayed, zero, trace)
    {
        let on_clock = |time: Picos| zero.saturating_add(time.on_clock(trace.history.origin).0);
        let point = |&(time, bytes): &(Picos, Bytes)| (on_clock(time), Told { bytes, by: Teller::Replay });
        series.taken = replayed.taken.iter().map(point).collect();
        series.taken_until = process.trace_stopped().map(|stopped| stopped.monotonic);
        "the trace is over: from here on nobody tells what the pool took".clone_into(&mut series.not_taken);
    }
    series
}

/// What a pool's bytes in use were, by the trace.
fn parts(trace: &Trace, pool: &PoolTrace, time: i64) -> Option<Parts> {
    let history = &trace.history;
    let since = time.checked_sub(history.monotonic_zero?.0)?.checked_sub(history.origin.0)?;
    let time = Picos(since.saturating_mul(1000).saturating_add(999));
    let snapshot = trace.snapshot(pool, time).filter(|_| time <= pool.last_time(&history.events))?;
    let of =
        |role: Role| snapshot.held.iter().filter(|held| held.role == role).map(|held| held.requested).sum();
    Some(Parts {
        by_role: Role::ALL.into_iter().map(|role| (role, of(role))).collect(),
        slack: snapshot.slack(),
        before: snapshot.before_recording,
    })
}

/// A mark as something that the program did.
fn did(mark: &Mark) -> Option<Did> {
    let what = match (mark.kind.as_str(), mark.step, mark.label.as_deref()) {
        ("step" | "call", Some(step), _) => format!("step {step}"),
        ("mark", _, Some(label)) => format!("mark '{label}'"),
        ("phase", _, Some(label)) => label.to_owned(),
        _ => return None,
    };
    let end = mark.time.monotonic;
    Some(Did { span: (mark.begin.unwrap_or(end), end), what })
}

/// Gives the job's processes the numbers that the driver has for them, which are others in a container.
fn name_as_driver(books: &mut Books<'_>) {
    let mut of_job: Vec<u32> =
        books.rows.iter().filter(|row| row.is_job == Some(true)).filter_map(|row| row.pid).collect();
    of_job.sort_unstable();
    of_job.dedup();
    if let ([only], [pool]) = (of_job.as_slice(), books.pools.as_mut_slice()) {
        pool.pid = *only;
    }
}
