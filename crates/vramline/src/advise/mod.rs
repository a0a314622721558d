//! *Internal.* Findings: one rule a file, from figures to a sentence with bytes, a cause and a fix.
//!
//! A rule sees [`Device`]: what one process did on one device, as plain figures, with nothing where a figure is not known. It
//! says nothing rather than guess: a finding is worth reading only if there are few of them. Thresholds stand at the top of each file,
//! with the reason. Nobody is asked here, nothing is read: the caller brings the figures.

mod cache;
mod churn;
mod dominated;
pub(crate) mod fragmentation;
mod growing_inputs;
mod imbalance;
pub mod leak;
mod limit;
mod neighbours;
mod outside;
mod phase;
mod preallocation;
pub mod staircase;

use std::collections::BTreeMap;

use crate::event::Framework;
use crate::trace::{Phase, SurvivorKind};
use crate::units::Bytes;

/// One thing that is worth knowing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The rule, by its stable name.
    pub rule: &'static str,
    /// How many bytes it is about; findings are ordered by it.
    pub bytes: Bytes,
    /// What was found.
    pub text: String,
    /// What to do about it.
    pub fix: String,
    /// How to see whether that helped.
    pub verify: String,
}

/// The rules that find growth.
pub(crate) const GROWTH_RULES: [&str; 3] = [leak::RULE, staircase::RULE, growing_inputs::RULE];

/// A step, as far as rules ask.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepFigures {
    /// Its number.
    pub number: i64,
    /// What it did.
    pub phase: Phase,
    /// The most in use during it.
    pub peak: Option<Bytes>,
    /// In use at its end.
    pub current: Option<Bytes>,
    /// The most in use up to its end, since the process began or somebody reset it.
    pub highest: Option<Bytes>,
    /// The fit it belongs to, from 1.
    pub fit: Option<u64>,
    /// Its epoch.
    pub epoch: Option<u64>,
    /// How often functions were traced again since the step before ended.
    pub retraces: u64,
}

impl Default for StepFigures {
    fn default() -> StepFigures {
        StepFigures {
            number: 0,
            phase: Phase::Other,
            peak: None,
            current: None,
            highest: None,
            fit: None,
            epoch: None,
            retraces: 0,
        }
    }
}

/// Blocks that were born in one step after the other and never freed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survivor {
    /// What asked for them.
    pub op: String,
    /// What they are.
    pub kind: SurvivorKind,
    /// How much of it stays, a step.
    pub bytes_a_step: Bytes,
}

/// Blocks of traced steps that were not freed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stayed {
    /// What asked for them.
    pub op: String,
    /// How much that is.
    pub bytes: Bytes,
}

/// Variables with the same name and shape that became more while the program ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptVariables {
    /// Name, element type and shape.
    pub what: String,
    /// How many there were in the first list.
    pub before: u64,
    /// How many in the last.
    pub after: u64,
    /// What those that came take.
    pub bytes: Bytes,
}

/// How many variables there were at some moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VariableCount {
    /// How many.
    pub count: u64,
    /// Their bytes.
    pub bytes: Bytes,
}

/// What a trace shows of memory from step to step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowGrowth {
    /// Steps over which it grew.
    pub steps: usize,
    /// By how much more was in use at the end of the last than at the end of the first.
    pub grown: Bytes,
    /// What the steps before the last asked for and did not free.
    pub kept: Bytes,
}

/// An op that asks for more in each step than in the one before.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrowingOp {
    /// The op.
    pub op: String,
    /// Steps in which it asked.
    pub steps: usize,
    /// In the first of them.
    pub first: Bytes,
    /// In the last.
    pub last: Bytes,
}

/// Ops that ask for other sizes in most steps, and what that costs by replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Churn {
    /// How many ops.
    pub count: usize,
    /// Those with the most bytes.
    pub ops: Vec<ChurningOp>,
    /// What the pool takes from the driver.
    pub pool: Bytes,
    /// The same with these ops at their largest sizes in every step.
    pub padded: Bytes,
}

/// An op that asks for other sizes in most steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChurningOp {
    /// The op.
    pub op: String,
    /// Different sizes.
    pub sizes: usize,
    /// The smallest.
    pub smallest: Bytes,
    /// The largest.
    pub largest: Bytes,
}

/// A row of what was held at the peak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Largest {
    /// What it is.
    pub what: String,
    /// Its bytes.
    pub bytes: Bytes,
    /// How many blocks it is.
    pub count: u64,
    /// Whether a compiler holds it while it tries kernels.
    pub is_of_compiler: bool,
}

/// What a replay says of fragmentation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragments {
    /// Taken from the driver at the most.
    pub pool: Bytes,
    /// The most in use.
    pub peak: Bytes,
    /// The main cause in words, where one was found.
    pub cause: Option<String>,
    /// Whether request sizes keep changing, and which op asks for them.
    pub churn: Option<(Bytes, String)>,
}

