//! Requests of several probes, matched by their order: for programs that ask in the same order every time.
//!
//! PyTorch's history tells sizes, and stacks where they were recorded. Two probes ask for the same in the same order, but for
//! scratch that libraries choose by size. So two lists are aligned as texts are, within a band: what stays the same or grows
//! with the batch belongs together, what does neither may.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use super::probe::{Ask, Probe};
use super::reduction;
use super::size::{Basis, Form, Point, Size};

/// How far an alignment may stray beyond the difference of the lengths.
const BAND: usize = 256;

/// A block that lives for at most this many acts is scratch memory if its size does not grow linearly.
const BRIEF: usize = 3;

/// How many others before and after may tell how scratch grows.
const NEIGHBOURS: usize = 8;

/// A size that is off its line by no more than this is on it: libraries pad parts of their scratch, and the allocator rounds to this.
const PADDING: u64 = 512;

/// Of the bytes that two probes keep, the hundredths that a good alignment pairs.
const WELL_ALIGNED: u64 = 95;

/// How much two probes have in common, in hundredths.
#[derive(Clone, Copy, Debug)]
pub(super) struct Likeness {
    /// Their batches.
    pub(super) of: (u64, u64),
    /// Of the requests, those that are as large in both, or in proportion to the batch. Of one program nearly all are, but for
    /// libraries' scratch.
    pub(super) asked: u64,
    /// Of the bytes that are never freed, those that both keep: weights, and what an optimizer has for each.
    pub(super) kept: u64,
}

impl Likeness {
    fn of(one: &Probe, other: &Probe, pairs: &[(usize, usize)]) -> Likeness {
        let mut kept = 0_u64;
        for &(a, b) in pairs {
            let (Some(left), Some(right)) = (one.asks.get(a), other.asks.get(b)) else { continue };
            if left.life.is_none() && right.life.is_none() {
                kept = kept.saturating_add(left.bytes).saturating_add(right.bytes);
            }
        }
        let both = one.asks.iter().chain(&other.asks).filter(|ask| ask.life.is_none());
        let all_kept = both.fold(0_u64, |sum, ask| sum.saturating_add(ask.bytes));
        // A compiler that tries kernels in the first step makes thousands of requests there, which differ.
        let asked = asked_in_common(one, other, pairs, |_, _| true).max(asked_in_common(
            one,
            other,
            pairs,
            Probe::is_in_later_step,
        ));
        Likeness { of: (one.batch, other.batch), asked, kept: hundredths(kept, all_kept) }
    }
}

/// Of the requests that count, the share that two probes have in common; none if none counts.
fn asked_in_common(
    one: &Probe,
    other: &Probe,
    pairs: &[(usize, usize)],
    counts: impl Fn(&Probe, &Ask) -> bool,
) -> u64 {
    let of = |probe: &Probe| probe.asks.iter().filter(|ask| counts(probe, ask)).count();
    let all = of(one).saturating_add(of(other)) as u64;
    let (mut left_same, mut right_same) = (BTreeSet::new(), BTreeSet::new());
    for &(a, b) in pairs {
        let (Some(left), Some(right)) = (one.asks.get(a), other.asks.get(b)) else { continue };
        let both_count = counts(one, left) && counts(other, right);
        if both_count && score(left, one.batch, right, other.batch) >= SAME {
            left_same.insert(a);
            right_same.insert(b);
        }
    }
    let same = left_same.len().saturating_add(right_same.len()) as u64;
    if all == 0 { 0 } else { hundredths(same, all) }
}

/// A share in hundredths; all of nothing.
fn hundredths(part: u64, all: u64) -> u64 {
    let share = u128::from(part).saturating_mul(100).checked_div(u128::from(all));
    share.map_or(100, |share| u64::try_from(share).unwrap_or(100))
}

/// How often a probe keeps each size for good.
fn kept_sizes(probe: &Probe) -> BTreeMap<u64, u64> {
    let mut sizes = BTreeMap::new();
    for ask in probe.kept() {
        *sizes.entry(ask.bytes).or_default() += 1;
    }
    sizes
}

