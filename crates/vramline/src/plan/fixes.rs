//! Fixes that make a job fit. The effect of each is computed by editing the requests of the plan and replaying them, never by a rule of
//! thumb.
//!
//! An effect that cannot be computed from requests, such as that of a compiler, has no figure and has to be measured. A fix that is already
//! applied is not offered.

use rustc_hash::FxHashMap;

use super::autocast::{Lean, autocasts};
use super::casts::{Becomes, Casts};
use super::draws::Parts;
use super::edit::{Copies, Edit, Writer};
use super::precision::{Precision, precision};
use super::predict::reserved;
use super::probe::{Ask, Part, Probe};
use super::sixteen::policy_casts;
use super::size::{Basis, Size};
use super::updates::Updates;
use super::{Irregular, Plan, each};
use crate::allocator::Placement;
use crate::event::{Dtype, Framework};
use crate::replay::{Act, Program, Rehearsal, Rehearsed, Rules};
use crate::snapshot::Role;
use crate::trace::Pass;
use crate::units::Bytes;

/// The workspace limit of [`Fix::ScratchLimit`].
const SCRATCH: u64 = 256 << 20;

/// Peaks that are further apart than one part in so many of the peak are no prediction.
const TOLERATED_DIVISOR: u64 = 20;

/// A way to reduce memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fix {
    /// Smaller batches, gradients added up over several.
    Accumulate {
        /// The batch size of each.
        micro: u64,
        /// The number of batches per update.
        times: u64,
    },
    /// 16-bit floating point where that is enough.
    MixedPrecision,
    /// An optimizer without state.
    PlainOptimizer,
    /// Activations recomputed in the backward pass.
    Recompute,
    /// Parameters updated in the backward pass, each as soon as its gradient is there.
    StepInBackward,
    /// Parameters updated one after the other.
    OneByOne,
    /// Gradients freed after each update.
    SetToNone,
    /// The dataset in host memory, one batch at a time on the device.
    DataOnHost,
    /// A limit for the workspaces of convolutions.
    ScratchLimit,
    /// Segments that grow in place.
    Expandable,
    /// One op at a time.
    OneThread,
    /// The step compiled as a whole.
    Compile,
    /// The driver's own pool.
    AsyncAllocator,
}

