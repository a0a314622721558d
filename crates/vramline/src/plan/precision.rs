//! The precision that a PyTorch program computes in: whether autocast would change it, and whether requests tell how.
//!
//! Requests have no element types. A program under autocast makes copies of half a weight's size in its forward pass.

use super::passes::{Called, Cycle, cycles};
use super::probe::Probe;
use super::size::Size;
use super::torch_call::Op;

/// The precision of a program, as far as it matters for autocast.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Precision {
    /// It computes in 32 bits.
    Single,
    /// Some of it is in 16 bits already.
    Mixed,
    /// It has to be measured: what runs is not told, or a library or a compiler decides.
    Untold,
}

/// The precision that a probe of PyTorch computes in.
pub(super) fn precision(probe: &Probe, sizes: &[Size]) -> Precision {
    let ops = || probe.asks.iter().filter_map(|ask| ask.call).map(|call| call.op);
    if ops().any(|op| op == Op::Autocast) {
        return Precision::Mixed;
    }
    let Some(cycles) = cycles(probe, sizes, probe.batch) else { return Precision::Untold };
    if cycles.iter().any(is_mixed) {
        return Precision::Mixed;
    }
    let is_visited = |cycle: &Cycle<'_>| cycle.visits.iter().any(|visit| visit.module.is_some());
    let is_told =
        cycles.iter().any(is_visited) && !ops().any(|op| matches!(op, Op::Recurrent | Op::Compiled));
    if is_told { Precision::Single } else { Precision::Untold }
}

/// Whether weights have copies of half their size, or a loss is of two bytes.
fn is_mixed(cycle: &Cycle<'_>) -> bool {
    const HALF_SCALAR: u64 = 2;
    let is_loss = |call: &&Called<'_>| matches!(call.op, Op::CrossEntropy | Op::Wider);
    let of_loss = cycle.calls.iter().filter(is_loss).flat_map(|call| &call.asks);
    if of_loss.clone().any(|asked| asked.ask.bytes == HALF_SCALAR) {
        return true;
    }
    let products = || cycle.calls.iter().filter(|call| call.op.is_product() && call.visit.is_some());
    let has_copy = |call: &&Called<'_>| {
        let weights: Vec<u64> = cycle.weights(call).map(|asked| asked.bytes).collect();
        call.asks.iter().any(|asked| asked.is_constant && weights.contains(&asked.bytes.saturating_mul(2)))
    };
    let copied = products().filter(has_copy).count();
    copied > 0 && copied * 2 >= products().count()
}