fn bytes_of(sizes: &BTreeMap<u64, u64>) -> u64 {
    sizes.iter().fold(0, |sum, (bytes, count)| sum.saturating_add(bytes.saturating_mul(*count)))
}

/// Of the bytes that two probes keep, those that are the same in both, whenever they were made. A probe without optimizer state has only to
/// keep what the other does.
fn kept_of_each(one: &Probe, other: &Probe) -> u64 {
    let (left, right) = (kept_sizes(one), kept_sizes(other));
    let common =
        left.iter().filter_map(|(bytes, count)| Some((*bytes, *count.min(right.get(bytes)?)))).collect();
    let (left, right, common) = (bytes_of(&left), bytes_of(&right), bytes_of(&common));
    let all = if one.lacks_state || other.lacks_state { left.min(right) } else { left.max(right) };
    hundredths(common, all)
}

/// The sizes of every request of every probe, in the order of its asks; and how much each two probes have in common.
pub(super) fn sizes(probes: &[Probe]) -> (Vec<Vec<Size>>, Vec<Likeness>) {
    let mut alike = Vec::new();
    let mut seen: Vec<Vec<BTreeMap<u64, u64>>> = probes
        .iter()
        .map(|probe| probe.asks.iter().map(|ask| BTreeMap::from([(probe.batch, ask.bytes)])).collect())
        .collect();
    for (left, one) in probes.iter().enumerate() {
        for (right, other) in probes.iter().enumerate().skip(left + 1) {
            if one.batch == other.batch {
                continue;
            }
            let (pairs, likeness) = pairs(one, other);
            alike.push(likeness);
            for (a, b) in pairs {
                let (Some(first), Some(second)) = (one.asks.get(a), other.asks.get(b)) else { continue };
                let (first, second) = (first.bytes, second.bytes);
                if let Some(points) = seen.get_mut(left).and_then(|all| all.get_mut(a)) {
                    points.entry(other.batch).or_insert(second);
                }
                if let Some(points) = seen.get_mut(right).and_then(|all| all.get_mut(b)) {
                    points.entry(one.batch).or_insert(first);
                }
            }
        }
    }
    let sizes = probes.iter().zip(seen).map(|(probe, seen)| of_probe(probe, &seen)).collect();
    (sizes, alike)
}

fn of_probe(probe: &Probe, seen: &[BTreeMap<u64, u64>]) -> Vec<Size> {
    let mut sizes: Vec<Size> = probe.asks.iter().zip(seen).map(|(ask, points)| size(ask, points)).collect();
    let brief = probe.asks.iter().zip(seen).enumerate().filter(|(_, (ask, _))| ask.is_brief());
    let scratch: Vec<(usize, Option<Line>)> = brief
        .map(|(at, (ask, points))| (at, Line::within(points, Point { batch: probe.batch, bytes: ask.bytes })))
        .collect();
    let tensors =
        sizes.iter().filter(|size| size.basis == Basis::Exact).filter_map(|size| Line::like(&size.form));
    let mut tensors: Vec<Line> = tensors.collect();
    tensors.sort_by_key(|line| std::cmp::Reverse(line.slope));
    tensors.dedup_by_key(|line| line.slope);
    for (order, &(at, own)) in scratch.iter().enumerate() {
        let (Some(ask), Some(size)) = (probe.asks.get(at), sizes.get_mut(at)) else { continue };
        // Copies with another constant part at each batch: of convolutions, whose algorithms change.
        if size.basis == Basis::Padded && own.is_some() {
            size.basis = Basis::Irregular;
        }
        if size.basis != Basis::Irregular {
            continue;
        }
        // The nearest others that grow by no more than all of it: those of the same layer come close by, forth and back.
        let mut others = (1..=NEIGHBOURS).flat_map(|far| [order.checked_sub(far), order.checked_add(far)]);
        let point = Point { batch: probe.batch, bytes: ask.bytes };
        let nearest = || others.find_map(|near| scratch.get(near?)?.1?.through(point));
        // Or the largest tensor that it may be a copy of.
        let copied = || tensors.iter().find_map(|line| line.through(point));
        // What grows steadily goes on as it did: a recurrent layer's workspace is no copy of a tensor.
        let is_steady = own.is_none() && seen.get(at).is_some_and(grows_steadily);
        if is_steady {
            continue;
        }
        if let Some(line) = own.or_else(nearest).or_else(copied) {
            size.form = line.form();
        }
    }
    leave_winograd(probe, &scratch, &mut sizes);
    mark_scratch(probe, &mut sizes);
    hold_partial_weights(probe, &mut sizes);
    end_pointwise_copies(probe, &mut sizes);
    reduction::resize(probe, seen, &mut sizes);
    sizes
}