impl Fix {
    /// The name of the fix on the command line and in the JSON.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Fix::Accumulate { .. } => "accumulate",
            Fix::MixedPrecision => "mixed-precision",
            Fix::PlainOptimizer => "plain-optimizer",
            Fix::Recompute => "recompute",
            Fix::StepInBackward => "step-in-backward",
            Fix::OneByOne => "one-by-one",
            Fix::SetToNone => "set-to-none",
            Fix::DataOnHost => "data-on-host",
            Fix::ScratchLimit => "scratch-limit",
            Fix::Expandable => "expandable",
            Fix::OneThread => "one-thread",
            Fix::Compile => "compile",
            Fix::AsyncAllocator => "async-allocator",
        }
    }

    /// What it does, and what it costs.
    #[must_use]
    pub fn text(self) -> String {
        match self {
            Fix::Accumulate { micro, times } => {
                format!("train with batch size {micro} and add up the gradients of {times} batches ({} samples). Costs one more tensor for each weight; BatchNorm statistics cover the smaller batch", micro.saturating_mul(times))
            }
            Fix::MixedPrecision => "16-bit results in the forward pass. Weights stay 32-bit and get a 16-bit copy".to_owned(),
            Fix::PlainOptimizer => "plain SGD keeps no optimizer state. Training converges differently".to_owned(),
            Fix::Recompute => "recompute activations inside blocks of layers in the backward pass. Costs about one more forward pass".to_owned(),
            Fix::StepInBackward => "update each parameter in the backward pass and free its gradient there. Not possible if gradients are clipped, scaled or added up".to_owned(),
            Fix::OneByOne => "update parameters one after the other, so that an update needs temporary memory for one of them only. The update is slower".to_owned(),
            Fix::SetToNone => "free the gradients after each update instead of setting them to zero".to_owned(),
            Fix::DataOnHost => "load the dataset one batch at a time with a generator. Now the whole dataset is in the pool".to_owned(),
            Fix::ScratchLimit => "limit the workspace of each convolution to 256 MiB. Some convolutions use slower algorithms".to_owned(),
            Fix::Expandable => "segments that grow in place fragment less. Set it before CUDA is initialised".to_owned(),
            Fix::OneThread => "run one op at a time, so that fewer results are alive at once. Slower if the model has branches".to_owned(),
            Fix::Compile => "compile the step with XLA, which plans all buffers ahead. Needs more or less memory, depending on the model".to_owned(),
            Fix::AsyncAllocator => "use the driver's own pool. The profiler then records no device allocations".to_owned(),
        }
    }

    /// Code or a setting for a framework.
    #[must_use]
    pub fn snippet(self, framework: Option<Framework>) -> String {
        let is_torch = framework == Some(Framework::PyTorch);
        let is_jax = framework == Some(Framework::Jax);
        match self {
            Fix::Accumulate { micro, times } if is_torch => {
                format!(
                    "for micro in batch.split({micro}): (loss(micro) / {times}).backward()  # then optimizer.step()"
                )
            }
            Fix::Accumulate { micro, times } if is_jax => {
                format!("optax.MultiSteps(optimizer, every_k_schedule={times})  # with batches of {micro}")
            }
            Fix::Accumulate { micro, times } => {
                format!(
                    "keras.optimizers.Adam(..., gradient_accumulation_steps={times})  # and batch_size={micro}"
                )
            }
            Fix::MixedPrecision if is_torch => {
                "with torch.autocast('cuda', dtype=torch.bfloat16): ...".to_owned()
            }
            Fix::MixedPrecision if is_jax => {
                "jmp.get_policy('params=float32,compute=bfloat16,output=float32')".to_owned()
            }
            Fix::MixedPrecision => {
                "keras.mixed_precision.set_global_policy('mixed_bfloat16')  # before the model is built"
                    .to_owned()
            }
            Fix::PlainOptimizer if is_torch => "torch.optim.SGD(model.parameters(), lr=...)".to_owned(),
            Fix::PlainOptimizer if is_jax => "optax.sgd(learning_rate=...)".to_owned(),
            Fix::PlainOptimizer => "keras.optimizers.SGD(learning_rate=...)".to_owned(),
            Fix::Recompute if is_torch => {
                "torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)".to_owned()
            }
            Fix::Recompute if is_jax => "jax.checkpoint(block)".to_owned(),
            Fix::Recompute => {
                "with keras.RematScope(mode='full'): ...  # around building the blocks; Keras 3.9 and later"
                    .to_owned()
            }
            Fix::StepInBackward => {
                "parameter.register_post_accumulate_grad_hook(step)  # step() and zero_grad() of an optimizer for that parameter".to_owned()
            }
            Fix::OneByOne => "torch.optim.Adam(..., foreach=False)".to_owned(),
            Fix::SetToNone => "optimizer.zero_grad(set_to_none=True)  # the default".to_owned(),
            Fix::DataOnHost => {
                "model.fit(tf.data.Dataset.from_generator(...).batch(batch_size).prefetch(1))".to_owned()
            }
            Fix::ScratchLimit => "TF_CUDNN_WORKSPACE_LIMIT_IN_MB=256 python train.py".to_owned(),
            Fix::Expandable => "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python train.py".to_owned(),
            Fix::OneThread => "TF_NUM_INTEROP_THREADS=1 python train.py".to_owned(),
            Fix::Compile if is_torch => "model = torch.compile(model)".to_owned(),
            Fix::Compile => "model.compile(..., jit_compile=True)".to_owned(),
            Fix::AsyncAllocator if is_torch => {
                "PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync python train.py".to_owned()
            }
            Fix::AsyncAllocator if is_jax => {
                "XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async python train.py".to_owned()
            }
            Fix::AsyncAllocator => "TF_GPU_ALLOCATOR=cuda_malloc_async python train.py".to_owned(),
        }
    }
}

