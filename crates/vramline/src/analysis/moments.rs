//! Who held the memory of a process when an allocation failed, or when the process was last seen, and what grew since its first steps.
//!
//! The best source is a snapshot of that very moment. Without one, the trace shows a failure in its window; else the newest window stands
//! for the moment. What grew is the difference to the peak of the first trace, owner by owner.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use super::held::folded;
use super::reading::{Host, Shown};
use crate::event::{self, OutOfMemory};
use crate::failure::{Dialect, Failure, Failures, SizeRange};
use crate::postmortem::history;
use crate::recording::kinds::RecordedMarkKind;
use crate::recording::manifest::Exit;
use crate::recording::reader::{Recorded, RecordedProcess};
use crate::recording::rows::{Counters, WindowReason};
use crate::snapshot::{Held, Role, Snapshot};
use crate::trace::{PoolTrace, Trace};
use crate::units::{Bytes, counted, thousands};

/// The most owners that are listed; the others are summed up.
const MOST_OWNERS: usize = 40;

/// Growth counts from this share of all growth on, one part in so many.
const GROWTH_SHARE: u64 = 20;

/// Memory that a process held, by owner.
#[derive(Clone, Debug)]
pub struct HeldAtFailure {
    /// The process.
    pub pid: u64,
    /// The pool, as the framework names it.
    pub pool: String,
    /// Its device.
    pub device: String,
    /// What shows it.
    pub shown_by: HeldSource,
    /// The number of the trace or snapshot.
    pub window: Option<u64>,
    /// The last step that had ended.
    pub after_step: Option<i64>,
    /// Bytes in use, by the allocator's count.
    pub in_use: Bytes,
    /// What the blocks take beyond their requests.
    pub slack: Bytes,
    /// Owners, the most bytes first.
    pub owners: Vec<OwnerHeld>,
    /// Owners that are not listed, and their bytes.
    pub rest: (usize, Bytes),
    /// What the pool held at the peak of the first trace, in bytes; `None` where nothing can be compared.
    pub before: Option<Bytes>,
    /// What grew since then, in a sentence.
    pub growth: Option<String>,
    /// What to do about that.
    pub advice: Option<String>,
    /// The signal that ended the process.
    pub signal: Option<i32>,
    /// What was last known to be in use: a counter.
    pub last_in_use: Option<Bytes>,
}

/// What shows who held the memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldSource {
    /// A snapshot at the failure itself.
    Failure,
    /// A snapshot that was taken earlier.
    Snapshot,
    /// The trace, at the failure.
    Trace,
    /// The peak of the newest trace.
    NewestTrace,
}

words!(HeldSource {
    Failure => "failure",
    Snapshot => "snapshot",
    Trace => "trace",
    NewestTrace => "newest-trace",
});

/// The memory of one owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerHeld {
    /// What it is for.
    pub role: Role,
    /// The layer; empty if unknown.
    pub layer: String,
    /// The place in the program or the op; empty if unknown or if the blocks have several.
    pub source: String,
    /// Requested bytes.
    pub bytes: Bytes,
    /// The number of blocks.
    pub count: u64,
    /// Bytes and blocks at the peak of the first trace; `None` where nothing can be compared.
    pub before: Option<(Bytes, u64)>,
    /// What the role rests on.
    pub evidence: &'static str,
}

impl OwnerHeld {
    fn grown(&self) -> u64 {
        self.before.map_or(0, |(bytes, _)| self.bytes.0.saturating_sub(bytes.0))
    }

    /// Whether there are more blocks than before, of about the same size: blocks that stay, not blocks that grow.
    fn is_kept(&self) -> bool {
        let Some((bytes, count)) = self.before else { return false };
        let each = |bytes: Bytes, count: u64| bytes.0 / count.max(1);
        let is_more = self.count >= count.saturating_mul(2).max(count + 8);
        !self.what().is_empty()
            && is_more
            && (count == 0 || each(self.bytes, self.count) <= each(bytes, count).saturating_mul(2))
    }

