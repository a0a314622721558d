//! What a replay adds to a report and to a post-mortem: whether it reproduces the trace, how much larger the pool is than what is in use, and
//! which settings would have helped.

use super::patterns::Patterns;
use crate::advise::fragmentation::lost;
use crate::failure::{self, Failure};
use crate::names::Name;
use crate::postmortem::advice::Advice;
use crate::postmortem::traced;
use crate::replay::{self, Cause, CauseKind, NotReplayed, PoolRun, Refused, Setting, SplitSize, remedies};
use crate::trace::{PoolTrace, Trace};
use crate::units::{Bytes, Picos};
use crate::warning::Warning;

/// The maximum number of events of a pool that a report replays. Reading and replaying both handle ten million events per second, but reports on
/// large traces should stay as fast as reading them.
pub(crate) const MAX_REPLAYED_EVENTS: usize = 200_000;

/// The replay of a pool.
#[derive(Clone, Debug)]
pub struct Replayed {
    /// Every address and size is reproduced, from the start.
    pub is_exact: bool,
    /// The allocator whose rules were used.
    pub preset: &'static str,
    /// Number of replayed allocations.
    pub allocs: u64,
    /// Number of those at the recorded address.
    pub address_matches: u64,
    /// Number of times that the pool grew.
    pub growths: usize,
    /// Peak bytes reserved from the driver.
    pub pool: Bytes,
    /// Bytes reserved from the driver at the peak.
    pub pool_at_peak: Bytes,
    /// Cached bytes at the peak.
    pub cached_at_peak: Bytes,
    /// What the same requests need in one region.
    pub joined: Bytes,
    /// Peak of requested bytes.
    pub load: Bytes,
    /// Why the pool is larger than what was in use, most bytes first. Computed only above the thresholds of the finding, because it needs another replay.
    pub causes: Vec<NamedCause>,
    /// Bytes that the pool reserved, from each moment on.
    pub taken: Vec<(Picos, Bytes)>,
    /// How its steps repeat each other.
    pub patterns: Option<Patterns>,
}

/// A cause of fragmentation, with the op that contributes most.
#[derive(Clone, Debug)]
pub struct NamedCause {
    /// Its kind.
    pub kind: CauseKind,
    /// Its bytes.
    pub bytes: Bytes,
    /// A description.
    pub text: String,
    /// The op; empty if unknown.
    pub op: String,
}

impl Replayed {
    /// The replay of a pool; `None` if its allocator is unknown, a warning if it has too many events.
    pub(super) fn of(
        trace: &Trace,
        pool: &PoolTrace,
        version: Option<&str>,
    ) -> Result<Option<Replayed>, Warning> {
        if pool.event_count() > MAX_REPLAYED_EVENTS {
            let name = trace.history.pool(pool.id).map_or("", |pool| &pool.name);
            return Err(Warning {
                code: "not-replayed",
                text: format!(
                    "{name} has {} events, but a report replays at most {MAX_REPLAYED_EVENTS}",
                    pool.event_count()
                ),
                hint: "run `vramline replay` with the same path".to_owned(),
            });
        }
        match replay::run(trace, pool, version) {
            Ok(run) => {
                let mut replayed = Replayed::of_run(&run, trace);
                replayed.patterns = Patterns::of(trace, pool, Some(&run));
                if replayed.is_exact && lost(replayed.pool, run.exact.peak).is_some() {
                    replayed.causes = causes(trace, pool, version);
                }
                Ok(Some(replayed))
            }
            Err(NotReplayed::UnknownAllocator { .. } | NotReplayed::Empty { .. }) => Ok(None),
        }
    }

    fn of_run(run: &PoolRun, trace: &Trace) -> Replayed {
        let mut so_far = 0_u64;
        let taken = run.exact.growths.iter().filter_map(|growth| {
            so_far = so_far.saturating_sub(growth.released.0).saturating_add(growth.got.0);
            let answer = run.program.answers.get(growth.act)?;
            Some((trace.history.events.time(answer.event as usize), Bytes(so_far)))
        });
        let taken = taken.collect();
        // Of several moments with as much in use the first is the peak, as in the trace.
        let peak = run.exact.curve.iter().rev().max_by_key(|point| point.in_use);
        let cached = peak.map_or(Bytes::ZERO, |point| point.cached);
        Replayed {
            is_exact: run.is_exact(),
            preset: run.rules.preset(),
            allocs: run.exact.allocs,
            address_matches: run.exact.address_matches,
            growths: run.exact.growths.len(),
            pool: run.exact.pool,
            pool_at_peak: run.exact.peak + cached,
            cached_at_peak: cached,
            joined: run.joined().map_or(run.exact.pool, |(whole, _)| whole.min(run.exact.pool)),
            load: run.load(),
            causes: Vec::new(),
            taken,
            patterns: None,
        }
    }
}