/// The effect of a fix, or of several together.
#[derive(Clone, Debug)]
pub struct Fixed {
    /// The fixes.
    pub fixes: Vec<Fix>,
    /// The peak with it; `None` if it has to be measured.
    pub peak: Option<Bytes>,
    /// What a pool without a limit reserves with it.
    pub pool: Option<Bytes>,
    /// Ratio of update times, if the probes' step times show it.
    pub time_ratio: Option<f64>,
}

impl Plan {
    /// Whether `vramline verify` can apply a fix to this program without a change to its code.
    #[must_use]
    pub fn is_from_outside(&self, fix: Fix) -> bool {
        match fix {
            Fix::OneThread | Fix::ScratchLimit | Fix::Expandable | Fix::AsyncAllocator => true,
            // Vramline changes defaults of Keras.
            Fix::Accumulate { .. } | Fix::MixedPrecision | Fix::Compile => {
                self.probes.iter().any(|probe| probe.has_keras)
            }
            Fix::PlainOptimizer
            | Fix::Recompute
            | Fix::StepInBackward
            | Fix::OneByOne
            | Fix::SetToNone
            | Fix::DataOnHost => false,
        }
    }

    /// The fixes for a batch size: those that save most first, those that have to be measured last. `fitting` is a smaller batch
    /// size that fits, if gradient accumulation is wanted.
    #[must_use]
    pub fn fixes(&self, batch: u64, fitting: Option<u64>, steps: u64) -> Vec<Fixed> {
        let before = self.edited_peak(&[], batch, steps, Lean::Likely);
        let fixed = |fixes: &[Fix]| self.fixed_from(before?, fixes, batch, steps);
        let candidates = self.candidates(batch, fitting);
        let mut fixes: Vec<Fixed> = candidates.into_iter().filter_map(|fix| fixed(&[fix])).collect();
        fixes.sort_by_key(|fixed| fixed.peak.unwrap_or(Bytes(u64::MAX)));
        // Savings of combined fixes do not add up: a 16-bit copy of the weights matters more if the rest is smaller.
        let best: Vec<Fix> = fixes
            .iter()
            .filter(|fixed| fixed.peak.is_some())
            .flat_map(|fixed| fixed.fixes.clone())
            .take(2)
            .collect();
        if best.len() == 2 {
            fixes.extend(fixed(&best));
        }
        fixes.sort_by_key(|fixed| fixed.peak.unwrap_or(Bytes(u64::MAX)));
        fixes
    }

    /// The effect of fixes together; `None` if they have none here.
    #[must_use]
    pub fn fixed(&self, fixes: &[Fix], batch: u64, steps: u64) -> Option<Fixed> {
        self.fixed_from(self.edited_peak(&[], batch, steps, Lean::Likely)?, fixes, batch, steps)
    }

