//! The replay as a document: how exact, how fragmented and why, and what other settings would do.
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

/// What [`replay`](crate::replay()) answers: how far the simulation follows each pool, why it grew, and what other settings would do.
#[derive(Debug, Serialize, Document)]
pub struct Replay {
    /// `replay`.
    pub kind: &'static str,
    /// The answer in a sentence.
    pub headline: String,
    /// The answer in a word, with its figures.
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
    /// What the reader should know.
    pub warnings: Vec<Warning>,
    /// Each null with its reason.
    pub unknowns: Vec<Unknown>,
}

/// The answer in a word, with its figures.
#[derive(Debug, Serialize, Document)]
pub struct ReplayVerdictView {
    /// Of the pool with the highest peak: `exact`, `not-reproduced`, `assumed-start`; `nothing` where no pool can be replayed.
    #[field(title = "verdict")]
    pub word: ReplayWord,
    /// The pool.
    #[field(null = "no pool can be replayed")]
    pub pool: Option<String>,
    /// Its allocations.
    #[field(null = "no pool can be replayed")]
    pub allocs: Option<u64>,
    /// Of these, at the recorded address.
    #[field(null = "no pool can be replayed")]
    pub address_matches: Option<u64>,
}

/// A pool, replayed.
#[derive(Debug, Serialize, Document)]
pub struct ReplayPoolView {
    /// How far the replay follows the trace, in a sentence.
    pub headline: String,
    /// The allocator, as the framework names it; highest peak first.
    #[field(title = "pool")]
    pub name: String,
    /// The machine.
    pub host: String,
    /// `bfc-classic`, `bfc-spatial` or `torch-caching`.
    pub model: &'static str,
    /// Framework, version and kind of pool whose rules were followed.
    #[field(title = "allocator")]
    pub preset: &'static str,
    /// What these rules were chosen by.
    #[field(unit = "text")]
    pub chosen_by: &'static str,
    /// The trace begins at the start, and every address and chunk size was reproduced.
    pub exact: bool,
    /// As in `report`.
    #[field(null = "the first event does not tell the counts")]
    pub from_start: Option<bool>,
    /// The request that ended the run; then everything here is of a part of the program, and answers are lower bounds.
    #[field(null = "nothing shows that memory ran out before the program was done")]
    pub ended_early: Option<EndedEarlyView>,
    /// What a trace that begins late leaves open, and what was assumed.
    pub assumes: Vec<String>,
    /// What the pool may take.
    #[field(null_with = Self::why_no_limit)]
    pub limit_bytes: Option<Bytes>,
    /// The limit; where it is not told but the driver refused more, what was taken until then: what-ifs without a limit have this one.
    #[field(title = "at least", null = "the driver refused nothing in this trace")]
    pub least_limit_bytes: Option<Bytes>,
    /// Allocations that were replayed.
    pub allocs: u64,
    /// Of these, at the recorded address.
    #[field(title = "addresses")]
    pub address_matches: u64,
    /// Of these, with the recorded chunk size.
    #[field(title = "sizes")]
    pub size_matches: u64,
    /// PyTorch's calls of the driver; PyTorch's snapshots only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<DriverCallsView>,
    /// The most in use, in whole chunks.
    pub peak_bytes: Bytes,
    /// The most taken from the driver.
    pub pool_bytes: Bytes,
    /// Null where there is none.
    #[field(title = "first difference", null = "every allocation is where the trace has it")]
    pub first_mismatch: Option<MismatchView>,
    /// The most that was asked for at once.
    #[field(title = "load")]
    pub load_requested_bytes: Bytes,
    /// The same in whole granules: no allocator with this rounding needs less.
    #[field(title = "rounded load")]
    pub load_rounded_bytes: Bytes,
    /// What a packing of the same lifetimes needs, found by a heuristic; at least the rounded load.
    #[field(title = "packing")]
    pub packing_bound_bytes: Bytes,
    /// The heuristic that found it.
    #[field(unit = "text")]
    pub packed_by: &'static str,
    /// Each time the pool grew.
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
    /// Why the pool is larger than what was in use, the most bytes first.
    pub causes: Vec<CauseView>,
    /// The pool over time.
    pub curve: Vec<PointView>,
}

/// The request that ended a run.
#[derive(Debug, Serialize, Document)]
pub struct EndedEarlyView {
    /// The pool that had no room for it, as the framework names it.
    #[field(null = "the text of the error does not say")]
    pub pool: Option<String>,
    /// What was asked for.
    #[field(null = "neither the error nor the dump says")]
    pub requested_bytes: Option<Bytes>,
    /// The op that asked.
    #[field(null = "neither the error nor the trace says")]
    pub op: Option<String>,
    /// The last event before it; what-ifs ask for it there. Null where the trace does not show that moment: then they cannot.
    #[field(null = "the trace does not show the moment")]
    pub after_ns: Option<Nanos>,
}

