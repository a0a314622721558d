//! The replay: how exact it is, how fragmented the pool is and why, and the effect of other settings.

use super::reading::{Host, OutOfMemory, Reading};
use super::replayed;
use crate::failure::SizeRange;
use crate::replay::{
    self, ActOf, Answered, Asked, NotForThis, PoolReplay, Program, Questions, Refused, Rules, Setting,
};
use crate::trace::Trace;
use crate::units::{Bytes, Nanos, Picos, plural, thousands};
use crate::warning::Warning;

/// The options of [`replay`](crate::replay()).
#[derive(Clone, Debug, Default)]
pub struct ReplayOptions {
    /// Only pools whose name contains this.
    pub pool: Option<String>,
    /// Settings to try, on the pool with the highest peak.
    pub what_if: Vec<Setting>,
    /// Whether to search for the smallest limit that fits.
    pub find_limit: bool,
    /// A request that is not in the trace; only for pools of TensorFlow and JAX.
    pub ask: Option<ExtraRequest>,
}

/// A request that is not in the trace, to find out whether there would be room for it.
#[derive(Clone, Debug)]
pub struct ExtraRequest {
    /// Its size.
    pub bytes: Bytes,
    /// The moment on the source's clock; the end of the trace if `None`.
    pub at: Option<Nanos>,
    /// The op, for the dump.
    pub op: String,
}

/// The result of a replay.
#[derive(Debug)]
pub struct ReplayAnalysis<'a> {
    /// The files.
    pub files: Vec<String>,
    /// The pools, highest peak first.
    pub pools: Vec<ReplayedPool<'a>>,
    /// The answers to what-ifs, for the first pool.
    pub what_if: Vec<WhatIf>,
    /// The answer to a request that is not in the trace, for the first pool.
    pub asked: Option<Asked>,
    /// Notes for the reader.
    pub warnings: Vec<Warning>,
}

/// A replayed pool, with the trace that names its ops.
#[derive(Debug)]
pub struct ReplayedPool<'a> {
    /// The trace.
    pub trace: &'a Trace,
    /// The replay.
    pub replay: PoolReplay,
    /// The request that ended the run, if memory ran out before the program finished.
    pub ended_early: Option<EndedEarly>,
}

/// The request that ended a run, or after which there is no sign that it continued. Later requests of the program are
/// unknown, so every answer is a lower bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedEarly {
    /// The pool without room.
    pub pool: Option<String>,
    /// Requested bytes.
    pub requested: Option<Bytes>,
    /// The op that made the request.
    pub op: Option<String>,
    /// The last act before it; `None` if the trace does not show its moment.
    pub after: Option<usize>,
    /// Where what-ifs repeat it; `None` if they cannot, or if it is in the trace.
    refused: Option<Refused>,
    /// Bytes in use at that time plus the request: a lower bound of the limit, for this pool only.
    least: Option<Bytes>,
}

/// The answer to a what-if.
#[derive(Clone, Debug)]
pub struct WhatIf {
    /// The answer of the replay for the known requests; acts are those of the trace.
    pub answered: Answered,
    /// Whether the request that did not fit is the one that ended the run.
    pub fails_at_end: bool,
    /// Whether the run ended early: there may be more requests than are known.
    pub is_lower_bound: bool,
}

impl WhatIf {
    /// Whether the program fits. Never `Some(true)` for a run that ended early, because its later requests are unknown.
    #[must_use]
    pub fn fits(&self) -> Option<bool> {
        self.answered.fits.filter(|fits| !(*fits && self.is_lower_bound))
    }
}

/// The result of a gate; the worst of several counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReplayGate {
    /// Yes.
    Pass,
    /// Neither yes nor no.
    NotCertain,
    /// No, which outweighs uncertain answers.
    Fail,
}

/// How exactly a replay follows its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplayWord {
    /// Every address and size, from the start.
    Exact,
    /// From the start, but not every address or size.
    NotReproduced,
    /// From an assumed start.
    AssumedStart,
    /// No pool has a known allocator.
    Nothing,
}

