//! Why no plan can be made from probes, and what makes a plan uncertain.

use rustc_hash::FxHashSet;

use super::by_sequence::Likeness;
use super::predict::Prediction;
use super::probe::{Key, Probe};
use super::size::{Basis, Size};
use super::{Form, Plan, SizedKernel};
use crate::replay::NotReplayed;
use crate::trace::Pass;
use crate::units::Bytes;

/// Why probes make no plan.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum NotPlanned {
    /// Nothing to compare.
    #[error("all probes have the same batch size ({batch}), so Vramline cannot see what grows with it")]
    OneBatch {
        /// The batch.
        batch: u64,
    },
    /// No probe at all.
    #[error("there are no probes")]
    NoProbe,
    /// A pool cannot be replayed.
    #[error("the probe with batch size {batch} cannot be replayed: {why}")]
    NotReplayed {
        /// The batch.
        batch: u64,
        /// Why.
        why: NotReplayed,
    },
    /// They are of different programs.
    #[error(
        "the probes with batch sizes {one} and {other} are not of the same program: only {share} % of their requests are the same"
    )]
    Different {
        /// A batch.
        one: u64,
        /// Another.
        other: u64,
        /// What they have in common.
        share: u64,
    },
    /// They keep different things: of one model, but not with the same optimizer or settings.
    #[error(
        "the probes with batch sizes {one} and {other} are not of the same program: only {share} % of what they keep is the same"
    )]
    KeepsOthers {
        /// A batch.
        one: u64,
        /// Another.
        other: u64,
        /// What they have in common.
        share: u64,
    },
    /// Nothing grows.
    #[error("no request grows between batch sizes {smallest} and {largest}")]
    NothingGrows {
        /// The smallest batch.
        smallest: u64,
        /// The largest.
        largest: u64,
    },
    /// Nothing grows, and the whole becomes less.
    #[error("a larger batch size needs less memory: {} at batch size {}, but {} at {}", from.1, from.0, to.1, to.0)]
    Falls {
        /// A batch and its peak.
        from: (u64, Bytes),
        /// A larger one, with less.
        to: (u64, Bytes),
    },
}

impl NotPlanned {
    /// What to do now.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            NotPlanned::OneBatch { .. } | NotPlanned::NoProbe => {
                "give probes with at least two batch sizes; with three the plan can check itself: --probe 7=A --probe 11=B --probe 13=C"
            }
            NotPlanned::NotReplayed { .. } => {
                "record the probe with `vramline run --trace steps=5 -- ...`, or run `vramline replay` on it to see why"
            }
            NotPlanned::Different { .. } | NotPlanned::KeepsOthers { .. } => {
                "record all probes of one plan with the same script and settings; only the batch size may differ"
            }
            NotPlanned::NothingGrows { .. } => {
                "check that the script really used the batch size of each probe; a dataset that is on the device as a whole does not grow"
            }
            NotPlanned::Falls { .. } => {
                "check that each probe used its batch size and that nothing else differs; if so, measure with `vramline run` instead"
            }
        }
    }
}

