//! Rule `leak`: memory in use at the end of a step grows by about the same amount in every step.
//!
//! The slope is Theil and Sen's: the median of the slopes between all pairs of steps, which a few odd steps cannot move; its
//! interval comes from Kendall's statistic (99 %). Training also grows for a while at the start and then stops. So both halves
//! must grow at a similar rate, and the growth must be larger than the scatter around it.

use super::{Device, Finding, StepFigures, Survivor, percent, staircase};
use crate::trace::{Phase, SurvivorKind};
use crate::units::Bytes;

/// The rule's name.
pub(crate) const RULE: &str = "leak";

/// The minimum number of steps after the warm-up; fewer prove nothing.
pub(crate) const FEWEST: usize = 12;
/// The first steps are ignored: one tenth of all, and at least two. They build what later steps reuse.
pub(crate) const WARM_UP: (usize, usize) = (10, 2);
/// The maximum number of points; more are thinned out, because the number of pairs grows with the square.
const MAX_POINTS: usize = 400;
/// The quantile of the normal distribution for an interval of 99 %.
const QUANTILE: f64 = 2.576;
/// The minimum growth over all steps. Blocks that move to larger chunks cause as much.
pub(super) const LEAST: f64 = 256.0 * 1024.0;
/// The growth rates of the two halves differ at most by this factor.
const ALIKE: f64 = 2.0;
/// The factor by which scatter may hide growth that a trace shows.
const BLURRED: f64 = 4.0;
/// The maximum median distance from the line, as a share of the growth.
const SCATTER: f64 = 0.2;
/// The share of the growth that variables must explain to be named as its cause.
const EXPLAINED: f64 = 0.5;
/// The maximum number of ops or variables that are named, and the minimum share of the largest or of the total, in percent.
const NAMES: usize = 3;
const WORTH_A_NAME: u64 = 5;

/// A steady growth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Growth {
    /// Bytes per step.
    pub slope: f64,
    /// The 99 % confidence interval.
    pub interval: (f64, f64),
    /// Number of steps that show it, after the warm-up.
    pub steps: usize,
    /// From the first to the last of them.
    pub bytes: f64,
}

/// Finds a steady growth in what was in use at the end of steps: (number, bytes), in order.
#[must_use]
pub fn growth(points: &[(f64, f64)]) -> Option<Growth> {
    growth_alike(points, ALIKE)
}

/// The same, with a given maximum factor between the rates of the two halves.
pub(super) fn growth_alike(points: &[(f64, f64)], alike: f64) -> Option<Growth> {
    let skipped = (points.len() / WARM_UP.0).max(WARM_UP.1);
    let seen = points.get(skipped..).filter(|seen| seen.len() >= FEWEST)?;
    let found = risen(points)?;
    let (slope, bytes) = (found.slope, found.bytes);
    let thinned: Vec<(f64, f64)> = seen.iter().step_by(seen.len().div_ceil(MAX_POINTS)).copied().collect();
    let (begin, end) = thinned.split_at_checked(thinned.len() / 2)?;
    let (early, late) = (theil_sen(begin)?.0, theil_sen(end)?.0);
    // A cache that grows in jumps may be flat within one half; then this rule stays silent.
    let is_steady = early > 0.0 && late > 0.0 && early.max(late) <= alike * early.min(late);
    let middle = median(thinned.iter().map(|(step, bytes)| bytes - slope * step).collect())?;
    let scatter =
        median(thinned.iter().map(|(step, bytes)| (bytes - slope * step - middle).abs()).collect())?;
    (is_steady && scatter <= SCATTER * bytes).then_some(found)
}

