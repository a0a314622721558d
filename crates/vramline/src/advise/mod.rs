//! *Internal.* Findings: one rule a file, from figures to a sentence with bytes, a cause and a fix.
//!
//! A rule sees [`Device`]: what one process did on one device, as plain figures, with nothing where a figure is not known. It
//! says nothing rather than guess: a finding is worth reading only if there are few of them. Thresholds stand at the top of each file,
//! with the reason. Nobody is asked here, nothing is read: the caller brings the figures.

mod cache;
mod dominated;
pub(crate) mod fragmentation;
mod imbalance;
pub mod leak;
mod limit;
mod neighbours;
mod outside;
mod phase;
mod preallocation;

use crate::event::Framework;
use crate::trace::Phase;
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
}

/// Blocks that were born in one step after the other and never freed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Survivor {
    /// What asked for them.
    pub op: String,
    /// How much of it stays, a step.
    pub bytes_a_step: Bytes,
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
    /// The framework.
    pub framework: Option<Framework>,
    /// Steps in order.
    pub steps: Vec<StepFigures>,
    /// What stays from step to step, by the trace.
    pub survivors: Vec<Survivor>,
    /// The most in use.
    pub peak: Option<Bytes>,
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
    let rules: [fn(&Device) -> Option<Finding>; 10] = [
        leak::check,
        preallocation::check,
        cache::check,
        outside::check,
        neighbours::check,
        limit::check,
        phase::check,
        fragmentation::check,
        dominated::one_thing,
        dominated::slack,
    ];
    let mut found: Vec<Finding> =
        devices.iter().flat_map(|device| rules.iter().filter_map(|rule| rule(device))).collect();
    found.extend(imbalance::check(devices));
    // A leak is never beside the point.
    found.sort_by_key(|finding| (finding.rule != leak::RULE, std::cmp::Reverse(finding.bytes)));
    found
}

/// A share in whole percent.
fn percent(part: Bytes, whole: Bytes) -> u64 {
    (u128::from(part.0) * 100)
        .checked_div(u128::from(whole.0))
        .map_or(0, |share| u64::try_from(share).unwrap_or(u64::MAX))
}
