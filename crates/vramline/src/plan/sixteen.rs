//! What Keras' mixed policies make of a probe's requests: which become half, which stay, and what is cast in between.
//!
//! With Keras' mixed policies most layers compute in 16 bits. Those that normalise, tables that are looked up and the loss do
//! not: what they are given is cast to 32 bits and that is what is kept for the backward pass, what they give is cast back, and
//! the same again in the backward pass. Weights stay in 32 bits; each use has a copy, which in a loop is one for every turn.
//!
//! Who is given what, requests do not tell. It is the latest tensor of the same size that is still there when the layer begins.

use rustc_hash::{FxHashMap, FxHashSet};

use super::casts::{Becomes, Casts};
use super::probe::{Ask, Part, Probe, Stretch};
use super::size::Size;
use crate::event::Dtype;
use crate::snapshot::Role;

/// The casts of a probe under such a policy.
pub(super) fn policy_casts(probe: &Probe, sizes: &[Size], weights: &[u64], batch: u64) -> Casts {
    let mut casts = Casts::default();
    for (number, stretch) in probe.stretches.iter().enumerate() {
        if !matches!(stretch.part, Part::FirstStep | Part::Step) {
            continue;
        }
        let asks = probe.asks.iter().zip(sizes).filter(|(ask, _)| ask.stretch == number);
        let asks: Vec<Asked<'_>> = asks.map(|(ask, size)| Asked::new(ask, size, batch)).collect();
        Step { asks: &asks, stretch, casts: &mut casts }.cast(weights);
    }
    casts
}

/// A request of a step, at the batch.
#[derive(Clone, Copy)]
struct Asked<'a> {
    ask: &'a Ask,
    bytes: u64,
    /// Whether it is the larger the larger the batch is, in numbers of 32 bits.
    grows: bool,
    /// Whether it is then half as large in 16 bits.
    is_cast: bool,
}

impl<'a> Asked<'a> {
    fn new(ask: &'a Ask, size: &Size, batch: u64) -> Asked<'a> {
        let bytes = size.form.at(batch).0;
        let grows = ask.dtype == Dtype::F32 && size.form.at(batch.saturating_mul(2)).0 > bytes;
        Asked { ask, bytes, grows, is_cast: grows && ask.role != Role::Inputs }
    }

    /// The act that frees it.
    fn freed(self) -> usize {
        self.ask.life.map_or(usize::MAX, |life| self.ask.act.saturating_add(life))
    }
}

/// What one pass does in a layer that works in 32 bits.
struct Visit<'a> {
    layer: u32,
    is_back: bool,
    /// What it asks for that 16 bits would halve.
    asks: Vec<Asked<'a>>,
}

/// A step, as it is cast.
struct Step<'a, 's> {
    asks: &'a [Asked<'a>],
    stretch: &'a Stretch,
    casts: &'s mut Casts,
}

impl Step<'_, '_> {
    fn cast(&mut self, weights: &[u64]) {
        for asked in self.asks.iter().filter(|asked| asked.is_cast && asked.ask.place.wide.is_none()) {
            self.casts.becomes.insert(asked.ask.act, Becomes::Half);
        }
        // Shapes of the backward pass are asked for early on, what it computes is not.
        let turns = self.asks.iter().find(|asked| asked.is_cast && asked.ask.place.is_back);
        let turns = turns.map_or(usize::MAX, |asked| asked.ask.act);
        for visit in visits(self.asks) {
            if visit.is_back {
                self.back(&visit);
            } else {
                self.forth(&visit, turns);
            }
        }
        self.loss(turns);
        self.input();
        self.weights(weights);
    }

    /// A layer in the forward pass: what it is given is kept in 32 bits, what it gives in 16.
    fn forth(&mut self, visit: &Visit<'_>, turns: usize) {
        if let Some((given, _)) = self.given(visit) {
            self.casts.becomes.insert(given.ask.act, Becomes::Widened);
        }
        // What is kept besides is for its own backward pass; what it gives comes last.
        if let Some(gives) = visit.asks.iter().rfind(|asked| asked.freed() > turns) {
            self.casts.becomes.insert(gives.ask.act, Becomes::Narrowed);
        }
    }

