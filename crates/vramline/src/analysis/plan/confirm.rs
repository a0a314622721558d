//! Real runs at the batch size that a plan answers with: which one to make next, and what they show.
//!
//! A new batch size first runs with a little more memory than the limit. These runs show the sizes of all tensors there, and orders
//! of ops in which no thread waits for memory, so they become probes and the plan is made again. If they use other kernels than the small
//! probes, a second batch size near them is measured, and the plan is made from these runs alone. Only runs under the limit itself count
//! as passes. A batch size at which one of them runs out of memory is too large. The next one is the largest that the repaired plan has
//! room for; if the plan has not learned enough, one between the largest that passed and the smallest that failed. This search ends after
//! [`MAX_BATCHES`] batch sizes.
//!
//! Threads may order ops in ways that need less than the plan allows for. So larger batch sizes than the one that passed are tried
//! ([`Climb`]). A profiler changes how threads order ops, so only runs that may become probes are traced. Not its job: running anything.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::climb::{self, Climb, highest_pass};
use super::verdict::variable_title;
use super::{PlanOptions, ProbeRead};
use crate::analysis::reading::Reading;
use crate::event::Framework;
use crate::plan::{Largest, Plan};
use crate::recording::rows::{Mark, PINNED, RecordedMarkKind};
use crate::trace::Phase;
use crate::units::{Bytes, capitalised, plural};
use crate::warning::Warning;

/// The number of batch sizes after which the search ends.
pub const MAX_BATCHES: usize = 8;

/// The limit of a run that only measures is larger than the limit by one part in so many.
const ROOM_DIVISOR: u64 = 4;

/// A run within one part in so many of a batch size shows what that batch size needs.
const NEAR_DIVISOR: u64 = 16;

/// What is tried next is smaller than every failed batch size by at least one part in so many.
const FAILURE_MARGIN_DIVISOR: u64 = 20;

/// The same after a failure of a batch size that the plan has a probe for: sizes are known, and only orders of ops are not.
const STEP_DIVISOR: u64 = 16;

/// What is tried if the plan calls no batch size sure is smaller than the likely one by one part in so many: while there are only small
/// probes, and once there are probes near it.
const BELOW_FAR_LIKELY: u64 = 4;
const BELOW_NEAR_LIKELY: u64 = 12;

/// The search between a batch size that passed and one that failed ends within one part in so many.
const CLOSE_DIVISOR: u64 = 8;

/// Number of runs that measure a batch size: threads order ops differently each time.
const MEASURED_RUNS: usize = 2;

/// The second batch size of a plan from runs that are not like the small probes, in quarters of the first.
const QUARTERS_OF_UNLIKE: u64 = 3;

/// The same if three quarters turned out to be like the small probes: larger than the first by one part in so many.
const ABOVE_UNLIKE_DIVISOR: u64 = 4;

/// Number of runs that may be unlike all probes before the search ends.
const MAX_UNLIKE: usize = 3;

/// Number of runs that measure one batch size before the search ends, whatever they show.
const MAX_MEASURED_RUNS: u32 = 6;

/// Number of runs that a batch size has to pass, unless the user says otherwise: executors with threads order ops differently each time.
const RUNS: u32 = 3;
const RUNS_IN_ORDER: u32 = 1;

/// Runs during which other programs used at least this much of the processors, in percent, may order ops as no run on an idle machine does.
const DISTURBING_PERCENT: u64 = 10;

/// A run with fewer steps shows little: the first step is not like the others.
const MIN_STEPS: usize = 2;

/// A run to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trial {
    /// The batch size.
    pub batch: u64,
    /// The limit that the framework has to enforce.
    pub limit: Bytes,
    /// Whether it only measures, with more memory than the limit.
    pub only_measures: bool,
    /// Whether it is traced, so that it can become a probe.
    pub is_traced: bool,
    /// Its number among the runs of its kind at this batch size, from 0.
    pub number: u32,
}

