//! *Internal.* Findings: one rule per file. A rule turns figures into a sentence with bytes, a cause and a fix.
//!
//! A rule sees [`Device`]: what one process did on one device, as plain figures. A figure that is unknown is `None`. A rule
//! reports nothing rather than guess: findings are worth reading only if there are few. The thresholds are at the top of each file,
//! with their reasons. Rules read no files and query no driver: the caller passes all figures. `docs/reference/findings.md` lists the
//! rules for users.

mod cache;
mod churn;
mod dominated;
mod first_launch;
pub(crate) mod fragmentation;
mod growing_inputs;
mod imbalance;
pub mod leak;
mod limit;
mod neighbours;
pub mod outlier_rank;
mod outside;
mod phase;
mod preallocation;
pub mod staircase;
mod streams;
mod workspace;

use std::collections::BTreeMap;

use outlier_rank::OutlierRank;

use crate::event::Framework;
use crate::ledger::HeldLine;
use crate::trace::{Phase, SurvivorKind};
use crate::units::{Bytes, plural};

/// One problem that a rule found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The rule, by its stable name.
    pub rule: &'static str,
    /// The bytes it concerns; findings are sorted by them.
    pub bytes: Bytes,
    /// What was found.
    pub text: String,
    /// What to do about it.
    pub fix: String,
    /// How to check whether the fix worked.
    pub verify: String,
}

/// The rules that find growth.
pub(crate) const GROWTH_RULES: [&str; 3] = [leak::RULE, staircase::RULE, growing_inputs::RULE];

/// Rules that say how much of the pool is lost to fragmentation.
pub(crate) const FRAGMENTATION_RULES: [&str; 2] = [fragmentation::RULE, churn::RULE];

/// The figures of a step that rules use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepFigures {
    /// Its number.
    pub number: i64,
    /// What it did.
    pub phase: Phase,
    /// Peak bytes in use during the step.
    pub peak: Option<Bytes>,
    /// In use at its end.
    pub current: Option<Bytes>,
    /// Peak bytes in use up to its end, since the process started or the counter was reset.
    pub highest: Option<Bytes>,
    /// The fit it belongs to, from 1.
    pub fit: Option<u64>,
    /// Its epoch.
    pub epoch: Option<u64>,
    /// Number of function retraces since the previous step ended.
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

/// Blocks that one op allocates in every step and that are never freed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survivor {
    /// The op that requested them.
    pub op: String,
    /// What they are.
    pub kind: SurvivorKind,
    /// Bytes per step that are not freed.
    pub bytes_a_step: Bytes,
}

/// Blocks of traced steps that were not freed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stayed {
    /// The op that requested them.
    pub op: String,
    /// What they are.
    pub kind: SurvivorKind,
    /// Their bytes.
    pub bytes: Bytes,
}

/// Variables with the same name and shape whose number grew while the program ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptVariables {
    /// Name, element type and shape.
    pub what: String,
    /// Their number in the first list.
    pub before: u64,
    /// Their number in the last list.
    pub after: u64,
    /// Bytes of the additional ones.
    pub bytes: Bytes,
}

/// The number of variables at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VariableCount {
    /// Their number.
    pub count: u64,
    /// Their bytes.
    pub bytes: Bytes,
}

/// Growth of memory from step to step in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WindowGrowth {
    /// Number of steps over which memory grew.
    pub steps: usize,
    /// Bytes in use at the end of the last step minus those at the end of the first.
    pub grown: Bytes,
    /// Bytes that the steps before the last allocated and did not free.
    pub kept: Bytes,
}

/// An op that requests more in each step than in the previous one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrowingOp {
    /// The op.
    pub op: String,
    /// Number of steps in which it made requests.
    pub steps: usize,
    /// Bytes requested in the first of them.
    pub first: Bytes,
    /// Bytes requested in the last.
    pub last: Bytes,
}

/// Ops whose requested sizes change in most steps, and what that costs according to a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Churn {
    /// Number of ops.
    pub count: usize,
    /// Those with the most bytes.
    pub ops: Vec<ChurningOp>,
    /// Bytes that the pool reserves.
    pub pool: Bytes,
    /// The same when these ops request their largest size in every step.
    pub padded: Bytes,
}

/// An op whose requested sizes change in most steps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChurningOp {
    /// The op.
    pub op: String,
    /// Number of different sizes.
    pub sizes: usize,
    /// The smallest.
    pub smallest: Bytes,
    /// The largest.
    pub largest: Bytes,
}

/// A row of the table of what was allocated at the peak.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Largest {
    /// What it is.
    pub what: String,
    /// Its bytes.
    pub bytes: Bytes,
    /// Its number of blocks.
    pub count: u64,
    /// Whether a compiler allocated it to try kernels (autotuning).
    pub is_of_compiler: bool,
}

/// Fragmentation according to a replay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fragments {
    /// Peak bytes reserved from the driver.
    pub pool: Bytes,
    /// Peak bytes in use.
    pub peak: Bytes,
    /// The main cause in words, if one was found.
    pub cause: Option<String>,
    /// Bytes lost to request sizes that keep changing, and the op that requests most of them.
    pub churn: Option<(Bytes, String)>,
}