    /// The same, with the known peak and pool without them.
    fn fixed_from(
        &self,
        (before, before_pool): (Bytes, Bytes),
        fixes: &[Fix],
        batch: u64,
        steps: u64,
    ) -> Option<Fixed> {
        let is_measured = |fix: &Fix| matches!(fix, Fix::OneThread | Fix::Compile | Fix::AsyncAllocator);
        let all = fixes.to_vec();
        // The driver's own pool counts requested bytes exactly; what it reserves for them is unknown.
        if fixes == [Fix::AsyncAllocator] && self.is_ordered {
            let program = self.program_at(*self.orders().last()?, batch, Irregular::Scaled);
            let peak = program.map(|program| program.load());
            return Some(Fixed { fixes: all, peak, pool: None, time_ratio: None });
        }
        let unknown = Fixed { fixes: all.clone(), peak: None, pool: None, time_ratio: None };
        if fixes.iter().any(is_measured) {
            return Some(unknown);
        }
        let is_autocast = fixes.contains(&Fix::MixedPrecision) && self.is_ordered;
        if is_autocast && self.precision() != Some(Precision::Single) {
            return Some(unknown);
        }
        let (peak, pool) = self.edited_peak(fixes, batch, steps, Lean::Likely)?;
        if is_autocast {
            let (least, _) = self.edited_peak(fixes, batch, steps, Lean::Narrow)?;
            let (most, _) = self.edited_peak(fixes, batch, steps, Lean::Wide)?;
            if most.0.abs_diff(least.0) > before.0 / TOLERATED_DIVISOR {
                return Some(unknown);
            }
        }
        let (saves, saves_pool) = (before.0.saturating_sub(peak.0), before_pool.0.saturating_sub(pool.0));
        // Less than a hundredth is noise.
        if saves * 100 < before.0 && saves_pool * 100 < before_pool.0 {
            return None;
        }
        let time_ratio = match fixes {
            [Fix::Accumulate { micro, times }] => self.time_ratio(batch, *micro, *times),
            _ => None,
        };
        Some(Fixed { fixes: all, peak: Some(peak), pool: Some(pool), time_ratio })
    }

    /// Fixes that may apply here and are not applied already. `fitting` is a smaller batch size that fits, if gradient accumulation is wanted.
    #[must_use]
    pub fn candidates(&self, batch: u64, fitting: Option<u64>) -> Vec<Fix> {
        let mut all = Vec::new();
        let updates = self.updates(self.probes.len().saturating_sub(1));
        // A program that adds up gradients can do so with smaller batches: that is a smaller batch size.
        let accumulates = updates.as_ref().is_some_and(|updates| updates.rounds > 1);
        let most = fitting.filter(|&fitting| fitting < batch).unwrap_or(batch.div_ceil(2));
        if !accumulates {
            all.extend(parts(batch, most).map(|(micro, times)| Fix::Accumulate { micro, times }));
        }
        let has =
            |wanted: &dyn Fn(&Ask) -> bool| self.probes.iter().any(|probe| probe.asks.iter().any(wanted));
        let is_16 =
            |ask: &Ask| matches!(ask.dtype, Dtype::F16 | Dtype::Bf16) && ask.role == Role::Activations;
        let is_32 = match self.precision() {
            Some(precision) => precision != Precision::Mixed,
            None => self.tells_types() && !has(&is_16),
        };
        if is_32 {
            all.push(Fix::MixedPrecision);
        }
        if has(&|ask| ask.role == Role::Optimizer) {
            all.push(Fix::PlainOptimizer);
        }
        all.push(Fix::Recompute);
        if let Some(updates) = updates {
            all.extend((!accumulates).then_some(Fix::StepInBackward));
            all.extend(updates.has_temporaries().then_some(Fix::OneByOne));
            all.extend(updates.keeps_gradients.then_some(Fix::SetToNone));
        }
        all.push(Fix::DataOnHost);
        let framework = self.framework();
        let is_on_device = self.probes.iter().any(|probe| probe.is_on_device);
        // PyTorch has no such setting; cuDNN's own variable for it did nothing there (PyTorch 2.11, cuDNN 9.19).
        if framework == Some(Framework::TensorFlow) && is_on_device {
            all.push(Fix::ScratchLimit);
        }
        if let Some(Rules::Torch(rules)) = self.probes.first().map(|probe| &probe.ran.rules)
            && !rules.options.expandable
            && is_on_device
        {
            all.push(Fix::Expandable);
        }
        if framework == Some(Framework::TensorFlow) {
            all.push(Fix::OneThread);
        }
        let is_compiled = || {
            let is_open = |probe: &Probe| !self.is_explained(probe.batch);
            self.compiled_batches().is_some() || self.probes.iter().any(is_open)
        };
        if framework != Some(Framework::Jax) && !is_compiled() {
            all.push(Fix::Compile);
        }
        if is_on_device {
            all.push(Fix::AsyncAllocator);
        }
        all
    }