/// What makes a plan uncertain.
#[derive(Clone, Debug, PartialEq)]
pub enum Doubt {
    /// Too few bytes at the peak have an exact size; their share.
    Inexact(f64),
    /// Memory falls where the batch grows.
    Falls {
        /// A batch and its peak.
        from: (u64, Bytes),
        /// A larger one, with less.
        to: (u64, Bytes),
    },
    /// Two probes keep different things.
    KeepsOthers {
        /// A batch.
        one: u64,
        /// Another.
        other: u64,
        /// The hundredths of what they keep that they have in common.
        share: u64,
    },
    /// The batch size of a probe is not a dimension of the tensors that grow with it.
    NotInShapes(u64),
    /// A probe's trace begins late.
    Late(u64),
    /// A probe ran out of memory; its later requests are unknown.
    EndedEarly(u64),
    /// A probe's trace is not reproduced.
    NotReproduced(u64),
    /// A probe has fewer than two training steps.
    FewSteps(u64),
    /// A probe has no optimizer state before its last step, though others have.
    SkippedUpdates(u64),
    /// A gradient scaler is at work, and no probe shows an update.
    NoUpdates,
    /// Only two batches were probed.
    TwoBatches,
    /// A large request without a name that does not grow linearly: a program compiled by XLA.
    Compiled(Bytes),
    /// The probes are of a program compiled by XLA, which was not compiled for this batch size.
    NotCompiled(u64),
    /// Far beyond the probes; the factor.
    Far(u64),
    /// The batch size needs more than any pool can have.
    TooLarge(u64),
    /// The peak is above what the pool of the probes may reserve.
    OverPool {
        /// The batch size.
        batch: u64,
        /// Its peak.
        peak: Bytes,
        /// The limit of the pool.
        limit: Bytes,
    },
    /// Larger batch sizes may fit, but are far beyond the probes, and none of them ran.
    Beyond(u64),
    /// The batch size is beyond every run, and the program has ops whose kernels, and so whose scratch memory, depend on the size.
    KernelMayChange(Vec<SizedKernel>),
    /// Probes that the plan leaves out, because larger runs use other kernels.
    LeftOut {
        /// The batch sizes of the probes.
        probes: Vec<u64>,
        /// The smallest run that is not like them.
        unlike: u64,
    },
    /// Requests that occur once per sample: their number grows, not their size.
    OncePerSample {
        /// The mean size of a request.
        bytes: Bytes,
        /// A batch size, and the number of such requests per step.
        from: (u64, u64),
        /// A larger one.
        to: (u64, u64),
    },
}

impl Doubt {
    /// Whether it makes every answer of the plan uncertain.
    #[must_use]
    pub fn is_serious(&self) -> bool {
        match self {
            Doubt::Inexact(_)
            | Doubt::Falls { .. }
            | Doubt::KeepsOthers { .. }
            | Doubt::NotInShapes(_)
            | Doubt::Late(_)
            | Doubt::EndedEarly(_)
            | Doubt::Compiled(_)
            | Doubt::NotCompiled(_)
            | Doubt::Far(_)
            | Doubt::TooLarge(_)
            | Doubt::NoUpdates
            | Doubt::OncePerSample { .. } => true,
            Doubt::NotReproduced(_)
            | Doubt::FewSteps(_)
            | Doubt::SkippedUpdates(_)
            | Doubt::TwoBatches
            | Doubt::OverPool { .. }
            | Doubt::Beyond(_)
            | Doubt::LeftOut { .. }
            | Doubt::KernelMayChange(_) => false,
        }
    }

