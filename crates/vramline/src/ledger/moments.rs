//! The ledger of a recording, at any moment of it.
//!
//! Three clocks are read at their own pace: the driver's device figures tens of times a second, its list of processes about
//! once, the framework's counters at every mark and sample. What a process holds and what its pools have taken belong together
//! only if both are of one moment: so context and growth come from moments at which the driver was just asked and the pool did not
//! change around it. At any other moment each figure is the last one told, and what does not fit is a line of its own.

use super::{
    DeviceFigures, Facts, Growth, JobProcess, Ledger, OtherProcess, Parts, PoolFigures, SourcedBytes,
};
use crate::recording::rows::{DriverRow, DriverState, Subject};
use crate::units::{Bytes, Nanos};

/// A change outside the pools that is smaller than this is not told apart: drivers count in pages of 2 MiB.
const LEAST: i64 = 2 << 20;

/// What a process's pool did.
#[derive(Clone, Debug, Default)]
pub struct PoolSeries {
    /// Its name.
    pub name: String,
    /// The process.
    pub pid: u32,
    /// What it had taken from the driver, from each moment on; in order.
    pub taken: Vec<(i64, SourcedBytes)>,
    /// From when on nothing is known of that any more: the trace ends there.
    pub taken_until: Option<i64>,
    /// Why it is not known.
    pub not_taken: String,
    /// What was in use at moments; in order.
    pub in_use: Vec<(i64, SourcedBytes)>,
    /// Why it is not known.
    pub not_in_use: String,
    /// The most that was in use, and when, where a trace tells.
    pub peak: Option<(Bytes, i64)>,
}

impl PoolSeries {
    fn taken_at(&self, time: i64) -> Option<SourcedBytes> {
        let is_known = self.taken_until.is_none_or(|until| time <= until);
        last_at(&self.taken, time).filter(|_| is_known)
    }

    /// Whether what was taken is the same just before and just after a moment.
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

/// Something that the program did, to tell what a growth came with.
#[derive(Clone, Debug)]
pub struct Did {
    /// When it began and ended.
    pub span: (i64, i64),
    /// What it was.
    pub what: String,
}

/// One device of a recording.
#[derive(Clone, Debug, Default)]
pub struct Books<'a> {
    /// The device, as frameworks call it.
    pub device: String,
    /// Host memory stands in for it.
    pub is_stand_in: bool,
    /// What the driver said of this device, in order.
    pub rows: Vec<&'a DriverRow>,
    /// Why it said nothing.
    pub no_rows: String,
    /// The pools of the job's processes on it.
    pub pools: Vec<PoolSeries>,
    /// What the program did, in order.
    pub did: Vec<Did>,
}

/// What a process held outside its pools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outside {
    /// When that was first known, on the monotonic clock.
    pub since: i64,
    /// How much it was then.
    pub context: Bytes,
    /// What came and went since.
    pub growths: Vec<Growth>,
}

