//! The accounts of each device of a recording: who held what at any moment, for the ledger at the peak and at other requested moments.

use std::sync::Arc;

use super::pool_claims;
use super::process::ProcessStory;
use super::reading::Reading;
use super::report::PoolAnalysis;
use crate::analysis::caching::CachedWhen;
use crate::ledger::moments::{
    Books, Did, DriverMoment, HighestFigures, LedgerMoment, PoolSeries, ProcessCalls,
};
use crate::ledger::{Cause, Ledger, OutsideEstimate, Parts, SourcedBytes, Teller};
use crate::recording::reader::{Recorded, RecordedProcess, RunView};
use crate::recording::rows::{Counters, DriverRow, HOST, Mark, PINNED, RecordedMarkKind};
use crate::snapshot::Role;
use crate::trace::driver_holdings::DriverHoldings;
use crate::trace::{PoolTrace, Trace};
use crate::units::{Bytes, Nanos, Picos};

/// The ledger of a device at a moment.
#[derive(Clone, Debug)]
pub struct DeviceLedger {
    /// The machine of the device.
    pub host: Option<String>,
    /// The moment, on the clock of the process that held the most of the device.
    pub at: Nanos,
    /// Which moment that is.
    pub moment: LedgerMoment,
    /// The time of the driver reading (or kernel reading, for host memory) of the job's processes, on the same clock.
    pub told_at: Option<Nanos>,
    /// The lines.
    pub ledger: Ledger,
}

/// The highest figures of a device over the whole run.
#[derive(Clone, Debug)]
pub struct DeviceHighest {
    /// The machine of the device.
    pub host: Option<String>,
    /// The device.
    pub device: String,
    /// Its figures.
    pub figures: HighestFigures,
}

/// The books of each device of a recording, and the traces that tell what its pools' bytes are.
pub struct Accounts<'a> {
    /// The recording.
    recorded: &'a Recorded,
    /// One for each device.
    pub books: Vec<Books<'a>>,
    /// The traces of each process, with their pools.
    traces: Vec<(u32, &'a Trace)>,
    /// Where the clock of each process begins on the monotonic clock: with its trace, else with its first mark.
    begins: Vec<(u32, i64)>,
}