    /// The code of the warning.
    #[must_use]
    pub fn code(&self) -> &'static str {
        match self {
            Doubt::Inexact(_) => "inexact",
            Doubt::Falls { .. } => "falls",
            Doubt::KeepsOthers { .. } => "keeps-others",
            Doubt::NotInShapes(_) => "not-in-shapes",
            Doubt::Late(_) => "late-probe",
            Doubt::EndedEarly(_) => "probe-ended-early",
            Doubt::NotReproduced(_) => "not-reproduced",
            Doubt::FewSteps(_) => "few-steps",
            Doubt::SkippedUpdates(_) => "skipped-updates",
            Doubt::NoUpdates => "no-updates",
            Doubt::TwoBatches => "two-batches",
            Doubt::Compiled(_) => "compiled",
            Doubt::NotCompiled(_) => "not-compiled",
            Doubt::Far(_) => "far",
            Doubt::TooLarge(_) => "too-large",
            Doubt::OverPool { .. } => "over-pool",
            Doubt::Beyond(_) => "beyond-probes",
            Doubt::KernelMayChange(_) => "kernel-may-change",
            Doubt::LeftOut { .. } => "left-out",
            Doubt::OncePerSample { .. } => "once-per-sample",
        }
    }

    /// The text of the warning.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Doubt::Inexact(share) => {
                format!(
                    "the probes agree on the size of only {:.1} % of the bytes at the peak",
                    share * 100.0
                )
            }
            Doubt::Falls { from, to } => {
                format!(
                    "a larger batch size needs less memory: {} at batch size {}, but {} at {}",
                    from.1, from.0, to.1, to.0
                )
            }
            Doubt::KeepsOthers { one, other, share } => format!(
                "the probes with batch sizes {one} and {other} keep different tensors: only {share} % of their bytes are in both"
            ),
            Doubt::NotInShapes(batch) => format!(
                "hardly any tensor that grows with the batch size has {batch} or a multiple of it in its shape, in the probe with batch size {batch}"
            ),
            Doubt::Late(batch) => {
                format!(
                    "the trace of the probe with batch size {batch} starts after the first allocation of the pool"
                )
            }
            Doubt::EndedEarly(batch) => format!(
                "the probe with batch size {batch} ran out of memory: the plan does not include its later requests"
            ),
            Doubt::NotReproduced(batch) => {
                format!("the replay does not reproduce the probe with batch size {batch} exactly")
            }
            Doubt::FewSteps(batch) => {
                format!("the probe with batch size {batch} has fewer than two training steps")
            }
            Doubt::SkippedUpdates(batch) => format!(
                "the probe with batch size {batch} has no optimizer state before its last step: the plan takes only sizes of tensors from it, and the order of requests from another probe"
            ),
            Doubt::NoUpdates => {
                "a gradient scaler is at work, and in no probe did the optimizer request memory: if the scaler skipped all updates, the plan lacks the optimizer's state".to_owned()
            }
            Doubt::TwoBatches => {
                "with only two batch sizes the plan cannot check whether memory grows linearly".to_owned()
            }
            Doubt::Compiled(bytes) => format!(
                "a request of {bytes} without an op name does not grow linearly: it belongs to a program compiled by XLA, whose buffers change with the batch size"
            ),
            Doubt::NotCompiled(batch) => {
                format!(
                    "the program was not compiled for batch size {batch}: how XLA places its buffers there is unknown"
                )
            }
            Doubt::Far(times) => format!("the batch size is {times} times that of the largest probe"),
            Doubt::TooLarge(batch) => format!("batch size {batch} needs more memory than any pool can have"),
            Doubt::OverPool { batch, peak, limit } => format!(
                "batch size {batch} needs {peak}, but in the probes the framework's pool may reserve {limit} at most"
            ),
            Doubt::Beyond(batch) => format!(
                "batch sizes above {batch} may fit too, but they are more than {FAR_WITHOUT_RUN} times the largest probe, and none of them ran"
            ),
            Doubt::KernelMayChange(kernels) => {
                let names: Vec<&str> = kernels.iter().map(|kernel| kernel.word()).collect();
                format!(
                    "this size was not run, and the program has {}: at larger sizes such ops may use another kernel with more scratch memory, which small probes do not show",
                    names.join(", ")
                )
            }
            Doubt::LeftOut { probes, unlike } => {
                let probes: Vec<String> = probes.iter().map(u64::to_string).collect();
                format!(
                    "from batch size {unlike} on, at the latest, the program uses other kernels than at {}, so the plan leaves the small probes out",
                    probes.join(", ")
                )
            }
            Doubt::OncePerSample { bytes, from, to } => format!(
                "requests of {bytes} occur once per sample, {} per step at batch size {} and {} at {}: the plan does not model how more of them fragment the pool",
                from.1, from.0, to.1, to.0
            ),
        }
    }

    /// What to do about it.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Doubt::Inexact(_) => {
                "use batch sizes that are not a dimension of the model, such as 7, 11 and 13, and the same data for all probes"
            }
            Doubt::Falls { .. } => {
                "check that the probes differ only in the batch size; if they do, measure with `vramline run` instead"
            }
            Doubt::KeepsOthers { .. } => {
                "record all probes of one plan with the same script and settings; only the batch size may differ"
            }
            Doubt::NotInShapes(_) => {
                "check the batch size of each probe; if the probes vary something other than the batch size, name it, for example --variable length"
            }
            Doubt::Late(_) => {
                "record with `vramline run`, which starts its trace before the first allocation"
            }
            Doubt::EndedEarly(_) => "record a probe that fits: with a smaller batch size or a higher limit",
            Doubt::NotReproduced(_) => "`vramline replay` shows where it differs",
            Doubt::FewSteps(_) => "train five steps in the probe: --trace steps=5",
            Doubt::SkippedUpdates(_) | Doubt::NoUpdates => {
                "a gradient scaler skips updates at first: train more steps in the probes (--trace steps=8), or start the scaler lower: GradScaler(init_scale=2**10)"
            }
            Doubt::TwoBatches => "add a third probe",
            Doubt::Compiled(_) => {
                "let the plan compile at that batch size (-- CMD {batch}), or pass the XLA dumps of it and of each probe: --compiled N=FOLDER"
            }
            Doubt::NotCompiled(_) => "pass the XLA dump of that batch size: --compiled N=FOLDER",
            Doubt::TooLarge(_) => "check the batch size",
            Doubt::Far(_) => "add a probe with a larger batch size",
            Doubt::OverPool { .. } => {
                "use a smaller batch size, or give the pool a larger share of the device (JAX: XLA_PYTHON_CLIENT_MEM_FRACTION, 0.75 by default)"
            }
            Doubt::Beyond(_) => {
                "let the plan run the batch size itself (-- CMD {batch}), or add a probe with a larger batch size"
            }
            Doubt::KernelMayChange(_) => {
                "let the plan run that size under a limit (--limit SIZE -- CMD {batch}), or add a probe near it"
            }
            Doubt::LeftOut { .. } => {
                "nothing to do: the answer comes from runs near it; to predict small batch sizes, plan with --no-confirm"
            }
            Doubt::OncePerSample { .. } => {
                "the data pipeline allocates single samples in this pool: batch before shuffle, or keep the pipeline in host memory (on a GPU it is there anyway)"
            }
        }
    }
}