fn causes(trace: &Trace, pool: &PoolTrace, version: Option<&str>) -> Vec<NamedCause> {
    let Ok(replayed) = replay::replay(trace, pool, version) else { return Vec::new() };
    let op =
        |ops: &[(Name, Bytes)]| ops.first().map_or("", |(op, _)| trace.history.names.get(*op)).to_owned();
    let named = |cause: &Cause| NamedCause {
        kind: cause.kind,
        bytes: cause.bytes,
        text: cause.text.clone(),
        op: op(&cause.ops),
    };
    let mut causes: Vec<NamedCause> = replayed.fragmentation.causes.iter().map(named).collect();
    causes.sort_by_key(|cause| std::cmp::Reverse(cause.bytes));
    causes
}

/// A failed request in the program of its pool. `None` if the trace does not show its moment, or if its size is unknown.
pub(super) fn refused(trace: &Trace, ran: &PoolRun, failure: &Failure) -> Option<Refused> {
    let pool = traced::pool_of(trace, failure).filter(|pool| pool.id == ran.pool)?;
    let bytes = failure.requested.or(failure.rounded).and_then(failure::SizeRange::value)?;
    let position = traced::position(trace, pool, failure)?;
    let event = pool.events_in_order().nth(position)?;
    let last = ran.program.answers.iter().rposition(|answer| answer.event as usize == event)?;
    Some(Refused { bytes, before: last + 1 })
}

/// A setting as a user of the program makes it.
fn switch(setting: &Setting) -> String {
    match (setting.growth, setting.gc, setting.expandable, &setting.split_size) {
        (Some(false), ..) => "memory growth off".to_owned(),
        (_, Some(true), ..) => "TF_ENABLE_GPU_GARBAGE_COLLECTION=true".to_owned(),
        (_, _, Some(true), _) => "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True".to_owned(),
        (.., Some(SplitSize::From(size))) => {
            format!("PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:{}", size.0 >> 20)
        }
        _ => setting.text.clone(),
    }
}

/// The kind of remedy that a replay found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RemedyKind {
    /// Another setting of the allocator.
    Setting,
    /// A higher limit, which the user set.
    Limit,
    /// None that can be set.
    None,
}

/// What a replay says would have made a failed request fit. Only where the trace is reproduced, and shows the failure's moment or
/// tells of it.
pub(super) fn advice(
    trace: &Trace,
    failure: &Failure,
    version: Option<&str>,
    limit_set_by: Option<&str>,
) -> Option<(RemedyKind, Advice)> {
    let pool = traced::pool_of(trace, failure).filter(|pool| pool.event_count() <= MAX_REPLAYED_EVENTS)?;
    let ran = replay::run(trace, pool, version).ok().filter(|ran| ran.exact.is_whole())?;
    let tells_failures = trace.history.pool(pool.id).is_some_and(|pool| pool.caching.is_some());
    let refused = refused(trace, &ran, failure).filter(|_| !tells_failures);
    if refused.is_none() && !tells_failures {
        return None;
    }
    let found = remedies(&ran, refused)?;
    let how = if ran.is_exact() { "by exact replay" } else { "by replay from an assumed start" };
    // TensorFlow's pool on the CPU always grows.
    let is_on_cpu = failure.allocator.as_deref().is_some_and(|name| name.contains("cpu"));
    let settings: Vec<String> = found
        .settings
        .iter()
        .filter(|answer| !(is_on_cpu && answer.setting.growth.is_some()))
        .map(|answer| format!("{} (a pool of {})", switch(&answer.setting), answer.pool.1))
        .collect();
    let limit = found.limit.as_ref().and_then(|answer| answer.limit);
    let mib = limit.map(|limit| limit.0 >> 20);
    let (kind, text) = match (settings.as_slice(), mib, limit_set_by) {
        ([], Some(mib), Some(by)) => (
            RemedyKind::Limit,
            format!(
                "raise the limit ({by}) to {mib} MiB or more: {how}, this request needs that much; later requests are unknown"
            ),
        ),
        ([], Some(mib), None) => (
            RemedyKind::None,
            format!(
                "no other allocator setting helps: {how}, this request needs a pool of at least {mib} MiB"
            ),
        ),
        ([], None, _) => {
            (RemedyKind::None, format!("no other allocator setting helps under the same limit ({how})"))
        }
        (settings, ..) => (
            RemedyKind::Setting,
            format!("set {}: {how}, the same requests then fit, including this one", settings.join(", or ")),
        ),
    };
    Some((kind, Advice { text, raises_limit: kind == RemedyKind::Limit, bytes: limit }))
}
