//! *Internal.* Replays a trace through its allocator: whether it is reproduced, what is fragmented and why, and the effect of other settings.
//!
//! The events of a pool become a [`Program`]: requests and frees in the allocator's own order. The allocator is chosen
//! by framework, version and pool name, and runs the program. Every address and chunk size is compared with the trace. A trace that
//! begins before the pool's first allocation and agrees everywhere is replayed exactly. For a trace that
//! begins later, the assumptions are listed.

mod exact;
mod fragmentation;
mod model;
mod packing;
mod padding;
mod program;
mod refused;
mod rehearsal;
mod remedy;
mod seed;
mod setting;
pub mod torch_caching;
mod what_if;

use crate::allocator::bfc::{End, Preset};
use crate::allocator::torch_caching::{Options, TieBreak};
use crate::event::PoolId;
use crate::event::caching::Caching;
use crate::names::Name;
use crate::trace::{PoolTrace, Trace};
use crate::units::{Bytes, Picos};

pub use exact::{Exact, GrowthAt, Mismatch, Point};
pub use fragmentation::{Cause, CauseKind, Fragmentation, Moment, Stranded};
pub use model::candidates;
pub use packing::Bounds;
pub use program::{Act, ActKind, Answer, DriverSide, Earlier, Program};
pub use refused::{ActOf, Refused};
pub(crate) use rehearsal::Fare;
pub use rehearsal::{Rehearsal, Rehearsed};
pub use remedy::{Remedies, remedies};
pub use setting::{NotASetting, NotForThis, Restart, Setting, SplitSize};
pub use torch_caching::DriverExact;
pub(crate) use what_if::LIMIT_STEP;
pub use what_if::{Answered, AnsweredBy, Failure, Questions};

use exact::Replaying;

/// Beyond every device, and far from where sums would saturate.
const NO_LIMIT: Bytes = Bytes(1 << 46);

/// Why a pool cannot be replayed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotReplayed {
    /// Its allocator is unknown.
    #[error("'{pool}' is not a pool whose allocator is known here")]
    UnknownAllocator {
        /// The pool.
        pool: String,
    },
    /// It has no requests.
    #[error("'{pool}' has no allocations with an address")]
    Empty {
        /// The pool.
        pool: String,
    },
}

/// A request that is not in the trace, made at some moment of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Requested bytes.
    pub bytes: Bytes,
    /// The last act before it.
    pub after: Option<usize>,
    /// Whether there is room for it.
    pub fits: bool,
    /// What the framework would log if there is no room, without the prefixes of its lines.
    pub dump: String,
}

/// The allocator that a pool was run through.
#[derive(Clone, Debug)]
pub enum Rules {
    /// TensorFlow's and JAX's.
    Bfc(Preset),
    /// PyTorch's.
    Torch(Box<TorchRules>),
}

/// PyTorch's allocator, and what only it has.
#[derive(Clone, Debug)]
pub struct TorchRules {
    /// Which of two orders of equal blocks it has.
    pub preset: &'static str,
    /// Its settings.
    pub options: Options,
    /// Whether the calls to the driver and the failures are reproduced.
    pub driver: DriverExact,
}

impl Rules {
    /// The model's word.
    #[must_use]
    pub fn model(&self) -> &'static str {
        match self {
            Rules::Bfc(preset) => preset.options.model(),
            Rules::Torch(_) => "torch-caching",
        }
    }

    /// The name of the rules.
    #[must_use]
    pub fn preset(&self) -> &'static str {
        match self {
            Rules::Bfc(preset) => preset.name,
            Rules::Torch(rules) => rules.preset,
        }
    }

    /// A request as the allocator rounds it.
    fn rounded(&self, bytes: Bytes) -> u64 {
        const GRANULE: u64 = 256;
        match self {
            Rules::Bfc(_) => bytes.0.checked_next_multiple_of(GRANULE).unwrap_or(bytes.0),
            Rules::Torch(rules) => rules.options.rounded(bytes).unwrap_or(bytes).0,
        }
    }
}

/// A replayed pool with its explanation.
#[derive(Debug)]
pub struct PoolReplay {
    /// The run.
    pub ran: PoolRun,
    /// Lower bounds from the lifetimes.
    pub bounds: Bounds,
    /// What is fragmented, and why.
    pub fragmentation: Fragmentation,
}

impl PoolReplay {
    /// What-if questions to it.
    #[must_use]
    pub fn questions(&self) -> Questions<'_> {
        Questions { load: self.bounds.load_requested, ..self.ran.questions(&self.ran.program) }
    }
}