/// The factor to the largest probe from which on a prediction is uncertain.
const FAR: u64 = 64;
/// The factor to the largest probe up to which a batch size may be called sure though no run was that large: libraries choose other
/// kernels for larger sizes.
const FAR_WITHOUT_RUN: u64 = 4;
/// In percent of the peak at the smallest batch size: a peak above this at the largest is not a decrease, but another order of ops.
const ORDERLY: u64 = 90;
/// A batch size that is larger by at most one part in so many is near enough to have the same kernels.
const NEAR: u64 = 16;
/// What adds up to less than one part in so many of a peak does not decide what fits.
const NEGLIGIBLE: u64 = 100;
/// Smaller requests than this do not fragment a pool.
const SMALL: u64 = 1024;
/// In percent of the requested bytes: probes that have less in common are of different programs.
const ALIKE: u64 = 50;
/// In percent of the bytes that are never freed: the same.
const KEPT: u64 = 90;
/// And below this the plan is uncertain.
const NEARLY_KEPT: u64 = 98;
/// Below this share of exact bytes the plan is uncertain.
const MOSTLY: f64 = 0.9;

/// Whether probes are of the same program, and anything grows.
pub(super) fn check(
    probes: &[Probe],
    sizes: &[Vec<Size>],
    is_ordered: bool,
    alike: &[Likeness],
) -> Result<(), NotPlanned> {
    let (Some(first), Some(last)) = (probes.first(), probes.last()) else { return Err(NotPlanned::NoProbe) };
    if first.batch == last.batch {
        return Err(NotPlanned::OneBatch { batch: first.batch });
    }
    for (one, other) in probes.iter().zip(probes.iter().skip(1)) {
        let share = if is_ordered { 100 } else { in_common(one, other) };
        if share < ALIKE {
            return Err(NotPlanned::Different { one: one.batch, other: other.batch, share });
        }
    }
    for &Likeness { of: (one, other), asked, kept } in alike {
        if asked < ALIKE {
            return Err(NotPlanned::Different { one, other, share: asked });
        }
        if kept < KEPT {
            return Err(NotPlanned::KeepsOthers { one, other, share: kept });
        }
    }
    let grows = |size: &Size| !matches!(size.form, Form::Constant(_));
    if !sizes.iter().flatten().any(|size| grows(size) && size.form.at(last.batch).0 >= 256) {
        return Err(match falls(probes) {
            Some((from, to)) => NotPlanned::Falls { from, to },
            None => NotPlanned::NothingGrows { smallest: first.batch, largest: last.batch },
        });
    }
    Ok(())
}

/// A batch and its peak.
type Height = (u64, Bytes);

/// The smallest batch and the largest, where the peak of the largest is lower by more than orders of ops differ.
fn falls(probes: &[Probe]) -> Option<(Height, Height)> {
    let peaks = probes.iter().map(|probe| (probe.batch, probe.ran.exact.peak));
    let from = peaks.clone().min_by_key(|&(batch, peak)| (batch, std::cmp::Reverse(peak)))?;
    let to = peaks.max_by_key(|&(batch, peak)| (batch, peak))?;
    (to.1.0.saturating_mul(100) < from.1.0.saturating_mul(ORDERLY)).then_some((from, to))
}