/// PyTorch's calls of the driver.
#[derive(Debug, Serialize, Document)]
pub struct DriverCallsView {
    /// Calls to the driver in a PyTorch snapshot; other traces have none.
    pub calls: u64,
    /// Of these, made in the replay at the same moment, of the same size.
    pub matches: u64,
    /// Calls to the driver that only the replay made.
    pub only_here: u64,
    /// Requests that failed in the trace.
    pub failures: u64,
    /// Of these, failed in the replay.
    #[field(title = "failures")]
    pub failure_matches: u64,
    /// Requests that failed in the replay only.
    #[field(title = "only here")]
    pub failures_only_here: u64,
    /// Times that all idle segments went back without need: `empty_cache()`.
    pub flushes: usize,
}

/// An allocation that is elsewhere in the replay.
#[derive(Debug, Serialize, Document)]
pub struct MismatchView {
    /// How many allocations came before it.
    #[field(title = "allocation")]
    pub alloc: u64,
    /// When.
    pub at_ns: Nanos,
    /// The op that asked.
    pub op: String,
    /// What it asked for.
    pub asked_bytes: Bytes,
    /// Where the trace has it; null where it failed there or only calls to the driver differ.
    #[field(null = "the event tells no address")]
    pub address: Option<u64>,
    /// How large the trace has it.
    pub chunk_bytes: Bytes,
    /// Where the replay has it; null where it found no room.
    #[field(title = "replayed", null = "the replay found no room for it")]
    pub replayed_address: Option<u64>,
    /// How large the replay has it.
    #[field(title = "replayed", null = "the replay found no room for it")]
    pub replayed_chunk_bytes: Option<Bytes>,
    /// The chunks around both places.
    pub around: Vec<String>,
}

/// A growth of the pool.
#[derive(Debug, Serialize, Document)]
pub struct GrowthView {
    /// When the pool grew.
    pub at_ns: Nanos,
    /// What was asked for.
    pub asked_bytes: Bytes,
    /// The same in whole granules.
    pub rounded_bytes: Bytes,
    /// Free in the pool then.
    pub free_bytes: Bytes,
    /// Of that, where the request may look: its stream, pool and size class.
    pub reachable_bytes: Bytes,
    /// The largest free chunk that it may use then.
    #[field(title = "largest hole")]
    pub largest_free_bytes: Bytes,
    /// The largest free chunk where it may not look.
    #[field(title = "elsewhere")]
    pub largest_elsewhere_bytes: Bytes,
    /// Rounded request less that chunk.
    pub missed_by_bytes: Bytes,
    /// Given back to the driver for this request first.
    pub released_bytes: Bytes,
    /// What the pool took from the driver.
    #[field(title = "taken")]
    pub got_bytes: Bytes,
    /// The op that asked, or the scope around it.
    pub op: String,
}

/// A pool at one moment.
#[derive(Debug, Serialize, Document)]
pub struct MomentView {
    /// The moment; `before_last_growth` and `at_end` have the same fields.
    pub at_ns: Nanos,
    /// In chunks in use: requested + slack.
    pub in_use_bytes: Bytes,
    /// What their owners asked for.
    pub requested_bytes: Bytes,
    /// Internal fragmentation: chunks larger than their requests.
    pub slack_bytes: Bytes,
    /// Let go of by their owners, and still used by another stream; in use + pending + cached = the pool.
    pub pending_bytes: Bytes,
    /// Taken from the driver and free.
    pub cached_bytes: Bytes,
    /// Of the cached, in regions of which nothing is in use: what could go back to the driver.
    pub idle_bytes: Bytes,
    /// The largest free chunk.
    #[field(title = "largest hole")]
    pub largest_free_bytes: Bytes,
    /// The largest request still to come; 0 where none is.
    #[field(title = "to come")]
    pub upcoming_bytes: Bytes,
    /// External fragmentation: free, in chunks too small for that request.
    pub external_bytes: Bytes,
    /// Regions that are mostly free and cannot be given back.
    pub stranded: Vec<StrandedView>,
}

/// A region that is mostly free and cannot be given back.
#[derive(Debug, Serialize, Document)]
pub struct StrandedView {
    /// A region at most a quarter of which is in use.
    #[field(title = "region")]
    pub address: u64,
    /// Its size.
    pub bytes: Bytes,
    /// In use in it.
    pub live_bytes: Bytes,
    /// Chunks in use in it.
    pub chunks: usize,
    /// The ops whose blocks keep the region.
    pub ops: Vec<OpView>,
}

/// An op and its bytes.
#[derive(Debug, Serialize, Document)]
pub struct OpView {
    /// Who asked for them, most bytes first.
    pub op: String,
    /// Their chunks.
    pub bytes: Bytes,
}

