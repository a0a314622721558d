//! Reductions that no probe splits, and a larger batch size does.
//!
//! The gradient of a linear layer's bias is a sum over all rows. From 1024 rows on, PyTorch splits it, and requests partial sums
//! (`plan/reduction.rs`): 82 MiB for 10,000 words. If no probe has so many rows, none has that request, and no other shows it. But the rows are
//! known: the gradient of the layer's result has as many, and so has its input, and both are still in use.
//!
//! Not its job: layers without a bias, sums over other dimensions, compiled programs, which have kernels of their own.

use std::collections::BTreeSet;

use super::probe::{Ask, Probe};
use super::reduction::{self, Buffer};
use super::size::{Form, Size};
use crate::trace::Pass;
use crate::units::Bytes;

/// The gradient of a layer's result is freed after at most this many acts.
const SOON: usize = 8;
/// A gradient that is freed after fewer acts belongs to no parameter.
const LEAST_LIFE: usize = 4;
/// A cast gradient follows within so many requests.
const CAST: usize = 4;

/// A reduction that its probe does not split.
#[derive(Clone, Copy, Debug)]
pub(super) struct Split {
    /// The act that requests the result.
    pub(super) act: usize,
    buffer: Buffer,
    rows_per_sample: u64,
    threads: Option<u64>,
}

impl Split {
    /// What it requests after its result at a batch size, and frees at once.
    pub(super) fn at(&self, batch: u64) -> Option<[Bytes; 2]> {
        let requests = self.buffer.over(self.rows_per_sample.saturating_mul(batch), self.threads);
        requests.map(|bytes| bytes.map(Bytes))
    }
}

/// The reductions of a probe that it does not split. None if the probe shows that its layers do not reduce this way.
pub(super) fn of(probe: &Probe, sizes: &[Size]) -> Vec<Split> {
    let kept: BTreeSet<u64> = probe.kept().map(|ask| ask.bytes).collect();
    let (mut splits, mut right, mut wrong) = (Vec::new(), 0_usize, 0_usize);
    let mut live: Vec<&Ask> = Vec::new();
    for (at, ask) in probe.asks.iter().enumerate() {
        if let Some((inputs, element)) = bias_gradient(probe, sizes, &kept, at) {
            live.retain(|earlier| freed(earlier) > ask.act);
            let rows = rows(&live, ask, inputs.saturating_mul(element), probe.batch);
            if let Some(split) = rows.and_then(|rows| Split::of(probe, ask, element, rows)) {
                match (split.at(probe.batch), reduction::pair(&probe.asks, at + 1)) {
                    (None, None) => splits.push(split),
                    (Some(_), Some(_)) => right += 1,
                    _ => wrong += 1,
                }
            }
        }
        if sizes.get(at).is_some_and(is_proportional) {
            live.push(ask);
        }
    }
    if wrong > right { Vec::new() } else { splits }
}

impl Split {
    fn of(probe: &Probe, result: &Ask, element: u64, rows: u64) -> Option<Split> {
        let rows_per_sample = rows.checked_div(probe.batch)?;
        let buffer = Buffer::reducing_to(result.bytes, element)?;
        Some(Split { act: result.act, buffer, rows_per_sample, threads: probe.threads })
    }
}

/// The inputs of a linear layer, and the bytes of an element, if a request is the gradient of its bias: that of its weights comes right before
/// or after it.
fn bias_gradient(probe: &Probe, sizes: &[Size], kept: &BTreeSet<u64>, at: usize) -> Option<(u64, u64)> {
    let bias = gradient(probe, sizes, at)?;
    let near = [at.checked_sub(1), at.checked_add(1)].into_iter().flatten();
    near.filter_map(|near| gradient(probe, sizes, near)).find_map(|weights| {
        let inputs = weights.bytes.checked_div(bias.bytes).filter(|&inputs| inputs > 1)?;
        let before = probe.asks.get(at.saturating_sub(CAST + 1)..at)?;
        let after = probe.asks.get(at + 1..probe.asks.len().min(at + 1 + CAST))?;
        let has = |asks: &[Ask], bytes: u64| asks.iter().any(|ask| ask.bytes == bytes);
        // With autocast gradients are computed in half precision, and cast.
        let is_cast = weights.bytes.is_multiple_of(2) && has(before, weights.bytes / 2);
        let is_half = has(after, weights.bytes.saturating_mul(2)) && has(after, bias.bytes.saturating_mul(2));
        let (element, times) = if is_half { (2, 2) } else { (4, 1) };
        let is_kept = |bytes: u64| kept.contains(&bytes.saturating_mul(times));
        let is_of_layer = inputs.checked_mul(bias.bytes) == Some(weights.bytes)
            && is_kept(weights.bytes)
            && is_kept(bias.bytes);
        (is_of_layer && !is_cast).then_some((inputs, element))
    })
}

/// A request, if it may be the gradient of a parameter.
fn gradient<'a>(probe: &'a Probe, sizes: &[Size], at: usize) -> Option<&'a Ask> {
    let ask = probe.asks.get(at).filter(|ask| ask.pass == Some(Pass::Backward))?;
    let is_constant = matches!(sizes.get(at)?.form, Form::Constant(_));
    (is_constant && ask.life.is_none_or(|life| life >= LEAST_LIFE)).then_some(ask)
}

/// The rows that the gradient of a bias sums up: those of the gradient of the layer's result, which is freed first of all, and of its input.
fn rows(live: &[&Ask], bias: &Ask, input_row: u64, batch: u64) -> Option<u64> {
    let rows_of = |result: &Ask| {
        let rows = result.bytes.checked_div(bias.bytes)?;
        let input = rows.checked_mul(input_row)?;
        let is_input = |ask: &&&Ask| ask.bytes == input && ask.act != result.act;
        let is_result = rows.checked_mul(bias.bytes) == Some(result.bytes) && rows.is_multiple_of(batch);
        (is_result && rows > 1 && live.iter().any(|ask| is_input(&ask))).then_some(rows)
    };
    let results = live
        .iter()
        .filter(|ask| ask.pass == Some(Pass::Backward) && freed(ask).saturating_sub(bias.act) <= SOON);
    results.filter_map(|ask| Some((freed(ask), rows_of(ask)?))).min().map(|(_, rows)| rows)
}

/// The act that frees a request.
fn freed(ask: &Ask) -> usize {
    ask.life.map_or(usize::MAX, |life| ask.act.saturating_add(life))
}

/// Whether a size grows in proportion to the batch size.
fn is_proportional(size: &Size) -> bool {
    match size.form {
        Form::Line { from, to } => {
            u128::from(from.0) * u128::from(to.1) == u128::from(to.0) * u128::from(from.1)
        }
        _ => false,
    }
}