/// What the pool of a caching allocator has in addition to its events.
fn caching(trace: &Trace, pool: PoolId) -> Option<&Caching> {
    trace.history.pool(pool)?.caching.as_ref()
}

/// A pool's trace, replayed and compared, without an explanation.
#[derive(Debug)]
pub struct PoolRun {
    /// The pool's name.
    pub name: String,
    /// Its id in the trace.
    pub pool: PoolId,
    /// Its requests and frees.
    pub program: Program,
    /// The allocator.
    pub rules: Rules,
    /// Whether that is reproduced.
    pub exact: Exact,
    /// The limit, if the trace contains it.
    pub limit: Option<Bytes>,
    /// A lower bound of the limit, if the trace does not contain it but shows that the driver refused more.
    pub least_limit: Option<Bytes>,
    /// Whether the trace begins before the pool's first allocation.
    pub from_start: Option<bool>,
    /// How the allocator was chosen.
    pub chosen_by: &'static str,
}

impl PoolRun {
    /// Whether everything is reproduced from the start.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        let is_whole = match &self.rules {
            Rules::Bfc(_) => true,
            Rules::Torch(rules) => rules.driver.is_whole(),
        };
        self.from_start == Some(true) && self.exact.is_whole() && is_whole
    }

    /// What-if questions to it, with an additional request in its program.
    #[must_use]
    pub fn questions<'a>(&'a self, program: &'a Program) -> Questions<'a> {
        Questions {
            program,
            rules: &self.rules,
            limit: self.assumed_limit(),
            bases: self.exact.growths.iter().map(|growth| growth.base).collect(),
            load: program.load(),
        }
    }

    /// The act of the last request that failed in the trace, if no request was served after it: the program ended there.
    #[must_use]
    pub fn ends_in_failure(&self) -> Option<usize> {
        let last = self.program.acts.iter().rposition(|act| act.asked().is_some())?;
        self.program.acts.get(last).filter(|act| act.kind() == ActKind::Fail).map(|_| last)
    }

    /// The last request that failed in the trace itself, by its act.
    #[must_use]
    pub fn last_failure(&self) -> Option<usize> {
        self.program.acts.iter().rposition(|act| act.kind() == ActKind::Fail)
    }

    /// The limit of what-ifs without one.
    #[must_use]
    pub fn assumed_limit(&self) -> Option<Bytes> {
        self.limit.or(self.least_limit)
    }

    /// The op of an act's request; if unknown, the scope around it.
    #[must_use]
    pub fn op(&self, trace: &Trace, act: usize) -> Name {
        if let Some(failure) = self.failure(trace, act) {
            return failure.op;
        }
        let answer = self.program.answers.get(act);
        answer.map_or(Name::EMPTY, |answer| trace.history.events.at(answer.event as usize).op_or_scope())
    }

    /// When an act happened.
    #[must_use]
    pub fn time(&self, trace: &Trace, act: usize) -> Option<Picos> {
        if let Some(failure) = self.failure(trace, act) {
            return Some(failure.time);
        }
        // Index after the last act: the end.
        let answer = self.program.answers.get(act).or(self.program.answers.last())?;
        Some(trace.history.events.time(answer.event as usize))
    }

    /// The event of an act that failed in the trace.
    fn failure<'a>(&self, trace: &'a Trace, act: usize) -> Option<&'a crate::event::OutOfMemory> {
        let fails = |act: &Act| act.kind() == ActKind::Fail;
        self.program.acts.get(act).filter(|act| fails(act))?;
        let number = self.program.acts.iter().take(act).filter(|act| fails(act)).count();
        caching(trace, self.pool)?.failures.get(number)
    }

    /// The answer to a request of `bytes` by `op` at `time`, or at the end if that is `None`. Only for
    /// BFC pools.
    #[must_use]
    pub fn ask(&self, trace: &Trace, time: Option<Picos>, bytes: Bytes, op: &str) -> Option<Asked> {
        let Rules::Bfc(preset) = self.rules else { return None };
        let is_later = |answer: &Answer| {
            time.is_some_and(|time| trace.history.events.time(answer.event as usize) > time)
        };
        let count = self.program.answers.iter().position(is_later).unwrap_or(self.program.answers.len());
        let is_from_start = self.from_start == Some(true);
        let limit = self.limit.unwrap_or(NO_LIMIT);
        let mut run = exact::Run::new(&self.program, preset, &self.name, limit, is_from_start)?;
        let after = count.checked_sub(1);
        if let Some(after) = after {
            run.until(after);
        }
        let fits = run.ask(bytes).is_some();
        let dump = if fits { String::new() } else { run.bfc.dump(bytes, End::Lower, op) };
        Some(Asked { bytes, after, fits, dump })
    }

    /// The first act of a restart: the first of its step. `None` if there is no such step.
    #[must_use]
    pub fn restart_at(&self, trace: &Trace, restart: Restart) -> Option<usize> {
        let step = match restart {
            Restart::LastStep => trace.steps.last(),
            Restart::Step(number) => trace.steps.iter().find(|step| step.number == number),
        }?;
        let begins = |answer: &Answer| trace.history.events.time(answer.event as usize) >= step.begin;
        self.program.answers.iter().position(begins)
    }

    /// What the same requests would need if regions could be merged, with a description. `None` if they can be merged, or if there is only
    /// one.
    #[must_use]
    pub fn joined(&self) -> Option<(Bytes, String)> {
        if self.exact.growths.len() < 2 {
            return None;
        }
        let limit = self.limit.unwrap_or(NO_LIMIT);
        match &self.rules {
            Rules::Bfc(preset) => {
                let options = preset.options;
                let whole = what_if::one_region(&self.program, options, limit).filter(|_| options.growth)?;
                Some((whole, format!("in one region the same requests need {whole}")))
            }
            Rules::Torch(rules) if !rules.options.expandable => {
                let growing = Options { expandable: true, cap: None, ..rules.options };
                let whole = torch_caching::most_taken(&self.program, growing);
                let words = format!("with expandable segments the same requests need {whole}");
                Some((whole, words))
            }
            Rules::Torch(_) => None,
        }
    }

    /// The peak of requested bytes.
    #[must_use]
    pub fn load(&self) -> Bytes {
        self.program.load()
    }

    /// The fragmentation and the bounds. `run` is the same replay, at its start.
    fn explained(&self, trace: &Trace, run: Option<impl Replaying>) -> (Fragmentation, Bounds) {
        let rounded = |bytes: Bytes| self.rules.rounded(bytes);
        let subject = fragmentation::Subject {
            program: &self.program,
            exact: &self.exact,
            history: &trace.history,
            steps: &trace.steps,
            rounded: &rounded,
            joined: self.joined(),
        };
        let fragmentation =
            run.map_or_else(Fragmentation::default, |run| fragmentation::explain(&subject, run));
        (fragmentation, packing::bounds(&self.program, rounded))
    }
}

