//! How high parts of a run go, as often as probes and steps show it, and what follows for a whole run.
//!
//! Every step of an executor with threads is a fresh draw. A run's peak is the highest of its draws, so a long run comes close to
//! the highest that there is; the chance that `n` steps stay below a level is the chance of one, `n` times.

use super::probe::Part;
use crate::units::Bytes;

/// The number of times that a part occurs in a run.
pub(super) fn times(part: Part, steps: u64) -> u64 {
    match part {
        Part::Step => steps.saturating_sub(1),
        Part::Validation | Part::Predict | Part::Other => steps,
        Part::Start | Part::FirstStep => 1,
    }
}

/// Peaks of one part of a run, each with its weight.
#[derive(Clone, Debug, Default)]
pub(super) struct Draws {
    /// In ascending order.
    drawn: Vec<(Bytes, f64)>,
    total: f64,
}

impl Draws {
    fn add(&mut self, peak: Bytes, weight: f64) {
        let at = self.drawn.partition_point(|&(other, _)| other <= peak);
        self.drawn.insert(at, (peak, weight));
        self.total += weight;
    }

    /// The share of draws that are no higher than a level.
    fn share_up_to(&self, level: Bytes) -> f64 {
        let below = self.drawn.iter().take_while(|&&(peak, _)| peak <= level).map(|&(_, weight)| weight);
        if self.total > 0.0 { below.sum::<f64>() / self.total } else { 1.0 }
    }

    /// The lowest, the middle one and the highest.
    #[must_use]
    pub(super) fn range(&self) -> Option<[Bytes; 3]> {
        let (low, high) = (self.drawn.first()?.0, self.drawn.last()?.0);
        let mut sum = 0.0;
        let middle = self.drawn.iter().find(|&&(_, weight)| {
            sum += weight;
            sum * 2.0 >= self.total
        });
        Some([low, middle?.0, high])
    }
}

/// The draws of every part.
#[derive(Clone, Debug, Default)]
pub(super) struct Parts {
    parts: Vec<(Part, Draws)>,
}

impl Parts {
    /// Adds a peak of a part.
    pub(super) fn add(&mut self, part: Part, peak: Bytes, weight: f64) {
        let at = self.parts.iter().position(|&(known, _)| known == part);
        let at = at.unwrap_or_else(|| {
            self.parts.push((part, Draws::default()));
            self.parts.len() - 1
        });
        if let Some((_, draws)) = self.parts.get_mut(at) {
            draws.add(peak, weight);
        }
    }

    /// Every part with its draws, in the order of a run.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Part, &Draws)> {
        let mut parts: Vec<&(Part, Draws)> = self.parts.iter().collect();
        parts.sort_by_key(|(part, _)| *part);
        parts.into_iter().map(|(part, draws)| (*part, draws))
    }

    /// The probability that a run stays below a level.
    fn chance_within(&self, level: Bytes, steps: u64) -> f64 {
        let of = |(part, draws): &(Part, Draws)| {
            let times = i32::try_from(times(*part, steps)).unwrap_or(i32::MAX);
            draws.share_up_to(level).powi(times)
        };
        self.parts.iter().map(of).product()
    }

    /// The level that a run stays below with a given probability.
    #[must_use]
    pub(super) fn quantile(&self, chance: f64, steps: u64) -> Option<Bytes> {
        let mut levels: Vec<Bytes> =
            self.parts.iter().flat_map(|(_, draws)| draws.drawn.iter().map(|&(peak, _)| peak)).collect();
        levels.sort_unstable();
        levels.dedup();
        let at = levels.partition_point(|&level| self.chance_within(level, steps) < chance - 1e-9);
        levels.get(at).or(levels.last()).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_meets_its_highest_draw() {
        let mut parts = Parts::default();
        parts.add(Part::Start, Bytes(1), 1.0);
        parts.add(Part::FirstStep, Bytes(5), 1.0);
        for peak in [10, 10, 10, 20] {
            parts.add(Part::Step, Bytes(peak), 1.0);
        }
        assert_eq!(parts.quantile(0.5, 1), Some(Bytes(5)));
        assert_eq!(parts.quantile(0.5, 2), Some(Bytes(10)));
        assert_eq!(parts.quantile(0.5, 100), Some(Bytes(20)));
        let step = parts.iter().find(|(part, _)| *part == Part::Step).unwrap().1;
        assert_eq!(step.range(), Some([Bytes(10), Bytes(10), Bytes(20)]));
        assert_eq!(Parts::default().quantile(0.5, 1), None);
    }
}
