//! The replay as a document: how exact it is, how fragmented the pool is and why, and the effect of other settings.
//!
//! These structures are the JSON document (`docs/reference/json.md`); the terminal prints the same values.

use serde::Serialize;

use crate::analysis::replay::{ReplayAnalysis, ReplayWord, ReplayedPool, WhatIf};
use crate::document::{Document, Reason, Unknowns};
use crate::names::Name;
use crate::replay::{AnsweredBy, Asked, Moment, Rules};
use crate::trace::Trace;
use crate::units::{Bytes, Nanos};
use crate::warning::{Unknown, Warning};

/// The answer of [`replay`](crate::replay()): how exactly the simulation follows each pool, why it grew, and the effect of other settings.
#[derive(Debug, Serialize, Document)]
pub struct Replay {
    /// `replay`.
    pub kind: &'static str,
    /// The answer as a sentence.
    pub headline: String,
    /// The answer as a word, with its figures.
    pub verdict: ReplayVerdictView,
    /// The traces that were read.
    #[field(title = "file")]
    pub files: Vec<String>,
    /// The pools, the highest peak first.
    #[field(each)]
    pub pools: Vec<ReplayPoolView>,
    /// The answers to `--what-if` and `--find`.
    #[field(each)]
    pub what_if: Vec<WhatIfView>,
    /// The answer to `--ask`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked: Option<AskedView>,
    /// Notes for the reader.
    pub warnings: Vec<Warning>,
    /// The reason for each null.
    pub unknowns: Vec<Unknown>,
}

/// The answer as a word, with its figures.
#[derive(Debug, Serialize, Document)]
pub struct ReplayVerdictView {
    /// For the pool with the highest peak: `exact`, `not-reproduced`, `assumed-start`; `nothing` if no pool can be replayed.
    #[field(title = "verdict")]
    pub word: ReplayWord,
    /// The pool.
    #[field(null = "no pool can be replayed")]
    pub pool: Option<String>,
    /// Number of its allocations.
    #[field(null = "no pool can be replayed")]
    pub allocs: Option<u64>,
    /// Number of those at the recorded address.
    #[field(null = "no pool can be replayed")]
    pub address_matches: Option<u64>,
}

/// A replayed pool.
#[derive(Debug, Serialize, Document)]
pub struct ReplayPoolView {
    /// How exactly the replay follows the trace, as a sentence.
    pub headline: String,
    /// The allocator, as the framework names it; highest peak first.
    #[field(title = "pool")]
    pub name: String,
    /// The machine.
    pub host: String,
    /// `bfc-classic`, `bfc-spatial` or `torch-caching`.
    pub model: &'static str,
    /// Framework, version and kind of pool whose rules were used.
    #[field(title = "allocator")]
    pub preset: &'static str,
    /// How these rules were chosen.
    #[field(unit = "text")]
    pub chosen_by: &'static str,
    /// Whether the trace begins at the start and every address and block size was reproduced.
    pub exact: bool,
    /// As in `report`.
    #[field(null = "the first event has no counts")]
    pub from_start: Option<bool>,
    /// The request that ended the run. The figures then cover only a part of the program, and answers are lower bounds.
    #[field(null = "the input does not show that the run ended out of memory")]
    pub ended_early: Option<EndedEarlyView>,
    /// Assumptions about a trace that begins late, and about private pools that a snapshot does not name.
    pub assumes: Vec<String>,
    /// The limit of the pool.
    #[field(null_with = Self::why_no_limit)]
    pub limit_bytes: Option<Bytes>,
    /// The limit; if it is unknown but the driver refused more, what was reserved until then. What-ifs without a limit use this one.
    #[field(title = "at least", null = "the driver refused nothing in this trace")]
    pub least_limit_bytes: Option<Bytes>,
    /// Number of replayed allocations.
    pub allocs: u64,
    /// Number of those at the recorded address.
    #[field(title = "addresses")]
    pub address_matches: u64,
    /// Number of those with the recorded block size.
    #[field(title = "sizes")]
    pub size_matches: u64,
    /// PyTorch's calls to the driver; only for PyTorch snapshots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<DriverCallsView>,
    /// Peak bytes in use, including rounding.
    pub peak_bytes: Bytes,
    /// Peak bytes reserved from the driver.
    pub pool_bytes: Bytes,
    /// The first allocation that differs; null if there is none.
    #[field(title = "first difference", null = "every allocation matches the trace")]
    pub first_mismatch: Option<MismatchView>,
    /// Peak of requested bytes.
    #[field(title = "load")]
    pub load_requested_bytes: Bytes,
    /// The same with the allocator's rounding: no allocator with this rounding needs less.
    #[field(title = "rounded load")]
    pub load_rounded_bytes: Bytes,
    /// What a heuristic packing of the same lifetimes needs; at least the rounded load.
    #[field(title = "packing")]
    pub packing_bound_bytes: Bytes,
    /// The heuristic.
    #[field(unit = "text")]
    pub packed_by: &'static str,
    /// The growths of the pool.
    pub growths: Vec<GrowthView>,
    /// The pool at its peak.
    #[field(null = "nothing was in use at any moment")]
    pub at_peak: Option<MomentView>,
    /// The pool before it last grew.
    #[field(null = "the pool did not grow after its first request")]
    pub before_last_growth: Option<MomentView>,
    /// The pool at the end.
    #[field(null = "the replay did not reach the end")]
    pub at_end: Option<MomentView>,
    /// Why the pool is larger than what was in use; most bytes first.
    pub causes: Vec<CauseView>,
    /// The pool over time.
    pub curve: Vec<PointView>,
}

