//! Rule `growing-inputs`: memory grows because each step gets larger inputs than the previous one, such as longer sequences. Memory of
//! earlier steps is freed.
//!
//! There are three kinds of evidence, and one is enough. First, a trace shows which blocks are alive at the end of a step: with larger inputs
//! they belong to that step, and blocks of earlier steps are freed. Second, the counters: kept memory raises the peak of a step by as much as
//! the bytes in use at its end; larger inputs raise the peak by more, because activations grow too. Third, a trace shows ops that request
//! more in every step, by far more than the bytes in use at the end of steps grow.

use super::leak::{Growth, growth, growth_alike, points, train_steps, whole};
use super::{Device, Finding, GrowingOp, StepFigures};

/// The rule's name.
pub(super) const RULE: &str = "growing-inputs";

/// The minimum growth of peaks, in bytes and as a share of the last peak, if the bytes in use at the end of steps do not grow.
const LEAST: f64 = 4.0 * 1024.0 * 1024.0;
const SHARE: f64 = 0.05;
/// The growth rates of the two halves of peaks differ at most by this factor: a running maximum is flat for a while and then jumps.
const ALIKE: f64 = 4.0;
/// The minimum growth of ops' requests per step, as a multiple of the growth at the end of steps. A tensor that the program extends in each
/// step requests only once or twice as much as it keeps.
const AMPLE: f64 = 4.0;
/// The minimum share of the growth per step that a trace must explain.
const EXPLAINED: f64 = 0.5;

/// The growth with the inputs of steps, if there is one: of the bytes in use at the end of steps, else of their peaks.
fn found(device: &Device) -> Option<Growth> {
    let steps = train_steps(&device.steps);
    let left = growth(&points(&steps, |step| step.current));
    let room = |step: &StepFigures| Some(step.highest?.saturating_sub(step.current?));
    let rooms = growth_alike(&points(&steps, room), ALIKE);
    let Some(left) = left else {
        let last = steps.last()?.highest?;
        #[expect(clippy::cast_precision_loss, reason = "sizes far below 2^53")]
        let is_large = |peaks: &Growth| peaks.bytes >= LEAST && peaks.bytes >= SHARE * last.0 as f64;
        let peaks = growth_alike(&points(&steps, |step| step.highest), ALIKE)?;
        let is_room = rooms.is_some_and(|rooms| rooms.slope >= EXPLAINED * peaks.slope);
        let is_asked = asked(device) >= EXPLAINED * peaks.slope;
        return ((is_room || is_asked) && is_large(&peaks)).then_some(peaks);
    };
    if is_kept(device, &left) {
        return None;
    }
    let is_traced = device.window.is_some_and(|window| {
        #[expect(clippy::cast_precision_loss, reason = "sizes far below 2^53")]
        let (grown, kept) = (window.grown.0 as f64, window.kept.0 as f64);
        #[expect(clippy::cast_precision_loss, reason = "a count of steps")]
        let steps = window.steps.max(1) as f64;
        grown >= EXPLAINED * left.slope * steps && kept < EXPLAINED * grown && !device.growing.is_empty()
    });
    let is_counted = rooms.is_some_and(|rooms| rooms.slope >= left.slope);
    (is_traced || is_counted || asked(device) >= AMPLE * left.slope).then_some(left)
}

/// The total that ops request more in a traced step than in the previous one.
fn asked(device: &Device) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "sizes far below 2^53")]
    let more = |op: &GrowingOp| {
        op.last.0.saturating_sub(op.first.0) as f64 / op.steps.saturating_sub(1).max(1) as f64
    };
    device.growing.iter().map(more).sum()
}

/// Whether blocks or variables are known to be kept that explain the growth.
fn is_kept(device: &Device, left: &Growth) -> bool {
    #[expect(clippy::cast_precision_loss, reason = "sizes far below 2^53")]
    let survives = device.survivors.iter().map(|one| one.bytes_a_step.0 as f64).sum::<f64>();
    #[expect(clippy::cast_precision_loss, reason = "sizes far below 2^53")]
    let listed = device.kept.iter().map(|kept| kept.bytes.0 as f64).sum::<f64>();
    survives >= EXPLAINED * left.slope || listed >= EXPLAINED * left.bytes
}