/// Growth that scatters too much to be proved by the figures of steps alone, if a trace shows blocks of about as many bytes that each step
/// keeps.
fn confirmed(points: &[(f64, f64)], survivors: &[Survivor]) -> Option<Growth> {
    let found = risen(points)?;
    let kept = survivors.iter().filter(|one| one.kind == SurvivorKind::Tensor);
    let kept: Bytes = kept.map(|one| one.bytes_a_step).sum();
    #[expect(clippy::cast_precision_loss, reason = "sizes far below 2^53")]
    let kept = kept.0 as f64;
    if found.slope > ALIKE * kept || kept > BLURRED * found.slope {
        return None;
    }
    // What the trace shows is exact.
    let (low, high) = found.interval;
    let bytes = found.bytes / found.slope * kept;
    Some(Growth { slope: kept, interval: (low.min(kept), high.max(kept)), bytes, ..found })
}

/// Whether memory in use at the end of steps rises on the whole, steadily or not. Then nobody can say that it does not grow.
pub(crate) fn has_risen(steps: &[StepFigures]) -> bool {
    risen(&points(&train_steps(steps), |step| step.current)).is_some()
}

/// A rise over all steps, without a test whether it is steady.
fn risen(points: &[(f64, f64)]) -> Option<Growth> {
    let skipped = (points.len() / WARM_UP.0).max(WARM_UP.1);
    let seen = points.get(skipped..).filter(|seen| seen.len() >= FEWEST && is_higher_later(seen))?;
    let thinned: Vec<(f64, f64)> = seen.iter().step_by(seen.len().div_ceil(MAX_POINTS)).copied().collect();
    let (slope, interval) = theil_sen(&thinned)?;
    let bytes = slope * (seen.last()?.0 - seen.first()?.0);
    (interval.0 > 0.0 && bytes >= LEAST).then_some(Growth { slope, interval, steps: seen.len(), bytes })
}

/// Whether the last quarter is higher than the first. A cheap test, because most series do not grow and there are many pairs.
fn is_higher_later(points: &[(f64, f64)]) -> bool {
    let quarter = points.len() / 4;
    let level = |points: Option<&[(f64, f64)]>| median(points?.iter().map(|point| point.1).collect());
    let (first, last) = (level(points.get(..quarter)), level(points.get(points.len() - quarter..)));
    first.zip(last).is_some_and(|(first, last)| last - first >= LEAST / 4.0)
}

/// The median slope between pairs, and its interval.
fn theil_sen(points: &[(f64, f64)]) -> Option<(f64, (f64, f64))> {
    let mut slopes = Vec::with_capacity(points.len() * points.len() / 2);
    for (place, one) in points.iter().enumerate() {
        slopes.extend(
            points
                .iter()
                .skip(place + 1)
                .filter(|two| two.0 > one.0)
                .map(|two| (two.1 - one.1) / (two.0 - one.0)),
        );
    }
    slopes.sort_unstable_by(f64::total_cmp);
    #[expect(clippy::cast_precision_loss, reason = "a few hundred points")]
    let (count, pairs) = (points.len() as f64, slopes.len() as f64);
    let spread = QUANTILE * (count * (count - 1.0) * (2.0 * count + 5.0) / 18.0).sqrt();
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "clamped to the places there are"
    )]
    let at = |place: f64| slopes.get(place.clamp(0.0, (pairs - 1.0).max(0.0)) as usize).copied();
    Some((at(pairs / 2.0)?, (at((pairs - spread) / 2.0)?, at((pairs + spread) / 2.0)?)))
}

pub(super) fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

/// The training steps, or all steps if there are no training steps.
pub(super) fn train_steps(steps: &[StepFigures]) -> Vec<StepFigures> {
    let trains = |step: &&StepFigures| step.phase == Phase::Train || step.phase == Phase::Other;
    let training: Vec<StepFigures> = steps.iter().filter(trains).copied().collect();
    if training.is_empty() { steps.to_vec() } else { training }
}