/// The sizes of what is not freed at once.
fn tensors(probe: &Probe) -> BTreeSet<u64> {
    probe.asks.iter().filter(|ask| !ask.is_brief()).map(|ask| ask.bytes).collect()
}

/// Holds the scratch of a convolution that computes the gradient of its weights for each sample and adds them up: as many gradients, in
/// single precision, as samples. cuDNN does so for a few samples only, but in bfloat16 for as many as were tried.
fn hold_partial_weights(probe: &Probe, sizes: &mut [Size]) {
    /// Smaller gradients do not matter.
    const LEAST: u64 = 1 << 16;
    let tensors = tensors(probe);
    for (at, ask) in probe.asks.iter().enumerate().filter(|(_, ask)| ask.is_brief()) {
        let gradients = probe.asks.iter().zip(sizes.iter()).take(at).skip(at.saturating_sub(2));
        let is_partial = |(gradient, size): (&Ask, &Size)| {
            let times = |factor: u64| gradient.bytes.saturating_mul(factor).saturating_mul(probe.batch);
            // The gradient itself may be in half precision.
            gradient.bytes >= LEAST
                && matches!(size.form, Form::Constant(_))
                && [Some(times(1)), Some(times(2)).filter(|_| probe.has_scaler != Some(false))]
                    .iter()
                    .flatten()
                    .any(|all| (0..=PADDING).contains(&ask.bytes.wrapping_sub(*all)))
        };
        let is_held = !tensors.contains(&ask.bytes) && gradients.into_iter().any(is_partial);
        if let Some(size) = sizes.get_mut(at).filter(|_| is_held) {
            *size = Size { form: Form::Constant(ask.bytes), basis: Basis::Irregular };
        }
    }
}

/// Ends the copies of pointwise convolutions. For the gradient of their weights cuDNN copies both tensors into another layout if they have few
/// positions, and not if they have many.
fn end_pointwise_copies(probe: &Probe, sizes: &mut [Size]) {
    /// Seen on an H200, in three networks and four: copies at 401,408 positions of all samples, none at 589,824.
    const MOST_POSITIONS: u64 = 1 << 19;
    let kept: BTreeSet<u64> = probe.kept().map(|ask| ask.bytes).collect();
    let tensors: BTreeSet<u64> = sizes
        .iter()
        .filter(|size| size.basis == Basis::Exact)
        .filter_map(|size| Line::like(&size.form).filter(|line| line.constant == 0))
        .map(|line| line.slope)
        .collect();
    for (at, ask) in probe.asks.iter().enumerate().filter(|(_, ask)| ask.is_brief()) {
        let weights =
            at.checked_sub(1).and_then(|before| Some((probe.asks.get(before)?, sizes.get(before)?)));
        let is_gradient = |(weights, size): &(&Ask, &Size)| {
            weights.act + 1 == ask.act && matches!(size.form, Form::Constant(_)) && !weights.is_brief()
        };
        let Some((weights, _)) = weights.filter(is_gradient) else { continue };
        let Some(line) = sizes.get(at).and_then(|size| Line::like(&size.form)) else { continue };
        let Some(positions) = line.pointwise_positions(weights.bytes, &tensors, &kept) else { continue };
        let Some(last) = MOST_POSITIONS.checked_div(positions).filter(|&last| last >= probe.batch) else {
            continue;
        };
        if let Some(size) = sizes.get_mut(at) {
            let form = Form::Copies { constant: line.constant, slope: line.slope, last };
            *size = Size { form, basis: Basis::Irregular };
        }
    }
}