pub(super) fn check(device: &Device) -> Option<Finding> {
    let found = found(device)?;
    let ops: Vec<String> =
        device.growing.iter().take(3).map(|op| format!("{} ({} to {})", op.op, op.first, op.last)).collect();
    let who = if ops.is_empty() {
        "The peaks of steps grow by more than the memory in use at their ends.".to_owned()
    } else {
        format!("These ops request more in each traced step: {}.", ops.join(", "))
    };
    Some(Finding {
        rule: RULE,
        bytes: whole(found.bytes),
        text: format!(
            "Memory in {} grows by {} per step because inputs grow: {} over the last {} steps. It is not a leak: memory of earlier \
             steps is freed. {who}",
            device.name,
            whole(found.slope),
            whole(found.bytes),
            found.steps
        ),
        fix: "limit the input size: truncate or bucket sequences at a maximum length, pad to constant shapes, or put the longest \
              batch first to see whether it fits"
            .to_owned(),
        verify: "run it with inputs of one shape: this finding must be gone".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advise::{KeptVariables, Survivor, WindowGrowth};
    use crate::trace::SurvivorKind;
    use crate::units::Bytes;

    const KIB: u64 = 1 << 10;

    /// Forty steps that each leave 100 KiB more in use, and whose peaks rise by `rise` KiB.
    fn device(rise: u64) -> Device {
        let step = |number: u64| StepFigures {
            number: number.cast_signed(),
            current: Some(Bytes((4000 + 100 * number) * KIB)),
            highest: Some(Bytes((9000 + rise * number) * KIB)),
            ..StepFigures::default()
        };
        Device { steps: (0..40).map(step).collect(), ..Device::default() }
    }

    #[test]
    fn peaks_that_rise_by_more_come_from_inputs() {
        assert!(found(&device(900)).is_some());
        assert!(found(&device(100)).is_none(), "a leak raises both by the same");
        assert!(found(&device(0)).is_none(), "an earlier peak hides those of the steps");
        let survivors = vec![Survivor {
            op: "Fill".to_owned(),
            kind: SurvivorKind::Tensor,
            bytes_a_step: Bytes(90 * KIB),
        }];
        assert!(found(&Device { survivors, ..device(900) }).is_none(), "a trace shows what is kept");
        let kept = KeptVariables { what: "v".to_owned(), before: 1, after: 40, bytes: Bytes(3000 * KIB) };
        assert!(found(&Device { kept: vec![kept], ..device(900) }).is_none(), "so does a list of variables");
    }

    #[test]
    fn peaks_may_leap_and_rest() {
        // Peaks of a real run, in MiB: steeper at first, with rests.
        let peaks = [
            13, 13, 16, 25, 28, 28, 28, 29, 30, 30, 31, 34, 40, 40, 44, 44, 47, 50, 51, 53, 57, 60, 60, 61,
            63, 64, 65, 68, 69, 70, 71, 72, 73, 73, 74, 74,
        ];
        let mut device = Device::default();
        for (number, peak) in (0..).zip(peaks) {
            let left = if number % 2 == 0 { 3000 + 200 * number } else { 6000 + 30 * number };
            device.steps.push(StepFigures {
                current: Some(Bytes(left * KIB)),
                highest: Some(Bytes(peak << 20)),
                ..StepFigures::default()
            });
        }
        assert!(found(&device).is_some());
    }

    #[test]
    fn a_trace_shows_that_earlier_blocks_are_gone() {
        let window = |kept| Some(WindowGrowth { steps: 4, grown: Bytes(390 * KIB), kept: Bytes(kept) });
        let growing =
            || vec![GrowingOp { op: "Pad".to_owned(), steps: 4, first: Bytes(KIB), last: Bytes(9 * KIB) }];
        let traced = |kept| Device { window: window(kept), growing: growing(), ..device(0) };
        assert!(found(&traced(0)).is_some());
        assert!(found(&traced(380 * KIB)).is_none());
        assert!(found(&Device { growing: Vec::new(), ..traced(0) }).is_none());
    }

    #[test]
    fn ops_that_ask_for_far_more_than_is_left_tell_of_inputs() {
        let asks = |more: u64| {
            let growing = GrowingOp {
                op: "Conv".to_owned(),
                steps: 4,
                first: Bytes(KIB),
                last: Bytes((1 + 3 * more) * KIB),
            };
            Device { growing: vec![growing], ..device(0) }
        };
        assert!(found(&asks(400)).is_some());
        // A tensor that is extended in each step asks for what it leaves.
        assert!(found(&asks(100)).is_none());
        assert!(found(&asks(200)).is_none());
        let kept = KeptVariables { what: "v".to_owned(), before: 1, after: 40, bytes: Bytes(3000 * KIB) };
        assert!(found(&Device { kept: vec![kept], ..asks(400) }).is_none());
    }

    #[test]
    fn peaks_may_rise_while_nothing_is_left() {
        let mut device = device(900);
        device.steps.iter_mut().for_each(|step| step.current = Some(Bytes(4000 * KIB)));
        assert!(found(&device).is_some_and(|found| (found.slope - 921_600.0).abs() < 1.0));
        // What is left jumps so much that nothing follows from it; then the ops of a trace tell.
        let (mut jumping, mut number) = (device.clone(), 0);
        jumping.steps.iter_mut().for_each(|step| {
            step.current = Some(Bytes(if number % 2 == 0 { 1000 } else { 40_000 } * KIB));
            number += 1;
        });
        assert!(found(&jumping).is_none());
        let growing =
            GrowingOp { op: "Conv".to_owned(), steps: 4, first: Bytes(KIB), last: Bytes(3000 * KIB) };
        assert!(found(&Device { growing: vec![growing], ..jumping }).is_some());
        device.steps.iter_mut().for_each(|step| step.highest = Some(Bytes(9000 * KIB)));
        assert!(found(&device).is_none());
    }
}