words!(ReplayWord {
    Exact => "exact",
    NotReproduced => "not-reproduced",
    AssumedStart => "assumed-start",
    Nothing => "nothing",
});

impl ReplayedPool<'_> {
    /// How exactly the replay follows the trace.
    #[must_use]
    pub fn word(&self) -> ReplayWord {
        match self.replay.ran.from_start {
            _ if self.replay.ran.is_exact() => ReplayWord::Exact,
            Some(true) => ReplayWord::NotReproduced,
            _ => ReplayWord::AssumedStart,
        }
    }

    /// The same as a sentence.
    #[must_use]
    pub fn headline(&self) -> String {
        let how = match self.word() {
            ReplayWord::Exact => "Exact replay",
            ReplayWord::AssumedStart => "Replay from an assumed start",
            ReplayWord::NotReproduced | ReplayWord::Nothing => "The replay differs from the trace",
        };
        let exact = &self.replay.ran.exact;
        let ended = self.ended_early.as_ref().map_or(String::new(), |ended| format!(" {}", ended.sentence()));
        if exact.address_matches == exact.size_matches {
            return format!(
                "{how} of {}: {} of {} allocations have their recorded address and size.{ended}",
                self.replay.ran.name,
                thousands(exact.address_matches),
                thousands(exact.allocs)
            );
        }
        format!(
            "{how} of {}: {} of {} allocations have their recorded address, {} their recorded size.{ended}",
            self.replay.ran.name,
            thousands(exact.address_matches),
            thousands(exact.allocs),
            thousands(exact.size_matches)
        )
    }

    /// The time of an act of the replay, on the source's clock.
    #[must_use]
    pub fn clock(&self, act: usize) -> Option<Nanos> {
        self.replay.ran.time(self.trace, act).map(|time| time.on_clock(self.trace.history.origin))
    }

    /// The op of an act; empty if unknown.
    #[must_use]
    pub fn op(&self, act: usize) -> String {
        self.trace.history.names.get(self.replay.ran.op(self.trace, act)).to_owned()
    }
}

impl EndedEarly {
    /// What ended the run, as a sentence.
    #[must_use]
    pub fn sentence(&self) -> String {
        let what =
            self.requested.map_or("an allocation".to_owned(), |bytes| format!("an allocation of {bytes}"));
        let by = self.op.as_deref().map_or(String::new(), |op| format!(" for {op}"));
        format!(
            "The run ended when {what}{by} failed. Later requests are unknown, so these are lower bounds."
        )
    }

    /// What ended the run of a trace.
    fn of(read: Option<&OutOfMemory>, host: &Host, pool: &PoolReplay) -> Option<EndedEarly> {
        let told = read.zip(host.process).and_then(|(read, process)| read.that_ended(process));
        // A history that has the failure itself knows its place.
        let last = if told.is_some() { pool.ran.last_failure() } else { pool.ran.ends_in_failure() };
        if let Some(act) = last {
            let op = host.trace.history.names.get(pool.ran.op(&host.trace, act));
            return Some(EndedEarly {
                pool: Some(pool.ran.name.clone()),
                requested: pool.ran.program.acts.get(act).and_then(|act| act.asked()),
                op: Some(op.to_owned()).filter(|op| !op.is_empty()),
                after: Some(act),
                refused: None,
                least: None,
            });
        }
        let (_, failure) = told?;
        let refused = replayed::refused(&host.trace, &pool.ran, failure);
        let is_here = failure.allocator.as_deref().is_none_or(|name| name == pool.ran.name);
        let held = failure.requested_in_use.zip(failure.rounded).filter(|_| is_here);
        Some(EndedEarly {
            pool: failure.allocator.clone(),
            requested: failure.requested.or(failure.rounded).and_then(SizeRange::value),
            op: failure.op.clone(),
            after: refused.and_then(|refused| refused.before.checked_sub(1)),
            refused,
            least: held.map(|(held, asked)| held.low + asked.low),
        })
    }
}