/// A run that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RealRun {
    /// What was run.
    pub trial: Trial,
    /// Its recording.
    pub file: String,
    /// Number of its training steps.
    pub steps: usize,
    /// Whether it ran out of memory.
    pub ran_out: bool,
    /// Its peak in use, by its trace or by the framework's counters.
    pub peak: Option<Bytes>,
    /// How much of the processors other programs used meanwhile, in percent; `None` if it was made earlier, or nobody knows.
    pub percent_of_others: Option<u64>,
}

impl RealRun {
    /// Whether it passed under the limit itself.
    pub(super) fn is_pass(&self) -> bool {
        !self.ran_out && !self.trial.only_measures
    }
}

/// Whether real runs confirm the answer of a plan, and if not, why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConfirmationState {
    /// All runs of a batch size passed.
    Confirmed,
    /// The plan was made from existing runs.
    NoCommand,
    /// `--no-confirm`.
    SwitchedOff,
    /// There is no limit to stay within.
    NoLimit,
    /// The plan has no batch size to try.
    NothingToTry,
    /// Runs ran out of memory at every batch size that was tried.
    RanOut,
    /// A run failed for another reason than memory.
    OtherFailure,
    /// A run had too few training steps.
    FewSteps,
    /// A run could not be started under the limit.
    NotStarted,
    /// The plan could not be made again with a run.
    NotAProbe,
}

words!(ConfirmationState {
    Confirmed => "confirmed",
    NoCommand => "no-command",
    SwitchedOff => "switched-off",
    NoLimit => "no-limit",
    NothingToTry => "nothing-to-try",
    RanOut => "ran-out-of-memory",
    OtherFailure => "other-failure",
    FewSteps => "few-steps",
    NotStarted => "not-started",
    NotAProbe => "not-a-probe",
});

/// The real runs of a plan, and the search for the batch size that they confirm.
#[derive(Clone, Debug)]
pub struct Confirmation {
    /// The limit of the pool.
    pub limit: Option<Bytes>,
    /// The number of runs that a batch size has to pass; 0 if nothing is to be confirmed.
    pub wanted: u32,
    /// All runs, in their order.
    pub runs: Vec<RealRun>,
    /// The batch size to confirm; `None` for the largest that is sure.
    target: Option<u64>,
    /// Whether runs with more memory than the limit can be made.
    has_room: bool,
    /// Whether each run orders its ops differently.
    has_threads: bool,
    /// The search for larger batch sizes than the plan has room for.
    climb: Option<Climb>,
    /// Batch sizes of runs that are not like the probes, so that no plan can be made from all of them.
    unlike: Vec<u64>,
    /// Whether a smaller run than these is like the probes: the kernels change in between.
    is_like_below: bool,
    /// The plan from the small probes, which is left out because larger runs use other kernels.
    left_out: Option<Arc<Plan>>,
    /// Why there are no more runs, with details for the reader.
    stopped: Option<(ConfirmationState, String)>,
}

impl Confirmation {
    /// No runs at all, for a reason.
    #[must_use]
    pub fn none(why: ConfirmationState) -> Confirmation {
        let stopped = Some((why, String::new()));
        Confirmation {
            limit: None,
            wanted: 0,
            runs: Vec::new(),
            target: None,
            has_room: false,
            has_threads: false,
            climb: None,
            unlike: Vec::new(),
            is_like_below: false,
            left_out: None,
            stopped,
        }
    }

    /// The search for a plan that was made from probes. It has not begun yet. `wanted` is the number of runs that the user asked for.
    #[must_use]
    pub fn of(plan: &Plan, probes: &[ProbeRead], options: &PlanOptions, wanted: Option<u32>) -> Confirmation {
        let Some(limit) = options.limit else { return Confirmation::none(ConfirmationState::NoLimit) };
        let pool = probes.iter().find_map(|probe| probe.reading.highest_pool(options.pool.as_deref()));
        let is_tensorflow =
            pool.is_some_and(|(host, _)| host.trace.history.framework == Some(Framework::TensorFlow));
        // A GPU need not have more memory than the limit. And what was compiled cannot be planned again from runs.
        let is_on_host = pool.is_some_and(|(host, pool)| host.trace.device_of(pool).starts_with("CPU"));
        let has_threads = is_tensorflow && plan.compiled_batches().is_none();
        let has_room = has_threads && is_on_host;
        Confirmation {
            limit: Some(limit),
            wanted: wanted.unwrap_or(if is_tensorflow { RUNS } else { RUNS_IN_ORDER }),
            runs: Vec::new(),
            target: options.batches.first().copied(),
            has_room,
            has_threads,
            climb: None,
            unlike: Vec::new(),
            is_like_below: false,
            left_out: None,
            stopped: None,
        }
    }

