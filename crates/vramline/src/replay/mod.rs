//! A trace through its allocator: is it reproduced, what is fragmented and why, what would other settings do.
//!
//! A pool's events become a [`Program`], requests and frees in the allocator's own order; the allocator that the pool
//! is, by framework, version and name, runs it. Every address and chunk size is compared with the trace. A trace that
//! begins before the pool's first allocation and agrees everywhere is replayed exactly, and only then does anything
//! here claim so; for one that begins later, what is assumed is said.

mod exact;
mod fragmentation;
mod model;
mod packing;
mod program;
mod seed;
pub mod torch_caching;
mod what_if;

use crate::allocator::bfc::{End, Preset};
use crate::names::Name;
use crate::trace::{PoolTrace, Trace};
use crate::units::{Bytes, Picos};

pub use exact::{Exact, GrowthAt, Mismatch, Point};
pub use fragmentation::{Cause, Fragmentation, Moment, Stranded};
pub use model::candidates;
pub use packing::Bounds;
pub use program::{Act, Answer, Earlier, Program};
pub use what_if::{Answered, Failure, LIMIT_STEP, NotASetting, Questions, Restart, Setting};

/// Why a pool cannot be replayed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotReplayed {
    /// Its allocator has no rules to follow.
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

/// A request that the trace does not have, made at some moment of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// What was asked for.
    pub bytes: Bytes,
    /// The last act before it.
    pub after: Option<usize>,
    /// Whether there is room for it.
    pub fits: bool,
    /// What the framework would log where there is none, without the prefixes of its lines.
    pub dump: String,
}

/// A pool, replayed.
#[derive(Debug)]
pub struct PoolReplay {
    /// The pool's name.
    pub name: String,
    /// What it was asked to do.
    pub program: Program,
    /// Whether that is reproduced.
    pub exact: Exact,
    /// The limit; where the trace does not tell it, more than any device has.
    pub limit: Bytes,
    /// Whether the trace tells the limit.
    pub knows_limit: bool,
    /// Whether the trace begins before the pool's first allocation.
    pub from_start: Option<bool>,
    /// How the allocator was chosen.
    pub chosen_by: &'static str,
    /// What the lifetimes need at least.
    pub bounds: Bounds,
    /// What is fragmented, and why.
    pub fragmentation: Fragmentation,
}

impl PoolReplay {
    /// Whether everything is reproduced from the start.
    #[must_use]
    pub fn is_exact(&self) -> bool {
        self.from_start == Some(true) && self.exact.is_whole()
    }

    /// The model's word.
    #[must_use]
    pub fn model(&self) -> &'static str {
        self.exact.preset.options.model()
    }

    /// The op that asked for what an act asks for; where none is told, the scope around it.
    #[must_use]
    pub fn op(&self, trace: &Trace, act: usize) -> Name {
        let answer = self.program.answers.get(act);
        answer.map_or(Name::EMPTY, |answer| trace.history.events.at(answer.event as usize).op_or_scope())
    }

    /// When an act happened.
    #[must_use]
    pub fn time(&self, trace: &Trace, act: usize) -> Option<Picos> {
        let answer = self.program.answers.get(act)?;
        Some(trace.history.events.time(answer.event as usize))
    }

    /// What-if questions to it.
    #[must_use]
    pub fn questions(&self) -> Questions<'_> {
        Questions {
            program: &self.program,
            options: self.exact.preset.options,
            limit: self.limit,
            bases: &self.exact.bases,
        }
    }

    /// What a request of `bytes` by `op` would meet after everything up to `time`; at the end where that is `None`.
    #[must_use]
    pub fn ask(&self, trace: &Trace, time: Option<Picos>, bytes: Bytes, op: &str) -> Option<Asked> {
        let is_later = |answer: &Answer| {
            time.is_some_and(|time| trace.history.events.time(answer.event as usize) > time)
        };
        let count = self.program.answers.iter().position(is_later).unwrap_or(self.program.answers.len());
        let is_from_start = self.from_start == Some(true);
        let mut run =
            exact::Run::new(&self.program, self.exact.preset, &self.name, self.limit, is_from_start)?;
        let after = count.checked_sub(1);
        if let Some(after) = after {
            run.until(after);
        }
        let fits = run.ask(bytes).is_some();
        let dump = if fits { String::new() } else { run.bfc.dump(bytes, End::Lower, op) };
        Some(Asked { bytes, after, fits, dump })
    }

    /// The act with which a restart begins: the first one of its step. `None` where there is no such step.
    #[must_use]
    pub fn restart_at(&self, trace: &Trace, restart: Restart) -> Option<usize> {
        let step = match restart {
            Restart::LastStep => trace.steps.last(),
            Restart::Step(number) => trace.steps.iter().find(|step| step.number == number),
        }?;
        let begins = |answer: &Answer| trace.history.events.time(answer.event as usize) >= step.begin;
        self.program.answers.iter().position(begins)
    }
}

/// Replays a pool. `version` is the framework's, where it is known.
pub fn replay(trace: &Trace, pool: &PoolTrace, version: Option<&str>) -> Result<PoolReplay, NotReplayed> {
    /// Beyond every device, and far from where sums would saturate.
    const NO_LIMIT: Bytes = Bytes(1 << 46);
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
    let is_from_start = pool.count.from_start == Some(true);
    let run = |preset: Preset| exact::Run::new(&program, preset, &name, limit, is_from_start);
    let mut best: Option<Exact> = None;
    let count = candidates.len();
    for preset in candidates {
        let Some(run) = run(preset) else { continue };
        let exact = run.compare(preset);
        let is_whole = exact.is_whole();
        if best.as_ref().is_none_or(|best| exact.address_matches > best.address_matches) {
            best = Some(exact);
        }
        if is_whole {
            break;
        }
    }
    let Some(exact) = best else { return Err(NotReplayed::UnknownAllocator { pool: name }) };
    let subject = fragmentation::Subject { program: &program, exact: &exact, history: &trace.history, limit };
    let fragmentation = match run(exact.preset) {
        Some(run) => fragmentation::explain(&subject, run),
        None => Fragmentation::default(),
    };
    let bounds = packing::bounds(&program);
    Ok(PoolReplay {
        name,
        exact,
        limit,
        knows_limit: told.is_some(),
        from_start: pool.count.from_start,
        chosen_by: if count == 1 {
            "framework, version and the pool's name"
        } else {
            "framework and the pool's name, then the most addresses reproduced"
        },
        bounds,
        fragmentation,
        program,
    })
}