    /// Gradients and updates of a probe of PyTorch whose stacks tell them.
    fn updates(&self, number: usize) -> Option<Updates> {
        let (probe, sizes) = (self.probes.get(number)?, self.sizes.get(number)?);
        let is_told = |ask: &Ask| ask.pass == Some(Pass::Backward);
        (self.is_ordered && probe.asks.iter().any(is_told)).then(|| Updates::of(probe, sizes))
    }

    /// The precision that a program of PyTorch computes in; `None` for other programs, whose requests have element types.
    fn precision(&self) -> Option<Precision> {
        let number = self.is_ordered.then(|| self.orders().last().copied())??;
        Some(precision(self.probes.get(number)?, self.sizes.get(number)?))
    }

    fn framework(&self) -> Option<Framework> {
        self.probes.first().and_then(|probe| probe.framework)
    }

    /// Whether requests have an element type.
    fn tells_types(&self) -> bool {
        self.probes.iter().any(|probe| probe.asks.iter().any(|ask| ask.dtype == Dtype::F32))
    }

    /// The peak and the pool of the orders with fixes.
    fn edited_peak(&self, fixes: &[Fix], batch: u64, steps: u64, lean: Lean) -> Option<(Bytes, Bytes)> {
        let micro = fixes
            .iter()
            .find_map(|fix| if let Fix::Accumulate { micro, .. } = fix { Some(*micro) } else { None });
        let batch = micro.unwrap_or(batch);
        let mut parts = Parts::default();
        let mut pools = Vec::new();
        let orders = self.orders();
        let rehearsed = each(&orders, |&number| {
            let (program, cuts) = self.edited(number, batch, fixes, lean)?;
            let mut rules = self.probes.get(number)?.ran.rules.clone();
            if let Rules::Torch(rules) = &mut rules {
                rules.options.expandable |= fixes.contains(&Fix::Expandable);
            }
            let placement = Placement::Ascending;
            let rehearsed =
                Rehearsal { program: &program, rules: &rules, limit: None, placement }.run(&cuts)?;
            let pool = reserved(self.probes.get(number)?, &program, placement, &rehearsed);
            Some(Rehearsed { pool, ..rehearsed })
        });
        for (number, rehearsed) in orders.into_iter().zip(rehearsed) {
            let (probe, rehearsed) = (self.probes.get(number)?, rehearsed?);
            for (stretch, &peak) in probe.stretches.iter().zip(&rehearsed.peaks) {
                parts.add(stretch.part, peak, self.weight(probe.batch));
            }
            pools.push(rehearsed.pool);
        }
        pools.sort_unstable();
        Some((parts.quantile(0.5, steps)?, *pools.get(pools.len() / 2)?))
    }