    /// Whether the search depends on the largest batch sizes of the plan.
    #[must_use]
    pub fn needs_largest(&self) -> bool {
        self.stopped.is_none() && self.target.is_none()
    }

    /// Whether larger batch sizes than the confirmed one are tried.
    #[must_use]
    pub fn is_climbing(&self) -> bool {
        self.climb.is_some()
    }

    /// Removes texts that come from the job.
    pub(crate) fn forget_details(&mut self) {
        if let Some((_, details)) = &mut self.stopped {
            details.clear();
        }
    }

    /// Ends the search for a reason.
    pub fn stop(&mut self, why: ConfirmationState, details: impl Into<String>) {
        self.stopped = Some((why, details.into()));
    }

    /// Adds a run.
    pub fn add(&mut self, run: RealRun) {
        if !run.ran_out && run.steps < MIN_STEPS {
            let RealRun { trial: Trial { batch, .. }, steps, .. } = run;
            self.stop(
                ConfirmationState::FewSteps,
                format!("{steps} at {batch}, where {MIN_STEPS} are needed"),
            );
        }
        self.runs.push(run);
    }

    /// Notes that a run cannot join the probes, because it is not like them. Ends the search if that happens too often.
    pub fn add_unlike(&mut self, batch: u64, why: &str) {
        self.unlike.push(batch);
        if self.unlike.len() >= MAX_UNLIKE {
            self.stop(ConfirmationState::NotAProbe, why);
        }
    }

    /// Notes that a run has joined the probes.
    pub fn add_like(&mut self) {
        self.is_like_below = !self.unlike.is_empty();
    }

    /// Notes that the plan is now made from runs that are unlike the probes, and that the plan of these is left out.
    pub fn leave_out(&mut self, plan: Plan) {
        self.left_out = Some(Arc::new(plan));
        self.unlike.clear();
        self.is_like_below = false;
    }

    /// The batch sizes of probes that the plan leaves out.
    #[must_use]
    pub fn left_out(&self) -> Vec<u64> {
        let mut batches: Vec<u64> =
            self.left_out.iter().flat_map(|plan| &plan.probes).map(|probe| probe.batch).collect();
        batches.dedup();
        batches
    }

    /// The plan of the small probes for a batch size that uses their kernels, where the plan itself is made from large runs alone. The
    /// smallest run that is at least as large shows it: its peak is nearer to what the small probes predict.
    pub(super) fn plan_below(&self, plan: &Plan, batch: u64, steps: u64) -> Option<&Plan> {
        let small = self.left_out.as_deref()?;
        let passed = self.runs.iter().filter(|run| !run.ran_out && run.trial.batch >= batch);
        let known = passed.filter_map(|run| Some((run.trial.batch, run.peak?)));
        let (at, peak) = known.min_by_key(|(batch, _)| *batch)?;
        let off = |plan: &Plan| Some(plan.predict(at, steps)?.peak.0.abs_diff(peak.0));
        (off(small)? < off(plan)?).then_some(small)
    }

