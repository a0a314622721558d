//! Copies that a convolution may make at a larger batch size, though no probe shows them.
//!
//! cuDNN chooses among algorithms by the size of the problem. Some need no memory; others copy both tensors into another layout. If the probes
//! are too small for the second kind, nothing in them shows what it takes. So the upper end of a range has room for it: the peak if every
//! convolution copied its input and its result, one after the other, and if scratch that the plan holds grew for one more doubling.
//!
//! Not its job: the prediction itself, which goes by what the probes show; scratch that they do show.

use rustc_hash::FxHashMap;

use super::Plan;
use super::predict::Prediction;
use super::probe::{Ask, Probe};
use super::size::{Basis, Form, Size};
use super::torch_call::Op;
use super::{Irregular, each};
use crate::allocator::Placement;
use crate::trace::Pass;
use crate::units::Bytes;

/// A convolution in the backward pass.
#[derive(Clone, Debug)]
pub(super) struct Copied {
    /// The act that requests a gradient.
    act: usize,
    /// The requests whose tensors may be copied.
    tensors: Vec<usize>,
}

/// The gradients that a probe's convolutions compute.
pub(super) fn of(probe: &Probe, sizes: &[Size]) -> Vec<Copied> {
    let (mut results, mut inputs) = (FxHashMap::default(), FxHashMap::default());
    let mut found = Vec::new();
    for (at, (ask, size)) in probe.asks.iter().zip(sizes).enumerate() {
        let Some(call) = ask.call else { continue };
        let Some(module) = call.module.filter(|_| !ask.is_brief()) else { continue };
        let grows = !matches!(size.form, Form::Constant(_));
        match ask.pass {
            Some(Pass::Forward) if call.op == Op::Convolution && grows => {
                results.insert(module, at);
                inputs.remove(&module);
            }
            Some(Pass::Backward) if results.contains_key(&module) => {
                if grows {
                    inputs.insert(module, at);
                }
                if !has_known_scratch(probe.asks.get(at + 1), sizes.get(at + 1)) {
                    let tensors = [results.get(&module), inputs.get(&module)].into_iter().flatten();
                    found.push(Copied { act: ask.act, tensors: tensors.copied().collect() });
                }
            }
            _ => {}
        }
    }
    found
}

/// What scratch takes at most that the plan holds or ends, because at some batch size the library changes its algorithm.
fn most_scratch(probe: &Probe, ask: &Ask, size: &Size, batch: u64) -> Option<Bytes> {
    /// The library keeps its algorithm up to at most so many times the probe.
    const MOST_TIMES: u64 = 2;
    match size.form {
        Form::Copies { constant, slope, .. } => {
            Some(Bytes(constant.saturating_add(slope.saturating_mul(batch))))
        }
        Form::Constant(bytes) if size.basis == Basis::Irregular && bytes == ask.bytes => {
            let most = batch.min(probe.batch.saturating_mul(MOST_TIMES)).max(probe.batch);
            Some(Bytes(bytes.saturating_mul(most) / probe.batch.max(1)))
        }
        _ => None,
    }
}

/// Whether a request is scratch on whose size the probes agree.
fn has_known_scratch(ask: Option<&Ask>, size: Option<&Size>) -> bool {
    let is_known = |basis| matches!(basis, Basis::Exact | Basis::Scratch | Basis::Padded);
    ask.is_some_and(Ask::is_brief) && size.is_some_and(|size| is_known(size.basis))
}

impl Plan {
    /// Raises the upper ends of a prediction to what the batch takes if every convolution copies its tensors.
    pub(super) fn widen_by_copies(&self, prediction: &mut Prediction) {
        let batch = prediction.batch;
        let rehearsed = each(&self.orders(), |&number| {
            let (sizes, copied) = (self.sizes.get(number)?, self.copied.get(number)?);
            if copied.is_empty() {
                return None;
            }
            let probe = self.probes.get(number)?;
            let mut program = self.program_at(number, batch, Irregular::Scaled)?;
            for (ask, size) in probe.asks.iter().zip(sizes).filter(|(ask, _)| ask.is_brief()) {
                if let Some(bytes) = most_scratch(probe, ask, size, batch) {
                    program.set_bytes(ask.act, bytes);
                }
            }
            let of = |tensor: &usize| sizes.get(*tensor).map_or(Bytes::ZERO, |size| size.form.at(batch));
            let copies = copied.iter().map(|copied| (copied.act, copied.tensors.iter().map(of).sum()));
            program.driver.at_once.extend(copies.map(|(act, bytes)| (act, [bytes, Bytes(1)])));
            program.driver.at_once.sort_by_key(|(act, _)| *act);
            program.driver.at_once.dedup_by_key(|(act, _)| *act);
            let [placement, ..] = Placement::ON_GPU;
            self.rehearse(number, &program, placement)
        });
        for run in rehearsed.into_iter().flatten().filter(|run| run.failure.is_none()) {
            prediction.high = prediction.high.max(run.peak);
            let [_, _, most] = &mut prediction.pool;
            *most = (*most).max(run.pool);
        }
    }
}