/// A cause of fragmentation.
#[derive(Debug, Serialize, Document)]
pub struct CauseView {
    /// `growth-regions`, `pool-boundary`, `shape-churn` or `long-lived`.
    pub cause: &'static str,
    /// How much; causes overlap, so they do not add up.
    pub bytes: Bytes,
    /// What these bytes are.
    pub text: String,
    /// The ops that take part most.
    pub ops: Vec<OpView>,
}

/// A point of the pool's curve.
#[derive(Debug, Serialize, Document)]
pub struct PointView {
    /// A moment; at most 256, the highest of equal parts of the trace.
    pub at_ns: Nanos,
    /// As at the peak.
    pub in_use_bytes: Bytes,
    /// As at the peak.
    pub slack_bytes: Bytes,
    /// As at the peak.
    pub cached_bytes: Bytes,
    /// As at the peak.
    #[field(title = "largest hole")]
    pub largest_free_bytes: Bytes,
}

/// The answer to a what-if.
#[derive(Debug, Serialize, Document)]
pub struct WhatIfView {
    /// As it was asked for.
    pub setting: String,
    /// The pool it is about: the one with the highest peak.
    pub pool: String,
    /// `replay`, or `bounds` for `allocator=cuda_malloc_async`: the highest load, and a guess at the worst.
    pub by: AnsweredBy,
    /// The limit under it, as the pool takes it; null where there is none.
    #[field(null = "none is set, and the trace tells none")]
    pub limit_bytes: Option<Bytes>,
    /// Every request was served, in the recorded order; null where that depends on where the driver puts regions, or on the order of threads, and where the run ended early: then `recorded_fits` says more.
    #[field(null_with = Self::why_open)]
    pub fits: Option<bool>,
    /// Every request that is known was served, the one that ended a run included. The same as `fits` of a run that did not end early.
    #[field(title = "recorded", null_with = Self::why_open)]
    pub recorded_fits: Option<bool>,
    /// The run ended early: a limit is at least this, and more may be needed.
    #[field(title = "at least")]
    pub is_lower_bound: bool,
    /// The most in use; where it does not fit, until then.
    pub peak_bytes: Bytes,
    /// The same with the most favourable placement.
    #[field(title = "at least")]
    pub peak_low_bytes: Bytes,
    /// The most taken from the driver.
    pub pool_bytes: Bytes,
    /// The same with the most favourable placement.
    #[field(title = "at least")]
    pub pool_low_bytes: Bytes,
    /// Searches for room that failed and were run again.
    pub retries: u64,
    /// Requests that fit only because their threads wait for others to free something; null where none had to, or waiting does not help.
    #[field(null = "waiting was not needed, or does not help")]
    pub waits: Option<u64>,
    /// Idle regions that went back to the driver.
    #[field(title = "returned")]
    pub regions_returned: u64,
    /// Placements of regions that were tried.
    pub placements: usize,
    /// The first request that was not served.
    #[field(null = "nothing failed")]
    pub failed: Option<FailedView>,
}

/// The request that failed.
#[derive(Debug, Serialize, Document)]
pub struct FailedView {
    /// When it was made; null for what was there before.
    #[field(null = "no act of the trace asked for it")]
    pub at_ns: Option<Nanos>,
    /// The op that asked.
    pub op: String,
    /// What it asked for.
    pub asked_bytes: Bytes,
    /// In use then.
    pub in_use_bytes: Bytes,
    /// Free in the pool then.
    pub free_bytes: Bytes,
    /// The largest free chunk then.
    #[field(title = "largest hole")]
    pub largest_free_bytes: Bytes,
}

/// The answer to a request that the trace does not have.
#[derive(Debug, Serialize, Document)]
pub struct AskedView {
    /// With `--ask`: the pool that was asked.
    pub pool: String,
    /// What it was asked for.
    pub asked_bytes: Bytes,
    /// The last event before; null where it is asked first of all.
    #[field(null = "the request comes before everything else")]
    pub after_ns: Option<Nanos>,
    /// Whether there is room for it.
    pub fits: bool,
    /// What the framework would log, line by line, without the prefixes.
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
            Some(_) => "a snapshot tells neither the cap nor what the device had left",
            None => "the events do not tell what is available",
        };
        Reason::new(text, None)
    }
}

impl WhatIfView {
    fn why_open(&self) -> Reason {
        let text = match self.by {
            AnsweredBy::Replay if self.is_lower_bound && self.recorded_fits == Some(true) => {
                "the run ended early: what it would have asked for after that is not known"
            }
            AnsweredBy::Replay => {
                "it depends on where the driver puts regions, which is not known for other settings"
            }
            AnsweredBy::Bounds if self.limit_bytes.is_none() => "there is no limit to fit into",
            AnsweredBy::Bounds => {
                "the rules of the driver's own pool are not public: pool_low_bytes is what any pool needs, pool_bytes a guess at the worst"
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