/// The share, in hundredths, of the named bytes of two probes that both ask for.
fn in_common(one: &Probe, other: &Probe) -> u64 {
    let keys = |probe: &Probe| -> FxHashSet<Key> {
        probe.asks.iter().filter(|ask| ask.is_named).map(|ask| ask.key).collect()
    };
    let of = |probe: &Probe, keys: &FxHashSet<Key>| {
        let named = probe.asks.iter().filter(|ask| ask.is_named);
        let all = named.clone().fold(0_u64, |sum, ask| sum.saturating_add(ask.bytes));
        let both = named.filter(|ask| keys.contains(&ask.key));
        let both = both.fold(0_u64, |sum, ask| sum.saturating_add(ask.bytes));
        both.saturating_mul(100).checked_div(all).unwrap_or(100)
    };
    of(one, &keys(other)).min(of(other, &keys(one)))
}

impl Plan {
    /// What makes answers for a batch uncertain.
    #[must_use]
    pub fn doubts(&self, prediction: &Prediction) -> Vec<Doubt> {
        let batch = prediction.batch;
        let mut doubts = Vec::new();
        let exact_share = prediction.known_share().min(self.share_of_lines());
        if exact_share < MOSTLY {
            doubts.push(Doubt::Inexact(exact_share));
        }
        doubts.extend(falls(&self.probes).map(|(from, to)| Doubt::Falls { from, to }));
        let apart = self.alike.iter().min_by_key(|alike| alike.kept).filter(|alike| alike.kept < NEARLY_KEPT);
        doubts.extend(apart.map(|apart| Doubt::KeepsOthers {
            one: apart.of.0,
            other: apart.of.1,
            share: apart.kept,
        }));
        let updates = |probe: &Probe| probe.asks.iter().any(|ask| ask.pass == Some(Pass::Update));
        let is_scaled = |probe: &Probe| probe.has_scaler == Some(true);
        if self.probes.iter().any(is_scaled) && !self.probes.iter().any(updates) {
            doubts.push(Doubt::NoUpdates);
        }
        let mut batches = Vec::new();
        for probe in &self.probes {
            let is_new = !batches.contains(&probe.batch);
            if is_new && probe.ran.from_start != Some(true) {
                doubts.push(Doubt::Late(probe.batch));
            } else if is_new && !probe.ran.is_exact() {
                doubts.push(Doubt::NotReproduced(probe.batch));
            }
            if is_new && probe.steps < 2 && !self.is_ordered {
                doubts.push(Doubt::FewSteps(probe.batch));
            }
            if probe.lacks_state && !doubts.contains(&Doubt::SkippedUpdates(probe.batch)) {
                doubts.push(Doubt::SkippedUpdates(probe.batch));
            }
            // Of several probes of a batch any may be the one.
            if probe.ended_early && !doubts.contains(&Doubt::EndedEarly(probe.batch)) {
                doubts.push(Doubt::EndedEarly(probe.batch));
            }
            batches.push(probe.batch);
        }
        batches.dedup();
        if batches.len() == 2 {
            doubts.push(Doubt::TwoBatches);
        }
        let largest = batches.last().copied().unwrap_or(1).max(1);
        if batch > self.farthest() {
            doubts.push(Doubt::Far(batch / largest));
        }
        doubts.extend(self.once_per_sample(batch, prediction.peak));
        doubts.extend(self.compiled_doubt(batch));
        if batch > largest.saturating_add(largest / NEAR) && !self.kernels.is_empty() {
            doubts.push(Doubt::KernelMayChange(self.kernels.clone()));
        }
        doubts
    }

    /// A probe whose batch is not in the shapes of what grows with it, as a dimension or a factor of one. Only a batch need be there:
    /// other things that are varied may be no dimension of anything.
    #[must_use]
    pub(crate) fn not_in_shapes(&self) -> Option<Doubt> {
        let is_missing = |(probe, sizes): &(&Probe, &Vec<Size>)| {
            let (mut there, mut all) = (0_u64, 0_u64);
            for (ask, size) in probe.asks.iter().zip(*sizes) {
                let grows = size.basis != Basis::Held && !matches!(size.form, Form::Constant(_));
                if !grows || ask.shape.is_empty() {
                    continue;
                }
                let is_there =
                    ask.shape.iter().any(|&length| length > 0 && length.is_multiple_of(probe.batch));
                all = all.saturating_add(ask.bytes);
                there = there.saturating_add(if is_there { ask.bytes } else { 0 });
            }
            there < all / 2
        };
        let found = self.probes.iter().zip(&self.sizes).find(is_missing);
        found.map(|(probe, _)| Doubt::NotInShapes(probe.batch))
    }

