//! The replay, for display: how exact, how fragmented and why, and what other settings would do.
//!
//! These structures are the JSON document (`docs/json.md`); the terminal prints the same values.

use serde::Serialize;

use crate::Reading;
use crate::names::Name;
use crate::replay::{self, Answered, AnsweredBy, Moment, NotForThis, PoolReplay, Rules, Setting};
use crate::trace::Trace;
use crate::units::{Bytes, Nanos, Picos};
use crate::warning::{Unknown, Warning};

/// What a replay is asked for.
#[derive(Clone, Debug, Default)]
pub struct Wanted {
    /// Only pools whose name contains this.
    pub pool: Option<String>,
    /// Settings to try, on the pool with the highest peak.
    pub what_if: Vec<Setting>,
    /// Whether to look for the smallest limit that fits.
    pub find_limit: bool,
    /// A request that the trace does not have.
    pub ask: Option<Ask>,
}

/// A request that the trace does not have.
#[derive(Clone, Debug)]
pub struct Ask {
    /// How much.
    pub bytes: Bytes,
    /// After everything up to this moment of the source's clock; at the end where none is given.
    pub at: Option<Nanos>,
    /// Who asks, for the dump.
    pub op: String,
}

/// The whole document.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct Replay {
    pub kind: &'static str,
    pub files: Vec<String>,
    pub pools: Vec<PoolView>,
    pub what_if: Vec<WhatIfView>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub asked: Option<AskedView>,
    pub warnings: Vec<Warning>,
    pub unknowns: Vec<Unknown>,
}

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct PoolView {
    pub name: String,
    pub host: String,
    pub model: &'static str,
    pub preset: &'static str,
    pub chosen_by: &'static str,
    pub exact: bool,
    pub from_start: Option<bool>,
    pub assumes: Vec<String>,
    pub limit_bytes: Option<Bytes>,
    pub least_limit_bytes: Option<Bytes>,
    pub allocs: u64,
    pub address_matches: u64,
    pub size_matches: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver: Option<DriverView>,
    pub peak_bytes: Bytes,
    pub pool_bytes: Bytes,
    pub first_mismatch: Option<MismatchView>,
    pub load_requested_bytes: Bytes,
    pub load_rounded_bytes: Bytes,
    pub packing_bound_bytes: Bytes,
    pub packed_by: &'static str,
    pub growths: Vec<GrowthView>,
    pub at_peak: Option<MomentView>,
    pub before_last_growth: Option<MomentView>,
    pub at_end: Option<MomentView>,
    pub causes: Vec<CauseView>,
    pub curve: Vec<PointView>,
}

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct DriverView {
    pub calls: u64,
    pub matches: u64,
    pub only_here: u64,
    pub failures: u64,
    pub failure_matches: u64,
    pub failures_only_here: u64,
    pub flushes: usize,
}

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct MismatchView {
    pub alloc: u64,
    pub at_ns: Nanos,
    pub op: String,
    pub asked_bytes: Bytes,
    pub address: Option<u64>,
    pub chunk_bytes: Bytes,
    pub replayed_address: Option<u64>,
    pub replayed_chunk_bytes: Option<Bytes>,
    pub around: Vec<String>,
}

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct GrowthView {
    pub at_ns: Nanos,
    pub asked_bytes: Bytes,
    pub rounded_bytes: Bytes,
    pub free_bytes: Bytes,
    pub reachable_bytes: Bytes,
    pub largest_free_bytes: Bytes,
    pub largest_elsewhere_bytes: Bytes,
    pub missed_by_bytes: Bytes,
    pub released_bytes: Bytes,
    pub got_bytes: Bytes,
    pub op: String,
}

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct MomentView {
    pub at_ns: Nanos,
    pub in_use_bytes: Bytes,
    pub requested_bytes: Bytes,
    pub slack_bytes: Bytes,
    pub pending_bytes: Bytes,
    pub cached_bytes: Bytes,
    pub idle_bytes: Bytes,
    pub largest_free_bytes: Bytes,
    pub upcoming_bytes: Bytes,
    pub external_bytes: Bytes,
    pub stranded: Vec<StrandedView>,
}

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct StrandedView {
    pub address: u64,
    pub bytes: Bytes,
    pub live_bytes: Bytes,
    pub chunks: usize,
    pub ops: Vec<OpView>,
}

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct OpView {
    pub op: String,
    pub bytes: Bytes,
}

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct CauseView {
    pub cause: &'static str,
    pub bytes: Bytes,
    pub text: String,
    pub ops: Vec<OpView>,
}

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct PointView {
    pub at_ns: Nanos,
    pub in_use_bytes: Bytes,
    pub slack_bytes: Bytes,
    pub cached_bytes: Bytes,
    pub largest_free_bytes: Bytes,
}

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct WhatIfView {
    pub setting: String,
    pub pool: String,
    pub by: &'static str,
    pub limit_bytes: Option<Bytes>,
    pub fits: Option<bool>,
    pub peak_bytes: Bytes,
    pub peak_low_bytes: Bytes,
    pub pool_bytes: Bytes,
    pub pool_low_bytes: Bytes,
    pub retries: u64,
    pub waits: Option<u64>,
    pub regions_returned: u64,
    pub placements: usize,
    pub failed: Option<FailedView>,
}

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct FailedView {
    pub at_ns: Option<Nanos>,
    pub op: String,
    pub asked_bytes: Bytes,
    pub in_use_bytes: Bytes,
    pub free_bytes: Bytes,
    pub largest_free_bytes: Bytes,
}