/// Marks what grows, is freed at once and has the size of no tensor: a library's scratch.
fn mark_scratch(probe: &Probe, sizes: &mut [Size]) {
    let tensors = tensors(probe);
    for (ask, size) in probe.asks.iter().zip(sizes) {
        let grows = matches!(size.form, Form::Line { .. });
        if size.basis == Basis::Exact && grows && ask.is_brief() && !tensors.contains(&ask.bytes) {
            size.basis = Basis::Scratch;
        }
    }
}

/// Replaces scratch of Winograd's algorithm by that of the algorithm that takes its place.
///
/// For the gradients of weights of small problems cuDNN transforms tiles of both tensors, in memory. For larger ones it does not, and no
/// probe need show the change: then scratch holds copies of both tensors, as that of the layer's other gradient, which is next to it.
fn leave_winograd(probe: &Probe, scratch: &[(usize, Option<Line>)], sizes: &mut [Size]) {
    let lines: Vec<Option<Line>> = scratch.iter().map(|(at, _)| Line::like(&sizes.get(*at)?.form)).collect();
    for (order, (&(at, _), line)) in scratch.iter().zip(&lines).enumerate() {
        let Some(line) = line else { continue };
        let others = [order.checked_sub(1), order.checked_sub(2), order.checked_add(1)];
        let mut others = others.into_iter().filter_map(|other| *lines.get(other?)?);
        let Some(copies) = others.find(|other| line.is_winograd_beside(*other)) else { continue };
        let (Some(ask), Some(size)) = (probe.asks.get(at), sizes.get_mut(at)) else { continue };
        let point = Point { batch: probe.batch, bytes: ask.bytes };
        let is_left = size.form.at(probe.batch).0 != ask.bytes;
        let form = copies.through(point).filter(|_| is_left).unwrap_or(copies).form();
        *size = Size { form, basis: Basis::Irregular };
    }
}

fn size(ask: &Ask, points: &BTreeMap<u64, u64>) -> Size {
    let points: Vec<(Point, Vec<u64>)> =
        points.iter().map(|(&batch, &bytes)| (Point { batch, bytes }, Vec::new())).collect();
    match Size::fit(&points) {
        Some(size) if size.basis == Basis::Irregular => padded(&points).unwrap_or(size),
        // Two points always make a line; of scratch, only one of whole granules is believed.
        Some(size) if size.basis == Basis::TwoProbes && ask.is_brief() && is_odd(&size.form) => {
            Size { basis: Basis::Irregular, ..size }
        }
        Some(size) => size,
        None if ask.is_brief() => Size { form: Form::Constant(ask.bytes), basis: Basis::Irregular },
        None => Size::held(ask.bytes),
    }
}

/// The line through the first and the last of three points or more that are on it but for padding.
fn padded(points: &[(Point, Vec<u64>)]) -> Option<Size> {
    let (&(first, _), &(last, _)) = (points.first()?, points.last()?);
    let form = Form::line(&[first, last])?;
    let is_near = |point: &Point| form.at(point.batch).0.abs_diff(point.bytes) <= PADDING;
    let is_line = points.len() > 2 && points.iter().all(|(point, _)| is_near(point));
    is_line.then_some(Size { form, basis: Basis::Padded })
}