/// What one process did on one device.
#[derive(Clone, Debug, Default)]
pub struct Device {
    /// The device, as in `GPU:0`; with the process where there are several.
    pub name: String,
    /// What sort of device it is: `GPU`, `TPU`, `CPU`; empty where that is not known or it is none.
    pub kind: String,
    /// How many allocations were recorded.
    pub allocs: Option<u64>,
    /// The framework.
    pub framework: Option<Framework>,
    /// Steps in order.
    pub steps: Vec<StepFigures>,
    /// What stays from step to step, by the trace.
    pub survivors: Vec<Survivor>,
    /// What traced steps asked for and did not free, whether in each of them or in some; the most bytes first.
    pub stayed: Vec<Stayed>,
    /// Variables that became more, by the program's own lists; the most bytes first.
    pub kept: Vec<KeptVariables>,
    /// How many variables there were, each time that they were listed.
    pub variables: Vec<VariableCount>,
    /// Functions that were traced again, with how often.
    pub retraced: Vec<(String, u64)>,
    /// What a trace shows of memory from step to step.
    pub window: Option<WindowGrowth>,
    /// Ops that ask for more in each traced step; those that grew most first.
    pub growing: Vec<GrowingOp>,
    /// Ops that ask for other sizes in most steps.
    pub churn: Option<Churn>,
    /// The most in use.
    pub peak: Option<Bytes>,
    /// Whether that is of the moment at which a file was written, because no history knows the peak.
    pub is_dump: bool,
    /// What happened at that moment, where it was no step that trains: "the first step", "validation".
    pub peak_in: Option<String>,
    /// The most taken from the driver by the pool.
    pub taken: Option<Bytes>,
    /// Taken and in use at the last moment that is known.
    pub at_end: Option<(Bytes, Bytes)>,
    /// The largest thing that was held at the peak.
    pub largest: Option<Largest>,
    /// Slack at the peak.
    pub slack: Option<Bytes>,
    /// What a replay says.
    pub fragments: Option<Fragments>,
    /// What the process holds of the device by the driver's count, at the most.
    pub held: Option<Bytes>,
    /// What it held outside its pools at first.
    pub context: Option<Bytes>,
    /// What came outside its pools since, with what it came with.
    pub grown_outside: Vec<(i64, String)>,
    /// What other processes hold of the device: how many, and how much.
    pub others: Option<(usize, Bytes)>,
    /// A limit that the user set.
    pub limit: Option<Bytes>,
    /// Whether the pool may grow; nothing where that is not known.
    pub grows: Option<bool>,
    /// Host memory stands in for the device's.
    pub is_stand_in: bool,
}

/// Every finding, the largest first.
#[must_use]
pub fn findings(devices: &[Device]) -> Vec<Finding> {
    let rules: [fn(&Device) -> Option<Finding>; 11] = [
        growth,
        preallocation::check,
        cache::check,
        outside::check,
        neighbours::check,
        limit::check,
        phase::check,
        churn::check,
        fragmentation::check,
        dominated::one_thing,
        dominated::slack,
    ];
    let mut found: Vec<Finding> = Vec::new();
    // By rule and by what is said of a device, without its name: the place of the first finding, and on how many more it holds.
    let mut said: BTreeMap<(&'static str, String), (usize, usize)> = BTreeMap::new();
    for device in devices {
        for finding in rules.iter().filter_map(|rule| rule(device)) {
            let without_name = finding.text.replacen(&device.name, "", 1);
            let known = said.entry((finding.rule, without_name)).or_insert((found.len(), 0));
            if known.0 == found.len() {
                found.push(finding);
            } else {
                known.1 += 1;
            }
        }
    }
    for (first, more) in said.into_values().filter(|(_, more)| *more > 0) {
        if let Some(finding) = found.get_mut(first) {
            finding.text.push_str(&format!(
                "; the same on {more} more {}",
                if more == 1 { "device" } else { "devices" }
            ));
        }
    }
    found.extend(imbalance::check(devices));
    // A leak is never beside the point.
    let is_leak = |finding: &Finding| [leak::RULE, staircase::RULE].contains(&finding.rule);
    found.sort_by_key(|finding| (!is_leak(finding), std::cmp::Reverse(finding.bytes)));
    found
}

/// Why memory grows: one answer, the best founded first.
fn growth(device: &Device) -> Option<Finding> {
    growing_inputs::check(device).or_else(|| staircase::check(device)).or_else(|| leak::check(device))
}

/// A share in whole percent.
fn percent(part: Bytes, whole: Bytes) -> u64 {
    (u128::from(part.0) * 100)
        .checked_div(u128::from(whole.0))
        .map_or(0, |share| u64::try_from(share).unwrap_or(u64::MAX))
}

/// Numbers as people write them, long lists in short: `2, 3, 4, ..., 40`.
fn numbers(all: &[i64]) -> String {
    const SHOWN: usize = 4;
    let text = |numbers: &[i64]| numbers.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
    match all {
        [rest @ .., last] if all.len() <= SHOWN + 1 && !rest.is_empty() => {
            format!("{} and {last}", text(rest))
        }
        [first @ .., last] if all.len() > SHOWN + 1 => {
            format!("{}, ..., {last} ({} in all)", text(first.get(..SHOWN).unwrap_or(first)), all.len())
        }
        _ => text(all),
    }
}
