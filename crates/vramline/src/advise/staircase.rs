//! Rule `staircase`: memory in use at the end of steps grows in jumps and is constant in between: with each fit, each epoch, each
//! retrace of a `tf.function`, or at some steps.
//!
//! Steps are grouped by fit, by epoch, or by the time between two traces of a function. A group's level is the median of its later
//! half, so neither its first steps nor outliers move it. It is a staircase if most groups are higher than the previous one by a
//! similar amount, hardly any is lower, and little changes within groups. A single jump does not count, nor does a warm-up that ends.

use super::leak::{FEWEST, LEAST, WARM_UP, growth, median, named, points, train_steps, whole};
use super::{Device, Finding, StepFigures, Survivor, numbers};
use crate::trace::SurvivorKind;
use crate::units::Bytes;

/// The rule's name.
pub(crate) const RULE: &str = "staircase";

/// The minimum number of jumps. Two are enough if the program's own list of variables shows what was kept.
const FEWEST_STAIRS: usize = 3;
const FEWEST_CONFIRMED: usize = 2;
/// The minimum height of a jump; ordinary changes of a pool are smaller.
const LEAST_STAIR: f64 = 64.0 * 1024.0;
/// The maximum share of the growth within groups, and the maximum share that is freed between groups.
const WITHIN: f64 = 0.25;
const BACK: f64 = 0.1;
/// The maximum share of one jump in the growth; more would be a single jump.
const ONE_LEAP: f64 = 0.6;
/// The minimum share of jumps that are at least half as high as the median.
const ALIKE: f64 = 2.0 / 3.0;
/// The minimum mean number of steps in an epoch; with fewer, growth per epoch looks like growth per step.
const FEWEST_IN_EPOCH: usize = 3;
/// The minimum mean number of steps between jumps; with fewer it is a slope.
const FEWEST_BETWEEN: usize = 3;

/// The share of steps from which on a function counts as traced in every step, and from which on growth per step may come from traces.
const EVERY_STEP: f64 = 0.8;
const MOST_STEPS: f64 = 0.5;

/// The event with which memory jumps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// Each call of `fit`.
    Fit,
    /// Each epoch.
    Epoch,
    /// Each retrace of a `tf.function`.
    Retrace,
    /// Some steps, without a known event.
    Steps,
}

/// A growth in jumps.
#[derive(Clone, Debug, PartialEq)]
pub struct Stairs {
    /// The event of each jump.
    pub with: Occasion,
    /// The numbers of the fits, epochs or steps at which memory jumps.
    pub at: Vec<i64>,
    /// The median height of a jump, in bytes.
    pub rise: f64,
    /// The total growth, in bytes.
    pub bytes: f64,
}

/// Steps that belong together.
#[derive(Default)]
struct Group {
    /// What the group is named by: its fit, its epoch, or its first step.
    number: i64,
    /// In use at the end of each step.
    levels: Vec<f64>,
    /// The peak minus that, for each step.
    rooms: Vec<f64>,
}

impl Group {
    fn push(&mut self, step: &StepFigures) {
        let Some(current) = step.current else { return };
        self.levels.push(float(current));
        let room = step.highest.and_then(|highest| highest.0.checked_sub(current.0));
        self.rooms.extend(room.map(|room| float(Bytes(room))));
    }

    fn level(&self) -> Option<f64> {
        late(&self.levels)
    }

    /// Growth between its beginning and its end. The first step is ignored: it builds what the others use.
    fn within(&self) -> f64 {
        let early = self.levels.get(1..self.levels.len().div_ceil(2).max(2)).unwrap_or_default();
        match (median(early.to_vec()), self.level()) {
            (Some(early), Some(late)) if self.levels.len() > 2 => (late - early).max(0.0),
            _ => 0.0,
        }
    }
}

fn late(values: &[f64]) -> Option<f64> {
    median(values.get(values.len() / 2..)?.to_vec())
}