/// The request that ended a run.
#[derive(Debug, Serialize, Document)]
pub struct EndedEarlyView {
    /// The pool without room for it, as the framework names it.
    #[field(null = "the error message does not say")]
    pub pool: Option<String>,
    /// Requested bytes.
    #[field(null = "neither the error nor the dump says")]
    pub requested_bytes: Option<Bytes>,
    /// The op that made the request.
    #[field(null = "neither the error nor the trace says")]
    pub op: Option<String>,
    /// The last event before it; what-ifs repeat the request there. Null if the trace does not show that moment; what-ifs then leave it out.
    #[field(null = "the trace does not show that moment")]
    pub after_ns: Option<Nanos>,
}

/// PyTorch's calls to the driver.
#[derive(Debug, Serialize, Document)]
pub struct DriverCallsView {
    /// Number of calls in the snapshot.
    pub calls: u64,
    /// Number of those that the replay made at the same moment with the same size.
    pub matches: u64,
    /// Number of calls that only the replay made.
    pub only_here: u64,
    /// Number of requests that failed in the trace.
    pub failures: u64,
    /// Number of those that failed in the replay.
    #[field(title = "failures")]
    pub failure_matches: u64,
    /// Number of requests that failed only in the replay.
    #[field(title = "only in replay")]
    pub failures_only_here: u64,
    /// Number of times that all idle segments were returned without need: `empty_cache()`.
    pub flushes: usize,
}

/// An allocation that differs in the replay.
#[derive(Debug, Serialize, Document)]
pub struct MismatchView {
    /// Number of allocations before it.
    #[field(title = "allocation")]
    pub alloc: u64,
    /// Its time.
    pub at_ns: Nanos,
    /// The op that made the request.
    pub op: String,
    /// Requested bytes.
    #[field(title = "requested")]
    pub asked_bytes: Bytes,
    /// Its address in the trace; null if it failed there, or if only calls to the driver differ.
    #[field(null = "the event has no address")]
    pub address: Option<u64>,
    /// Its block size in the trace.
    pub chunk_bytes: Bytes,
    /// Its address in the replay; null if there was no room.
    #[field(title = "replayed", null = "the replay had no room for it")]
    pub replayed_address: Option<u64>,
    /// Its block size in the replay.
    #[field(title = "replayed", null = "the replay had no room for it")]
    pub replayed_chunk_bytes: Option<Bytes>,
    /// The blocks around both addresses.
    pub around: Vec<String>,
}