#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct AskedView {
    pub pool: String,
    pub asked_bytes: Bytes,
    pub after_ns: Option<Nanos>,
    pub fits: bool,
    pub dump: Vec<String>,
}

/// Replays every pool that a source holds and that has an allocator with rules. An error where a setting is asked for that
/// the allocator does not have.
pub fn replay(reading: &Reading, wanted: &Wanted) -> Result<Replay, NotForThis> {
    let mut document = Replay {
        kind: "replay",
        files: reading.hosts.iter().map(|host| host.path.display().to_string()).collect(),
        pools: Vec::new(),
        what_if: Vec::new(),
        asked: None,
        warnings: Vec::new(),
        unknowns: Vec::new(),
    };
    let mut main: Option<(PoolReplay, &Trace)> = None;
    for host in &reading.hosts {
        let trace = &host.trace;
        for pool in &trace.pools {
            let name = trace.history.pool(pool.id).map_or("", |pool| &pool.name);
            if wanted.pool.as_ref().is_some_and(|part| !name.contains(part.as_str())) {
                continue;
            }
            match replay::replay(trace, pool, host.version.as_deref()) {
                Ok(replayed) => {
                    document.pools.push(pool_view(trace, &replayed));
                    document.doubts(&replayed);
                    if main.as_ref().is_none_or(|(main, _)| replayed.ran.exact.peak > main.ran.exact.peak) {
                        main = Some((replayed, trace));
                    }
                }
                Err(error) => document.warnings.push(Warning {
                    code: "not-replayed",
                    text: error.to_string(),
                    hint: "on the CPU, TF_CPU_ALLOCATOR_USE_BFC=1 makes TensorFlow use its pool allocator"
                        .to_owned(),
                }),
            }
        }
    }
    // Pools with the highest peaks first; what-ifs are about the first.
    document.pools.sort_by_key(|pool| std::cmp::Reverse(pool.peak_bytes));
    if let Some((main, trace)) = main {
        document.answer(&main, trace, wanted)?;
    }
    for (at, pool) in document.pools.iter().enumerate() {
        if pool.limit_bytes.is_none() {
            document.unknowns.push(Unknown {
                path: format!("pools[{at}].limit_bytes"),
                reason: match pool.model {
                    "torch-caching" => "a snapshot tells neither the cap nor what the device had left",
                    _ => "the events do not tell what is available",
                }
                .to_owned(),
                switch: None,
            });
        }
        if pool.from_start.is_none() {
            document.unknowns.push(Unknown {
                path: format!("pools[{at}].from_start"),
                reason: "the first event does not tell the counts".to_owned(),
                switch: None,
            });
        }
        if pool.limit_bytes.is_none() && pool.least_limit_bytes.is_none() {
            document.unknowns.push(Unknown {
                path: format!("pools[{at}].least_limit_bytes"),
                reason: "the driver refused nothing in this trace".to_owned(),
                switch: None,
            });
        }
    }
    Ok(document)
}