    /// The next run to make; `None` if there is nothing more to learn.
    #[must_use]
    pub fn next(&mut self, plan: &Plan, found: Option<Largest>) -> Option<Trial> {
        let limit = self.limit.filter(|_| self.stopped.is_none())?;
        if self.climb.is_none() {
            let trial = self.next_of_plan(plan, found, limit);
            // Nothing larger matters than a batch size that was asked for. And in one order, the plan finds the edge.
            let climbs = self.has_threads && self.target.is_none() && self.wanted > 0;
            if !climbs || trial.is_some_and(|trial| self.passes(trial.batch) == 0) {
                return trial;
            }
            highest_pass(&self.runs)?;
            self.climb = Some(Climb { runs_before: self.runs.len() });
        }
        let likely = found.and_then(|found| found.likely);
        let batch = self.climb?.next(&self.runs, likely, u64::from(self.wanted))?;
        let number = self.number(batch, false);
        Some(Trial { batch, limit, only_measures: false, is_traced: false, number })
    }

    /// The next run that the plan asks for; `None` if its answer is confirmed, or cannot be.
    fn next_of_plan(&self, plan: &Plan, found: Option<Largest>, limit: Bytes) -> Option<Trial> {
        let batch = match self.unlike.last() {
            Some(&unlike) if self.is_like_below => self.above(unlike)?,
            Some(unlike) => (unlike * QUARTERS_OF_UNLIKE / 4).max(1),
            None => self.candidate(plan, found)?,
        };
        if self.passes(batch) >= u64::from(self.wanted) {
            return None;
        }
        let tried: BTreeSet<u64> = self.runs.iter().map(|run| run.trial.batch).collect();
        if tried.len() >= MAX_BATCHES && !tried.contains(&batch) {
            return None;
        }
        // Its run cannot join the plan, and it is known what it needs.
        let is_below_plan = self.measured_below(plan) == Some(batch);
        let only_measures = self.has_room
            && !is_below_plan
            && (!self.unlike.is_empty() || !self.is_probed(plan, batch))
            && self.passes(batch) == 0;
        let limit = if only_measures { limit + Bytes(limit.0 / ROOM_DIVISOR) } else { limit };
        let number = self.number(batch, only_measures);
        if only_measures && number >= MAX_MEASURED_RUNS {
            return None;
        }
        let is_traced = only_measures || !self.has_threads || !(is_below_plan || self.is_probed(plan, batch));
        Some(Trial { batch, limit, only_measures, is_traced, number })
    }

    /// The number of the next run of a kind at a batch size.
    fn number(&self, batch: u64, only_measures: bool) -> u32 {
        let is_alike = |run: &&RealRun| run.trial.batch == batch && run.trial.only_measures == only_measures;
        u32::try_from(self.runs.iter().filter(is_alike).count()).unwrap_or(u32::MAX)
    }

    /// Whether a run is worth adding to the probes: it passed, and few probes are near it.
    #[must_use]
    pub fn is_new(&self, plan: &Plan, run: &RealRun) -> bool {
        run.trial.is_traced
            && !run.ran_out
            && run.steps >= MIN_STEPS
            && plan.compiled_batches().is_none()
            && !self.is_probed(plan, run.trial.batch)
    }

    /// Whether enough probes are near a batch size.
    fn is_probed(&self, plan: &Plan, batch: u64) -> bool {
        probes_near(plan, batch, NEAR_DIVISOR) >= if self.has_room { MEASURED_RUNS } else { 1 }
    }

    /// The batch size to run next.
    fn candidate(&self, plan: &Plan, found: Option<Largest>) -> Option<u64> {
        let failed = self.nearest_failure();
        if let Some(target) = self.target {
            return Some(target).filter(|&target| failed.is_none_or(|failed| failed > target));
        }
        let found = found?;
        // Which batch sizes are compiled is known, and nothing between them.
        if failed.is_some() && plan.compiled_batches().is_some() {
            return None;
        }
        let below_likely = |likely: u64| {
            let is_near = probes_near(plan, likely, BELOW_FAR_LIKELY - 1) > 0;
            let divisor = if is_near { BELOW_NEAR_LIKELY } else { BELOW_FAR_LIKELY };
            (likely - likely.div_ceil(divisor)).max(1)
        };
        let planned =
            found.to_confirm.or(found.likely.map(below_likely)).or_else(|| self.below_plan(plan))?;
        let batch = match failed {
            Some(failed) if planned > below_failure(failed) => self.below(plan, failed)?,
            _ => planned,
        };
        // A batch size that has begun to pass is finished, if it is nearly the one.
        let is_near = |tried: u64| tried <= batch && batch - tried <= batch / NEAR_DIVISOR;
        let begun = self.runs.iter().filter(|run| !run.ran_out && !run.trial.only_measures);
        let begun = begun.map(|run| run.trial.batch);
        let begun = begun.filter(|&tried| is_near(tried) && self.failures(tried) == 0).max();
        Some(begun.unwrap_or(batch)).filter(|&batch| self.confirmed().is_none_or(|known| batch >= known))
    }