/// A growth of the pool.
#[derive(Debug, Serialize, Document)]
pub struct GrowthView {
    /// Time of the growth.
    pub at_ns: Nanos,
    /// Requested bytes.
    #[field(title = "requested")]
    pub asked_bytes: Bytes,
    /// The same with the allocator's rounding.
    pub rounded_bytes: Bytes,
    /// Free bytes in the pool at that time.
    pub free_bytes: Bytes,
    /// Free bytes that the request may use: in its stream, pool and size class.
    pub reachable_bytes: Bytes,
    /// The largest free block that it may use.
    #[field(title = "largest free")]
    pub largest_free_bytes: Bytes,
    /// The largest free block that it may not use.
    #[field(title = "elsewhere")]
    pub largest_elsewhere_bytes: Bytes,
    /// Rounded request minus the largest free block that it could use.
    #[field(title = "too small by")]
    pub missed_by_bytes: Bytes,
    /// Bytes returned to the driver first, for this request.
    pub released_bytes: Bytes,
    /// Bytes that the pool reserved.
    #[field(title = "reserved")]
    pub got_bytes: Bytes,
    /// The op that made the request, or the scope around it.
    pub op: String,
}

/// A pool at one moment.
#[derive(Debug, Serialize, Document)]
pub struct MomentView {
    /// Its time; `before_last_growth` and `at_end` have the same fields.
    pub at_ns: Nanos,
    /// Bytes of blocks in use: requested + rounding.
    pub in_use_bytes: Bytes,
    /// Requested bytes of those blocks.
    pub requested_bytes: Bytes,
    /// Rounding (internal fragmentation): blocks larger than their requests.
    #[field(title = "rounding")]
    pub slack_bytes: Bytes,
    /// Bytes that were freed but are still used by another stream; in use + pending + cached = the pool.
    pub pending_bytes: Bytes,
    /// Cached: reserved from the driver, but not in use.
    pub cached_bytes: Bytes,
    /// Cached bytes in regions without a block in use, which could be returned to the driver.
    pub idle_bytes: Bytes,
    /// The largest free block.
    #[field(title = "largest free")]
    pub largest_free_bytes: Bytes,
    /// The largest request still to come; 0 if there is none.
    #[field(title = "next request")]
    pub upcoming_bytes: Bytes,
    /// External fragmentation: free bytes in blocks that are too small for that request.
    pub external_bytes: Bytes,
    /// Regions that are mostly free but cannot be returned.
    pub stranded: Vec<StrandedView>,
}

/// A region that is mostly free but cannot be returned.
#[derive(Debug, Serialize, Document)]
pub struct StrandedView {
    /// Its address; at most a quarter of the region is in use.
    #[field(title = "region")]
    pub address: u64,
    /// Its size.
    pub bytes: Bytes,
    /// Bytes in use in it.
    pub live_bytes: Bytes,
    /// Number of blocks in use in it.
    pub chunks: usize,
    /// The ops of the blocks in use.
    pub ops: Vec<OpView>,
}

/// An op and its bytes.
#[derive(Debug, Serialize, Document)]
pub struct OpView {
    /// The op; most bytes first.
    pub op: String,
    /// Bytes of its blocks.
    pub bytes: Bytes,
}

/// A cause of fragmentation.
#[derive(Debug, Serialize, Document)]
pub struct CauseView {
    /// `growth-regions`, `pool-boundary`, `shape-churn` or `long-lived`.
    pub cause: &'static str,
    /// Its bytes; causes overlap, so they do not add up.
    pub bytes: Bytes,
    /// A description.
    pub text: String,
    /// The ops that contribute most.
    pub ops: Vec<OpView>,
}

/// A point of the pool's curve.
#[derive(Debug, Serialize, Document)]
pub struct PointView {
    /// The time; at most 256 points, each the highest moment of an equal part of the trace.
    pub at_ns: Nanos,
    /// As at the peak.
    pub in_use_bytes: Bytes,
    /// As at the peak.
    #[field(title = "rounding")]
    pub slack_bytes: Bytes,
    /// As at the peak.
    pub cached_bytes: Bytes,
    /// As at the peak.
    #[field(title = "largest free")]
    pub largest_free_bytes: Bytes,
}

