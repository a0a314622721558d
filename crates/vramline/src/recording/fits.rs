//! The fits of a process: which steps and epochs belong together.
//!
//! Keras counts epochs and steps from zero in every `fit`. A fit that ended left a mark of kind `phase`; one that an exception or
//! a signal cut short is known by its steps, which no ended fit encloses.

use super::reader::RecordedProcess;
use super::rows::{Mark, RecordedMarkKind};
use crate::event::{How, Phase};

/// One `fit`, or a training loop of Keras that was cut short.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fit {
    /// Its number in the process, from 1.
    pub number: u64,
    /// When it began, on the monotonic clock.
    pub begin: i64,
    /// When it ended; of one that was cut short, when its last step did.
    pub end: i64,
    /// Whether it came to its end.
    pub has_ended: bool,
}

impl Fit {
    /// Whether it encloses a span of the monotonic clock.
    #[must_use]
    pub fn holds(&self, begin: i64, end: i64) -> bool {
        self.begin <= begin && end <= self.end
    }
}

impl RecordedProcess {
    /// Its fits, in the order in which they began.
    #[must_use]
    pub fn fits(&self) -> Vec<Fit> {
        let is_fit = |mark: &&Mark| mark.kind == RecordedMarkKind::Phase && mark.phase == Some(Phase::Train);
        let ended = |mark: &Mark| {
            let end = mark.time.monotonic;
            Fit { number: 0, begin: mark.begin.unwrap_or(end), end, has_ended: true }
        };
        let mut fits: Vec<Fit> = self.marks.iter().filter(is_fit).map(ended).collect();
        fits.extend(self.cut_short(&fits));
        fits.sort_by_key(|fit| (fit.begin, std::cmp::Reverse(fit.end)));
        fits.iter_mut().zip(1..).for_each(|(fit, number)| fit.number = number);
        fits
    }

    /// Fits of which only steps are there.
    fn cut_short(&self, ended: &[Fit]) -> Vec<Fit> {
        let mut last_end = ended.iter().map(|fit| fit.end).collect::<Vec<i64>>();
        last_end.sort_unstable();
        let mut found: Vec<(Fit, (i64, i64))> = Vec::new();
        for mark in &self.marks {
            let trains = mark.kind == RecordedMarkKind::Step
                && matches!(mark.how, Some(How::Keras | How::Trainer))
                && mark.phase == Some(Phase::Train);
            // `train_on_batch` has no epoch.
            let (true, Some(epoch), end) = (trains, mark.epoch, mark.time.monotonic) else { continue };
            let begin = mark.begin.unwrap_or(end);
            if ended.iter().any(|fit| fit.holds(begin, end)) {
                continue;
            }
            let place = (epoch, mark.step.unwrap_or_default());
            // Another fit ended meanwhile, or the count began anew.
            let goes_on = |(fit, last): &&mut (Fit, (i64, i64))| {
                let between = last_end.partition_point(|&at| at <= fit.end);
                *last < place && last_end.get(between).is_none_or(|&at| at > end)
            };
            match found.last_mut().filter(|found| goes_on(found)) {
                Some((fit, last)) => (fit.end, *last) = (end, place),
                None => found.push((Fit { number: 0, begin, end, has_ended: false }, place)),
            }
        }
        found.into_iter().map(|(fit, _)| fit).collect()
    }
}

/// The number of the fit that a span of the monotonic clock lies in: of fits inside one another the innermost.
#[must_use]
pub fn fit_of(fits: &[Fit], begin: i64, end: i64) -> Option<u64> {
    fits.iter().rev().find(|fit| fit.holds(begin, end)).map(|fit| fit.number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::folder::ProcessId;
    use crate::recording::rows::Moment;

    fn mark(kind: RecordedMarkKind, epoch: Option<i64>, step: Option<i64>, span: (i64, i64)) -> Mark {
        Mark {
            kind,
            phase: Some(Phase::Train),
            how: Some(How::Keras),
            epoch,
            step,
            begin: Some(span.0),
            time: Moment { monotonic: span.1, wall: 0 },
            ..Mark::default()
        }
    }

    fn process(marks: Vec<Mark>) -> RecordedProcess {
        RecordedProcess { marks, ..RecordedProcess::new(ProcessId::new("host", 1, 2)) }
    }

    fn step(epoch: i64, step: i64, at: i64) -> Mark {
        mark(RecordedMarkKind::Step, Some(epoch), Some(step), (at, at + 1))
    }

    #[test]
    fn fits_are_counted_in_order_with_those_that_were_cut_short() {
        let fit = |begin, end| mark(RecordedMarkKind::Phase, None, None, (begin, end));
        let marks = vec![
            step(0, 0, 11),
            step(0, 1, 13),
            fit(10, 20),
            // Two that an exception ended: the second begins to count anew.
            step(0, 0, 31),
            step(0, 1, 33),
            step(0, 0, 41),
            step(0, 0, 51),
            fit(50, 60),
            // No epoch: train_on_batch.
            mark(RecordedMarkKind::Step, None, Some(0), (71, 72)),
            step(4, 0, 81),
        ];
        let fits = process(marks).fits();
        let told: Vec<_> = fits.iter().map(|fit| (fit.number, fit.begin, fit.end, fit.has_ended)).collect();
        let expected = [
            (1, 10, 20, true),
            (2, 31, 34, false),
            (3, 41, 42, false),
            (4, 50, 60, true),
            (5, 81, 82, false),
        ];
        assert_eq!(told, expected);
        assert_eq!(
            [11, 33, 41, 51, 71, 81].map(|at| fit_of(&fits, at, at + 1)),
            [Some(1), Some(2), Some(3), Some(4), None, Some(5)]
        );
    }

    #[test]
    fn a_step_belongs_to_the_innermost_fit() {
        let fit = |begin, end| mark(RecordedMarkKind::Phase, None, None, (begin, end));
        let fits = process(vec![step(0, 0, 35), fit(30, 40), fit(10, 50)]).fits();
        assert_eq!((fit_of(&fits, 35, 36), fit_of(&fits, 12, 13)), (Some(2), Some(1)));
        assert!(process(Vec::new()).fits().is_empty());
    }
}
