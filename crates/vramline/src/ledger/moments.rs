//! The ledger of a recording, at any moment of it.
//!
//! Three sources are read at different rates: the driver's device figures tens of times a second, its list of processes about once a
//! second, and the framework's counters at every mark and sample. The memory of a process and the size of its pools can be compared only at
//! the same moment. So context and growth come from moments at which the driver was just read and the pool did not change. At any other
//! moment each figure is the last reading, and contradictions have their own line.
//!
//! The ledger of a report is for the peak. The driver's figures there are the nearest readings at which the pools had the same size as at
//! the peak. If the driver calls of the job were recorded, every change between a reading and the peak is known, so the nearest reading at
//! which no call was going on is taken and carried on by these changes.

use std::sync::Arc;

use super::beside::{BesidePool, DeviceOnly};
use super::{
    Cause, DeviceFigures, Facts, Growth, GrowthGroup, JobProcess, Ledger, OtherProcess, OutsideEstimate,
    Parts, PoolFigures, PoolSegments, SourcedBytes,
};
use crate::recording::rows::{DriverRow, DriverState, Subject};
use crate::trace::driver_holdings::DriverHoldings;
use crate::units::{Bytes, Nanos};

/// The smallest change outside the pools that counts: drivers count in pages of 2 MiB.
const LEAST: i64 = 2 << 20;

/// Readings near a moment that are looked at for one at which no call was going on.
const MOST_READINGS: usize = 64;

/// Why it is unknown what a process held at the peak.
const NOT_THEN: &str = "the driver was not read while the pool of this process had this size";

/// What a process's pool did.
#[derive(Clone, Debug, Default)]
pub struct PoolSeries {
    /// Its name.
    pub name: String,
    /// The process.
    pub pid: u32,
    /// Bytes reserved from the driver, from each moment on; in order.
    pub taken: Vec<(i64, SourcedBytes)>,
    /// The moment from which on that is unknown, because the trace ends there.
    pub taken_until: Option<i64>,
    /// Why it is unknown.
    pub not_taken: String,
    /// What was in use at moments; in order.
    pub in_use: Vec<(i64, SourcedBytes)>,
    /// Why it is unknown.
    pub not_in_use: String,
    /// The peak in use and its time, if a trace shows it.
    pub peak: Option<(Bytes, i64)>,
    /// Whether more was in use at another moment of the run that no trace shows.
    pub ran_higher: bool,
}

impl PoolSeries {
    fn taken_at(&self, time: i64) -> Option<SourcedBytes> {
        let is_known = self.taken_until.is_none_or(|until| time <= until);
        last_at(&self.taken, time).filter(|_| is_known)
    }

    /// Whether the reserved bytes are the same just before and just after a moment.
    fn is_steady_at(&self, time: i64) -> bool {
        let after = self.taken.partition_point(|(at, _)| *at <= time);
        match (after.checked_sub(1).and_then(|place| self.taken.get(place)), self.taken.get(after)) {
            (Some((_, before)), Some((_, next))) => before.bytes == next.bytes,
            (Some(_), None) => self.taken_until.is_none_or(|until| time <= until),
            (None, _) => false,
        }
    }
}

fn last_at(series: &[(i64, SourcedBytes)], time: i64) -> Option<SourcedBytes> {
    let after = series.partition_point(|(at, _)| *at <= time);
    Some(series.get(after.checked_sub(1)?)?.1)
}

/// Something that the program did, as the cause of a change.
#[derive(Clone, Debug)]
pub struct Did {
    /// Its start and end.
    pub span: (i64, i64),
    /// What it did.
    pub what: Cause,
}

/// The kind of moment of a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LedgerMoment {
    /// The peak of the device's largest pool.
    Peak,
    /// The same for the traced steps, if the run had a higher peak elsewhere.
    TracedPeak,
    /// The highest reading of the framework's counters, if no trace shows the peak.
    HighestReading,
    /// The last reading of the driver, if the bytes in use are unknown.
    LastReading,
    /// The highest memory of a process by its driver calls, if no framework reports a pool.
    ProcessPeak,
    /// The end of the job: the last reading of the driver while its processes ran.
    End,
    /// A requested moment.
    Asked,
}