/// Replays every pool of a source whose allocator is known. Returns an error if the allocator does not have a requested setting.
pub fn replay<'a>(reading: &'a Reading, options: &ReplayOptions) -> Result<ReplayAnalysis<'a>, NotForThis> {
    let mut analysis = ReplayAnalysis {
        files: reading.hosts.iter().map(|host| host.path.display().to_string()).collect(),
        pools: Vec::new(),
        what_if: Vec::new(),
        asked: None,
        warnings: Vec::new(),
    };
    for host in &reading.hosts {
        for pool in &host.trace.pools {
            let name = host.pool_name(pool);
            if options.pool.as_ref().is_some_and(|part| !name.contains(part.as_str())) {
                continue;
            }
            match replay::replay(&host.trace, pool, host.version.as_deref()) {
                Ok(replayed) => {
                    analysis.doubts(&replayed);
                    let ended_early = EndedEarly::of(reading.failures.as_ref(), host, &replayed);
                    analysis.pools.push(ReplayedPool { trace: &host.trace, replay: replayed, ended_early });
                }
                Err(error) => analysis.warnings.push(Warning {
                    code: "not-replayed",
                    text: error.to_string(),
                    hint: "on the CPU, set TF_CPU_ALLOCATOR_USE_BFC=1 so that TensorFlow uses its pool allocator"
                        .to_owned(),
                }),
            }
        }
    }
    analysis.pools.sort_by_key(|pool| std::cmp::Reverse(pool.replay.ran.exact.peak));
    analysis.answer(options)?;
    Ok(analysis)
}

impl ReplayAnalysis<'_> {
    /// Whether every pool is reproduced exactly.
    #[must_use]
    pub fn is_exact(&self) -> ReplayGate {
        let has = |word: ReplayWord| self.pools.iter().any(|pool| pool.word() == word);
        // A difference without any assumption is a failure.
        match (has(ReplayWord::NotReproduced), has(ReplayWord::AssumedStart)) {
            (true, _) => ReplayGate::Fail,
            (false, true) => ReplayGate::NotCertain,
            (false, false) => ReplayGate::Pass,
        }
    }

    /// Whether the first pool fits with every requested setting.
    #[must_use]
    pub fn fits(&self) -> ReplayGate {
        if self.what_if.iter().any(|answer| answer.fits() == Some(false)) {
            return ReplayGate::Fail;
        }
        let is_exact = self.pools.first().is_some_and(|pool| pool.replay.ran.is_exact());
        let all_fit = self.what_if.iter().all(|answer| answer.fits() == Some(true));
        // An unanswered question is in the warnings.
        let is_answered = !self.what_if.is_empty();
        if is_exact && all_fit && is_answered { ReplayGate::Pass } else { ReplayGate::NotCertain }
    }

    fn doubts(&mut self, pool: &PoolReplay) {
        if pool.ran.program.reordered > 0 {
            self.warnings.push(Warning {
                code: "reordered",
                text: format!(
                    "{}: {} out of order; Vramline sorted them by the allocator's count",
                    pool.ran.name,
                    plural(pool.ran.program.reordered, "event was", "events were")
                ),
                hint: String::new(),
            });
        }
        if pool.ran.program.unusable > 0 {
            self.warnings.push(Warning {
                code: "unusable-events",
                text: format!(
                    "{}: {} could not be replayed",
                    pool.ran.name,
                    plural(pool.ran.program.unusable, "event", "events")
                ),
                hint: "events are missing from the trace: record fewer steps".to_owned(),
            });
        }
    }

    fn answer(&mut self, options: &ReplayOptions) -> Result<(), NotForThis> {
        let Some(pool) = self.pools.first() else { return Ok(()) };
        let ReplayedPool { trace, replay: main, .. } = pool;
        for setting in &options.what_if {
            main.ran.rules.check(setting, &main.ran.name, main.ran.assumed_limit())?;
        }
        if options.ask.is_some() && matches!(main.ran.rules, Rules::Torch(_)) {
            self.warnings.push(Warning {
                code: "not-asked",
                text: format!(
                    "--ask works for pools of TensorFlow and JAX only; {} is a pool of PyTorch",
                    main.ran.name
                ),
                hint: "use --what-if limit=SIZE or --find limit to see what fits".to_owned(),
            });
        }
        if let Some(ask) = &options.ask {
            let time = ask.at.map(|at| {
                let picos = at.0.saturating_sub(trace.history.origin.0).saturating_mul(1000);
                // A time in whole nanoseconds includes everything within that nanosecond.
                Picos(picos.saturating_add(999))
            });
            self.asked = main.ran.ask(trace, time, ask.bytes, &ask.op);
        }
        let asking = Asking::new(pool);
        let questions = asking.questions(main);
        for setting in &options.what_if {
            let from = setting.restart.map(|restart| main.ran.restart_at(trace, restart));
            if from == Some(None) {
                self.warnings.push(Warning {
                    code: "no-such-step",
                    text: format!("{}: the trace has no such step", setting.text),
                    hint: "`vramline report` lists the steps".to_owned(),
                });
                continue;
            }
            match questions.ask(setting, from.flatten().map(|from| asking.moved(from))) {
                Some(answer) => self.what_if.push(asking.understood(answer)),
                None => self.warnings.push(Warning {
                    code: "no-such-pool",
                    text: format!("{}: no pool can have this setting", setting.text),
                    hint: "a fraction this small would split off empty blocks; use a larger one".to_owned(),
                }),
            }
        }
        if options.find_limit {
            let (least, most) = asking.range(main);
            match questions.smallest_limit(&Setting::default(), None, least, most) {
                Some(mut answer) => {
                    if let (Some(limit), Some(_)) = (answer.limit, asking.ended) {
                        answer.setting.text =
                            format!("limit={}MiB (at least)", limit.0 / replay::LIMIT_STEP.0);
                    }
                    self.what_if.push(asking.understood(answer));
                }
                None => self.warnings.push(Warning {
                    code: "no-limit",
                    text: format!("no limit up to {most} is enough for every placement"),
                    hint: String::new(),
                }),
            }
        }
        Ok(())
    }
}