impl<'a> Accounts<'a> {
    /// The accounts of a recording; `None` if there is no recording.
    #[must_use]
    pub fn of(reading: &'a Reading, pools: &[PoolAnalysis]) -> Option<Accounts<'a>> {
        let recorded = reading.recorded.as_ref()?;
        let mut accounts = Accounts { recorded, books: Vec::new(), traces: Vec::new(), begins: Vec::new() };
        for (number, process) in recorded.processes.iter().enumerate() {
            let trace = reading.host_of(number).map(|(_, host)| &host.trace);
            let windows = reading.windows_of(number);
            accounts.traces.extend(windows.iter().map(|window| (process.id.pid(), window.trace)));
            let zero = trace.and_then(|trace| trace.history.monotonic_zero).map(|zero| zero.0);
            let first = process.marks.first().map(|mark| mark.time.monotonic);
            accounts.begins.extend(zero.or(first).map(|begin| (process.id.pid(), begin)));
            let story = ProcessStory::of(process, trace);
            for device in story.lifetime_peaks().into_keys().filter(|device| !device.is_empty()) {
                let is_it = |pool: &&PoolAnalysis| {
                    pool.device == device && pool.pid.is_none_or(|pid| pid == u64::from(process.id.pid()))
                };
                let series = series(process, &device, trace, pools.iter().find(is_it));
                let estimate = accounts.estimate(process, &device);
                let place = accounts.place(recorded.run_number(process), &device);
                if let Some(books) = accounts.books.get_mut(place) {
                    books.estimates.push((process.id.pid(), estimate));
                    books.pools.push(series);
                    books.did.extend(process.marks.iter().filter_map(did));
                }
            }
        }
        accounts.add_driver_calls(reading);
        // A job without a known framework has no marks.
        let begin = recorded.manifest.as_ref().map(|manifest| manifest.clocks.begin.monotonic_ns.0);
        if accounts.begins.is_empty() {
            accounts.begins.extend(begin.map(|begin| (0, begin)));
        }
        for books in &mut accounts.books {
            books.did.sort_by_key(|did| did.span);
            name_as_driver(books);
        }
        Some(accounts)
    }

    /// What a process takes outside its pools on a device, as far as that was measured elsewhere.
    fn estimate(&self, process: &RecordedProcess, device: &str) -> OutsideEstimate {
        let run = self.recorded.run_of(process);
        let Some(manifest) = run.manifest else { return OutsideEstimate::None };
        // Code that is loaded at once counts to the context.
        let is_lazy = manifest.environment.get("CUDA_MODULE_LOADING").is_none_or(|mode| mode == "LAZY");
        let uuid = uuid(run, device).filter(|_| is_lazy && device.starts_with("GPU"));
        let gpu = manifest.devices.iter().find(|known| uuid.is_some() && known.uuid == uuid);
        let driver = manifest.driver.as_ref().and_then(|driver| driver.library.driver_version.as_deref());
        let gpu = gpu.and_then(|gpu| gpu.name.as_deref());
        OutsideEstimate::of(driver, gpu, process.facts.framework())
    }

    /// Adds what the driver calls of each process made it hold. They know the size of a pool at every moment.
    fn add_driver_calls(&mut self, reading: &'a Reading) {
        for calls in &self.recorded.driver_calls {
            let number = self.recorded.processes.iter().position(|process| process.id == calls.id);
            let process = number.and_then(|number| self.recorded.processes.get(number));
            let mut holdings = DriverHoldings::of(calls);
            let devices = holdings.devices();
            for &device in &devices {
                let windows = number.map(|number| reading.windows_of(number)).unwrap_or_default();
                let traces: Vec<&Trace> = windows.iter().map(|window| window.trace).collect();
                pool_claims::claim(&mut holdings, device, &traces, process);
            }
            let run = process.map_or(0, |process| self.recorded.run_number(process));
            let holdings = Arc::new(holdings);
            let ended = process.and_then(|process| {
                let end = process.marks.iter().rev().find(|mark| mark.kind == RecordedMarkKind::End)?;
                Some(end.time.monotonic)
            });
            let pid = calls.id.pid();
            // A worker that only loads the driver holds nothing.
            let is_held = |device: &u16| holdings.peak(*device).is_some_and(|(bytes, _)| bytes > 0);
            for device in devices.into_iter().filter(is_held) {
                let place = self.place(run, &format!("GPU:{device}"));
                let Some(books) = self.books.get_mut(place) else { continue };
                if !books.pools.iter().any(|pool| pool.pid == pid) && !holdings.pool_series(device).is_empty()
                {
                    // The framework reports nothing about its pool.
                    books.pools.push(PoolSeries { name: books.device.clone(), pid, ..PoolSeries::default() });
                }
                if let Some(pool) = books.pools.iter_mut().find(|pool| pool.pid == pid) {
                    take_sizes(pool, &holdings, device);
                }
                books.calls.push(ProcessCalls { pid, device, holdings: holdings.clone(), ended });
            }
        }
    }

    /// The index of the accounts of a launcher's device, which are created if there are none.
    fn place(&mut self, number: usize, device: &str) -> usize {
        if let Some(place) = self.books.iter().position(|books| books.run == number && books.device == device)
        {
            return place;
        }
        let recorded: &'a Recorded = self.recorded;
        let Some(run) = recorded.runs().nth(number) else { return usize::MAX };
        let uuid = uuid(run, device);
        let is_of = |row: &&DriverRow| uuid.as_ref().is_some_and(|uuid| row.device == *uuid);
        let rows: Vec<&DriverRow> = run.driver.iter().filter(is_of).collect();
        let driver = run.manifest.and_then(|manifest| manifest.driver.as_ref());
        let error = driver.and_then(|driver| driver.error.as_ref()).map(ToString::to_string);
        let is_stand_in = device.starts_with("CPU");
        let no_rows = match (run.driver.is_empty(), error) {
            _ if device == PINNED => {
                "pinned memory is memory of the host: the driver does not count it for a device".to_owned()
            }
            (true, _) if is_stand_in => {
                "host memory was not recorded; only `vramline run` records it".to_owned()
            }
            (_, Some(error)) => error,
            (true, None) => "the driver was not recorded; only `vramline run` records it".to_owned(),
            (false, None) => "the driver lists no device with this name".to_owned(),
        };
        let device = device.to_owned();
        self.books.push(Books { run: number, device, is_stand_in, rows, no_rows, ..Books::default() });
        self.books.len() - 1
    }

    /// The ledger of a device at a moment of the monotonic clock, each figure the last one told.
    #[must_use]
    pub fn at(&self, books: &Books<'_>, time: i64) -> Ledger {
        self.with_driver(books, time, &DriverMoment::At(time))
    }

    fn with_driver(&self, books: &Books<'_>, time: i64, driver: &DriverMoment) -> Ledger {
        let parts = |series: &PoolSeries, time: i64| {
            let pids = self.recorded.processes.iter().map(|process| process.id.pid());
            // The driver may number processes otherwise; the trace knows its own.
            let only = pids.clone().next().filter(|_| pids.count() == 1);
            let is_of = |pid: u32| pid == series.pid || only == Some(pid);
            // Of several traces of a process that which shows the moment.
            self.traces.iter().filter(|(pid, _)| is_of(*pid)).find_map(|(_, trace)| {
                let pool = trace.pools.iter().find(|pool| name_of(trace, pool) == series.name)?;
                parts(trace, pool, time)
            })
        };
        books.at(time, driver, &parts)
    }

    /// A moment of the monotonic clock on the clock that a process has in the report.
    pub(crate) fn clock(&self, pid: u32, time: i64) -> Nanos {
        // The driver may number the only process otherwise.
        let of_pid = self.begins.iter().find(|(of, _)| *of == pid).or(self.begins.first());
        Nanos(time.saturating_sub(of_pid.map_or(0, |(_, begin)| *begin)))
    }

    /// The same on the clock of the process that held the most of a device.
    fn clock_of(&self, books: &Books<'_>, time: i64) -> Nanos {
        let fullest = books.pools.iter().max_by_key(|pool| pool.peak);
        self.clock(fullest.map_or(0, |pool| pool.pid), time)
    }

    fn host_of(&self, books: &Books<'_>) -> Option<String> {
        self.recorded.host_of_run(books.run).map(str::to_owned)
    }

    fn ledger_at(
        &self,
        books: &Books<'_>,
        time: i64,
        moment: LedgerMoment,
        driver: &DriverMoment,
    ) -> DeviceLedger {
        let clock = |time: i64| self.clock_of(books, time);
        let mut ledger = self.with_driver(books, time, driver);
        for line in &mut ledger.lines {
            if let Some(group) = line.what.growth_mut() {
                (group.first, group.last) = (clock(group.first.0), clock(group.last.0));
            }
        }
        let told_at = match driver {
            DriverMoment::At(at) => books.told_at(*at).map(clock),
            DriverMoment::NotThen => None,
        };
        DeviceLedger { host: self.host_of(books), at: clock(time), moment, told_at, ledger }
    }

    /// The ledger of each device at the peak of its fullest pool.
    #[must_use]
    pub fn at_peaks(&self) -> Vec<DeviceLedger> {
        let at_peak = |books: &Books<'_>| {
            let (time, moment) = books.peak_moment()?;
            Some(self.ledger_at(books, time, moment, &books.driver_moment(time)))
        };
        self.books.iter().filter_map(at_peak).collect()
    }