/// Whether three points or more nearly lie on a line: between any two neighbours they rise by nearly the same for each sample.
fn grows_steadily(points: &BTreeMap<u64, u64>) -> bool {
    /// The steepest part is steeper than the flattest by at most one part in so many.
    const SPREAD_DIVISOR: u128 = 8;
    let next = points.iter().skip(1);
    let rises = points.iter().zip(next).map(|((from, low), (to, high))| {
        let run = u128::from(to.saturating_sub(*from)).max(1);
        // In thousandths of a byte.
        u128::from(high.saturating_sub(*low)) * 1000 / run
    });
    let rises: Vec<u128> = rises.collect();
    let (Some(&least), Some(&most)) = (rises.iter().min(), rises.iter().max()) else { return false };
    rises.len() > 1 && least > 0 && most - least <= least / SPREAD_DIVISOR
}

/// Whether a form rises by what is no whole number of granules.
fn is_odd(form: &Form) -> bool {
    matches!(form, Form::Line { .. }) && Line::like(form).is_none()
}

/// Scratch of a convolution: copies of tensors in another layout, so many bytes a sample, and what does not depend on the batch.
///
/// Libraries choose among algorithms by the size of the problem, and at some batch another one. Two batches with the same
/// algorithm differ by a whole number of granules a sample; two with different ones hardly ever do.
#[derive(Clone, Copy, Debug)]
struct Line {
    slope: u64,
    constant: u64,
}

impl Line {
    /// Per-sample sizes of tensors worth a layout are multiples of this.
    const GRANULE: u64 = 256;

    /// The line through two of the points, the largest batches first. Where the probe's own point is not on it, another algorithm may have
    /// the same constant part, which is the weights.
    fn within(points: &BTreeMap<u64, u64>, own: Point) -> Option<Line> {
        let points: Vec<Point> = points.iter().map(|(&batch, &bytes)| Point { batch, bytes }).collect();
        let pairs = points.iter().enumerate().rev().flat_map(|(at, high)| {
            points.get(..at).unwrap_or_default().iter().rev().map(move |low| (low, high))
        });
        let line = pairs.filter_map(|(low, high)| Line::of(*low, *high)).next()?;
        let weights = Point { batch: 0, bytes: line.constant };
        Some(Line::of(weights, own).filter(|_| line.constant > 0).unwrap_or(line))
    }

    fn of(low: Point, high: Point) -> Option<Line> {
        let (run, rise) = (high.batch.checked_sub(low.batch)?, high.bytes.checked_sub(low.bytes)?);
        let slope = rise.checked_div(run).filter(|slope| slope * run == rise && *slope > 0)?;
        (slope % Line::GRANULE == 0).then_some(())?;
        Line { slope, constant: 0 }.through(low)
    }

    /// A form as such a line.
    fn like(form: &Form) -> Option<Line> {
        let Form::Line { from, to } = *form else { return None };
        Line::of(Point { batch: from.0, bytes: from.1 }, Point { batch: to.0, bytes: to.1 })
    }

    /// Whether it is what Winograd's algorithm takes where another algorithm copies both tensors and the weights: tiles of 6 by 6 for each
    /// 4 by 4 of the tensors, and for each 3 by 3 of the weights.
    fn is_winograd_beside(self, copies: Line) -> bool {
        copies.constant > Line::GRANULE
            && u128::from(self.slope) * 16 == u128::from(copies.slope) * 36
            && (u128::from(copies.constant) * 4).abs_diff(u128::from(self.constant)) <= u128::from(PADDING)
    }

    /// The line of the same slope through a point; `None` where nothing is left for the constant.
    fn through(self, point: Point) -> Option<Line> {
        let constant = point.bytes.checked_sub(self.slope.checked_mul(point.batch)?)?;
        Some(Line { constant, ..self })
    }