/// A figure of each step against the step's index.
#[expect(clippy::cast_precision_loss, reason = "sizes and numbers far below 2^53")]
pub(super) fn points(
    steps: &[StepFigures],
    figure: impl Fn(&StepFigures) -> Option<Bytes>,
) -> Vec<(f64, f64)> {
    steps
        .iter()
        .enumerate()
        .filter_map(|(place, step)| Some((place as f64, figure(step)?.0 as f64)))
        .collect()
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "positive, and rounded on purpose"
)]
pub(super) fn whole(value: f64) -> Bytes {
    Bytes(value.max(0.0).round() as u64)
}

/// A sentence that says what grew by `grown` bytes: variables if the program's own lists explain most of it, else ops whose blocks are
/// not freed.
pub(super) fn named(device: &Device, grown: f64) -> String {
    let kept: Bytes = device.kept.iter().map(|kept| kept.bytes).sum();
    if kept > Bytes::ZERO && kept >= whole(grown * EXPLAINED) {
        let rows =
            device.kept.iter().take(NAMES).map(|kept| {
                format!("{} ({} instead of {}, {})", kept.what, kept.after, kept.before, kept.bytes)
            });
        let more = device.kept.len().saturating_sub(NAMES);
        let more = if more > 0 { format!(", and {more} more") } else { String::new() };
        return format!("Growing variables: {}{more}.", rows.collect::<Vec<_>>().join(", "));
    }
    let most = device.survivors.first().map_or(Bytes::ZERO, |one| one.bytes_a_step);
    let who: Vec<String> = device
        .survivors
        .iter()
        .take_while(|one| is_much(one.bytes_a_step, most))
        .take(NAMES)
        .map(|one| format!("{} ({} per step)", one.op, one.bytes_a_step))
        .collect();
    if !who.is_empty() {
        return format!("Growing: {}.", who.join(", "));
    }
    let all: Bytes = device.stayed.iter().map(|stayed| stayed.bytes).sum();
    let grown = device.window.map_or(Bytes::ZERO, |window| window.grown);
    if grown > Bytes::ZERO && all >= Bytes(grown.0 / 2) {
        let much = device.stayed.iter().take_while(|stayed| is_much(stayed.bytes, all)).take(NAMES);
        let much: Vec<String> = much.map(|stayed| format!("{} ({})", stayed.op, stayed.bytes)).collect();
        return format!("Not freed after the traced steps: {}.", much.join(", "));
    }
    match device.variables.as_slice() {
        [_, .., _] if device.kept.is_empty() => {
            "The number of variables is constant and no traced step keeps memory, so the program keeps other tensors, datasets or graphs."
        }
        _ => "No trace shows which op keeps the memory.",
    }
    .to_owned()
}

/// Whether a part is large enough to be named.
fn is_much(bytes: Bytes, whole: Bytes) -> bool {
    percent(bytes, whole) >= WORTH_A_NAME
}