    /// A smaller batch size than those of a plan from large runs alone, which has room for none: the largest that passed, else half of the
    /// smallest that ran.
    fn below_plan(&self, plan: &Plan) -> Option<u64> {
        let half = || {
            let smallest = self.runs.iter().map(|run| run.trial.batch).min()?;
            Some(smallest / 2).filter(|&half| half > 0 && self.left_out.is_some())
        };
        self.measured_below(plan).or_else(half)
    }

    /// The largest batch size that passed and is smaller than those of a plan from large runs alone: it is like the probes that were left out.
    fn measured_below(&self, plan: &Plan) -> Option<u64> {
        let planned = plan.probes.iter().map(|probe| probe.batch).min()?;
        let passed = self.runs.iter().filter(|run| !run.ran_out).map(|run| run.trial.batch);
        passed.filter(|&batch| batch < planned && self.left_out.is_some()).max()
    }

    /// A batch size above one that is unlike the probes, and below what failed.
    fn above(&self, unlike: u64) -> Option<u64> {
        let above = unlike + unlike.div_ceil(ABOVE_UNLIKE_DIVISOR);
        let failed = self.nearest_failure().filter(|&failed| failed <= above);
        Some(failed.map_or(above, |failed| unlike.midpoint(failed))).filter(|&batch| batch > unlike)
    }

    /// A batch size below one that failed though the plan has room for it.
    fn below(&self, plan: &Plan, failed: u64) -> Option<u64> {
        if probes_near(plan, failed, STEP_DIVISOR) > 0 {
            return Some(failed - failed.div_ceil(STEP_DIVISOR)).filter(|&batch| batch > 0);
        }
        let limit = self.limit?;
        let probed =
            plan.probes.iter().filter(|probe| probe.ran.exact.peak <= limit).map(|probe| probe.batch);
        let ran = self.runs.iter().filter(|run| !run.ran_out).map(|run| run.trial.batch);
        let passed = probed.chain(ran).filter(|&batch| batch < failed).max().unwrap_or(1);
        // In the middle by factors: far beyond the probes most of what lies between would fail.
        let middle = u64::try_from((u128::from(passed) * u128::from(failed)).isqrt()).unwrap_or(passed);
        // Where hardly anything lies between, the one that passed it is.
        Some(if middle - passed > passed / CLOSE_DIVISOR { middle } else { passed })
            .filter(|&batch| batch < failed)
    }

    /// The largest batch size of which all runs under the limit passed, as many as wanted, while no smaller one failed. After a climb it
    /// keeps its distance from larger ones.
    #[must_use]
    pub fn confirmed(&self) -> Option<u64> {
        let most = match (&self.climb, self.nearest_failure()) {
            (Some(_), _) => climb::most(&self.runs),
            (None, Some(failed)) => failed - 1,
            (None, None) => u64::MAX,
        };
        let batches = self.runs.iter().map(|run| run.trial.batch).filter(|&batch| batch <= most);
        let passed = batches.filter(|&batch| self.wanted > 0 && self.passes(batch) >= u64::from(self.wanted));
        passed.max().filter(|_| !self.has_few_steps())
    }

    /// A batch size above the answer that passed more than once.
    #[must_use]
    pub fn passed_above(&self) -> Option<u64> {
        let top = self.climb.and_then(|_| climb::top(&self.runs))?;
        self.confirmed().filter(|&confirmed| top > confirmed).map(|_| top)
    }

    /// The largest batch size at which about half of the runs pass, after a climb.
    #[must_use]
    pub(super) fn likely(&self) -> Option<u64> {
        self.climb.and_then(|_| climb::likely(&self.runs))
    }