    /// The positions of a sample, if these are copies of the tensors of a pointwise convolution: one tensor has as many channels as a bias or
    /// a norm, and the weights are one for each pair of channels.
    fn pointwise_positions(self, weights: u64, tensors: &BTreeSet<u64>, kept: &BTreeSet<u64>) -> Option<u64> {
        let of_pair = |&one: &u64| {
            let other = self.slope.checked_sub(one).filter(|other| tensors.contains(other))?;
            let squared = (u128::from(one) * u128::from(other)).checked_div(u128::from(weights) * 4)?;
            let positions = u64::try_from(squared.isqrt()).ok().filter(|&positions| positions > 0)?;
            // Bytes for each channel, in single precision.
            let channels = |tensor: u64| tensor.checked_div(positions);
            let (left, right) = (channels(one)?, channels(other)?);
            let is_whole = left * positions == one && right * positions == other;
            let is_pointwise = u128::from(left) * u128::from(right) == u128::from(weights) * 4;
            (is_whole && is_pointwise && (kept.contains(&left) || kept.contains(&right))).then_some(positions)
        };
        tensors.range(..self.slope).find_map(of_pair)
    }

    fn form(self) -> Form {
        Form::Line { from: (0, self.constant), to: (1, self.constant.saturating_add(self.slope)) }
    }
}

impl Ask {
    /// Whether it is freed at once.
    pub(super) fn is_brief(&self) -> bool {
        self.life.is_some_and(|life| life <= BRIEF)
    }
}

/// Two requests that are as large, or in proportion to the batch.
const SAME: i32 = 4;

/// How well two requests belong together.
fn score(one: &Ask, left: u64, other: &Ask, right: u64) -> i32 {
    const LIKELY: i32 = 1;
    const NEVER: i32 = -6;
    let is_proportional =
        u128::from(one.bytes) * u128::from(right) == u128::from(other.bytes) * u128::from(left);
    let is_same_asker = one.key == other.key;
    let same = if one.bytes == other.bytes || is_proportional { SAME } else { 0 };
    if same > 0 {
        return same + i32::from(is_same_asker);
    }
    // Between constant and in proportion lies what is both in part.
    let (low, high) = if left < right { (one.bytes, other.bytes) } else { (other.bytes, one.bytes) };
    let grows = low <= high
        && u128::from(high) * u128::from(left.min(right)) <= u128::from(low) * u128::from(left.max(right));
    let is_alike = one.is_brief() == other.is_brief();
    match (is_same_asker, grows && is_alike) {
        (true, true) => LIKELY + 1,
        (true, false) if is_alike => LIKELY,
        (false, true) => 0,
        _ => NEVER,
    }
}

/// Finds the probes that have no optimizer state before their last step though others have: a gradient scaler skips the update of a step
/// whose gradients are not finite, which depends on the data, and so on the batch.
///
/// An optimizer has as much for each parameter again, or more: of the sizes that a probe keeps less often than others, these have at least
/// twice as many. Two optimizers with state differ by less.
pub(super) fn find_skipped(probes: &mut [Probe]) {
    let Some(most) = probes.iter().map(kept_sizes).max_by_key(bytes_of) else { return };
    for probe in probes {
        let own = kept_sizes(probe);
        let count = |size: &u64| own.get(size).copied().unwrap_or(0);
        let fewer = most.iter().filter(|(size, others)| count(size) < **others);
        let (mut has, mut should_have) = (0_u64, 0_u64);
        for (size, others) in fewer {
            has = has.saturating_add(size.saturating_mul(count(size)));
            should_have = should_have.saturating_add(size.saturating_mul(*others));
        }
        let is_much = should_have.saturating_sub(has) > bytes_of(&most) / NOTABLE;
        let with_buffers = should_have.saturating_add(should_have / BUFFERS);
        probe.lacks_state = is_much && with_buffers >= has.saturating_mul(2);
    }
}

/// Less than one part in so many of what is kept is not optimizer state.
const NOTABLE: u64 = 20;

/// Buffers, such as the running means of norms, have no optimizer state. Of the sizes in question they are at most one part in so many.
const BUFFERS: u64 = 16;

/// The stretch in which a probe makes its optimizer state, or its parameters if it has none: the last that keeps much.
fn makes_state(probe: &Probe) -> Option<usize> {
    let mut kept: BTreeMap<usize, u64> = BTreeMap::new();
    for ask in probe.kept() {
        let bytes = kept.entry(ask.stretch).or_default();
        *bytes = bytes.saturating_add(ask.bytes);
    }
    let all = kept.values().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
    kept.iter().rev().find(|(_, bytes)| **bytes > all / NOTABLE).map(|(stretch, _)| *stretch)
}