    /// The owner in words: the layer, or the place in the program.
    #[must_use]
    pub fn what(&self) -> &str {
        if self.layer.is_empty() { &self.source } else { &self.layer }
    }
}

/// The traces and snapshots of a process, to find a moment in.
pub(super) struct ProcessMoments<'a> {
    recorded: &'a Recorded,
    process: &'a RecordedProcess,
    shown: &'a Shown<'a>,
}

impl<'a> ProcessMoments<'a> {
    pub(super) fn of(
        recorded: &'a Recorded,
        process: &'a RecordedProcess,
        shown: &'a Shown<'a>,
    ) -> ProcessMoments<'a> {
        ProcessMoments { recorded, process, shown }
    }

    /// Who held the memory when an allocation failed.
    pub(super) fn at_failure(&self, failure: &Failure) -> Option<HeldAtFailure> {
        let is_told = |host: &&Host| failure.witnesses.iter().any(|witness| witness.path == host.path);
        let is_torch =
            matches!(failure.dialect, Dialect::PyTorch | Dialect::TorchAsynchronous | Dialect::TorchSnapshot);
        let is_failure = |host: &&Host| reason(host) == Some(WindowReason::Oom);
        let of_moment = || {
            let mut moments = self.shown.moments.iter().filter(is_failure).rev();
            // The exception hook writes one without the request.
            let host = moments.clone().find(is_told).or_else(|| moments.find(|host| has_no_request(host)))?;
            self.of_state(host, failure.allocator.as_deref(), HeldSource::Failure)
        };
        let in_trace = || self.in_trace(failure);
        let newest = || {
            let device = failure.allocator.as_deref().map(event::device_of);
            self.newest_trace(device.as_deref().filter(|device| !device.is_empty()))
        };
        match is_torch {
            true => of_moment().or_else(in_trace),
            false => newest(),
        }
    }

    /// Who held the memory when it was last known, if a signal ended the process.
    pub(super) fn when_killed(&self) -> Option<HeldAtFailure> {
        let Some(Exit::Signal(signal)) = self.recorded.run_of(self.process).manifest?.exit else {
            return None;
        };
        if self.process.marks.iter().any(|mark| mark.kind == RecordedMarkKind::End) {
            return None;
        }
        let of_moment = || self.of_state(self.shown.moments.last()?, None, HeldSource::Snapshot);
        let mut held = of_moment().or_else(|| self.newest_trace(None))?;
        held.signal = Some(signal);
        held.last_in_use = self.last_counters(&held.device).and_then(|read| bytes(read.current));
        Some(held)
    }

    fn last_counters(&self, device: &str) -> Option<&Counters> {
        let is_it = |read: &&Counters| read.device == device && read.current.is_some();
        let sampled = self.process.samples.iter().rev().filter_map(|sample| sample.counters.as_ref());
        let marked = self.process.marks.iter().rev().flat_map(|mark| &mark.counters);
        sampled.clone().find(is_it).or_else(|| marked.clone().find(is_it))
    }

    /// A pool in the state that a snapshot shows: the one of this name, else the one with the most in use.
    fn of_state(&self, host: &Host, name: Option<&str>, shown_by: HeldSource) -> Option<HeldAtFailure> {
        let trace = &host.trace;
        let states = trace
            .history
            .pools
            .iter()
            .filter_map(|pool| Some((pool, pool.caching.as_ref()?.state.as_ref()?)));
        let most = |(_, state): &(&event::Pool, &event::DumpState)| {
            state.blocks.iter().map(|block| block.size.0).fold(0, u64::saturating_add)
        };
        let (pool, state) = states
            .clone()
            .find(|(pool, _)| name.is_some_and(|name| pool.name == name))
            .or_else(|| states.max_by_key(most))?;
        let snapshot = trace.dumped(state);
        Some(self.held(host, &pool.name, &snapshot, shown_by))
    }

    /// A failure of PyTorch while its trace was open.
    fn in_trace(&self, failure: &Failure) -> Option<HeldAtFailure> {
        let is_it = |told: &OutOfMemory| match (told.asked, failure.requested) {
            (Some(asked), Some(range)) => range.low <= asked && asked <= range.high,
            _ => true,
        };
        for host in self.shown.later.iter().rev().chain(self.shown.first) {
            let trace = &host.trace;
            for pool in &trace.pools {
                let Some(facts) = trace.history.pool(pool.id) else { continue };
                let failures = facts.caching.iter().flat_map(|caching| &caching.failures);
                let Some(told) = failures.rev().find(|told| is_it(told)) else { continue };
                let snapshot = trace.snapshot(pool, told.time)?;
                return Some(self.held(host, &facts.name, &snapshot, HeldSource::Trace));
            }
        }
        None
    }

    /// The peak of the newest trace of a device, or of the pool with the highest peak.
    fn newest_trace(&self, device: Option<&str>) -> Option<HeldAtFailure> {
        let hosts = self.shown.later.iter().rev().chain(self.shown.first);
        let (host, pool) = hosts
            .flat_map(|host| host.trace.pools.iter().map(move |pool| (host, pool)))
            .find(|(host, pool)| {
                device.is_none_or(|device| host.trace.device_of(pool) == device) && pool.peak().is_some()
            })?;
        let snapshot = host.trace.at_peak(pool)?;
        Some(self.held(host, host.pool_name(pool), &snapshot, HeldSource::NewestTrace))
    }

    /// The first trace that shows a pool.
    fn reference(&self, pool: &str) -> Option<(&'a Host, &'a PoolTrace)> {
        let pools =
            self.shown.first.iter().flat_map(|host| host.trace.pools.iter().map(move |pool| (host, pool)));
        pools.into_iter().find(|(host, of_trace)| host.pool_name(of_trace) == pool)
    }

    fn held(&self, host: &Host, pool: &str, snapshot: &Snapshot, shown_by: HeldSource) -> HeldAtFailure {
        let mut owners = owners(&host.trace, snapshot);
        let reference = self.reference(pool).filter(|(first, _)| !std::ptr::eq(*first, host));
        let before = reference.and_then(|(first, of_trace)| Some((first, first.trace.at_peak(of_trace)?)));
        if let Some((first, then)) = &before {
            compare(&mut owners, &self::owners(&first.trace, then));
        }
        let begun = host.window.as_ref().and_then(|window| match shown_by {
            HeldSource::Failure | HeldSource::Snapshot => window.begun,
            HeldSource::Trace | HeldSource::NewestTrace => window.stopped,
        });
        let steps = self.process.marks.iter().filter(|mark| mark.kind == RecordedMarkKind::Step);
        let ended = steps.take_while(|mark| begun.is_none_or(|begun| mark.time.monotonic <= begun.monotonic));
        let growth = before.as_ref().and_then(|(_, then)| Growth::of(&owners, snapshot, then));
        let mut held = HeldAtFailure {
            pid: u64::from(self.process.id.pid()),
            pool: pool.to_owned(),
            device: event::device_of(pool),
            shown_by,
            window: host.window.as_ref().map(|window| window.number),
            after_step: ended.last().and_then(|mark| mark.step),
            in_use: snapshot.in_use,
            slack: snapshot.slack(),
            owners: Vec::new(),
            rest: (0, Bytes::ZERO),
            before: before.as_ref().map(|(_, then)| then.in_use),
            growth: growth.as_ref().map(Growth::sentence),
            advice: growth.as_ref().map(Growth::advice),
            signal: None,
            last_in_use: None,
        };
        if owners.len() > MOST_OWNERS {
            let rest = owners.split_off(MOST_OWNERS);
            held.rest = (rest.len(), rest.iter().map(|owner| owner.bytes).sum());
        }
        held.owners = owners;
        held
    }
}