    /// A probe's program at a batch with fixes, and where its stretches begin.
    fn edited(&self, number: usize, batch: u64, fixes: &[Fix], lean: Lean) -> Option<(Program, Vec<usize>)> {
        let probe = self.probes.get(number)?;
        let sizes = self.sizes.get(number)?;
        let base = self.program_at(number, batch, Irregular::Scaled)?;
        let mut edits: Vec<Option<Edit>> = vec![None; base.acts.len()];
        let weights: Vec<u64> = weights(probe, sizes, batch);
        let casts = match fixes.contains(&Fix::MixedPrecision) {
            false => Casts::default(),
            true if self.is_ordered => autocasts(probe, sizes, batch, lean)?,
            true => policy_casts(probe, sizes, &weights, batch),
        };
        for (ask, size) in probe.asks.iter().zip(sizes) {
            if let Some(edit) = edits.get_mut(ask.act) {
                *edit = Some(of_ask(probe, ask, size, batch, fixes, &casts));
            }
        }
        let updates = self.updates(number);
        let changes = updates.as_ref().map(|updates| updates.changes(fixes)).unwrap_or_default();
        for (act, change) in changes {
            if let Some(Some(edit)) = edits.get_mut(act)
                && let Edit::Keep(bytes) | Edit::Cast(Becomes::Widened, bytes) = *edit
            {
                *edit = Edit::Changed(change, bytes);
            }
        }
        let mut lives = if fixes.contains(&Fix::Recompute) {
            recomputed(probe, &base, &mut edits)
        } else {
            FxHashMap::default()
        };
        let mut writer = Writer::new(&base);
        let mut copies = Copies::new(casts.copies);
        let accumulates = fixes.iter().any(|fix| matches!(fix, Fix::Accumulate { .. }));
        // Keras adds up gradients in variables of their own, PyTorch in those that there are.
        let sums = match &updates {
            Some(updates) if updates.keeps_gradients => &[][..],
            Some(updates) => &updates.sizes,
            None => &weights,
        };
        let mut cuts = Vec::new();
        let mut stretch = 0;
        for (at, &act) in base.acts.iter().enumerate() {
            copies.end(at, &mut writer);
            while probe.stretches.get(stretch + 1).is_some_and(|next| next.acts.start <= at) {
                stretch += 1;
                cuts.push(writer.program.acts.len());
                let part = probe.stretches.get(stretch).map(|stretch| stretch.part);
                if accumulates && part == Some(Part::FirstStep) {
                    for &bytes in sums {
                        writer.hold(bytes);
                    }
                }
            }
            copies.begin(at, &mut writer);
            writer.reach(at);
            writer.program.acts.extend(lives.remove(&at).unwrap_or_default());
            writer.take(act, edits.get(at).copied().flatten());
            let brief: Vec<u32> = base.at_once(at).iter().map(|bytes| writer.hold(bytes.0)).collect();
            writer.program.acts.extend(brief.into_iter().rev().map(Act::free));
        }
        writer.program.slots = writer.slots;
        Some((writer.program, cuts))
    }

    /// Ratio of update times with gradient accumulation, by a line through the probes' step times.
    fn time_ratio(&self, batch: u64, micro: u64, times: u64) -> Option<f64> {
        let (first, last) = (self.probes.first()?, self.probes.last()?);
        #[expect(clippy::cast_precision_loss, reason = "a ratio")]
        let at = |batch: u64| -> Option<f64> {
            let (low, high) = (first.step_time?.0 as f64, last.step_time?.0 as f64);
            let slope = (high - low) / (last.batch as f64 - first.batch as f64);
            Some((low + slope * (batch as f64 - first.batch as f64)).max(low.min(high) / 2.0))
        };
        #[expect(clippy::cast_precision_loss, reason = "a ratio")]
        let ratio = at(micro)? * times as f64 / at(batch)?;
        ratio.is_finite().then_some((ratio * 100.0).round() / 100.0)
    }
}

/// Divides a batch into parts of at most a given size: their size and number. The largest divisor, unless it is much smaller than allowed;
/// then nearly equal parts, the last a little smaller. `None` if there is nothing to divide.
fn parts(batch: u64, most: u64) -> Option<(u64, u64)> {
    let most = most.min(batch.saturating_sub(1));
    let times = batch.checked_div(most)? + u64::from(!batch.is_multiple_of(most));
    let near = (most.div_ceil(2)..=most).rev().take(1 << 20);
    let divisor = near.into_iter().find(|&micro| batch.is_multiple_of(micro));
    let (micro, times) = divisor.map_or((batch.div_ceil(times), times), |micro| (micro, batch / micro));
    (micro < batch && times > 1).then_some((micro, times))
}