impl Books<'_> {
    /// The processes of the job on this device.
    #[must_use]
    pub fn pids(&self) -> Vec<u32> {
        let told = self.rows.iter().filter(|row| row.is_job == Some(true)).filter_map(|row| row.pid);
        let mut pids: Vec<u32> = self.pools.iter().map(|pool| pool.pid).chain(told).collect();
        pids.sort_unstable();
        pids.dedup();
        pids
    }

    fn rows_of(&self, pid: u32) -> impl Iterator<Item = &DriverRow> {
        let is_it = move |row: &&&DriverRow| row.subject == Subject::Process && row.pid == Some(pid);
        self.rows.iter().filter(is_it).copied()
    }

    /// Moments at which a process' figures belong together: the time, what it held, what its pools had taken.
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

    /// What a process held outside its pools over time; `None` where no moment tells.
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
                let came_with = self.between(before, time);
                outside.growths.push(Growth { after: Nanos(before), by: Nanos(time), bytes, came_with });
                known += bytes;
            }
            before = time;
        }
        Some(outside)
    }

    /// On the CPU a pool's pages count only when they are touched: what the process held before the pool began is all that can be told
    /// apart.
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

    /// What the program did between two moments.
    fn between(&self, after: i64, by: i64) -> String {
        let inside: Vec<&Did> =
            self.did.iter().filter(|did| did.span.0 <= by && did.span.1 > after).collect();
        match inside.as_slice() {
            [] => "nothing that was marked".to_owned(),
            [only] => only.what.clone(),
            [first, .., last] => format!("{} to {}", first.what, last.what),
        }
    }

    /// The moment that shows most: where a process held the most and its figures belong together; else the peak that a trace tells, or that
    /// the framework told; else the last that the driver told.
    #[must_use]
    pub fn best_moment(&self) -> Option<i64> {
        // What is resident of a pool on the CPU is not known at any moment.
        let pids = if self.is_stand_in { Vec::new() } else { self.pids() };
        let fullest =
            pids.into_iter().flat_map(|pid| self.coherent(pid)).max_by_key(|&(time, held, _)| (held, time));
        let most = |pool: &PoolSeries| pool.in_use.iter().map(|&(at, told)| (told.bytes, at)).max();
        fullest
            .map(|(time, ..)| time)
            .or_else(|| self.pools.iter().filter_map(|pool| pool.peak).max().map(|(_, at)| at))
            .or_else(|| self.pools.iter().filter_map(most).max().map(|(_, at)| at))
            .or_else(|| self.rows.last().map(|row| row.time.monotonic))
    }

    /// What the driver said of the whole device at a moment. It is asked for processes and for the device in turns: where a process was just
    /// told to hold more than the device had in use before, the device's next figure is the one of that moment.
    fn device_at(&self, time: i64, told: &DriverRow, held: Bytes) -> Option<DeviceFigures> {
        let now = self.figures(told)?;
        if now.in_use() >= held || self.is_stand_in {
            return Some(now);
        }
        let mut later = self.rows.iter().skip_while(|row| row.time.monotonic <= time);
        let next = later.find(|row| row.subject == Subject::Device).and_then(|row| self.figures(row));
        Some(next.filter(|next| next.in_use() >= held).unwrap_or(now))
    }

    /// The ledger at a moment. `parts` tells what a pool's bytes in use are, where a trace does.
    #[must_use]
    pub fn at(&self, time: i64, parts: &dyn Fn(&PoolSeries, i64) -> Option<Parts>) -> Ledger {
        let mut state = DriverState::default();
        for row in self.rows.iter().take_while(|row| row.time.monotonic <= time) {
            state.take(row);
        }
        let pids = self.pids();
        let of_job = |row: &&&DriverRow| row.pid.is_some_and(|pid| pids.contains(&pid));
        let held: Bytes = state.processes.iter().filter(of_job).filter_map(|row| row.used).sum();
        let memory = state.devices.first().and_then(|row| self.device_at(time, row, held));
        let told = state.devices.first().and_then(|row| row.reason.clone());
        let job = pids.iter().map(|&pid| self.process(pid, time, &state, parts)).collect();
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
            // On the CPU every process of the machine would be one.
            others: if self.is_stand_in {
                Vec::new()
            } else {
                state.processes.iter().filter(is_other).map(other).collect()
            },
            is_stand_in: self.is_stand_in,
        })
    }

    /// What the driver said of the whole device. Whether `used` holds what is reserved differs between drivers; total, reserved
    /// and free do not.
    fn figures(&self, row: &DriverRow) -> Option<DeviceFigures> {
        let reserved = row.reserved.filter(|_| !self.is_stand_in);
        Some(DeviceFigures { total: row.total?, reserved, free: row.free? })
    }

    fn process(
        &self,
        pid: u32,
        time: i64,
        state: &DriverState<'_>,
        parts: &dyn Fn(&PoolSeries, i64) -> Option<Parts>,
    ) -> JobProcess {
        let row = state.processes.iter().find(|row| row.pid == Some(pid));
        let outside = self.outside(pid).filter(|outside| outside.since <= time);
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
            }
        };
        JobProcess {
            pid,
            held: row.and_then(|row| row.used),
            not_held: row.and_then(|row| row.reason.clone()).unwrap_or_else(|| {
                if self.rows.is_empty() {
                    self.no_rows.clone()
                } else {
                    "the driver's list of processes does not name it".to_owned()
                }
            }),
            context: outside.as_ref().map(|outside| outside.context),
            growths: outside.map_or(Vec::new(), |outside| {
                outside.growths.into_iter().filter(|growth| growth.by.0 <= time).collect()
            }),
            pools: self.pools.iter().filter(|pool| pool.pid == pid).map(figures).collect(),
        }
    }
}