/// Adds the failures that snapshots show. The text of the error that ended the process is about the last of them.
pub(super) fn add_failures(failures: &mut Failures, moments: &[Host]) {
    let is_failure = |host: &&Host| reason(host) == Some(WindowReason::Oom);
    let last = moments.iter().rev().find(is_failure).map(|host| &host.path);
    for host in moments.iter().filter(is_failure) {
        let begun = host.window.as_ref().and_then(|window| window.begun);
        let micros = begun.and_then(|begun| u64::try_from(begun.wall / 1000).ok());
        let mut found = history::failures(&host.trace, &host.path);
        let witnesses = found.list.iter_mut().flat_map(|failure| &mut failure.witnesses);
        witnesses.for_each(|witness| witness.micros = micros);
        for failure in found.list {
            let is_last = Some(&host.path) == last;
            match failures.list.iter_mut().find(|known| is_last && is_same(known, &failure)) {
                // Its snapshot is a witness too, and the only one with a moment.
                Some(known) => known.witnesses.extend(failure.witnesses),
                None => failures.list.push(failure),
            }
        }
        failures.warnings.append(found.warnings);
    }
}

/// Whether the text of PyTorch's error may be about the request that a snapshot shows. The text has what PyTorch requested from the driver.
fn is_same(told: &Failure, shown: &Failure) -> bool {
    let is_torch = matches!(told.dialect, Dialect::PyTorch | Dialect::TorchAsynchronous);
    let sizes = || [shown.requested, shown.rounded].into_iter().flatten();
    let is_size = |told: SizeRange| sizes().any(|size| told.low <= size.high && size.low <= told.high);
    is_torch && told.rounded.or(told.requested).is_none_or(|told| sizes().next().is_none() || is_size(told))
}