    /// Whether a batch needs more than the pool of the probes may reserve.
    #[must_use]
    pub(crate) fn over_pool(&self, prediction: &Prediction) -> Option<Doubt> {
        let Prediction { batch, peak, .. } = *prediction;
        let limit = self.probes.last()?.own_limit().filter(|&limit| limit < peak)?;
        Some(Doubt::OverPool { batch, peak, limit })
    }

    /// The largest batch that is not far beyond the probes.
    #[must_use]
    pub(crate) fn farthest(&self) -> u64 {
        let largest = self.probes.last().map_or(1, |probe| probe.batch).max(1);
        largest.saturating_mul(FAR) - 1
    }

    /// The largest batch that may be called sure without a run.
    #[must_use]
    pub(crate) fn farthest_without_run(&self) -> u64 {
        let largest = self.probes.last().map_or(1, |probe| probe.batch).max(1);
        largest.saturating_mul(FAR_WITHOUT_RUN)
    }

    /// The largest requests of which a step has one more for nearly every sample more, if all such requests of a step at a batch add up to
    /// enough of its peak to matter.
    fn once_per_sample(&self, batch: u64, peak: Bytes) -> Option<Doubt> {
        let (first, last) = (self.probes.first()?, self.probes.last()?);
        let more = last.batch.saturating_sub(first.batch);
        if self.is_ordered || more == 0 {
            return None;
        }
        let (few, many) = (first.asks_a_step(), last.asks_a_step());
        let grown = many.iter().filter_map(|(key, &(count, bytes))| {
            let (before, _) = few.get(key).copied().unwrap_or_default();
            let grown = count.saturating_sub(before).saturating_mul(4) >= more.saturating_mul(3);
            grown.then_some((bytes, before, count))
        });
        let grown: Vec<(u64, u64, u64)> = grown.filter(|&(bytes, ..)| bytes >= SMALL).collect();
        // If none of them were freed before the end of the step, and each sample more had as many more as between the probes.
        let at_once = |&(bytes, before, count): &(u64, u64, u64)| {
            let more_samples = u128::from(batch.saturating_sub(last.batch));
            let more = more_samples * u128::from(count.saturating_sub(before)) / u128::from(more);
            u128::from(bytes).saturating_mul(u128::from(count).saturating_add(more))
        };
        let cost = grown.iter().map(at_once).fold(0, u128::saturating_add);
        if cost.saturating_mul(u128::from(NEGLIGIBLE)) < u128::from(peak.0) {
            return None;
        }
        let (bytes, before, count) = grown.into_iter().max()?;
        let (from, to) = ((first.batch, before), (last.batch, count));
        Some(Doubt::OncePerSample { bytes: Bytes(bytes), from, to })
    }

    /// Of the bytes that named requests ask for and that are not constant, those that follow a line: next to none do where the batches of
    /// the probes are not what they are said to be. Libraries' scratch is no line either, so of ordered programs this says nothing.
    fn share_of_lines(&self) -> f64 {
        let (mut lines, mut others) = (0_u64, 0_u64);
        let asks =
            self.probes.iter().zip(&self.sizes).flat_map(|(probe, sizes)| probe.asks.iter().zip(sizes));
        for (ask, size) in asks.filter(|(ask, _)| ask.is_named && !self.is_ordered) {
            match size.basis {
                Basis::Irregular | Basis::Held => others = others.saturating_add(ask.bytes),
                _ if !matches!(size.form, Form::Constant(_)) => lines = lines.saturating_add(ask.bytes),
                _ => {}
            }
        }
        #[expect(clippy::cast_precision_loss, reason = "a share")]
        let share = lines as f64 / lines.saturating_add(others).max(1) as f64;
        if lines == 0 && others == 0 { 1.0 } else { share }
    }
}
