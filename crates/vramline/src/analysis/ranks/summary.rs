//! What is kept of a rank after its traces are dropped: its peak with what it was made of, its steps, and how it ended.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use super::endings::RankEnd;
use super::headroom;
use super::steps::RankSteps;
use crate::analysis::held::{HeldRow, HeldRows, folded};
use crate::analysis::process::{JobFacts, ProcessStory};
use crate::analysis::reading::Reading;
use crate::analysis::report::{self, PoolAnalysis};
use crate::analysis::windows::PeakPlace;
use crate::recording::identity::RankIdentity;
use crate::recording::reader::{Recorded, RecordedProcess};
use crate::recording::rows::{Moment, RecordedMarkKind};
use crate::snapshot::Role;
use crate::units::Bytes;

/// The maximum number of owners that are kept of a rank. The smallest are summed up by role.
const MAX_OWNERS: usize = 64;

/// The summary of one rank.
#[derive(Clone, Debug)]
pub struct RankSummary {
    /// Its number.
    pub rank: u64,
    /// Its machine.
    pub host: String,
    /// The kernel's name for the time since that machine was booted.
    pub boot: Option<String>,
    /// What its launcher told of it.
    pub identity: RankIdentity,
    /// Its processes, the one with the highest peak first.
    pub pids: Vec<u64>,
    /// The pool with the highest peak.
    pub pool: Option<String>,
    /// The device of that pool.
    pub device: Option<String>,
    /// The highest peak that is known of that pool.
    pub peak: Option<Bytes>,
    /// Where in the program it was reached.
    pub peak_in: Option<PeakPlace>,
    /// The limit of the pool, unless that is a built-in default.
    pub limit: Option<Bytes>,
    /// All memory of the device.
    pub device_total: Option<Bytes>,
    /// What a trace shows of its highest moment; the parts add up to that moment's bytes in use. `None` where no trace shows it.
    pub held: Option<Vec<RankPart>>,
    /// Its training steps.
    pub steps: RankSteps,
    /// How it ended.
    pub end: RankEnd,
    /// When it ended, on the monotonic clock of its host.
    pub ended_at: Option<i64>,
    /// When it ran out of memory for good, on the same clock.
    pub out_of_memory_at: Option<i64>,
    /// A moment on both clocks of its host.
    pub clock: Option<Moment>,
}

/// A part of what a rank held.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankPart {
    /// A role, `rounding` or `before the recording`.
    pub what: &'static str,
    /// The layer, else the variable or op; empty if unknown.
    pub owner: String,
    /// The requested bytes; of rounding and of what is older the bytes in use.
    pub bytes: Bytes,
    /// Whether it sums up the smallest owners.
    pub is_rest: bool,
}

impl RankSummary {
    /// The summary of a rank that was read by itself.
    pub(super) fn of(rank: u64, identity: RankIdentity, reading: &Reading) -> RankSummary {
        let nothing = Recorded::default();
        let recorded = reading.recorded.as_ref().unwrap_or(&nothing);
        let report = report::brief(reading);
        let main = report.pools.first();
        let process = |pool: &PoolAnalysis| {
            let is_it = |process: &&RecordedProcess| Some(u64::from(process.id.pid())) == pool.pid;
            recorded.processes.iter().find(is_it)
        };
        let first = main.and_then(process).or(recorded.processes.first());
        let number = first.and_then(|first| recorded.processes.iter().position(|one| one.id == first.id));
        let steps = first.zip(number).zip(main).map(|((process, number), pool)| {
            let story = ProcessStory::with_windows(process, reading.windows_of(number));
            RankSteps::of(&story.recorded_steps(), &pool.device)
        });
        let device_total = main.and_then(|pool| {
            let job = JobFacts::of(recorded);
            let known = job.devices.into_iter().find(|device| device.device == pool.device);
            known.and_then(|device| device.total).or_else(|| pool.hardware.as_ref()?.memory)
        });
        let mut pids: Vec<u64> =
            recorded.processes.iter().map(|process| u64::from(process.id.pid())).collect();
        if let Some(first) = first {
            pids.sort_by_key(|pid| *pid != u64::from(first.id.pid()));
        }
        let end = RankEnd::of(reading, recorded);
        let last = first.and_then(|first| first.marks.last()).map(|mark| mark.time.monotonic);
        RankSummary {
            rank,
            host: first.map_or_else(String::new, host_of),
            boot: identity.boot_id.clone(),
            identity,
            pids,
            pool: main.map(|pool| pool.name.clone()),
            device: main.map(|pool| pool.device.clone()),
            peak: main.and_then(PoolAnalysis::highest),
            peak_in: main.and_then(|pool| pool.rose_in.clone().or_else(|| pool.peak_in.clone())),
            limit: main.and_then(PoolAnalysis::binding_limit),
            device_total,
            held: main.and_then(|pool| pool.at_peak.as_ref()).map(parts),
            steps: steps.unwrap_or_default(),
            ended_at: last.filter(|_| end.is_over()),
            out_of_memory_at: out_of_memory_at(reading, recorded).filter(|_| end == RankEnd::OutOfMemory),
            end,
            clock: first.and_then(|first| first.marks.first()).map(|mark| mark.time),
        }
    }