/// Finds jumps in the training steps. `is_confirmed`: the program's list of variables shows what is kept.
#[must_use]
pub fn stairs(steps: &[StepFigures], is_confirmed: bool) -> Option<Stairs> {
    let steps = counted(train_steps(steps));
    let fewest = if is_confirmed { FEWEST_CONFIRMED } else { FEWEST_STAIRS };
    let fit = |step: &StepFigures| step.fit.map(|fit| (fit, 0));
    let epoch = |step: &StepFigures| Some((step.fit.unwrap_or(0), step.epoch?));
    let number = |step: &StepFigures| step.fit.map_or(0, u64::cast_signed);
    let by_fit = groups(&steps, fit, number);
    let by_epoch = groups(&steps, epoch, |step| step.epoch.map_or(0, u64::cast_signed));
    let is_long = |groups: &[Group]| steps.len() >= groups.len() * FEWEST_IN_EPOCH;
    climb(&by_fit, Occasion::Fit, fewest)
        .or_else(|| climb(&by_epoch, Occasion::Epoch, FEWEST_STAIRS).filter(|_| is_long(&by_epoch)))
        .or_else(|| retraces(&steps))
        .or_else(|| leaps(&steps))
}

/// The steps, renumbered if their numbers restart with each epoch.
fn counted(mut steps: Vec<StepFigures>) -> Vec<StepFigures> {
    if !steps.is_sorted_by(|one, two| one.number < two.number) {
        steps.iter_mut().zip(0..).for_each(|(step, number)| step.number = number);
    }
    steps
}

/// Groups of consecutive steps with the same key. Steps without a key are left out.
fn groups<Key: PartialEq>(
    steps: &[StepFigures],
    key: impl Fn(&StepFigures) -> Option<Key>,
    number: impl Fn(&StepFigures) -> i64,
) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    let mut last = None;
    for step in steps {
        let Some(its) = key(step) else { continue };
        if last.as_ref() != Some(&its) {
            groups.push(Group { number: number(step), ..Group::default() });
            last = Some(its);
        }
        if let Some(group) = groups.last_mut() {
            group.push(step);
        }
    }
    groups.retain(|group| !group.levels.is_empty());
    groups
}

/// Jumps between groups.
fn climb(groups: &[Group], with: Occasion, fewest: usize) -> Option<Stairs> {
    let levels: Vec<f64> = groups.iter().filter_map(Group::level).collect();
    let rises: Vec<f64> = levels.windows(2).filter_map(|pair| Some(pair.get(1)? - pair.first()?)).collect();
    let (first, last) = (levels.first()?, levels.last()?);
    let bytes = last - first;
    let up: Vec<f64> = rises.iter().copied().filter(|rise| *rise >= LEAST_STAIR).collect();
    let rise = median(up.clone())?;
    if up.len() < fewest || bytes < LEAST {
        return None;
    }
    let back: f64 = rises.iter().map(|rise| (-rise).max(0.0)).sum();
    let within: f64 = groups.iter().map(Group::within).sum();
    let highest = up.iter().copied().fold(0.0, f64::max);
    let alike = up.iter().filter(|up| **up >= rise / 2.0).count();
    // With only two jumps, one may be as much larger than the other.
    let one_leap = if up.len() < FEWEST_STAIRS { 1.0 - WITHIN } else { ONE_LEAP };
    let is_staircase = within <= WITHIN * bytes
        && back <= BACK * bytes
        && highest <= one_leap * bytes
        && share(alike, rises.len()) >= ALIKE;
    // Larger inputs raise the peak by more than the bytes in use at the end of a step; kept memory raises both equally.
    let rooms: Option<Vec<f64>> = groups.iter().map(|group| late(&group.rooms)).collect();
    let needs_more =
        rooms.and_then(|rooms| Some(rooms.last()? - rooms.first()?)).is_some_and(|more| more >= bytes);
    let at = groups.iter().skip(1).zip(&rises).filter(|(_, rise)| **rise >= LEAST_STAIR);
    let at = at.map(|(group, _)| group.number).collect();
    (is_staircase && !needs_more).then_some(Stairs { with, at, rise, bytes })
}