/// What one process did on one device.
#[derive(Clone, Debug, Default)]
pub struct Device {
    /// The device, as in `GPU:0`; with the process where there are several.
    pub name: String,
    /// The kind of device: `GPU`, `TPU`, `CPU`; empty if it is unknown or not a device.
    pub kind: String,
    /// Number of recorded allocations.
    pub allocs: Option<u64>,
    /// The framework.
    pub framework: Option<Framework>,
    /// Steps in order.
    pub steps: Vec<StepFigures>,
    /// What each traced step allocates and never frees.
    pub survivors: Vec<Survivor>,
    /// What traced steps allocated and did not free, in all or some of them; most bytes first.
    pub stayed: Vec<Stayed>,
    /// Variables whose number grew, from the program's own lists; most bytes first.
    pub kept: Vec<KeptVariables>,
    /// The number of variables in each list.
    pub variables: Vec<VariableCount>,
    /// Functions that were retraced, with the number of retraces.
    pub retraced: Vec<(String, u64)>,
    /// Growth of memory from step to step in the trace.
    pub window: Option<WindowGrowth>,
    /// Ops that request more in each traced step; largest growth first.
    pub growing: Vec<GrowingOp>,
    /// Ops whose requested sizes change in most steps.
    pub churn: Option<Churn>,
    /// Peak bytes in use.
    pub peak: Option<Bytes>,
    /// Whether `peak` is the value when the file was written, because there is no history that shows the peak.
    pub is_dump: bool,
    /// Where the peak was, if not in an ordinary training step: "the first step", "validation".
    pub peak_in: Option<String>,
    /// Peak bytes that the pool reserved from the driver.
    pub taken: Option<Bytes>,
    /// Reserved and in use at the last known moment.
    pub at_end: Option<(Bytes, Bytes)>,
    /// The largest block at the peak.
    pub largest: Option<Largest>,
    /// Rounding at the peak.
    pub slack: Option<Bytes>,
    /// Fragmentation according to a replay.
    pub fragments: Option<Fragments>,
    /// Peak bytes of the process on the device, as counted by the driver.
    pub held: Option<Bytes>,
    /// Bytes outside its pools at the start: the context.
    pub context: Option<Bytes>,
    /// Growth outside its pools since then, with what the program did at the time.
    pub grown_outside: Vec<(i64, String)>,
    /// What driver calls took outside its pools at the peak, if they were recorded.
    pub beside: Vec<HeldLine>,
    /// Other processes on the device: their number and their bytes.
    pub others: Option<(usize, Bytes)>,
    /// A limit that the user set.
    pub limit: Option<Bytes>,
    /// Whether the pool may grow; `None` if unknown.
    pub grows: Option<bool>,
    /// Whether host memory stands in for device memory.
    pub is_stand_in: bool,
}

/// Every finding, the largest first.
#[must_use]
pub fn findings(devices: &[Device]) -> Vec<Finding> {
    let rules: [fn(&Device) -> Option<Finding>; 14] = [
        growth,
        preallocation::check,
        cache::check,
        outside::check,
        streams::check,
        workspace::check,
        first_launch::check,
        neighbours::check,
        limit::check,
        phase::check,
        churn::check,
        fragmentation::check,
        dominated::one_thing,
        dominated::slack,
    ];
    let mut found: Vec<Finding> = Vec::new();
    // Key: the rule and its text without the device's name. Value: the index of the first finding, and the number of other devices.
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
            finding
                .text
                .push_str(&format!(" The same holds for {}.", plural(more, "more device", "more devices")));
        }
    }
    found.extend(imbalance::check(devices));
    sort(&mut found);
    found
}

/// The findings of a job of several ranks: `found` are those of the ranks that were read in full. Ranks are compared as ranks, not as devices:
/// stages of a pipeline differ by design.
#[must_use]
pub fn of_ranks(mut found: Vec<Finding>, outliers: &[OutlierRank]) -> Vec<Finding> {
    found.retain(|finding| finding.rule != imbalance::RULE);
    found.extend(outliers.iter().filter_map(outlier_rank::check).max_by_key(|finding| finding.bytes));
    sort(&mut found);
    found
}

/// Growth comes first, however small: it does not stop.
fn sort(found: &mut [Finding]) {
    let is_leak = |finding: &Finding| [leak::RULE, staircase::RULE].contains(&finding.rule);
    found.sort_by_key(|finding| (!is_leak(finding), std::cmp::Reverse(finding.bytes)));
}

/// Why memory grows: one answer, the one with the best evidence first.
fn growth(device: &Device) -> Option<Finding> {
    growing_inputs::check(device).or_else(|| staircase::check(device)).or_else(|| leak::check(device))
}

/// A share in whole percent, rounded down.
fn percent(part: Bytes, whole: Bytes) -> u64 {
    (u128::from(part.0) * 100)
        .checked_div(u128::from(whole.0))
        .map_or(0, |share| u64::try_from(share).unwrap_or(u64::MAX))
}

/// The largest line of what driver calls took, of those that a rule is about: its bytes and its share of the process in percent. `None` if
/// it is too small to matter.
fn held_share(
    device: &Device,
    is_it: impl Fn(&HeldLine) -> bool,
    least: Bytes,
    share: u64,
) -> Option<(&HeldLine, Bytes, u64)> {
    let line = device.beside.iter().filter(|line| is_it(line)).max_by_key(|line| line.bytes)?;
    let bytes = Bytes(u64::try_from(line.bytes).ok()?);
    let percent = percent(bytes, device.held?);
    (bytes >= least && percent >= share).then_some((line, bytes, percent))
}

/// A list of numbers in words, shortened if it is long: `2, 3, 4, 5, ..., 40 (39 in total)`.
fn numbers(all: &[i64]) -> String {
    const SHOWN: usize = 4;
    let text = |numbers: &[i64]| numbers.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
    match all {
        [rest @ .., last] if all.len() <= SHOWN + 1 && !rest.is_empty() => {
            format!("{} and {last}", text(rest))
        }
        [first @ .., last] if all.len() > SHOWN + 1 => {
            format!("{}, ..., {last} ({} in total)", text(first.get(..SHOWN).unwrap_or(first)), all.len())
        }
        _ => text(all),
    }
}