pub(super) fn check(device: &Device) -> Option<Finding> {
    let steps = train_steps(&device.steps);
    let points = points(&steps, |step| step.current);
    let found = growth(&points).or_else(|| confirmed(&points, &device.survivors))?;
    if staircase::has_larger_models(device, found.bytes) {
        return None;
    }
    let (slope, low, high) = (whole(found.slope), whole(found.interval.0), whole(found.interval.1));
    let listed: Bytes = device.kept.iter().map(|kept| kept.bytes).sum();
    let makes_variables = device.survivors.iter().any(|one| one.kind == SurvivorKind::Variable);
    let has_variables = makes_variables || listed >= whole(found.bytes * EXPLAINED);
    Some(Finding {
        rule: RULE,
        bytes: whole(found.bytes),
        text: format!(
            "Memory in {} grows by {slope} per step ({low} to {high}, 99 % confidence): {} over the last {} steps. {}",
            device.name,
            whole(found.bytes),
            found.steps,
            named(device, found.bytes)
        ),
        fix: if has_variables {
            "create variables, layers and models once, outside the step, or drop the last reference to those that are no longer \
             used; lists, attributes and closures keep them alive"
        } else {
            "store numbers, not tensors, in lists, metrics and caches: float(loss) instead of loss. Create variables and \
             layers outside the step, and limit the size of caches"
        }
        .to_owned(),
        verify: "run it again: this finding must be gone".to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A generator that needs no dependency: a linear congruence, high bits.
    fn noise(seed: &mut u64) -> f64 {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        #[expect(clippy::cast_precision_loss, reason = "31 bits")]
        let number = (*seed >> 33) as f64;
        number / f64::from(1_u32 << 31) - 0.5
    }

    fn series(count: u32, of: impl Fn(f64, f64) -> f64) -> Vec<(f64, f64)> {
        let mut seed = 7;
        (0..count).map(|step| (f64::from(step), of(f64::from(step), noise(&mut seed)))).collect()
    }

    const MIB: f64 = 1_048_576.0;

    #[test]
    fn a_leak_has_its_slope() {
        for (count, noise) in [(20, 0.0), (60, 0.5), (5_000, 3.0)] {
            let found =
                growth(&series(count, |step, by| 80.0 * MIB + 1.5 * MIB * step + noise * MIB * by)).unwrap();
            assert!((found.slope / (1.5 * MIB) - 1.0).abs() < 0.02, "{found:?}");
            assert!(found.interval.0 <= found.slope && found.slope <= found.interval.1);
        }
        // A cache that grows every tenth step.
        let found = growth(&series(200, |step, _| 80.0 * MIB + 10.0 * MIB * (step / 10.0).floor())).unwrap();
        assert!((found.slope / MIB - 1.0).abs() < 0.02, "{found:?}");
    }

    #[test]
    fn a_trace_confirms_growth_that_scatter_hides() {
        // Every other step takes larger blocks.
        let blurred = series(60, |step, _| 80.0 * MIB + 0.02 * MIB * step + 0.4 * MIB * (step % 2.0));
        let keeps = |bytes| {
            vec![Survivor {
                op: "BiasAdd".to_owned(),
                kind: SurvivorKind::Tensor,
                bytes_a_step: Bytes(bytes),
            }]
        };
        assert_eq!(growth(&blurred), None);
        assert!(risen(&blurred).is_some());
        let found = confirmed(&blurred, &keeps(20_480)).unwrap();
        assert_eq!(whole(found.slope), Bytes(20_480));
        assert!(found.interval.0 <= found.slope && found.slope <= found.interval.1);
        assert_eq!(confirmed(&blurred, &keeps(20_480_000)), None);
        assert_eq!(confirmed(&blurred, &[]), None);
        assert_eq!(confirmed(&series(60, |_, by| 80.0 * MIB + by * MIB), &keeps(20_480)), None);
    }

    #[test]
    fn what_is_no_leak_is_none() {
        let none: [&dyn Fn(f64, f64) -> f64; 6] = [
            &|_, _| 80.0 * MIB,
            &|_, by| 80.0 * MIB + 9.0 * MIB * by,
            // A warm-up that comes to an end, at once and slowly.
            &|step, _| if step < 10.0 { MIB * step } else { 10.0 * MIB },
            &|step, by| 80.0 * MIB * (1.0 - (-step / 12.0).exp()) + 0.1 * MIB * by,
            // One leap.
            &|step, _| if step < 31.0 { 80.0 * MIB } else { 120.0 * MIB },
            &|step, _| 200.0 * MIB - MIB * step,
        ];
        for (number, of) in none.iter().enumerate() {
            assert_eq!(growth(&series(60, of)), None, "{number}");
        }
        // Growth that is too small, or seen in too few steps.
        assert_eq!(growth(&series(60, |step, _| 1e9 + 256.0 * step)), None);
        assert_eq!(growth(&series(13, |step, _| 1e9 + MIB * step)), None);
        assert_eq!(growth(&[]), None);
    }
}