    /// A layer in the backward pass.
    fn back(&mut self, visit: &Visit<'_>) {
        let Some(last) = visit.asks.last() else { return };
        let gives = visit.asks.iter().max_by_key(|asked| asked.freed());
        let others =
            visit.asks.iter().filter(|asked| Some(asked.ask.act) != gives.map(|gives| gives.ask.act));
        let end = others.map(|asked| asked.freed()).max().unwrap_or(0).max(last.ask.act);
        if let Some((given, first)) = self.given(visit) {
            let known = self.casts.becomes.get(&given.ask.act);
            if given.freed() <= end && known == Some(&Becomes::Half) {
                self.casts.becomes.insert(given.ask.act, Becomes::WidenedAt(first));
            } else {
                // Another branch takes it too, in 16 bits.
                self.casts.copy(given.bytes, first, last.ask.act);
            }
        }
        if let Some(gives) = gives.filter(|gives| gives.freed() > end && end < self.stretch.acts.end) {
            self.casts.becomes.insert(gives.ask.act, Becomes::NarrowedAt(end + 1));
        }
    }

    /// The loss: it is given the model's result, the latest of the forward pass, and its gradient goes back in 16 bits.
    fn loss(&mut self, turns: usize) {
        let is_result = |asked: &&Asked<'_>| {
            let Ask { place, act, .. } = asked.ask;
            asked.is_cast && !place.is_back && !place.is_loss && *act < turns && asked.freed() > turns
        };
        let Some(result) = self.asks.iter().rfind(is_result) else { return };
        let leaves = self.asks.iter().find(|asked| {
            let Ask { place, act, dtype, .. } = asked.ask;
            *dtype == Dtype::F32 && place.is_back && !place.is_loss && *act >= turns
        });
        let leaves = leaves.map(|asked| asked.ask.act).filter(|&leaves| leaves < result.freed());
        let becomes = leaves.map_or(Becomes::Widened, Becomes::WidenedUntil);
        self.casts.becomes.insert(result.ask.act, becomes);
    }

    /// The latest tensor of the same size that is there when a layer begins, and the act at which it does.
    fn given(&self, visit: &Visit<'_>) -> Option<(Asked<'_>, usize)> {
        let largest = visit.asks.iter().map(|asked| asked.ask.bytes).max()?;
        let first = visit.asks.iter().find(|asked| asked.ask.bytes == largest)?.ask.act;
        let earlier = self.asks.partition_point(|asked| asked.ask.act < first);
        let is_given = |asked: &&Asked<'_>| {
            let Ask { place, bytes, .. } = asked.ask;
            asked.is_cast
                && *bytes == largest
                && place.is_back == visit.is_back
                && place.wide != Some(visit.layer)
                && asked.freed() > first
        };
        self.asks.get(..earlier)?.iter().rfind(is_given).map(|&asked| (asked, first))
    }

    /// The model's input: of what comes in, the largest. Its copy is kept for the first layer's weights.
    fn input(&mut self) {
        let inputs = self.asks.iter().filter(|asked| asked.grows && asked.ask.role == Role::Inputs);
        if let Some(input) = inputs.max_by_key(|asked| asked.bytes) {
            self.casts.copy(input.bytes.div_ceil(2), self.stretch.acts.start, self.stretch.acts.end);
        }
    }

    /// Weights: each has a copy for the step. One that is used in a loop has a copy for every turn instead.
    fn weights(&mut self, weights: &[u64]) {
        let mut weights = weights.to_vec();
        for of_loop in self.loops() {
            if let Some(at) = weights.iter().position(|&bytes| bytes == of_loop) {
                weights.swap_remove(at);
            }
        }
        for bytes in weights {
            self.casts.copy(bytes.div_ceil(2), self.stretch.acts.start, self.stretch.acts.end);
        }
    }

    /// Copies for every turn of a loop, kept for the backward pass of that turn. Gives what the weights take themselves.
    fn loops(&mut self) -> Vec<u64> {
        let in_loop = |asked: &&Asked<'_>| asked.ask.place.looped.is_some() && asked.ask.dtype == Dtype::F32;
        let looped: Vec<Asked<'_>> = self.asks.iter().filter(in_loop).copied().collect();
        // Where nothing goes on to the layer before, the copy is not kept.
        let goes_on: FxHashSet<Option<u32>> =
            looped.iter().filter(|asked| asked.is_cast).map(|asked| asked.ask.place.within).collect();
        let is_gradient = |asked: &&Asked<'_>| {
            let Ask { place, shape, .. } = asked.ask;
            place.is_back && !asked.is_cast && shape.len() > 1 && goes_on.contains(&place.within)
        };
        let mut gradients: FxHashMap<_, Vec<Asked<'_>>> = FxHashMap::default();
        for asked in looped.iter().filter(is_gradient) {
            gradients.entry(asked.ask.key).or_default().push(*asked);
        }
        let mut weights = Vec::new();
        for gradients in gradients.values() {
            let Some(place) = gradients.first().map(|asked| asked.ask.place) else { continue };
            let of_loop = |asked: &&Asked<'_>| {
                asked.is_cast && !asked.ask.place.is_back && asked.ask.place.looped == place.looped
            };
            let Some(key) = looped.iter().find(of_loop).map(|asked| asked.ask.key) else { continue };
            let turns = looped.iter().filter(|asked| asked.ask.key == key);
            // The last turn is the first to go back.
            for (turn, gradient) in turns.zip(gradients.iter().rev()) {
                self.casts.copy(gradient.bytes.div_ceil(2), turn.ask.act, gradient.ask.act);
            }
            weights.extend(gradients.first().map(|asked| asked.bytes));
        }
        weights
    }
}