/// Whether two probes make their optimizer state in the same step, so that they can be compared as a whole.
fn is_in_step(one: &Probe, other: &Probe) -> bool {
    makes_state(one) == makes_state(other)
}

/// The pairs of requests that belong together, and how much that says two probes have in common.
fn pairs(one: &Probe, other: &Probe) -> (Vec<(usize, usize)>, Likeness) {
    if is_in_step(one, other) {
        let pairs = aligned(one, 0..one.asks.len(), other, 0..other.asks.len());
        let likeness = Likeness::of(one, other, &pairs);
        // A compiler that tries kernels out in the first step shifts one list against the other by more than the band.
        if likeness.kept >= WELL_ALIGNED || kept_of_each(one, other) < WELL_ALIGNED {
            return (pairs, likeness);
        }
    }
    let pairs = pairs_by_step(one, other);
    let likeness = Likeness { kept: kept_of_each(one, other), ..Likeness::of(one, other, &pairs) };
    (pairs, likeness)
}

/// The pairs of requests of steps that do the same.
fn pairs_by_step(one: &Probe, other: &Probe) -> Vec<(usize, usize)> {
    // Step by step: one that makes the state with one that does, earlier ones with earlier ones, and later ones with later ones.
    let mut pairs: BTreeSet<(usize, usize)> = BTreeSet::new();
    for stretch in 0..one.stretches.len() {
        if let Some(partner) = partner(one, stretch, other) {
            pairs.extend(aligned(one, one.asks_of(stretch), other, other.asks_of(partner)));
        }
    }
    for stretch in 0..other.stretches.len() {
        if let Some(partner) = partner(other, stretch, one) {
            pairs.extend(aligned(one, one.asks_of(partner), other, other.asks_of(stretch)));
        }
    }
    pairs.into_iter().collect()
}

/// The stretch of another probe that does what a stretch of one does.
fn partner(one: &Probe, stretch: usize, other: &Probe) -> Option<usize> {
    let part = one.stretches.get(stretch)?.part;
    let when = |probe: &Probe, stretch: usize| makes_state(probe).map(|made| stretch.cmp(&made));
    let is_alike = |theirs: &usize| {
        let theirs = *theirs;
        other.stretches.get(theirs).is_some_and(|found| found.part.trains() == part.trains())
            && (part.trains() || other.stretches.get(theirs).is_some_and(|found| found.part == part))
    };
    let alike = (0..other.stretches.len()).filter(is_alike);
    alike.min_by_key(|&theirs| {
        let is_other = part.trains() && when(one, stretch) != when(other, theirs);
        (is_other, theirs.abs_diff(stretch))
    })
}