/// Jumps at retraces of a function.
fn retraces(steps: &[StepFigures]) -> Option<Stairs> {
    let mut traced = 0;
    let mut keyed = Vec::with_capacity(steps.len());
    for step in steps {
        traced += step.retraces;
        keyed.push(StepFigures { fit: Some(traced), ..*step });
    }
    let groups = groups(&keyed, |step| step.fit, |step| step.number);
    // It must continue: shapes that are new only at the start are a warm-up.
    let is_late = steps.iter().rposition(|step| step.retraces > 0)? * 2 >= steps.len();
    climb(&groups, Occasion::Retrace, FEWEST_STAIRS).filter(|_| is_late)
}

/// Jumps without a known event.
fn leaps(steps: &[StepFigures]) -> Option<Stairs> {
    let skipped = (steps.len() / WARM_UP.0).max(WARM_UP.1);
    let seen = steps.get(skipped..).filter(|seen| seen.len() >= FEWEST)?;
    let known: Vec<(&StepFigures, f64)> =
        seen.iter().filter_map(|step| Some((step, float(step.current?)))).collect();
    let changes = known.windows(2).filter_map(|pair| Some(pair.get(1)?.1 - pair.first()?.1));
    let least = (changes.fold(0.0, f64::max) / 4.0).max(LEAST_STAIR);
    let mut groups: Vec<Group> = Vec::new();
    let mut places = Vec::new();
    for (place, &(step, level)) in known.iter().enumerate() {
        let before = place.checked_sub(1).and_then(|before| known.get(before));
        if before.is_none_or(|before| level - before.1 >= least) {
            groups.push(Group { number: step.number, ..Group::default() });
            places.push(place);
        }
        groups.last_mut()?.push(step);
    }
    let gaps: Vec<f64> =
        places.windows(2).filter_map(|pair| Some(count(pair.get(1)? - pair.first()?))).collect();
    let since = count(known.len() - places.last()?);
    // It must continue: a cache that fills in a few jumps and then stays constant is no leak.
    let is_late = median(gaps).is_some_and(|gap| since <= 2.0 * gap);
    if known.len() < groups.len() * FEWEST_BETWEEN || !is_late {
        return None;
    }
    climb(&groups, Occasion::Steps, FEWEST_STAIRS)
}

#[expect(clippy::cast_precision_loss, reason = "sizes far below 2^53")]
fn float(bytes: Bytes) -> f64 {
    bytes.0 as f64
}

#[expect(clippy::cast_precision_loss, reason = "a count of steps")]
fn count(number: usize) -> f64 {
    number as f64
}

fn share(part: usize, all: usize) -> f64 {
    count(part) / count(all.max(1))
}

/// The jumps of a device.
fn found(device: &Device) -> Option<Stairs> {
    let kept: Bytes = device.kept.iter().map(|kept| kept.bytes).sum();
    let unconfirmed = stairs(&device.steps, false);
    let found = unconfirmed
        .or_else(|| stairs(&device.steps, true).filter(|stairs| float(kept) >= stairs.bytes / 2.0))
        .or_else(|| of_constants(device))?;
    // If every step traces a function, what is not freed decides between retraces and a leak.
    let traced = train_steps(&device.steps).iter().filter(|step| step.retraces > 0).count();
    let is_other = |one: &Survivor| one.kind != SurvivorKind::Constant;
    let stays: Bytes = device.survivors.iter().filter(|one| is_other(one)).map(|one| one.bytes_a_step).sum();
    let is_in_every_step = share(traced, device.steps.len()) >= EVERY_STEP;
    if found.with == Occasion::Retrace && is_in_every_step && float(stays) >= found.rise / 2.0 {
        return None;
    }
    Some(found)
}