/// What a step does in layers that work in 32 bits, but for the loss, in the order in which they begin.
fn visits<'a>(asks: &[Asked<'a>]) -> Vec<Visit<'a>> {
    let mut visits: Vec<Visit<'a>> = Vec::new();
    let mut known: FxHashMap<(u32, bool), usize> = FxHashMap::default();
    for &asked in asks.iter().filter(|asked| asked.is_cast && !asked.ask.place.is_loss) {
        let place = asked.ask.place;
        let Some(layer) = place.wide else { continue };
        let at = *known.entry((layer, place.is_back)).or_insert_with(|| {
            visits.push(Visit { layer, is_back: place.is_back, asks: Vec::new() });
            visits.len() - 1
        });
        if let Some(visit) = visits.get_mut(at) {
            visit.asks.push(asked);
        }
    }
    visits
}

#[cfg(test)]
mod tests {
    use super::super::casts::Copied;
    use super::super::probe::{Keys, Place};
    use super::*;
    use crate::event::Region;

    const FORTH: Place = Place { wide: None, is_loss: false, is_back: false, looped: None, within: None };
    const BACK: Place = Place { is_back: true, ..FORTH };
    const LOSS_BACK: Place = Place { wide: Some(9), is_loss: true, ..BACK };

    /// In a layer that normalises.
    fn norm(place: Place) -> Place {
        Place { wide: Some(7), ..place }
    }

    /// In a loop.
    fn turn(place: Place, within: u32) -> Place {
        Place { looped: Some(3), within: Some(within), ..place }
    }