fn reason(host: &Host) -> Option<WindowReason> {
    host.window.as_ref().and_then(|window| window.reason)
}

fn has_no_request(host: &Host) -> bool {
    let caching = host.trace.history.pools.iter().filter_map(|pool| pool.caching.as_ref());
    caching.flat_map(|caching| &caching.failures).next().is_none()
}

fn bytes(told: Option<i64>) -> Option<Bytes> {
    told.and_then(|told| u64::try_from(told).ok()).map(Bytes)
}

/// The memory of a snapshot by owner, the most bytes first.
fn owners(trace: &Trace, snapshot: &Snapshot) -> Vec<OwnerHeld> {
    let mut groups: BTreeMap<(Role, String, String), OwnerHeld> = BTreeMap::new();
    for held in &snapshot.held {
        let source = source_of(trace, held);
        let layer = folded(&held.layer).into_owned();
        let key = (held.role, layer.clone(), if layer.is_empty() { source.clone() } else { String::new() });
        let owner = groups.entry(key).or_insert_with(|| OwnerHeld {
            role: held.role,
            layer,
            source: source.clone(),
            bytes: Bytes::ZERO,
            count: 0,
            before: None,
            evidence: held.evidence,
        });
        owner.bytes += held.requested;
        owner.count = owner.count.saturating_add(held.count);
        if owner.source != source {
            owner.source.clear();
        }
        if owner.evidence != held.evidence {
            owner.evidence = "";
        }
    }
    let mut owners: Vec<OwnerHeld> = groups.into_values().collect();
    owners.sort_by_key(|owner| Reverse(owner.bytes));
    owners
}

fn source_of(trace: &Trace, held: &Held) -> String {
    let op = trace.history.names.get(held.op);
    match (held.source.as_str(), held.variable.as_str()) {
        ("", "") => op.to_owned(),
        ("", variable) => variable.to_owned(),
        (source, _) => source.to_owned(),
    }
}