/// The effect of fixes on a request.
fn of_ask(probe: &Probe, ask: &Ask, size: &Size, batch: u64, fixes: &[Fix], casts: &Casts) -> Edit {
    let mut bytes = size.form.at(batch).0;
    let part = probe.stretches.get(ask.stretch).map(|stretch| stretch.part);
    let is_state = ask.life.is_none();
    for fix in fixes {
        match fix {
            Fix::PlainOptimizer if ask.role == Role::Optimizer && is_state => return Edit::Drop,
            Fix::DataOnHost if ask.role == Role::Inputs && part == Some(Part::Start) => return Edit::Drop,
            Fix::ScratchLimit if ask.is_brief() && size.basis == Basis::Irregular => {
                bytes = bytes.min(SCRATCH);
            }
            _ => {}
        }
    }
    match casts.becomes.get(&ask.act) {
        None => Edit::Keep(bytes),
        Some(Becomes::Half) => Edit::Keep(bytes.div_ceil(2)),
        Some(&becomes) => Edit::Cast(becomes, bytes),
    }
}

/// Bytes of every weight: state that the optimizer updates.
fn weights(probe: &Probe, sizes: &[Size], batch: u64) -> Vec<u64> {
    let is_weight = |ask: &Ask| ask.role == Role::Parameters && ask.life.is_none();
    let asks = probe.asks.iter().zip(sizes).filter(|(ask, _)| is_weight(ask));
    asks.map(|(_, size)| size.form.at(batch).0).collect()
}

/// Results of the forward pass that go at once and come back when the backward pass reaches their block. A block is as many
/// layers' results as there are blocks. Gives what is to be done before which act.
fn recomputed(probe: &Probe, base: &Program, edits: &mut [Option<Edit>]) -> FxHashMap<usize, Vec<Act>> {
    let mut changes: FxHashMap<usize, Vec<Act>> = FxHashMap::default();
    for (number, _) in probe.stretches.iter().enumerate() {
        let kept = probe.asks.iter().filter(|ask| {
            ask.stretch == number && ask.role == Role::Activations && ask.life.is_some_and(|life| life > 8)
        });
        let kept: Vec<&Ask> = kept.collect();
        let block = kept.len().isqrt().max(2);
        for block in kept.chunks(block) {
            // The last of a block stays: the next block begins with it.
            let Some((_, inner)) = block.split_last() else { continue };
            let frees = inner.iter().filter_map(|ask| Some(ask.act + ask.life?));
            let Some(returns) = frees.min() else { continue };
            let leaves = block.last().map_or(0, |last| last.act + 1);
            for ask in inner {
                let Some(act) = base.acts.get(ask.act) else { continue };
                let Ok(slot) = u32::try_from(act.slot()) else { continue };
                let Some(Some(edit)) = edits.get_mut(ask.act) else { continue };
                if leaves < returns {
                    let Some(bytes) = edit.settled() else { continue };
                    changes.entry(leaves).or_default().push(Act::free(slot));
                    changes.entry(returns).or_default().push(Act::request(bytes, slot));
                }
            }
        }
    }
    changes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_batch_are_as_large_as_they_may_be() {
        assert_eq!(parts(104, 60), Some((52, 2)));
        assert_eq!(parts(96, 40), Some((32, 3)));
        assert_eq!(parts(3, 2), Some((1, 3)));
        // A prime, and what has no divisor near: never parts of one.
        assert_eq!(parts(97, 49), Some((49, 2)));
        assert_eq!(parts(97, 40), Some((33, 3)));
        assert_eq!(parts(106, 52), Some((36, 3)));
        assert_eq!((parts(1, 1), parts(0, 0), parts(8, 0)), (None, None, None));
        assert_eq!(parts(2, 5), Some((1, 2)));
        assert!(parts(u64::MAX, u64::MAX / 2).is_some());
    }
}