    /// A warning if other programs used the processors during the runs: threads order ops differently then.
    pub(super) fn disturbed(&self) -> Option<Warning> {
        let known = || self.runs.iter().filter(|_| self.has_threads).filter_map(|run| run.percent_of_others);
        let most = known().max().filter(|most| *most >= DISTURBING_PERCENT)?;
        let disturbed = known().filter(|percent| *percent >= DISTURBING_PERCENT).count();
        Some(Warning {
            code: "busy-processors",
            text: format!(
                "other programs used up to {most} % of the processors during {disturbed} of {}: threads order ops differently then, so a batch size may pass or fail that does not on an idle machine",
                plural(self.runs.len(), "real run", "real runs")
            ),
            hint: "end the other programs, and plan into a new folder with -o: recorded runs are reused"
                .to_owned(),
        })
    }

    fn has_few_steps(&self) -> bool {
        matches!(self.stopped, Some((ConfirmationState::FewSteps, _)))
    }

    /// Whether the search was for the largest batch size, not for one that was given.
    #[must_use]
    pub(super) fn is_for_largest(&self) -> bool {
        self.wanted > 0 && self.target.is_none()
    }

    /// The runs of a batch size that passed under the limit.
    #[must_use]
    pub fn passes(&self, batch: u64) -> u64 {
        climb::passes(&self.runs, batch)
    }

    /// The runs of a batch size that ran out of memory.
    #[must_use]
    pub fn failures(&self, batch: u64) -> u64 {
        self.runs.iter().filter(|run| run.trial.batch == batch && run.ran_out).count() as u64
    }

    /// The steps that each run of a batch size passed at least.
    #[must_use]
    pub fn steps(&self, batch: u64) -> Option<usize> {
        let of_batch = self.runs.iter().filter(|run| run.trial.batch == batch && !run.ran_out);
        of_batch.filter(|run| !run.trial.only_measures).map(|run| run.steps).min()
    }

    /// The smallest batch size at which a run ran out of memory.
    #[must_use]
    pub fn nearest_failure(&self) -> Option<u64> {
        climb::nearest_failure(&self.runs)
    }

    /// The batch size that the runs are about: the confirmed one, the requested one, else the one that ran last.
    #[must_use]
    pub fn batch(&self) -> Option<u64> {
        self.confirmed()
            .or(self.target.filter(|_| self.wanted > 0))
            .or(self.runs.last().map(|run| run.trial.batch))
    }

    /// Whether real runs confirm the answer, and if not, why.
    #[must_use]
    pub fn state(&self) -> ConfirmationState {
        match &self.stopped {
            _ if self.confirmed().is_some() => ConfirmationState::Confirmed,
            Some((why, _)) => *why,
            None if self.runs.is_empty() => ConfirmationState::NothingToTry,
            None => ConfirmationState::RanOut,
        }
    }

    /// The result in a sentence or two.
    #[must_use]
    pub fn sentence(&self, variable: &str) -> String {
        let name = variable_title(variable);
        let details = self.stopped.as_ref().map_or("", |(_, details)| details.as_str());
        let limit = self.limit.unwrap_or_default();
        let text = match (self.state(), self.batch()) {
            (ConfirmationState::Confirmed, Some(batch)) => {
                let (times, steps) = (self.passes(batch), self.steps(batch).unwrap_or_default());
                let times = if times == 1 { "once".to_owned() } else { format!("{times} times") };
                format!(
                    "confirmed: {name} {batch} ran {times} under {limit}, {steps} steps each, and passed."
                )
            }
            (ConfirmationState::RanOut, Some(batch)) if self.target.is_some() => {
                let (failures, passes) = (self.failures(batch), self.passes(batch));
                format!(
                    "not confirmed: {name} {batch} ran out of memory under {limit} in {failures} of {} runs.",
                    failures + passes
                )
            }
            (state, _) => format!("not confirmed: {}.", state.reason(details)),
        };
        let text = capitalised(&text);
        let text = match self.passed_above() {
            Some(above) => format!("{text} {} passed, too.", capitalised(&format!("{name} {above}"))),
            None => text,
        };
        match (self.nearest_failure(), self.confirmed()) {
            (Some(failed), Some(confirmed)) => {
                let more = (u128::from(failed) * 100)
                    .checked_div(u128::from(confirmed))
                    .unwrap_or_default()
                    .saturating_sub(100);
                format!("{text} The nearest failure seen is at {failed}, {more} % more.")
            }
            (Some(failed), None) if self.target != Some(failed) => {
                format!("{text} The smallest {name} that failed is {failed}.")
            }
            (None, Some(_)) => format!("{text} No run failed."),
            _ => text,
        }
    }
}