/// The program of a pool for what-if questions, including the request that ended the run if the trace lacks it.
struct Asking<'a> {
    ended: Option<&'a EndedEarly>,
    program: Option<Program>,
}

impl<'a> Asking<'a> {
    fn new(pool: &'a ReplayedPool<'_>) -> Asking<'a> {
        let ended = pool.ended_early.as_ref();
        let refused = ended.and_then(|ended| ended.refused);
        Asking { ended, program: refused.map(|refused| refused.within(&pool.replay.ran.program)) }
    }

    fn refused(&self) -> Option<Refused> {
        self.ended.and_then(|ended| ended.refused)
    }

    fn questions<'b>(&'b self, pool: &'b PoolReplay) -> Questions<'b> {
        self.program.as_ref().map_or_else(|| pool.questions(), |program| pool.ran.questions(program))
    }

    /// The index in the program of an act of the trace.
    fn moved(&self, act: usize) -> usize {
        self.refused().map_or(act, |refused| refused.moved(act))
    }

    /// The range in which the smallest limit is searched.
    fn range(&self, pool: &PoolReplay) -> (Bytes, Bytes) {
        let twice = pool.ran.exact.pool + pool.ran.exact.pool;
        let least = pool.bounds.load_rounded;
        let Some(ended) = self.ended else {
            return (least, pool.ran.limit.unwrap_or(twice).min(twice));
        };
        // The limit of the run was not enough, and the request may be larger than everything before it.
        let least = least.max(ended.least.unwrap_or_default());
        let asked = ended.requested.unwrap_or_default();
        (least, twice.max(least) + asked + asked)
    }

    /// Turns an answer about the program into one about the trace.
    fn understood(&self, mut answered: Answered) -> WhatIf {
        let mut fails_at_end = false;
        if let (Some(failure), Some(refused)) = (&mut answered.failure, self.refused()) {
            match failure.act.map(|act| refused.act_of(act)) {
                Some(ActOf::Trace(act)) => failure.act = Some(act),
                Some(ActOf::Refused) => {
                    fails_at_end = true;
                    failure.act = refused.before.checked_sub(1);
                }
                None => {}
            }
        }
        WhatIf { answered, fails_at_end, is_lower_bound: self.ended.is_some() }
    }
}