/// The answer to a what-if.
#[derive(Debug, Serialize, Document)]
pub struct WhatIfView {
    /// The setting, as given.
    pub setting: String,
    /// Its pool: the one with the highest peak.
    pub pool: String,
    /// How it was answered: `replay`, or `bounds` for `allocator=cuda_malloc_async` (lower bound: the highest load; upper bound: an estimate).
    pub by: AnsweredBy,
    /// The limit of the pool with this setting; null if there is none.
    #[field(null = "no limit is set, and the trace does not contain one")]
    pub limit_bytes: Option<Bytes>,
    /// Whether every request was served in the recorded order; null if that depends on where the driver places regions or on the order of threads, or if the run ended early (see `recorded_fits`).
    #[field(null_with = Self::why_open)]
    pub fits: Option<bool>,
    /// Whether every known request was served, including the one that ended the run. Equal to `fits` for a run that did not end early.
    #[field(title = "recorded", null_with = Self::why_open)]
    pub recorded_fits: Option<bool>,
    /// Whether the run ended early: the limit is then a lower bound.
    #[field(title = "at least")]
    pub is_lower_bound: bool,
    /// Peak bytes in use; until the failure if it does not fit.
    pub peak_bytes: Bytes,
    /// The same with the best placement of regions.
    #[field(title = "at least")]
    pub peak_low_bytes: Bytes,
    /// Peak bytes reserved from the driver.
    pub pool_bytes: Bytes,
    /// The same with the best placement of regions.
    #[field(title = "at least")]
    pub pool_low_bytes: Bytes,
    /// Number of failed searches for room that were retried.
    pub retries: u64,
    /// Number of requests that fit only because their threads wait until others free memory; null if none had to wait, or if waiting does not help.
    #[field(null = "waiting was not needed, or does not help")]
    pub waits: Option<u64>,
    /// Number of idle regions that were returned to the driver.
    #[field(title = "returned")]
    pub regions_returned: u64,
    /// Number of region placements that were tried.
    pub placements: usize,
    /// The first request that was not served.
    #[field(null = "nothing failed")]
    pub failed: Option<FailedView>,
}

/// The request that failed.
#[derive(Debug, Serialize, Document)]
pub struct FailedView {
    /// Its time; null for blocks from before the trace.
    #[field(null = "no event of the trace requested it")]
    pub at_ns: Option<Nanos>,
    /// The op that made the request.
    pub op: String,
    /// Requested bytes.
    #[field(title = "requested")]
    pub asked_bytes: Bytes,
    /// Bytes in use at that time.
    pub in_use_bytes: Bytes,
    /// Free bytes in the pool at that time.
    pub free_bytes: Bytes,
    /// The largest free block at that time.
    #[field(title = "largest free")]
    pub largest_free_bytes: Bytes,
}

/// The answer to a request that the trace does not have.
#[derive(Debug, Serialize, Document)]
pub struct AskedView {
    /// The pool of `--ask`.
    pub pool: String,
    /// Requested bytes.
    #[field(title = "requested")]
    pub asked_bytes: Bytes,
    /// The last event before it; null if the request comes first.
    #[field(null = "the request comes before everything else")]
    pub after_ns: Option<Nanos>,
    /// Whether there is room for it.
    pub fits: bool,
    /// What the framework would log, by line, without prefixes.
    pub dump: Vec<String>,
}

impl From<&ReplayAnalysis<'_>> for Replay {
    fn from(analysis: &ReplayAnalysis<'_>) -> Replay {
        let main = analysis.pools.first();
        let what_if = |answer| main.map(|main| what_if_view(main, answer));
        let mut document = Replay {
            kind: "replay",
            headline: main.map_or("No pool can be replayed.".to_owned(), ReplayedPool::headline),
            verdict: ReplayVerdictView {
                word: main.map_or(ReplayWord::Nothing, ReplayedPool::word),
                pool: main.map(|main| main.replay.ran.name.clone()),
                allocs: main.map(|main| main.replay.ran.exact.allocs),
                address_matches: main.map(|main| main.replay.ran.exact.address_matches),
            },
            files: analysis.files.clone(),
            pools: analysis.pools.iter().map(pool_view).collect(),
            what_if: analysis.what_if.iter().filter_map(what_if).collect(),
            asked: main.zip(analysis.asked.as_ref()).map(|(main, asked)| asked_view(main, asked)),
            warnings: analysis.warnings.clone(),
            unknowns: Vec::new(),
        };
        document.unknowns = Unknowns::of(&document);
        document
    }
}