    /// What is free of the pool's limit at the peak, else of its device.
    #[must_use]
    pub fn headroom(&self) -> Option<Bytes> {
        headroom(self.peak, self.limit, self.device_total)
    }
}

/// The machine of a process, as the kernel names it.
pub(super) fn host_of(process: &RecordedProcess) -> String {
    process.facts.identity.host.clone().unwrap_or_else(|| process.id.host().to_owned())
}

/// When the failure that ended a process happened, on the monotonic clock.
fn out_of_memory_at(reading: &Reading, recorded: &Recorded) -> Option<i64> {
    let failures = reading.failures.as_ref()?;
    let ended = (0..recorded.processes.len()).filter_map(|number| {
        let (_, failure) = failures.that_ended(number)?;
        let process = recorded.processes.get(number)?;
        // Texts of errors are named by microseconds of the wall clock.
        let told = failure.last_micros().and_then(|micros| i64::try_from(micros).ok()).and_then(|micros| {
            let mark = process.marks.last()?.time;
            mark.monotonic.checked_add(micros.checked_mul(1000)?.checked_sub(mark.wall)?)
        });
        let raised = process.marks.iter().rev().find(|mark| mark.kind == RecordedMarkKind::Exception);
        told.or_else(|| raised.or(process.marks.last()).map(|mark| mark.time.monotonic))
    });
    ended.min()
}

/// What a pool held, by role and owner.
fn parts(held: &HeldRows) -> Vec<RankPart> {
    let mut owners: BTreeMap<(Role, String), Bytes> = BTreeMap::new();
    for row in &held.rows {
        match owners.entry((row.role.unwrap_or_default(), owner_of(row))) {
            Entry::Vacant(slot) => drop(slot.insert(row.bytes)),
            Entry::Occupied(mut slot) => *slot.get_mut() += row.bytes,
        }
    }
    let part = |((role, owner), bytes): ((Role, String), Bytes)| RankPart {
        what: role.word(),
        owner,
        bytes,
        is_rest: false,
    };
    let mut parts: Vec<RankPart> = owners.into_iter().map(part).collect();
    parts.sort_by_key(|part| std::cmp::Reverse(part.bytes));
    for small in parts.split_off(MAX_OWNERS.min(parts.len())) {
        match parts.iter_mut().find(|part| part.is_rest && part.what == small.what) {
            Some(rest) => rest.bytes += small.bytes,
            None => parts.push(RankPart { owner: String::new(), is_rest: true, ..small }),
        }
    }
    let others = [("rounding", held.slack), ("before the recording", held.before_recording)];
    let other = |(what, bytes)| RankPart { what, owner: String::new(), bytes, is_rest: false };
    parts.extend(others.into_iter().filter(|(_, bytes)| *bytes > Bytes::ZERO).map(other));
    parts
}

/// Whose the blocks of a row are: the layer, else the variable, else the op.
fn owner_of(row: &HeldRow) -> String {
    let known = [&row.layer, &row.variable, &row.op].into_iter().find(|name| !name.is_empty());
    known.map_or_else(String::new, |name| folded(name).into_owned())
}