impl Replay {
    fn doubts(&mut self, pool: &PoolReplay) {
        if pool.ran.program.reordered > 0 {
            self.warnings.push(Warning {
                code: "reordered",
                text: format!(
                    "{}: {} events were written in another order than the allocator's count tells; they were put right",
                    pool.ran.name, pool.ran.program.reordered
                ),
                hint: String::new(),
            });
        }
        if pool.ran.program.unusable > 0 {
            self.warnings.push(Warning {
                code: "unusable-events",
                text: format!(
                    "{}: {} events could not be replayed",
                    pool.ran.name, pool.ran.program.unusable
                ),
                hint: "events are missing from the trace: record fewer steps".to_owned(),
            });
        }
    }

    fn answer(&mut self, main: &PoolReplay, trace: &Trace, wanted: &Wanted) -> Result<(), NotForThis> {
        for setting in &wanted.what_if {
            setting.check(&main.ran.rules, &main.ran.name, main.ran.assumed_limit())?;
        }
        if wanted.ask.is_some() && matches!(main.ran.rules, Rules::Torch(_)) {
            self.warnings.push(Warning {
                code: "not-asked",
                text: format!("--ask is for TensorFlow's and JAX's pools; {} is PyTorch's", main.ran.name),
                hint: "limit and --find limit answer whether more would fit".to_owned(),
            });
        }
        if let Some(ask) = &wanted.ask {
            let time = ask.at.map(|at| {
                let picos = at.0.saturating_sub(trace.history.origin.0).saturating_mul(1000);
                // A moment of whole nanoseconds holds what happened within it.
                Picos(picos.saturating_add(999))
            });
            self.asked = main.ran.ask(trace, time, ask.bytes, &ask.op).map(|asked| AskedView {
                pool: main.ran.name.clone(),
                asked_bytes: asked.bytes,
                after_ns: asked.after.and_then(|act| clock(trace, main, act)),
                fits: asked.fits,
                dump: asked.dump.lines().map(str::to_owned).collect(),
            });
        }
        let questions = main.questions();
        let mut answers: Vec<Answered> = Vec::new();
        for setting in &wanted.what_if {
            let from = setting.restart.map(|restart| main.ran.restart_at(trace, restart));
            if from == Some(None) {
                self.warnings.push(Warning {
                    code: "no-such-step",
                    text: format!("{}: the trace has no such step", setting.text),
                    hint: "`vramline report` lists the steps".to_owned(),
                });
                continue;
            }
            match questions.ask(setting, from.flatten()) {
                Some(answer) => answers.push(answer),
                None => self.warnings.push(Warning {
                    code: "no-such-pool",
                    text: format!("{}: no pool can be made with this", setting.text),
                    hint: "a fraction this small would split off empty chunks".to_owned(),
                }),
            }
        }
        if wanted.find_limit {
            let twice = main.ran.exact.pool + main.ran.exact.pool;
            let (least, most) = (main.bounds.load_rounded, main.ran.limit.unwrap_or(twice).min(twice));
            match questions.smallest_limit(&Setting::default(), None, least, most) {
                Some(answer) => answers.push(answer),
                None => self.warnings.push(Warning {
                    code: "no-limit",
                    text: format!("no limit up to {most} fits in every placement"),
                    hint: String::new(),
                }),
            }
        }
        for answer in answers {
            let at = self.what_if.len();
            if answer.fits.is_none() {
                let reason = match answer.by {
                    AnsweredBy::Replay => {
                        "it depends on where the driver puts regions, which is not known for other settings"
                    }
                    AnsweredBy::Bounds if answer.limit.is_none() => "there is no limit to fit into",
                    AnsweredBy::Bounds => {
                        "the rules of the driver's own pool are not public: pool_low_bytes is what any pool needs, pool_bytes a guess \
                         at the worst"
                    }
                };
                let path = format!("what_if[{at}].fits");
                self.unknowns.push(Unknown { path, reason: reason.to_owned(), switch: None });
            }
            if answer.limit.is_none() {
                self.unknowns.push(Unknown {
                    path: format!("what_if[{at}].limit_bytes"),
                    reason: "none is set, and the trace tells none".to_owned(),
                    switch: None,
                });
            }
            self.what_if.push(what_if_view(trace, main, &answer));
        }
        Ok(())
    }
}