/// Growth from step to step that consists of constants of graphs, while most steps trace a function again. The jumps differ: constants of a
/// larger shape are larger.
fn of_constants(device: &Device) -> Option<Stairs> {
    let steps = train_steps(&device.steps);
    let at: Vec<i64> = steps.iter().filter(|step| step.retraces > 0).map(|step| step.number).collect();
    let found = growth(&points(&steps, |step| step.current))?;
    let all: Bytes = device.stayed.iter().map(|stayed| stayed.bytes).sum();
    let constants = device.stayed.iter().filter(|stayed| stayed.kind == SurvivorKind::Constant);
    let constants: Bytes = constants.map(|stayed| stayed.bytes).sum();
    let is_of_constants = constants > Bytes::ZERO && float(constants) >= float(all) / 2.0;
    (share(at.len(), steps.len()) >= MOST_STEPS && is_of_constants).then(|| Stairs {
        with: Occasion::Retrace,
        rise: found.slope / share(at.len(), steps.len()),
        bytes: found.bytes,
        at,
    })
}

/// Whether larger models explain most of the growth: no more variables than before, but larger ones. Each fit then has a larger model, and the
/// previous one was freed.
pub(super) fn has_larger_models(device: &Device, grown: f64) -> bool {
    let (first, last) = (device.variables.first(), device.variables.last());
    first.zip(last).is_some_and(|(first, last)| {
        last.count <= first.count && float(last.bytes.saturating_sub(first.bytes)) >= grown / 2.0
    })
}

pub(super) fn check(device: &Device) -> Option<Finding> {
    let found = found(device).filter(|found| !has_larger_models(device, found.bytes))?;
    let at = numbers(&found.at);
    let functions: Vec<String> =
        device.retraced.iter().take(3).map(|(name, times)| format!("{name} ({times} times)")).collect();
    let with = match found.with {
        Occasion::Fit => "with each fit".to_owned(),
        Occasion::Epoch => "with each epoch".to_owned(),
        Occasion::Retrace => "with each retrace of a tf.function".to_owned(),
        Occasion::Steps => match period(&found.at) {
            Some(period) => format!("every {period} steps"),
            None => "at some steps".to_owned(),
        },
    };
    let place = match found.with {
        Occasion::Fit => "fits",
        Occasion::Epoch => "epochs",
        Occasion::Retrace | Occasion::Steps => "steps",
    };
    let retraced = if found.with == Occasion::Retrace && !functions.is_empty() {
        format!(" Retraced: {}.", functions.join(", "))
    } else {
        String::new()
    };
    Some(Finding {
        rule: RULE,
        bytes: whole(found.bytes),
        text: format!(
            "Memory in {} grows by {} {with} and is not freed: {} in total, at {place} {at}.{retraced} {}",
            device.name,
            whole(found.rise),
            whole(found.bytes),
            named(device, found.bytes)
        ),
        fix: fix(found.with, !device.kept.is_empty()).to_owned(),
        verify: "run it again: this finding must be gone".to_owned(),
    })
}

/// The distance between jumps, if it is always the same.
fn period(at: &[i64]) -> Option<i64> {
    let mut gaps = at.windows(2).filter_map(|pair| Some(pair.get(1)? - pair.first()?));
    let first = gaps.next()?;
    gaps.all(|gap| gap == first).then_some(first)
}