impl ReplayPoolView {
    fn why_no_limit(&self) -> Reason {
        let text = match self.driver {
            Some(_) => "a snapshot contains neither the limit nor the free memory of the device",
            None => "the events do not contain the available bytes",
        };
        Reason::new(text, None)
    }
}

impl WhatIfView {
    fn why_open(&self) -> Reason {
        let text = match self.by {
            AnsweredBy::Replay if self.is_lower_bound && self.recorded_fits == Some(true) => {
                "the run ended early, so its later requests are unknown"
            }
            AnsweredBy::Replay => {
                "it depends on where the driver places regions, which is unknown for other settings"
            }
            AnsweredBy::Bounds if self.limit_bytes.is_none() => "there is no limit",
            AnsweredBy::Bounds => {
                "the rules of the driver's own pool are not public: pool_low_bytes is a lower bound, pool_bytes an estimate of the upper bound"
            }
        };
        Reason::new(text, None)
    }
}

fn asked_view(pool: &ReplayedPool<'_>, asked: &Asked) -> AskedView {
    AskedView {
        pool: pool.replay.ran.name.clone(),
        asked_bytes: asked.bytes,
        after_ns: asked.after.and_then(|act| pool.clock(act)),
        fits: asked.fits,
        dump: asked.dump.lines().map(str::to_owned).collect(),
    }
}

fn what_if_view(pool: &ReplayedPool<'_>, asked: &WhatIf) -> WhatIfView {
    let answer = &asked.answered;
    let last = pool.ended_early.as_ref().filter(|_| asked.fails_at_end);
    let failed = answer.failure.map(|failure| FailedView {
        at_ns: failure.act.and_then(|act| pool.clock(act)),
        op: match last {
            Some(last) => last.op.clone().unwrap_or_default(),
            None => failure.act.map_or(String::new(), |act| pool.op(act)),
        },
        asked_bytes: failure.asked,
        in_use_bytes: failure.in_use,
        free_bytes: failure.free,
        largest_free_bytes: failure.largest_free,
    });
    WhatIfView {
        setting: answer.setting.text.clone(),
        pool: pool.replay.ran.name.clone(),
        by: answer.by,
        limit_bytes: answer.limit,
        fits: asked.fits(),
        recorded_fits: answer.fits,
        is_lower_bound: asked.is_lower_bound,
        peak_bytes: answer.peak.1,
        peak_low_bytes: answer.peak.0,
        pool_bytes: answer.pool.1,
        pool_low_bytes: answer.pool.0,
        retries: answer.retries,
        waits: answer.waits,
        regions_returned: answer.returned,
        placements: answer.placements,
        failed,
    }
}

fn op_views(trace: &Trace, ops: &[(Name, Bytes)]) -> Vec<OpView> {
    let view =
        |&(name, bytes): &(Name, Bytes)| OpView { op: trace.history.names.get(name).to_owned(), bytes };
    ops.iter().map(view).collect()
}

fn moment_view(pool: &ReplayedPool<'_>, moment: &Moment) -> MomentView {
    MomentView {
        at_ns: pool.clock(moment.act).unwrap_or_default(),
        in_use_bytes: moment.in_use,
        requested_bytes: moment.requested,
        slack_bytes: moment.slack,
        pending_bytes: moment.pending,
        cached_bytes: moment.cached,
        idle_bytes: moment.idle,
        largest_free_bytes: moment.largest_free,
        upcoming_bytes: moment.upcoming,
        external_bytes: moment.external,
        stranded: moment
            .stranded
            .iter()
            .map(|region| StrandedView {
                address: region.base,
                bytes: region.size,
                live_bytes: region.live,
                chunks: region.chunks,
                ops: op_views(pool.trace, &region.ops),
            })
            .collect(),
    }
}