words!(LedgerMoment {
    Peak => "peak",
    TracedPeak => "traced-peak",
    HighestReading => "highest-reading",
    LastReading => "last-reading",
    ProcessPeak => "process-peak",
    End => "end",
    Asked => "asked",
});

/// The moment of the driver's figures in a ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DriverMoment {
    /// This one, on the monotonic clock; figures are the last readings before it.
    At(i64),
    /// None: the driver was not read while the pools had this size.
    NotThen,
}

/// One device of a recording.
#[derive(Clone, Debug, Default)]
pub struct Books<'a> {
    /// The number of the launcher on whose machine the device is.
    pub run: usize,
    /// The device, as frameworks name it.
    pub device: String,
    /// Whether host memory stands in for it.
    pub is_stand_in: bool,
    /// The driver's readings of this device, in order.
    pub rows: Vec<&'a DriverRow>,
    /// Why there are none.
    pub no_rows: String,
    /// The pools of the job's processes on it.
    pub pools: Vec<PoolSeries>,
    /// What the driver calls of processes made them hold, where they were recorded.
    pub calls: Vec<ProcessCalls>,
    /// What processes take outside their pools, as far as that was measured elsewhere.
    pub estimates: Vec<(u32, OutsideEstimate)>,
    /// What the program did, in order.
    pub did: Vec<Did>,
}

/// The driver calls of a process.
#[derive(Clone, Debug)]
pub struct ProcessCalls {
    /// The process.
    pub pid: u32,
    /// The process's number of the device.
    pub device: u16,
    /// What they made it hold.
    pub holdings: Arc<DriverHoldings>,
    /// When the process said that it ends, on the monotonic clock.
    pub ended: Option<i64>,
}

impl ProcessCalls {
    /// Who reserved the framework's pool, as it was at a moment.
    fn segments_at(&self, time: i64) -> Option<PoolSegments> {
        let count = u64::try_from(self.holdings.at(self.device, time).pool.count).unwrap_or(0);
        let part = self.holdings.reserved_by(self.device)?;
        Some(PoolSegments { count, library: part.library.clone(), place: part.place.clone() })
    }
}

/// What a process held outside its pools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outside {
    /// Time of the first reading, on the monotonic clock.
    pub since: i64,
    /// Bytes at that time.
    pub context: Bytes,
    /// Changes since then.
    pub growths: Vec<Growth>,
}

/// The highest figures of a device over the whole run, each at its own moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HighestFigures {
    /// Peak of the job's processes together, by the driver or the kernel.
    pub held: Option<Bytes>,
    /// Bytes outside their pools at the start.
    pub context: Option<Bytes>,
    /// Changes outside their pools from then to the end.
    pub growths: Vec<GrowthGroup>,
    /// Peak bytes outside their pools.
    pub outside: Option<Bytes>,
    /// Peak bytes that one of their pools reserved.
    pub taken: Option<Bytes>,
}