/// Replays a pool and explains it. `version` is the framework's version, if known.
pub fn replay(trace: &Trace, pool: &PoolTrace, version: Option<&str>) -> Result<PoolReplay, NotReplayed> {
    let ran = run(trace, pool, version)?;
    let (fragmentation, bounds) = match &ran.rules {
        Rules::Bfc(preset) => {
            let limit = ran.limit.unwrap_or(NO_LIMIT);
            let is_from_start = ran.from_start == Some(true);
            let again = exact::Run::new(&ran.program, *preset, &ran.name, limit, is_from_start);
            ran.explained(trace, again)
        }
        Rules::Torch(rules) => {
            ran.explained(trace, Some(torch_caching::Run::new(&ran.program, rules.options)))
        }
    };
    Ok(PoolReplay { ran, bounds, fragmentation })
}

/// Replays a pool and compares. `version` is the framework's version, if known.
pub fn run(trace: &Trace, pool: &PoolTrace, version: Option<&str>) -> Result<PoolRun, NotReplayed> {
    match caching(trace, pool.id) {
        Some(caching) => run_torch(trace, pool, caching),
        None => run_bfc(trace, pool, version),
    }
}

fn run_bfc(trace: &Trace, pool: &PoolTrace, version: Option<&str>) -> Result<PoolRun, NotReplayed> {
    let facts = trace.history.pool(pool.id);
    let name = facts.map_or(String::new(), |facts| facts.name.clone());
    let candidates = model::candidates(trace.history.framework, version, &name);
    if candidates.is_empty() {
        return Err(NotReplayed::UnknownAllocator { pool: name });
    }
    let program = Program::of(&trace.history.events, pool);
    if program.requests == 0 {
        return Err(NotReplayed::Empty { pool: name });
    }
    let told = facts.and_then(|facts| facts.limit);
    let limit = told.unwrap_or(NO_LIMIT);
    let from_start = pool.count.from_start;
    let mut best: Option<(Exact, Preset)> = None;
    let count = candidates.len();
    for preset in candidates {
        let run = exact::Run::new(&program, preset, &name, limit, from_start == Some(true));
        let Some(mut run) = run else { continue };
        let assumed = std::mem::take(&mut run.assumed);
        let exact = Exact { assumed, ..exact::compare(&mut run) };
        let is_whole = exact.is_whole();
        if best.as_ref().is_none_or(|(best, _)| exact.address_matches > best.address_matches) {
            best = Some((exact, preset));
        }
        if is_whole {
            break;
        }
    }
    let Some((exact, preset)) = best else { return Err(NotReplayed::UnknownAllocator { pool: name }) };
    Ok(PoolRun {
        name,
        pool: pool.id,
        program,
        rules: Rules::Bfc(preset),
        exact,
        limit: told,
        least_limit: None,
        from_start,
        chosen_by: if count == 1 {
            "framework, version and pool name"
        } else {
            "framework and pool name, then the most reproduced addresses"
        },
    })
}