/// Sets what each owner had before.
fn compare(owners: &mut [OwnerHeld], before: &[OwnerHeld]) {
    let key = |owner: &OwnerHeld| (owner.role, owner.what().to_owned());
    let mut then: BTreeMap<(Role, String), (Bytes, u64)> = BTreeMap::new();
    for owner in before {
        let sum = then.entry(key(owner)).or_default();
        *sum = (sum.0 + owner.bytes, sum.1.saturating_add(owner.count));
    }
    for owner in owners {
        owner.before = Some(then.get(&key(owner)).copied().unwrap_or_default());
    }
}

/// What grew most.
struct Growth {
    owner: OwnerHeld,
    /// Owners of the same role that grew too, with it, before and after.
    role: (usize, Bytes, Bytes),
    all: (Bytes, Bytes),
}

impl Growth {
    /// `None` where the pool holds no more than before.
    fn of(owners: &[OwnerHeld], now: &Snapshot, then: &Snapshot) -> Option<Growth> {
        let grown = now.in_use.saturating_sub(then.in_use);
        let owner = owners.iter().max_by_key(|owner| owner.grown())?;
        let is_worth = grown.0 > now.in_use.0 / GROWTH_SHARE && owner.grown() > grown.0 / GROWTH_SHARE;
        let same = owners.iter().filter(|other| other.role == owner.role && other.grown() > 0);
        let before = same.clone().filter_map(|other| Some(other.before?.0)).sum();
        let role = (same.clone().count(), before, same.map(|other| other.bytes).sum());
        is_worth.then(|| Growth { owner: owner.clone(), role, all: (then.in_use, now.in_use) })
    }

    fn sentence(&self) -> String {
        let OwnerHeld { role, bytes, count, before, .. } = &self.owner;
        let (then, blocks) = before.unwrap_or_default();
        let what = self.owner.what();
        let is_place = self.owner.layer.is_empty();
        let from = match (what, is_place) {
            ("", _) => String::new(),
            (what, true) => format!(" requested by {what}"),
            (what, false) => format!(" of {what}"),
        };
        let role = match role {
            Role::Unknown => "memory",
            role => role.word(),
        };
        let all = format!("Memory in use grew from {} in the first steps to {}", self.all.0, self.all.1);
        if self.owner.is_kept() {
            let source = Some(&self.owner.source)
                .filter(|source| !source.is_empty() && !is_place && !source.ends_with(&self.owner.layer));
            let source = source.map_or(String::new(), |source| format!(", requested by {source}"));
            let of = if self.owner.role == Role::Unknown { String::new() } else { format!(" of {role}") };
            return format!(
                "{all}: the program keeps {}{of}{from}{source} instead of {}: {bytes} instead of {then}.",
                counted(*count, "block"),
                thousands(blocks)
            );
        }
        if what.is_empty() {
            return format!(
                "{all}, {} of it in blocks whose call stacks were not recorded.",
                Bytes(self.owner.grown())
            );
        }
        let (others, role_then, role_now) = self.role;
        let more = match others {
            0 | 1 => String::new(),
            _ => format!("; {role} in all from {role_then} to {role_now}"),
        };
        format!("{all}: {role}{from} grew from {then} to {bytes}{more}.")
    }

    fn advice(&self) -> String {
        if self.owner.what().is_empty() {
            return "record the job with `vramline run --until-oom on`: the answer then names the lines that hold this memory".to_owned();
        }
        if self.owner.is_kept() {
            return "do not keep tensors of earlier steps: store numbers (loss.item()), or detached copies on the CPU \
                    (tensor.detach().cpu())"
                .to_owned();
        }
        match self.owner.role {
            Role::Activations | Role::Temporaries | Role::Inputs => {
                "limit the size of a batch: cut or bucket long inputs, or use a smaller batch for them".to_owned()
            }
            Role::Optimizer | Role::Gradients | Role::Parameters => {
                "check why the program creates more of these after its first steps: a new model, optimizer or parameter group".to_owned()
            }
            Role::State | Role::Unknown => {
                "check what the program stores there in later steps".to_owned()
            }
        }
    }
}