fn what_if_view(trace: &Trace, pool: &PoolReplay, answer: &Answered) -> WhatIfView {
    let failed = answer.failure.map(|failure| FailedView {
        at_ns: failure.act.and_then(|act| clock(trace, pool, act)),
        op: failure.act.map_or(String::new(), |act| op(trace, pool.ran.op(trace, act))),
        asked_bytes: failure.asked,
        in_use_bytes: failure.in_use,
        free_bytes: failure.free,
        largest_free_bytes: failure.largest_free,
    });
    WhatIfView {
        setting: answer.setting.text.clone(),
        pool: pool.ran.name.clone(),
        by: match answer.by {
            AnsweredBy::Replay => "replay",
            AnsweredBy::Bounds => "bounds",
        },
        limit_bytes: answer.limit,
        fits: answer.fits,
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

fn clock(trace: &Trace, pool: &PoolReplay, act: usize) -> Option<Nanos> {
    pool.ran.time(trace, act).map(|time| time.on_clock(trace.history.origin))
}

fn op(trace: &Trace, name: Name) -> String {
    trace.history.names.get(name).to_owned()
}

fn pool_view(trace: &Trace, pool: &PoolReplay) -> PoolView {
    let at = |act: usize| clock(trace, pool, act).unwrap_or_default();
    let ops = |ops: &[(Name, Bytes)]| {
        ops.iter().map(|&(name, bytes)| OpView { op: op(trace, name), bytes }).collect::<Vec<_>>()
    };
    let moment = |moment: &Option<Moment>| {
        let moment = moment.as_ref()?;
        Some(MomentView {
            at_ns: at(moment.act),
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
                    ops: ops(&region.ops),
                })
                .collect(),
        })
    };
    let exact = &pool.ran.exact;
    PoolView {
        name: pool.ran.name.clone(),
        host: trace.history.host.clone(),
        model: pool.ran.rules.model(),
        preset: pool.ran.rules.preset(),
        chosen_by: pool.ran.chosen_by,
        exact: pool.ran.is_exact(),
        from_start: pool.ran.from_start,
        assumes: exact.assumed.clone(),
        limit_bytes: pool.ran.limit,
        least_limit_bytes: pool.ran.limit.or(pool.ran.least_limit),
        allocs: exact.allocs,
        address_matches: exact.address_matches,
        size_matches: exact.size_matches,
        driver: match &pool.ran.rules {
            Rules::Bfc(_) => None,
            Rules::Torch(rules) => Some(DriverView {
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
            op: op(trace, pool.ran.op(trace, mismatch.act)),
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
                op: op(trace, pool.ran.op(trace, growth.act)),
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
                cause: cause.word,
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