    /// The most in use of each pool that only driver calls tell about: its device, its process, its bytes.
    pub(super) fn used_by_calls(&self) -> Vec<(&str, u32, Bytes)> {
        let of = |books: &'_ Books<'a>| {
            let most = |pool: &PoolSeries| {
                let by_calls = pool.in_use.iter().filter(|(_, told)| told.by == Teller::Calls);
                Some((pool.pid, by_calls.map(|(_, told)| told.bytes).max()?))
            };
            books.pools.iter().filter_map(most).collect::<Vec<_>>()
        };
        let each = |books| of(books).into_iter().map(|(pid, bytes)| (books.device.as_str(), pid, bytes));
        self.books.iter().flat_map(each).collect()
    }

    /// The ledger of each device with recorded driver calls at the end of the job.
    #[must_use]
    pub fn at_ends(&self) -> Vec<DeviceLedger> {
        let at_end = |books: &Books<'_>| {
            let time = books.end_moment().filter(|_| !books.calls.is_empty())?;
            Some(self.ledger_at(books, time, LedgerMoment::End, &books.driver_moment(time)))
        };
        self.books.iter().filter_map(at_end).collect()
    }

    /// The highest figures of each device over the whole run.
    #[must_use]
    pub fn highest(&self) -> Vec<DeviceHighest> {
        let of = |books: &Books<'_>| DeviceHighest {
            host: self.host_of(books),
            device: books.device.clone(),
            figures: books.highest(),
        };
        self.books.iter().map(of).collect()
    }

    /// The ledgers of all devices at moments of the monotonic clock.
    #[must_use]
    pub fn at_times(&self, times: &[i64]) -> Vec<DeviceLedger> {
        let each = |&time: &i64| {
            let of = move |books| self.ledger_at(books, time, LedgerMoment::Asked, &DriverMoment::At(time));
            self.books.iter().map(of)
        };
        times.iter().flat_map(each).collect()
    }
}

/// The driver's name for a device of a launcher's machine.
fn uuid(run: RunView<'_>, device: &str) -> Option<String> {
    let (kind, number) = device.split_once(':')?;
    if kind == "CPU" {
        return Some(HOST.to_owned());
    }
    run.manifest?.uuid_of_device(number.parse().ok()?)
}

fn name_of<'a>(trace: &'a Trace, pool: &PoolTrace) -> &'a str {
    trace.history.pool(pool.id).map_or("", |pool| &pool.name)
}