fn fix(with: Occasion, has_variables: bool) -> &'static str {
    match (with, has_variables) {
        (Occasion::Fit, true) => {
            "a list, a closure or a callback keeps the models of earlier fits: store scores instead of models, drop the last \
             reference (del model) and call keras.backend.clear_session() and gc.collect() before you build the next model; or build \
             the model once and reset its weights"
        }
        (Occasion::Fit, false) => {
            "the program keeps something of each fit: a model, a compiled function, a dataset, or tensors in a list, a closure or a \
             callback. Drop the last reference, call keras.backend.clear_session() and gc.collect() between fits, or build the model \
             and the function once"
        }
        (Occasion::Epoch, _) => {
            "store numbers, not tensors, after each epoch: float(x) or x.numpy() in callbacks, histories and lists of predictions"
        }
        (Occasion::Retrace, _) => {
            "avoid retracing, because each trace creates a graph that stays in memory with its constants: pass tensors of constant \
             shapes (pad or bucket, drop_remainder=True) instead of Python numbers, set input_signature or reduce_retracing=True, and \
             create the function once, outside loops"
        }
        (Occasion::Steps, true) => {
            "create variables and models once, outside the loop, or drop the last reference to those that are no longer used"
        }
        (Occasion::Steps, false) => {
            "check what the program does at these steps: evaluation, checkpoints, logs, caches. Store numbers, not tensors"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::advise::Stayed;
    use crate::trace::Phase;

    const MIB: u64 = 1 << 20;

    /// The position of a step in a program.
    #[derive(Clone, Copy)]
    struct At {
        fit: u64,
        epoch: u64,
        step: u64,
        place: u64,
    }

    /// Steps of a program with a number of fits, epochs per fit and steps per epoch.
    fn program(fits: u64, epochs: u64, each: u64, of: impl Fn(At) -> u64) -> Vec<StepFigures> {
        let all = fits * epochs * each;
        let at = |place| At {
            fit: place / (epochs * each),
            epoch: place / each % epochs,
            step: place % each,
            place,
        };
        let figures = |at: At| StepFigures {
            number: at.step.cast_signed(),
            phase: Phase::Train,
            current: Some(Bytes(of(at))),
            fit: Some(at.fit + 1),
            epoch: Some(at.epoch),
            ..StepFigures::default()
        };
        (0..all).map(at).map(figures).collect()
    }

    fn noise(at: At) -> u64 {
        at.place.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407) >> 33
            & 0x3fff
    }

    #[test]
    fn a_stair_with_each_fit() {
        for (epochs, each) in [(1, 1), (1, 2), (1, 5), (3, 40), (2, 1000)] {
            // The first step of each fit does not have its optimizer's state yet.
            let steps = program(4, epochs, each, |at| {
                let is_built = at.epoch > 0 || at.step > 0 || each == 1;
                80 * MIB + 3 * MIB * at.fit + u64::from(is_built) * 2 * MIB + noise(at)
            });
            let found = stairs(&steps, false).unwrap_or_else(|| panic!("{epochs} {each}"));
            assert_eq!((found.with, found.at.as_slice()), (Occasion::Fit, &[2, 3, 4][..]));
            assert!((found.rise / float(Bytes(3 * MIB)) - 1.0).abs() < 0.1, "{found:?}");
        }
        // Two stairs are enough where the variables confirm them.
        let steps = program(3, 1, 6, |at| 80 * MIB + 3 * MIB * at.fit);
        assert_eq!(stairs(&steps, false), None);
        assert_eq!(stairs(&steps, true).unwrap().at, [2, 3]);
    }

    #[test]
    fn a_stair_with_each_epoch() {
        let steps = program(1, 8, 25, |at| 80 * MIB + MIB * at.epoch + noise(at));
        let found = stairs(&steps, false).unwrap();
        assert_eq!((found.with, found.at), (Occasion::Epoch, vec![1, 2, 3, 4, 5, 6, 7]));
        let steps = program(3, 4, 25, |at| 80 * MIB + MIB * (4 * at.fit + at.epoch));
        assert_eq!(stairs(&steps, false).unwrap().with, Occasion::Epoch);
    }

    #[test]
    fn a_stair_with_each_trace_of_a_function() {
        let mut steps = program(1, 1, 60, |at| 80 * MIB + MIB * (at.step / 7));
        for step in steps.iter_mut().filter(|step| step.number % 7 == 0) {
            step.retraces = 1;
        }
        let found = stairs(&steps, false).unwrap();
        assert_eq!((found.with, found.at), (Occasion::Retrace, vec![7, 14, 21, 28, 35, 42, 49, 56]));
        // New shapes at first, and then no more.
        let mut steps = program(1, 1, 200, |at| 80 * MIB + MIB * (at.step / 7).min(4));
        let first = |step: &&mut StepFigures| step.number < 30 && step.number % 7 == 0;
        steps.iter_mut().filter(first).for_each(|step| step.retraces = 1);
        assert_eq!(stairs(&steps, false), None);
    }

    #[test]
    fn constants_of_graphs_that_differ_in_size_come_with_retraces() {
        // The inputs differ from step to step, and so do the constants of their graphs.
        let mut steps = program(1, 1, 60, |at| 80 * MIB + 2 * MIB * at.step + (at.step * 7 % 5) * MIB);
        steps.iter_mut().for_each(|step| step.retraces = 1);
        let stayed = |kind| vec![Stayed { op: "Tile/_0__cf__0".to_owned(), kind, bytes: Bytes(40 * MIB) }];
        let device = |kind| Device { steps: steps.clone(), stayed: stayed(kind), ..Device::default() };
        assert_eq!(found(&device(SurvivorKind::Constant)).map(|found| found.with), Some(Occasion::Retrace));
        assert_eq!(found(&device(SurvivorKind::Tensor)), None);
        let mut device = device(SurvivorKind::Constant);
        device.steps.iter_mut().for_each(|step| step.retraces = 0);
        assert_eq!(found(&device), None);
    }

    #[test]
    fn stairs_of_which_nothing_is_known() {
        for count in [60, 3000] {
            let mut steps = program(1, 1, count, |at| 80 * MIB + 4 * MIB * (at.step / 10) + noise(at));
            steps.iter_mut().for_each(|step| (step.fit, step.epoch) = (None, None));
            let found = stairs(&steps, false).unwrap();
            assert_eq!((found.with, period(&found.at)), (Occasion::Steps, Some(10)));
        }
    }

    #[test]
    fn what_is_no_staircase_is_none() {
        let none: [(&str, &dyn Fn(At) -> u64); 9] = [
            ("flat", &|at| 80 * MIB + noise(at)),
            ("slope", &|at| 80 * MIB + MIB * at.place),
            ("slope with noise", &|at| 80 * MIB + MIB * at.place + 20 * noise(at)),
            ("one leap", &|at| 80 * MIB + if at.fit >= 2 { 40 * MIB } else { 0 }),
            ("a leap in the middle of a fit", &|at| 80 * MIB + if at.place >= 50 { 40 * MIB } else { 0 }),
            ("warm-up", &|at| 80 * MIB + MIB * at.place.min(8)),
            ("warm-up in leaps", &|at| 80 * MIB + 4 * MIB * (at.place / 6).min(3)),
            ("up and down", &|at| 80 * MIB + 4 * MIB * (at.fit % 2)),
            ("small", &|at| 80 * MIB + 8192 * at.fit),
        ];
        for (name, of) in none {
            for (fits, epochs, each) in [(5, 1, 20), (1, 5, 20), (5, 5, 200), (1, 1, 100)] {
                let found = stairs(&program(fits, epochs, each, of), false);
                assert_eq!(found, None, "{name} {fits} {epochs} {each}");
            }
        }
        assert_eq!(stairs(&[], true), None);
    }

    #[test]
    fn larger_inputs_in_each_fit_are_no_staircase() {
        let mut steps = program(5, 1, 20, |at| 80 * MIB + 3 * MIB * at.fit);
        for step in &mut steps {
            step.highest = Some(Bytes(100 * MIB + 30 * MIB * step.fit.unwrap()));
        }
        assert_eq!(stairs(&steps, false), None);
    }
}