fn run_torch(trace: &Trace, pool: &PoolTrace, caching: &Caching) -> Result<PoolRun, NotReplayed> {
    /// Names of the two orders of equal blocks; versions since May 2026 have the second.
    const ORDERS: [(&str, TieBreak); 2] =
        [("pytorch", TieBreak::Address), ("pytorch-since-2026-05", TieBreak::Segment)];
    let facts = trace.history.pool(pool.id);
    let name = facts.map_or(String::new(), |facts| facts.name.clone());
    let program = torch_caching::program(&trace.history.events, pool, &caching.calls);
    if program.requests == 0 {
        return Err(NotReplayed::Empty { pool: name });
    }
    let told = facts.and_then(|facts| facts.limit);
    let settings = Options { cap: told, ..torch_caching::options(&caching.calls.settings) };
    let totals: Vec<Bytes> =
        torch_caching::device_total(&program).into_iter().chain([settings.device_total]).collect();
    let best_of = |program: &Program| {
        let mut best: Option<(Exact, TorchRules)> = None;
        let tries = totals.iter().flat_map(|&total| ORDERS.map(|(preset, order)| (preset, order, total)));
        for (preset, tie_break, device_total) in tries {
            let options = Options { tie_break, device_total, ..settings };
            let (exact, driver, _) = torch_caching::compare(program, options);
            let is_whole = exact.is_whole() && driver.is_whole();
            if best.as_ref().is_none_or(|(best, _)| exact.address_matches > best.address_matches) {
                best = Some((exact, TorchRules { preset, options, driver }));
            }
            if is_whole {
                break;
            }
        }
        best
    };
    let mut best = best_of(&program).map(|(exact, rules)| (program, exact, rules));
    if best.as_ref().is_some_and(|(_, exact, rules)| !exact.is_whole() || !rules.driver.is_whole())
        && let Some(other) = torch_caching::other_program(&trace.history.events, pool, &caching.calls)
        && let Some((exact, rules)) = best_of(&other)
        && best.as_ref().is_none_or(|(_, best, _)| exact.address_matches > best.address_matches)
    {
        best = Some((other, exact, rules));
    }
    let Some((program, mut exact, mut rules)) = best else { return Err(NotReplayed::Empty { pool: name }) };
    let from_start = pool.count.from_start;
    if from_start != Some(true) {
        exact.assumed = torch_caching::assumed_before(&caching.calls);
    }
    exact.assumed.extend(torch_caching::inferred_pools(&program, &rules.driver));
    // If the driver refused more, the peak of the pool was certainly available.
    let mut least_limit = rules.driver.refused.map(|_| exact.pool).filter(|_| told.is_none());
    if least_limit.is_some() {
        // Idle segments that were returned below that limit were returned by a call of `empty_cache()`.
        let capped = Options { cap: least_limit, ..rules.options };
        let (again, driver, _) = torch_caching::compare(&program, capped);
        if again.is_whole() && driver.is_whole() {
            let is_refused = driver.stats.num_alloc_retries > 0 || driver.failures > 0;
            let refused = rules.driver.refused.filter(|_| is_refused);
            rules.driver = DriverExact { refused, ..driver };
            // If it never had to return anything for a request, nothing shows a limit.
            least_limit = least_limit.filter(|_| is_refused);
        }
    }
    Ok(PoolRun {
        name,
        pool: pool.id,
        program,
        rules: Rules::Torch(Box::new(rules)),
        exact,
        limit: told,
        least_limit,
        from_start,
        chosen_by: "settings in the snapshot, then the most reproduced addresses",
    })
}