impl Books<'_> {
    /// The processes of the job on this device.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        let told = self.rows.iter().filter(|row| row.is_job == Some(true)).filter_map(|row| row.pid);
        let calls = self.calls.iter().map(|calls| calls.pid);
        let mut pids: Vec<u32> = self.pools.iter().map(|pool| pool.pid).chain(told).chain(calls).collect();
        pids.sort_unstable();
        pids.dedup();
        pids
    }

    fn rows_of(&self, pid: u32) -> impl Iterator<Item = &DriverRow> {
        let is_it = move |row: &&&DriverRow| row.subject == Subject::Process && row.pid == Some(pid);
        self.rows.iter().filter(is_it).copied()
    }

    /// Moments at which a process' figures can be compared: the time, its memory, and what its pools reserved.
    fn coherent(&self, pid: u32) -> Vec<(i64, i64, i64)> {
        let pools: Vec<&PoolSeries> = self.pools.iter().filter(|pool| pool.pid == pid).collect();
        let at = |row: &DriverRow| {
            let time = row.time.monotonic;
            let taken = |pool: &&PoolSeries| pool.taken_at(time).filter(|_| pool.is_steady_at(time));
            let taken: Option<i64> =
                pools.iter().map(|pool| taken(pool).map(|told| super::signed(told.bytes))).sum();
            Some((time, super::signed(row.used?), taken.filter(|_| !pools.is_empty())?))
        };
        self.rows_of(pid).filter_map(at).collect()
    }

    /// What a process held outside its pools over time; `None` if there is no such moment.
    #[must_use]
    pub fn outside(&self, pid: u32) -> Option<Outside> {
        if self.is_stand_in {
            return self.host_before_pool(pid);
        }
        let mut moments = self.coherent(pid).into_iter();
        let (since, held, taken) = moments.next()?;
        let context = Bytes(u64::try_from(held - taken).ok()?);
        let mut outside = Outside { since, context, growths: Vec::new() };
        let (mut before, mut known) = (since, held - taken);
        for (time, held, taken) in moments {
            let bytes = held - taken - known;
            if bytes.abs() >= LEAST {
                let cause = self.between(before, time);
                outside.growths.push(Growth { after: Nanos(before), by: Nanos(time), bytes, cause });
                known += bytes;
            }
            before = time;
        }
        Some(outside)
    }

    /// On the CPU, pages of a pool count only after they are touched, so only the memory from before the pool can be
    /// separated.
    fn host_before_pool(&self, pid: u32) -> Option<Outside> {
        let first = self
            .pools
            .iter()
            .filter(|pool| pool.pid == pid)
            .filter_map(|pool| pool.taken.first())
            .map(|(at, _)| *at)
            .min()?;
        let row = self.rows_of(pid).take_while(|row| row.time.monotonic <= first).last()?;
        Some(Outside { since: row.time.monotonic, context: row.used?, growths: Vec::new() })
    }

    /// What the program did between two moments. Steps take precedence.
    fn between(&self, after: i64, by: i64) -> Cause {
        let inside: Vec<&Cause> = self
            .did
            .iter()
            .filter(|did| did.span.0 <= by && did.span.1 > after)
            .map(|did| &did.what)
            .collect();
        let steps = inside.iter().filter_map(|what| match what {
            Cause::Steps { first, last } => Some((*first, *last)),
            _ => None,
        });
        if let Some((first, last)) = steps.reduce(|all, one| (all.0.min(one.0), all.1.max(one.1))) {
            return Cause::Steps { first, last };
        }
        match inside.as_slice() {
            [] => Cause::Unmarked,
            [first, others @ ..] if others.iter().all(|other| other == first) => (*first).clone(),
            _ => Cause::Several,
        }
    }

    /// The moment of a report's ledger: the peak in the trace, as in the tables; else the highest reading of
    /// the framework's counters; else the last reading of the driver.
    #[must_use]
    pub fn peak_moment(&self) -> Option<(i64, LedgerMoment)> {
        let traced = self.pools.iter().filter(|pool| pool.peak.is_some()).max_by_key(|pool| pool.peak);
        if let Some((pool, (_, at))) = traced.and_then(|pool| pool.peak.map(|peak| (pool, peak))) {
            let moment = if pool.ran_higher { LedgerMoment::TracedPeak } else { LedgerMoment::Peak };
            return Some((at, moment));
        }
        let most = |pool: &PoolSeries| pool.in_use.iter().map(|&(at, told)| (told.bytes, at)).max();
        let highest = self.pools.iter().filter_map(most).max();
        let highest = highest.map(|(_, at)| (at, LedgerMoment::HighestReading));
        let by_calls = || {
            let peaks = self.calls.iter().filter_map(|calls| calls.holdings.peak(calls.device));
            Some((peaks.max_by_key(|(bytes, _)| *bytes)?.1, LedgerMoment::ProcessPeak))
        };
        let last = || self.rows.last().map(|row| (row.time.monotonic, LedgerMoment::LastReading));
        highest.or_else(by_calls).or_else(last)
    }

    /// The moment at which the job ends: when the last of its processes says so, else the last reading of the driver.
    #[must_use]
    pub fn end_moment(&self) -> Option<i64> {
        let ended = self.calls.iter().filter_map(|calls| calls.ended).max();
        let pids = self.pids();
        let of_job = |row: &&&DriverRow| {
            let is_job = row.pid.is_some_and(|pid| pids.contains(&pid));
            row.subject == Subject::Process && is_job && row.used.is_some()
        };
        ended.or_else(|| self.rows.iter().filter(of_job).map(|row| row.time.monotonic).max())
    }

    /// Whether the driver lists one process only on the device, in the whole recording.
    fn is_job_alone(&self) -> bool {
        let mut pids = self.rows.iter().filter_map(|row| row.pid);
        let first = pids.next();
        pids.all(|pid| Some(pid) == first)
    }

    /// Whether a process whose driver calls were recorded has ended at a moment.
    fn has_gone(&self, pid: u32, time: i64) -> bool {
        let is_it = |row: &&DriverRow| row.subject == Subject::Gone && row.pid == Some(pid);
        let listed = self.rows.iter().filter(|row| is_it(row)).map(|row| row.time.monotonic);
        let ended = self.calls_of(pid).map(|calls| calls.ended.into_iter().chain(listed).min());
        ended.flatten().is_some_and(|ended| ended < time)
    }

    fn calls_of(&self, pid: u32) -> Option<&ProcessCalls> {
        self.calls.iter().find(|calls| calls.pid == pid)
    }

    /// The moment of the driver's figures if calls tell every change since: the nearest reading without any change, else the nearest at
    /// which no call was going on. `None` if the calls of a process were not recorded or not measured.
    fn moment_by_calls(&self, nearest: &[i64], time: i64) -> Option<i64> {
        let has_figures = |pid: &u32| self.rows_of(*pid).any(|row| row.used.is_some());
        let of_job: Vec<u32> = self.pids().into_iter().filter(has_figures).collect();
        let calls: Option<Vec<&ProcessCalls>> = of_job.iter().map(|&pid| self.calls_of(pid)).collect();
        let calls = calls.filter(|calls| calls.iter().all(|calls| calls.holdings.is_measured))?;
        // A process that the driver does not list at a reading has no figure to carry on.
        let is_here = |calls: &&&ProcessCalls| {
            !self.has_gone(calls.pid, time) && !calls.holdings.at(calls.device, time).parts.is_empty()
        };
        let here: Vec<u32> = calls.iter().filter(is_here).map(|calls| calls.pid).collect();
        let is_listed = |at: i64| {
            let mut state = DriverState::default();
            self.rows.iter().take_while(|row| row.time.monotonic <= at).for_each(|row| state.take(row));
            let has = |pid: u32| state.processes.iter().any(|row| row.pid == Some(pid) && row.used.is_some());
            here.iter().all(|&pid| has(pid))
        };
        let is_steady = |at: i64| calls.iter().all(|calls| calls.holdings.is_steady(calls.device, at));
        let is_same = |at: i64| {
            let span = (at.min(time), at.max(time));
            calls
                .iter()
                .all(|calls| calls.holdings.is_unchanged_between(calls.device, span, self.is_job_alone()))
        };
        let mut listed = nearest.iter().copied().take(MOST_READINGS).filter(|&at| is_listed(at));
        let same = listed.clone().find(|&at| is_steady(at) && is_same(at));
        same.or_else(|| listed.clone().find(|&at| is_steady(at))).or_else(|| listed.next())
    }

    /// The moment of the driver's figures that match a moment of the pools. A driver reading does not include growth of a pool after
    /// it, so this is the nearest reading at which the pools had the same size. On the CPU it is the nearest reading.
    #[must_use]
    pub fn driver_moment(&self, time: i64) -> DriverMoment {
        let pids = self.pids();
        let told = |row: &&&DriverRow| {
            row.subject == Subject::Process && row.pid.is_some_and(|pid| pids.contains(&pid))
        };
        let mut nearest: Vec<i64> = self.rows.iter().filter(told).map(|row| row.time.monotonic).collect();
        nearest.sort_by_key(|at| at.abs_diff(time));
        let Some(&first) = nearest.first() else { return DriverMoment::At(time) };
        if self.is_stand_in {
            return DriverMoment::At(first.max(time));
        }
        if let Some(at) = self.moment_by_calls(&nearest, time) {
            return DriverMoment::At(at);
        }
        let sizes = |pid: Option<u32>, at: i64| -> Option<Vec<Bytes>> {
            let mine = self.pools.iter().filter(|pool| pid.is_none_or(|pid| pool.pid == pid));
            mine.map(|pool| pool.taken_at(at).map(|told| told.bytes)).collect()
        };
        // The size of the pools is unknown: one line holds everything, so the last readings are good enough.
        let Some(wanted) = sizes(None, time) else { return DriverMoment::At(time) };
        // A reading is valid until the next one.
        let is_told = |&pid: &u32| {
            let last = self.rows_of(pid).take_while(|row| row.time.monotonic <= time).last();
            match last {
                Some(row) => sizes(Some(pid), row.time.monotonic) == sizes(Some(pid), time),
                None => !self.pools.iter().any(|pool| pool.pid == pid),
            }
        };
        if pids.iter().all(is_told) {
            return DriverMoment::At(time);
        }
        let is_steady = |at: i64| self.pools.iter().all(|pool| pool.is_steady_at(at));
        let fits = |&at: &i64| sizes(None, at).as_ref() == Some(&wanted) && is_steady(at);
        nearest.into_iter().find(fits).map_or(DriverMoment::NotThen, DriverMoment::At)
    }

    /// The highest figures of the whole run.
    #[must_use]
    pub fn highest(&self) -> HighestFigures {
        let pids = self.pids();
        let mut state = DriverState::default();
        let mut held = None;
        for row in &self.rows {
            state.take(row);
            let ours = state.processes.iter().filter(|row| row.pid.is_some_and(|pid| pids.contains(&pid)));
            held = held.max(ours.map(|row| row.used).reduce(|sum, used| Some(sum? + used?)).flatten());
        }
        let each: Vec<Outside> = pids.iter().filter_map(|&pid| self.outside(pid)).collect();
        let mut growths: Vec<Growth> = each.iter().flat_map(|outside| outside.growths.clone()).collect();
        growths.sort_by_key(|growth| growth.by);
        let context = (!each.is_empty()).then(|| each.iter().map(|outside| outside.context).sum::<Bytes>());
        let most = context.map(|context| {
            let (mut now, mut most) = (super::signed(context), super::signed(context));
            for growth in &growths {
                now = now.saturating_add(growth.bytes);
                most = most.max(now);
            }
            most
        });
        HighestFigures {
            held,
            context,
            growths: GrowthGroup::all(&growths),
            outside: most.and_then(|most| u64::try_from(most).ok()).map(Bytes),
            taken: self.pools.iter().flat_map(|pool| &pool.taken).map(|(_, told)| told.bytes).max(),
        }
    }

    /// Time of the last driver reading of the job's processes before a moment.
    #[must_use]
    pub fn told_at(&self, moment: i64) -> Option<i64> {
        let pids = self.pids();
        let until = self.rows.iter().take_while(|row| row.time.monotonic <= moment);
        let of_job = until
            .filter(|row| row.subject == Subject::Process && row.pid.is_some_and(|pid| pids.contains(&pid)));
        of_job.last().map(|row| row.time.monotonic)
    }

    /// The driver's figures of the whole device at a moment. Device and processes are read in turn: if a process reading is higher than the
    /// bytes in use in the previous device reading, the next device reading is used.
    fn device_at(&self, time: i64, told: &DriverRow, held: Bytes) -> Option<DeviceFigures> {
        let now = self.figures(told)?;
        if now.in_use() >= held || self.is_stand_in {
            return Some(now);
        }
        let mut later = self.rows.iter().skip_while(|row| row.time.monotonic <= time);
        let next = later.find(|row| row.subject == Subject::Device).and_then(|row| self.figures(row));
        Some(next.filter(|next| next.in_use() >= held).unwrap_or(now))
    }

    /// The ledger at a moment, with the driver's figures of another one. `parts` splits a pool's bytes in use, if a trace shows them.
    #[must_use]
    pub fn at(
        &self,
        time: i64,
        driver: &DriverMoment,
        parts: &dyn Fn(&PoolSeries, i64) -> Option<Parts>,
    ) -> Ledger {
        let asked = match driver {
            DriverMoment::At(moment) => *moment,
            DriverMoment::NotThen => time,
        };
        let mut state = DriverState::default();
        for row in self.rows.iter().take_while(|row| row.time.monotonic <= asked) {
            state.take(row);
        }
        let pids = self.pids();
        let of_job = |row: &&&DriverRow| row.pid.is_some_and(|pid| pids.contains(&pid));
        let held: Bytes = state.processes.iter().filter(of_job).filter_map(|row| row.used).sum();
        let mut memory = state.devices.first().and_then(|row| self.device_at(asked, row, held));
        let told = state.devices.first().and_then(|row| row.reason.clone());
        let device_only = memory.and_then(|memory| self.device_only(memory, &state));
        let here = pids.iter().filter(|&&pid| !self.has_gone(pid, time));
        let mut job: Vec<JobProcess> =
            here.map(|&pid| self.process(pid, time, asked, &state, device_only, parts)).collect();
        let moved = job.iter().fold(0_i64, |sum, process| sum.saturating_add(process.moved));
        if let Some(memory) = &mut memory {
            memory.free = Bytes(memory.free.0.saturating_add_signed(moved.saturating_neg()));
        }
        if *driver == DriverMoment::NotThen {
            for process in job.iter_mut().filter(|process| process.held.is_some()) {
                process.held = None;
                NOT_THEN.clone_into(&mut process.not_held);
            }
        }
        let is_other = |row: &&&DriverRow| row.pid.is_some_and(|pid| !pids.contains(&pid));
        let other = |row: &&DriverRow| OtherProcess {
            pid: row.pid.unwrap_or_default(),
            name: row.command.clone().unwrap_or_default(),
            held: row.used,
        };
        Ledger::of(&Facts {
            device: self.device.clone(),
            memory,
            no_memory: told.unwrap_or_else(|| self.no_rows.clone()),
            job,
            // On the CPU every process of the machine would be listed.
            others: if self.is_stand_in {
                Vec::new()
            } else {
                state.processes.iter().filter(is_other).map(other).collect()
            },
            is_stand_in: self.is_stand_in,
        })
    }

    /// The driver's figures for the whole device. Whether `used` includes the reserved bytes differs between drivers; total, reserved
    /// and free are the same everywhere.
    fn figures(&self, row: &DriverRow) -> Option<DeviceFigures> {
        let reserved = row.reserved.filter(|_| !self.is_stand_in);
        Some(DeviceFigures { total: row.total?, reserved, free: row.free? })
    }

    /// What NVML counts for the device beyond its processes, since before the job.
    fn device_only(&self, memory: DeviceFigures, state: &DriverState<'_>) -> Option<DeviceOnly> {
        /// Processes that were listed this soon after the first reading of the device were there before the job.
        const AT_START: i64 = 500_000_000;
        let first = self.rows.iter().find(|row| row.subject == Subject::Device)?;
        let start = first.time.monotonic.saturating_add(AT_START);
        let was_there = |row: &DriverRow| row.is_job != Some(true) && row.time.monotonic <= start;
        let of_processes = self.rows.iter().filter(|row| row.subject == Subject::Process);
        let mut before: Vec<(u32, Bytes)> = Vec::new();
        for row in of_processes.filter(|row| was_there(row)) {
            let pid = row.pid?;
            before.retain(|(known, _)| *known != pid);
            before.push((pid, row.used?));
        }
        let beyond = |memory: DeviceFigures, processes: Bytes| {
            super::signed(memory.in_use()) - super::signed(processes)
        };
        let then = beyond(self.figures(first)?, before.iter().map(|(_, used)| *used).sum());
        let now = beyond(memory, state.processes.iter().map(|row| row.used).sum::<Option<Bytes>>()?);
        let is_new =
            |row: &&&DriverRow| row.pid.is_some_and(|pid| before.iter().all(|(known, _)| *known != pid));
        let bytes = Bytes(u64::try_from(now - then).ok()?);
        Some(DeviceOnly { bytes, processes: state.processes.iter().filter(is_new).count() })
    }

    fn process(
        &self,
        pid: u32,
        time: i64,
        asked: i64,
        state: &DriverState<'_>,
        device_only: Option<DeviceOnly>,
        parts: &dyn Fn(&PoolSeries, i64) -> Option<Parts>,
    ) -> JobProcess {
        let row = state.processes.iter().find(|row| row.pid == Some(pid));
        let outside = self.outside(pid).filter(|outside| outside.since <= asked);
        let figures = |pool: &PoolSeries| {
            let parts = parts(pool, time);
            let in_use = last_at(&pool.in_use, time);
            PoolFigures {
                name: pool.name.clone(),
                taken: pool.taken_at(time),
                not_taken: pool.not_taken.clone(),
                in_use: parts.as_ref().map_or(in_use, |parts| Some(parts.in_use())),
                not_in_use: pool.not_in_use.clone(),
                parts,
                segments: self.calls_of(pid).and_then(|calls| calls.segments_at(time)),
            }
        };
        let calls = self.calls_of(pid);
        let beside = calls.map(|calls| {
            let (holdings, on_device) = (&calls.holdings, calls.device);
            let now = holdings.at(on_device, time);
            let span = (asked.min(time), asked.max(time));
            let moved = holdings.grown_between(on_device, span, self.is_job_alone());
            let moved = if asked > time { moved.saturating_neg() } else { moved };
            let held = row.and_then(|row| row.used).map(|used| super::signed(used).saturating_add(moved));
            let only = device_only.and_then(|only| only.of_process(now.grew(), held));
            (BesidePool::of(holdings, &now, only, self.is_job_alone()), moved)
        });
        let moved = beside.as_ref().filter(|_| row.is_some()).map_or(0, |(_, moved)| *moved);
        JobProcess {
            pid,
            moved,
            beside: beside.map(|(beside, _)| beside),
            held: row.and_then(|row| row.used),
            not_held: row.and_then(|row| row.reason.clone()).unwrap_or_else(|| {
                if self.rows.is_empty() {
                    self.no_rows.clone()
                } else if self.is_stand_in {
                    "the kernel has not reported this process yet".to_owned()
                } else {
                    "the driver does not list this process".to_owned()
                }
            }),
            context: outside.as_ref().map(|outside| outside.context),
            estimate: self
                .estimates
                .iter()
                .find(|(of, _)| *of == pid)
                .map_or_else(OutsideEstimate::default, |(_, estimate)| estimate.clone()),
            growths: outside.map_or(Vec::new(), |outside| {
                outside.growths.into_iter().filter(|growth| growth.by.0 <= asked).collect()
            }),
            pools: self.pools.iter().filter(|pool| pool.pid == pid).map(figures).collect(),
        }
    }
}