    /// What becomes of a step of requests: made at one act, freed at another, so many bytes. An even number grows with the batch.
    fn cast(told: &[(usize, usize, u64, Role, Place)], weights: &[u64]) -> Casts {
        let mut keys = Keys::default();
        let mut ask = |&(act, freed, bytes, role, place): &(usize, usize, u64, Role, Place)| Ask {
            act,
            key: keys.key(&format!("{place:?} {bytes}"), Region::Unknown, Dtype::F32, 2),
            occurrence: 0,
            stretch: 0,
            bytes,
            shape: vec![1, bytes],
            role,
            is_named: true,
            tries_kernels: false,
            life: Some(freed - act),
            dtype: Dtype::F32,
            place,
            pass: None,
            call: None,
        };
        let asks: Vec<Ask> = told.iter().map(&mut ask).collect();
        let asked = asks.iter().map(|ask| {
            let grows = ask.bytes.is_multiple_of(2);
            Asked { ask, bytes: ask.bytes, grows, is_cast: grows && ask.role != Role::Inputs }
        });
        let asked: Vec<Asked<'_>> = asked.collect();
        let stretch = Stretch { part: Part::Step, ordinal: 0, acts: 0..60 };
        let mut casts = Casts::default();
        Step { asks: &asked, stretch: &stretch, casts: &mut casts }.cast(weights);
        casts.copies.sort_unstable_by_key(|copied| (copied.from, copied.bytes));
        casts
    }

    fn copied(bytes: u64, from: usize, until: usize) -> Copied {
        Copied { bytes, from, until }
    }

    #[test]
    fn what_normalises_and_the_loss_stay_in_32_bits_and_are_cast_around() {
        let mut told = vec![
            (0, 60, 100, Role::Inputs, FORTH),
            (2, 50, 40, Role::Activations, FORTH),
            (4, 6, 40, Role::Activations, norm(FORTH)),
            (7, 41, 40, Role::Activations, norm(FORTH)),
            (8, 41, 20, Role::Activations, FORTH),
            (9, 30, 8, Role::Activations, FORTH),
            (20, 21, 2, Role::Gradients, LOSS_BACK),
            (22, 60, 33, Role::Gradients, BACK),
            (24, 46, 40, Role::Gradients, BACK),
            (42, 58, 40, Role::Gradients, norm(BACK)),
            (44, 48, 40, Role::Gradients, norm(BACK)),
        ];
        let found = cast(&told, &[33]);
        let mut becomes: Vec<(usize, Becomes)> = found.becomes.into_iter().collect();
        becomes.sort_unstable_by_key(|(act, _)| *act);
        let expected = [
            (2, Becomes::Widened),
            (7, Becomes::Narrowed),
            (8, Becomes::Half),
            (9, Becomes::WidenedUntil(22)),
            (24, Becomes::WidenedAt(42)),
            (42, Becomes::NarrowedAt(49)),
        ];
        assert_eq!(becomes, expected);
        assert_eq!(found.copies, [copied(17, 0, 60), copied(50, 0, 60)], "of the weight, and of the input");
        // A gradient that another branch takes too stays, and what normalises has a copy.
        told[8].1 = 59;
        let found = cast(&told, &[]);
        assert_eq!(found.becomes.get(&24), Some(&Becomes::Half));
        assert_eq!(found.copies, [copied(50, 0, 60), copied(40, 42, 44)]);
    }

    #[test]
    fn a_weight_in_a_loop_has_a_copy_for_every_turn() {
        let told = [
            (2, 30, 10, Role::Activations, turn(FORTH, 4)),
            (4, 30, 10, Role::Activations, turn(FORTH, 4)),
            (10, 30, 31, Role::Gradients, turn(BACK, 5)),
            (11, 30, 10, Role::Gradients, turn(BACK, 5)),
            (12, 30, 31, Role::Gradients, turn(BACK, 5)),
            (13, 30, 21, Role::Gradients, turn(BACK, 6)),
            (14, 30, 21, Role::Gradients, turn(BACK, 6)),
        ];
        let found = cast(&told, &[21, 31]);
        // The last turn goes back first. What no gradient goes on from is not kept by turns.
        assert_eq!(found.copies, [copied(11, 0, 60), copied(16, 2, 12), copied(16, 4, 10)]);
    }
}