fn pool_view(shown: &ReplayedPool<'_>) -> ReplayPoolView {
    let ReplayedPool { trace, replay: pool, .. } = shown;
    let at = |act: usize| shown.clock(act).unwrap_or_default();
    let ops = |ops: &[(Name, Bytes)]| op_views(trace, ops);
    let moment = |moment: &Option<Moment>| moment.as_ref().map(|moment| moment_view(shown, moment));
    let exact = &pool.ran.exact;
    ReplayPoolView {
        headline: shown.headline(),
        name: pool.ran.name.clone(),
        host: trace.history.host.clone(),
        model: pool.ran.rules.model(),
        preset: pool.ran.rules.preset(),
        chosen_by: pool.ran.chosen_by,
        exact: pool.ran.is_exact(),
        from_start: pool.ran.from_start,
        ended_early: shown.ended_early.as_ref().map(|ended| EndedEarlyView {
            pool: ended.pool.clone(),
            requested_bytes: ended.requested,
            op: ended.op.clone(),
            after_ns: ended.after.and_then(|act| shown.clock(act)),
        }),
        assumes: exact.assumed.clone(),
        limit_bytes: pool.ran.limit,
        least_limit_bytes: pool.ran.limit.or(pool.ran.least_limit),
        allocs: exact.allocs,
        address_matches: exact.address_matches,
        size_matches: exact.size_matches,
        driver: match &pool.ran.rules {
            Rules::Bfc(_) => None,
            Rules::Torch(rules) => Some(DriverCallsView {
                calls: rules.driver.calls,
                matches: rules.driver.matches,
                only_here: rules.driver.only_here,
                failures: rules.driver.failures,
                failure_matches: rules.driver.failure_matches,
                failures_only_here: rules.driver.failures_only_here,
                flushes: rules.driver.flushes.len(),
            }),
        },
        peak_bytes: exact.peak,
        pool_bytes: exact.pool,
        first_mismatch: exact.first_mismatch.as_ref().map(|mismatch| MismatchView {
            alloc: mismatch.request,
            at_ns: at(mismatch.act),
            op: shown.op(mismatch.act),
            asked_bytes: mismatch.asked,
            address: mismatch.address,
            chunk_bytes: mismatch.chunk,
            replayed_address: mismatch.replayed.map(|(address, _)| address),
            replayed_chunk_bytes: mismatch.replayed.map(|(_, chunk)| chunk),
            around: mismatch.around.clone(),
        }),
        load_requested_bytes: pool.bounds.load_requested,
        load_rounded_bytes: pool.bounds.load_rounded,
        packing_bound_bytes: pool.bounds.packing,
        packed_by: pool.bounds.packed_by,
        growths: exact
            .growths
            .iter()
            .map(|growth| GrowthView {
                at_ns: at(growth.act),
                asked_bytes: growth.asked,
                rounded_bytes: growth.rounded,
                free_bytes: growth.free,
                reachable_bytes: growth.reachable,
                largest_free_bytes: growth.largest_free,
                largest_elsewhere_bytes: growth.largest_elsewhere,
                released_bytes: growth.released,
                missed_by_bytes: growth.rounded.saturating_sub(growth.largest_free),
                got_bytes: growth.got,
                op: shown.op(growth.act),
            })
            .collect(),
        at_peak: moment(&pool.fragmentation.at_peak),
        before_last_growth: moment(&pool.fragmentation.before_last_growth),
        at_end: moment(&pool.fragmentation.at_end),
        causes: pool
            .fragmentation
            .causes
            .iter()
            .map(|cause| CauseView {
                cause: cause.kind.word(),
                bytes: cause.bytes,
                text: cause.text.clone(),
                ops: ops(&cause.ops),
            })
            .collect(),
        curve: exact
            .curve
            .iter()
            .map(|point| PointView {
                at_ns: at(point.act),
                in_use_bytes: point.in_use,
                slack_bytes: point.slack,
                cached_bytes: point.cached,
                largest_free_bytes: point.largest_free,
            })
            .collect(),
    }
}