/// What a process' pool did on a device.
fn series(
    process: &RecordedProcess,
    device: &str,
    trace: Option<&Trace>,
    pool: Option<&PoolAnalysis>,
) -> PoolSeries {
    let is_it = |(_, read): &(i64, &Counters)| read.device == device;
    let marks =
        process.marks.iter().flat_map(|mark| mark.counters.iter().map(|read| (mark.time.monotonic, read)));
    let samples =
        process.samples.iter().filter_map(|sample| Some((sample.time.monotonic, sample.counters.as_ref()?)));
    let mut told: Vec<(i64, &Counters)> = marks.chain(samples).filter(is_it).collect();
    told.sort_by_key(|(time, _)| *time);
    let figure =
        |bytes: Option<i64>, by| Some(SourcedBytes { bytes: Bytes(u64::try_from(bytes?).ok()?), by });
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
        not_taken: "the framework does not report what its pool reserves; a trace from the start shows it"
            .to_owned(),
        not_in_use: told.iter().find_map(|(_, read)| read.reason.clone()).unwrap_or_default(),
        ..PoolSeries::default()
    };
    let zero = trace.and_then(|trace| trace.history.monotonic_zero).map(|zero| zero.0);
    // A nanosecond later everything of that moment has happened.
    let at = pool
        .and_then(|pool| pool.peak_at)
        .zip(zero)
        .map(|(at, zero)| zero.saturating_add(at.0).saturating_add(1));
    series.peak = pool.and_then(|pool| pool.peak).zip(at);
    series.ran_higher = pool.is_some_and(|pool| pool.lifetime_peak > pool.peak);
    let replayed = pool.and_then(|pool| pool.replay.as_ref()).filter(|replayed| replayed.is_exact);
    if let (true, Some(replayed), Some(zero), Some(trace)) = (series.taken.is_empty(), replayed, zero, trace)
    {
        let on_clock = |time: Picos| zero.saturating_add(time.on_clock(trace.history.origin).0);
        let point =
            |&(time, bytes): &(Picos, Bytes)| (on_clock(time), SourcedBytes { bytes, by: Teller::Replay });
        series.taken = replayed.taken.iter().map(point).collect();
        series.taken_until = process.trace_stopped().map(|stopped| stopped.monotonic);
        "the trace has ended, and the framework does not report what its pool reserves"
            .clone_into(&mut series.not_taken);
    } else if let Some((at, taken)) = at.zip(pool.and_then(taken_at_peak)) {
        // Counters are read only from time to time; the replay or the trace knows the value at the peak itself.
        if series.taken.is_empty() {
            series.taken_until = Some(at);
        }
        let place = series.taken.partition_point(|(time, _)| *time < at);
        series.taken.insert(place, (at, taken));
    }
    series
}

/// The size of a pool by the driver calls of its process, if they show the pool.
fn take_sizes(pool: &mut PoolSeries, holdings: &DriverHoldings, device: u16) {
    let sourced = |(at, bytes): (i64, Bytes)| (at, SourcedBytes { bytes, by: Teller::Calls });
    let sizes = holdings.pool_series(device);
    if sizes.is_empty() {
        return;
    }
    pool.taken = sizes.into_iter().map(sourced).collect();
    pool.taken_until = None;
    if pool.in_use.is_empty() {
        pool.in_use = holdings.pool_used_series(device).into_iter().map(sourced).collect();
    }
}

/// What a pool had taken at its peak, by its replay or by its trace.
fn taken_at_peak(pool: &PoolAnalysis) -> Option<SourcedBytes> {
    let exact = pool.replay.as_ref().filter(|replayed| replayed.is_exact);
    let replayed = exact.map(|replayed| SourcedBytes { bytes: replayed.pool_at_peak, by: Teller::Replay });
    let moments = pool.caching.iter().flat_map(|caching| &caching.moments);
    let mut at_peak = moments.filter(|(when, _)| *when == CachedWhen::Peak);
    replayed.or_else(|| {
        let (_, cached) = at_peak.next()?;
        Some(SourcedBytes { bytes: cached.reserved, by: Teller::Trace })
    })
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
    let what = match (&mark.kind, mark.step, mark.label.as_deref()) {
        (RecordedMarkKind::Step | RecordedMarkKind::Call, Some(step), _) => {
            Cause::Steps { first: step, last: step }
        }
        (RecordedMarkKind::Mark, _, Some(label)) => Cause::Mark(label.to_owned()),
        (RecordedMarkKind::Phase, _, Some(label)) => Cause::Phase(label.to_owned()),
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
    let [only] = of_job.as_slice() else { return };
    if let [pool] = books.pools.as_mut_slice() {
        pool.pid = *only;
    }
    if let [calls] = books.calls.as_mut_slice() {
        calls.pid = *only;
    }
    if let [(pid, _)] = books.estimates.as_mut_slice() {
        *pid = *only;
    }
}