impl ConfirmationState {
    /// Why nothing is confirmed, in words.
    fn reason(self, details: &str) -> String {
        let with =
            |text: &str| if details.is_empty() { text.to_owned() } else { format!("{text}: {details}") };
        match self {
            ConfirmationState::Confirmed => "it ran".to_owned(),
            ConfirmationState::NoCommand => "without a command nothing could be run".to_owned(),
            ConfirmationState::SwitchedOff => "--no-confirm".to_owned(),
            ConfirmationState::NoLimit => "no limit was given".to_owned(),
            ConfirmationState::NothingToTry => "the plan has no batch size to try".to_owned(),
            ConfirmationState::RanOut => format!(
                "runs ran out of memory, and the search ended after {MAX_BATCHES} batch sizes at most"
            ),
            ConfirmationState::OtherFailure => with("a run failed for another reason than memory"),
            ConfirmationState::FewSteps => with("a run had too few training steps"),
            ConfirmationState::NotStarted => with("a run could not be started"),
            ConfirmationState::NotAProbe => with("the plan could not be made again with a run"),
        }
    }
}

/// The largest batch size that is far enough below one that failed.
fn below_failure(failed: u64) -> u64 {
    failed - failed.div_ceil(FAILURE_MARGIN_DIVISOR)
}

/// Whether a run ended because memory ran out.
#[must_use]
pub fn ran_out(reading: &Reading) -> bool {
    let Some(read) = &reading.failures else { return false };
    (0..read.failures.list.len()).any(|at| !read.outcome(at).is_survived())
}

/// Number of training steps of a run: those in its trace, or those that its process announced if it was not traced.
#[must_use]
pub fn training_steps(reading: &Reading, pool: Option<&str>) -> usize {
    if let Some((host, _)) = reading.highest_pool(pool) {
        return host.trace.steps.iter().filter(|step| step.phase == Phase::Train).count();
    }
    let is_step = |mark: &&Mark| mark.kind == RecordedMarkKind::Step && mark.phase == Some(Phase::Train);
    let processes = reading.recorded.iter().flat_map(|recorded| &recorded.processes);
    processes.map(|process| process.marks.iter().filter(is_step).count()).max().unwrap_or_default()
}

/// The peak in use of a run: of its trace, or the highest that the framework counted on a device.
#[must_use]
pub fn peak_of(reading: &Reading, pool: Option<&str>) -> Option<Bytes> {
    let traced = reading.highest_pool(pool).and_then(|(_, pool)| pool.peak()).map(|peak| peak.bytes);
    let processes = reading.recorded.iter().flat_map(|recorded| &recorded.processes);
    let counters = processes.flat_map(|process| {
        let of_marks = process.marks.iter().flat_map(|mark| &mark.counters);
        of_marks.chain(process.samples.iter().filter_map(|sample| sample.counters.as_ref()))
    });
    let of_devices = counters.filter(|read| read.device != PINNED);
    let counted = of_devices.filter_map(|read| u64::try_from(read.peak.max(read.current)?).ok()).max();
    traced.max(counted.map(Bytes))
}

/// The number of probes within one part in so many of a batch size.
fn probes_near(plan: &Plan, batch: u64, divisor: u64) -> usize {
    plan.probes.iter().filter(|probe| probe.batch.abs_diff(batch) <= batch / divisor).count()
}
