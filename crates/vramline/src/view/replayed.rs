//! What a replay adds to a report and to a post-mortem: whether it reproduces the trace, what the pool holds beyond what is in
//! use, what would have fitted.

use serde::Serialize;

use crate::advise::fragmentation::lost;
use crate::failure::Failure;
use crate::names::Name;
use crate::postmortem::advice::Advice;
use crate::replay::{self, Answered, Cause, NotReplayed, Ran, remedies};
use crate::trace::{PoolTrace, Trace};
use crate::units::{Bytes, Picos};
use crate::warning::Warning;

/// Reports replay pools of at most so many events: reading goes at ten million events a second, and so does this, but
/// reports on large traces are to stay as fast as reading them.
pub const MOST_EVENTS: usize = 200_000;

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct ReplayedView {
    pub exact: bool,
    pub preset: &'static str,
    pub allocs: u64,
    pub address_matches: u64,
    pub growths: usize,
    pub pool_bytes: Bytes,
    pub pool_at_peak_bytes: Bytes,
    pub cached_at_peak_bytes: Bytes,
    pub joined_bytes: Bytes,
    pub load_bytes: Bytes,
    /// Why the pool is larger than what was in use, the most bytes first, where that is worth a word: a replay for it costs as much again.
    #[serde(skip)]
    pub causes: Vec<CauseView>,
    /// What the pool had taken from the driver, from each moment on.
    #[serde(skip)]
    pub taken: Vec<(Picos, Bytes)>,
}

impl ReplayedView {
    fn of(ran: &Ran, trace: &Trace) -> ReplayedView {
        let mut so_far = 0_u64;
        let taken = ran.exact.growths.iter().filter_map(|growth| {
            so_far = so_far.saturating_sub(growth.released.0).saturating_add(growth.got.0);
            let answer = ran.program.answers.get(growth.act)?;
            Some((trace.history.events.time(answer.event as usize), Bytes(so_far)))
        });
        let taken = taken.collect();
        let peak = ran.exact.curve.iter().max_by_key(|point| point.in_use);
        let cached = peak.map_or(Bytes::ZERO, |point| point.cached);
        ReplayedView {
            exact: ran.is_exact(),
            preset: ran.rules.preset(),
            allocs: ran.exact.allocs,
            address_matches: ran.exact.address_matches,
            growths: ran.exact.growths.len(),
            pool_bytes: ran.exact.pool,
            pool_at_peak_bytes: ran.exact.peak + cached,
            cached_at_peak_bytes: cached,
            joined_bytes: ran.joined().map_or(ran.exact.pool, |(whole, _)| whole.min(ran.exact.pool)),
            load_bytes: ran.load(),
            causes: Vec::new(),
            taken,
        }
    }
}

/// Why a pool is fragmented.
#[derive(Debug)]
#[expect(missing_docs, reason = "as in the causes of a replay")]
pub struct CauseView {
    pub word: &'static str,
    pub bytes: Bytes,
    pub text: String,
    pub op: String,
}

fn causes(trace: &Trace, pool: &PoolTrace, version: Option<&str>) -> Vec<CauseView> {
    let Ok(replayed) = replay::replay(trace, pool, version) else { return Vec::new() };
    let op =
        |ops: &[(Name, Bytes)]| ops.first().map_or("", |(op, _)| trace.history.names.get(*op)).to_owned();
    let view = |cause: &Cause| CauseView {
        word: cause.word,
        bytes: cause.bytes,
        text: cause.text.clone(),
        op: op(&cause.ops),
    };
    let mut causes: Vec<CauseView> = replayed.fragmentation.causes.iter().map(view).collect();
    causes.sort_by_key(|cause| std::cmp::Reverse(cause.bytes));
    causes
}

/// The line of a pool; an error where it has too many events for one.
pub(super) fn view(
    trace: &Trace,
    pool: &PoolTrace,
    version: Option<&str>,
) -> Result<Option<ReplayedView>, Warning> {
    if pool.event_count() > MOST_EVENTS {
        let name = trace.history.pool(pool.id).map_or("", |pool| &pool.name);
        return Err(Warning {
            code: "not-replayed",
            text: format!("{name} has {} events: a report replays at most {MOST_EVENTS}", pool.event_count()),
            hint: "vramline replay with the same path does it".to_owned(),
        });
    }
    match replay::run(trace, pool, version) {
        Ok(ran) => {
            let mut view = ReplayedView::of(&ran, trace);
            if view.exact && lost(view.pool_bytes, ran.exact.peak).is_some() {
                view.causes = causes(trace, pool, version);
            }
            Ok(Some(view))
        }
        Err(NotReplayed::UnknownAllocator { .. } | NotReplayed::Empty { .. }) => Ok(None),
    }
}

/// What a replay says would have made a failed request fit. Only where the trace is reproduced, and ends at the failure or
/// tells of it.
pub(super) fn advice(trace: &Trace, failure: &Failure, version: Option<&str>) -> Option<Advice> {
    let is_it = |pool: &&PoolTrace| {
        let name = trace.history.pool(pool.id).map(|pool| pool.name.as_str());
        name == failure.allocator.as_deref() && pool.event_count() <= MOST_EVENTS
    };
    let pool = trace.pools.iter().find(is_it)?;
    let tells_failures = trace.history.pool(pool.id).is_some_and(|pool| pool.caching.is_some());
    let at_end = pool.levels(&trace.history.events).last().map(|(_, level)| level);
    let is_at_end = at_end.is_some() && failure.in_use.and_then(crate::failure::Told::value) == at_end;
    if !tells_failures && !is_at_end {
        return None;
    }
    let asked = failure.rounded.and_then(crate::failure::Told::value).filter(|_| !tells_failures);
    if asked.is_none() && !tells_failures {
        return None;
    }
    let ran = replay::run(trace, pool, version).ok().filter(|ran| ran.exact.is_whole())?;
    let found = remedies(&ran, asked)?;
    let how = if ran.is_exact() { "by exact replay" } else { "by replay from an assumed start" };
    let with = |answer: &Answered| format!("{} (a pool of {})", answer.setting.text, answer.pool.1);
    let settings: Vec<String> = found.settings.iter().map(with).collect();
    let limit = found.limit.as_ref().and_then(|answer| answer.limit);
    let enough = limit.map(|limit| format!("a limit of {} MiB", limit.0 >> 20));
    let same = match settings.as_slice() {
        [] => "no other setting that was tried helps under the same limit".to_owned(),
        settings => format!("the same requests fit with {}", settings.join(", or with ")),
    };
    let text = match enough {
        Some(enough) => format!("{how}, {same}; {enough} would have been enough"),
        None => format!("{how}, {same}"),
    };
    Some(Advice { text, bytes: limit })
}
