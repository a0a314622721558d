//! Memory that is in use at the end of each step grows by the same amount, step after step.
//!
//! The slope is Theil and Sen's: the median of the slopes between all pairs of steps, which a few odd steps cannot move; its
//! interval comes from Kendall's statistic (99 %). Training also grows for a while when it begins, and then stays: so both halves
//! must grow, at a similar pace, and most of what there is to see must be the growth.

use super::{Device, Finding, StepFigures, percent, staircase};
use crate::trace::{Phase, SurvivorKind};
use crate::units::Bytes;

/// The rule's name.
pub(crate) const RULE: &str = "leak";

/// Fewer steps prove nothing.
pub(crate) const FEWEST: usize = 12;
/// So many of the first steps are not looked at: a tenth, and at least two, which build what the others use.
pub(crate) const WARM_UP: (usize, usize) = (10, 2);
/// More points than this are thinned out: pairs grow with the square.
const MAX_POINTS: usize = 400;
/// The quantile of the normal distribution for an interval of 99 %.
const QUANTILE: f64 = 2.576;
/// Less growth than this over all steps seen is not worth a word: blocks that come to lie in larger chunks look like that too.
pub(super) const LEAST: f64 = 256.0 * 1024.0;
/// The paces of the two halves differ at most by this factor.
const ALIKE: f64 = 2.0;
/// The typical distance from the line, at most, as a share of the growth.
const SCATTER: f64 = 0.2;
/// What variables have to explain of a growth to be named for it.
const EXPLAINED: f64 = 0.5;
/// How many ops or variables are named, and from which share of the largest or of all on, in percent.
const NAMES: usize = 3;
const WORTH_A_NAME: u64 = 5;

/// A steady growth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Growth {
    /// Bytes a step.
    pub slope: f64,
    /// The interval of 99 %.
    pub interval: (f64, f64),
    /// How many steps show it.
    pub steps: usize,
    /// From the first to the last of them.
    pub bytes: f64,
}

/// Finds a steady growth in what was in use at the end of steps: (number, bytes), in order.
#[must_use]
pub fn growth(points: &[(f64, f64)]) -> Option<Growth> {
    growth_alike(points, ALIKE)
}

/// The same, where the paces of the two halves differ at most by a factor.
pub(super) fn growth_alike(points: &[(f64, f64)], alike: f64) -> Option<Growth> {
    let skipped = (points.len() / WARM_UP.0).max(WARM_UP.1);
    let seen = points.get(skipped..).filter(|seen| seen.len() >= FEWEST)?;
    if !is_higher_later(seen) {
        return None;
    }
    let thinned: Vec<(f64, f64)> = seen.iter().step_by(seen.len().div_ceil(MAX_POINTS)).copied().collect();
    let (slope, interval) = theil_sen(&thinned)?;
    let (first, last) = (seen.first()?, seen.last()?);
    let bytes = slope * (last.0 - first.0);
    if interval.0 <= 0.0 || bytes < LEAST {
        return None;
    }
    let (begin, end) = thinned.split_at_checked(thinned.len() / 2)?;
    let (early, late) = (theil_sen(begin)?.0, theil_sen(end)?.0);
    // A cache that grows in leaps may rest in one half; where each half tells nothing by itself, the whole must do.
    let is_steady = early > 0.0 && late > 0.0 && early.max(late) <= alike * early.min(late);
    let middle = median(thinned.iter().map(|(step, bytes)| bytes - slope * step).collect())?;
    let scatter =
        median(thinned.iter().map(|(step, bytes)| (bytes - slope * step - middle).abs()).collect())?;
    (is_steady && scatter <= SCATTER * bytes).then_some(Growth { slope, interval, steps: seen.len(), bytes })
}

/// Whether the last quarter lies above the first: most series do not grow, and pairs are many.
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

/// The steps that train; of a program that has none, all.
pub(super) fn train_steps(steps: &[StepFigures]) -> Vec<StepFigures> {
    let trains = |step: &&StepFigures| step.phase == Phase::Train || step.phase == Phase::Other;
    let training: Vec<StepFigures> = steps.iter().filter(trains).copied().collect();
    if training.is_empty() { steps.to_vec() } else { training }
}

/// A figure of steps over their places.
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

/// What memory that grew by so much consists of, in a sentence: variables where the program's own lists explain most of it, else ops whose
/// blocks stay from step to step.
pub(super) fn named(device: &Device, grown: f64) -> String {
    let kept: Bytes = device.kept.iter().map(|kept| kept.bytes).sum();
    if kept > Bytes::ZERO && kept >= whole(grown * EXPLAINED) {
        let rows = device.kept.iter().take(NAMES).map(|kept| {
            format!("{}, {} times instead of {} ({})", kept.what, kept.after, kept.before, kept.bytes)
        });
        let more = device.kept.len().saturating_sub(NAMES);
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        return format!("Variables that became more: {}{more}", rows.collect::<Vec<_>>().join("; "));
    }
    let most = device.survivors.first().map_or(Bytes::ZERO, |one| one.bytes_a_step);
    let who: Vec<String> = device
        .survivors
        .iter()
        .take_while(|one| is_much(one.bytes_a_step, most))
        .take(NAMES)
        .map(|one| format!("{} ({} a step)", one.op, one.bytes_a_step))
        .collect();
    if !who.is_empty() {
        return format!("What stays was asked for by {}", who.join(", "));
    }
    let all: Bytes = device.stayed.iter().map(|stayed| stayed.bytes).sum();
    let grown = device.window.map_or(Bytes::ZERO, |window| window.grown);
    if grown > Bytes::ZERO && all >= Bytes(grown.0 / 2) {
        let much = device.stayed.iter().take_while(|stayed| is_much(stayed.bytes, all)).take(NAMES);
        let much: Vec<String> = much.map(|stayed| format!("{} ({})", stayed.op, stayed.bytes)).collect();
        return format!("Of what traced steps asked for, this stays: {}", much.join(", "));
    }
    match device.variables.as_slice() {
        [_, .., _] if device.kept.is_empty() => {
            "The variables did not become more, and no traced step keeps memory: other tensors, datasets or graphs are kept"
        }
        _ => "The trace, where there is one, shows no op whose memory stays",
    }
    .to_owned()
}

/// Whether something is worth a name beside the whole.
fn is_much(bytes: Bytes, whole: Bytes) -> bool {
    percent(bytes, whole) >= WORTH_A_NAME
}

pub(super) fn check(device: &Device) -> Option<Finding> {
    let steps = train_steps(&device.steps);
    let found = growth(&points(&steps, |step| step.current))?;
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
            "{}: memory grows by {slope} a step ({low} to {high}, 99 % sure), over {} steps by {} in all. {}",
            device.name,
            found.steps,
            whole(found.bytes),
            named(device, found.bytes)
        ),
        fix: if has_variables {
            "make variables, layers and models once, outside the step, or drop the last reference to those that are no longer used: \
             lists, attributes and closures keep them"
        } else {
            "keep numbers, not tensors, in lists, metrics and caches: float(loss) instead of loss; make variables and \
             layers outside the step, and give caches an end"
        }
        .to_owned(),
        verify: "run it again: the same rule must be silent".to_owned(),
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