/// The pairs among some requests of two probes, by the best alignment within the band.
fn aligned(one: &Probe, rows: Range<usize>, other: &Probe, columns: Range<usize>) -> Vec<(usize, usize)> {
    const GAP: i32 = -1;
    const FROM_BOTH: u8 = 1;
    const FROM_LEFT: u8 = 2;
    const FROM_RIGHT: u8 = 3;
    let (offsets, left, right) = (
        (rows.start, columns.start),
        one.asks.get(rows).unwrap_or_default(),
        other.asks.get(columns).unwrap_or_default(),
    );
    let (rows, columns) = (left.len(), right.len());
    let band = BAND + rows.abs_diff(columns);
    let width = 2 * band + 1;
    // The column that stands at the beginning of a row of the band.
    let first = |row: usize| (row * columns / rows.max(1)).saturating_sub(band);
    let mut from = vec![0_u8; (rows + 1).saturating_mul(width)];
    let mut before = vec![i32::MIN / 2; width];
    let mut now = vec![i32::MIN / 2; width];
    for row in 0..=rows {
        let begin = first(row);
        let above = row.checked_sub(1).map(first);
        let ask = row.checked_sub(1).and_then(|row| left.get(row));
        for at in 0..width {
            let column = begin + at;
            if column > columns {
                break;
            }
            let cell = |of: &[i32], begin: usize, column: usize| {
                column.checked_sub(begin).and_then(|at| of.get(at)).copied().unwrap_or(i32::MIN / 2)
            };
            let mut best = if row == 0 && column == 0 { (0, 0) } else { (i32::MIN / 2, 0) };
            if let (Some(above), Some(ask)) = (above, ask) {
                if let Some(earlier) = column.checked_sub(1)
                    && let Some(partner) = right.get(earlier)
                {
                    let both = cell(&before, above, earlier).saturating_add(score(
                        ask,
                        one.batch,
                        partner,
                        other.batch,
                    ));
                    if both > best.0 {
                        best = (both, FROM_BOTH);
                    }
                }
                let down = cell(&before, above, column).saturating_add(GAP);
                if down > best.0 {
                    best = (down, FROM_LEFT);
                }
            }
            if let Some(earlier) = at.checked_sub(1) {
                let across = now.get(earlier).copied().unwrap_or(i32::MIN / 2).saturating_add(GAP);
                if across > best.0 {
                    best = (across, FROM_RIGHT);
                }
            }
            if let (Some(score), Some(step)) = (now.get_mut(at), from.get_mut(row * width + at)) {
                (*score, *step) = best;
            }
        }
        std::mem::swap(&mut before, &mut now);
        now.fill(i32::MIN / 2);
    }
    let mut pairs = Vec::new();
    let (mut row, mut column) = (rows, columns);
    while row > 0 || column > 0 {
        let step = column.checked_sub(first(row)).and_then(|at| from.get(row * width + at)).copied();
        match step {
            Some(FROM_BOTH) => {
                row = row.saturating_sub(1);
                column = column.saturating_sub(1);
                pairs.push((offsets.0 + row, offsets.1 + column));
            }
            Some(FROM_LEFT) => row = row.saturating_sub(1),
            Some(FROM_RIGHT) => column = column.saturating_sub(1),
            _ => break,
        }
    }
    pairs.reverse();
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steady_growth_is_told_from_another_algorithm() {
        let steady = |points: &[(u64, u64)]| grows_steadily(&points.iter().copied().collect());
        // The workspace of a recurrent layer, and scratch of a convolution.
        assert!(steady(&[(6, 39_397_184), (10, 45_329_248), (16, 54_743_424)]));
        assert!(!steady(&[(2, 38_400), (4, 1_157_264), (8, 2_160_784)]));
        assert!(!steady(&[(2, 900), (4, 900), (8, 900)]));
        assert!(!steady(&[(2, 100), (4, 200)]), "two points are always on a line");
    }

    #[test]
    fn pointwise_convolutions_are_known_by_their_tensors_and_weights() {
        let positions = |tensors: [u64; 2], weights: u64, channels: u64| {
            let line = Line { slope: tensors.iter().sum(), constant: 574_191 };
            line.pointwise_positions(weights, &tensors.into(), &[4 * channels].into())
        };
        // 16 and 64 channels at 112 by 112, and a norm for the 64.
        let pair = |of: u64, left: u64, right: u64| [4 * of * left, 4 * of * right];
        assert_eq!(positions(pair(112 * 112, 16, 64), 4 * 16 * 64, 64), Some(112 * 112));
        assert_eq!(positions(pair(96 * 96, 32, 32), 4 * 32 * 32, 32), Some(96 * 96));
        assert_eq!(positions(pair(112 * 112, 16, 64), 4 * 16 * 64, 65), None, "no norm of that size");
        assert_eq!(positions(pair(112 * 112, 16, 64), 4 * 9 * 16 * 64, 64), None, "3 by 3");
        // 7 by 7 with a stride of 2: as if 42 and 224 channels had 3,584 positions.
        assert_eq!(positions([4 * 3 * 224 * 224, 4 * 64 * 112 * 112], 4 * 3 * 64 * 49, 64), None);
    }
}
