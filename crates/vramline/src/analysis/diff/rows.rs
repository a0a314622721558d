//! The rows of a comparison: the figure of each run, from its repeats, and the difference to the first run.

use super::DiffBy;
use super::held::HeldPart;
use super::slots::Comparison;
use super::steps::ComparedStep;
use crate::snapshot::Role;
use crate::units::Bytes;

/// Which figure of a pool or a step a row compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Figure {
    /// The peak in the trace or in the step.
    Peak,
    /// The peak of the whole run.
    Ever,
    /// Held at the traced peak.
    AtPeak,
    /// In use at the step's end.
    InUse,
}

words!(Figure { Peak => "peak", Ever => "ever", AtPeak => "at-peak", InUse => "in-use" });

/// The subject of a row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RowSubject {
    /// The whole pool.
    Pool,
    /// A part of what the pool held at its traced peak.
    Held(HeldPart),
    /// A step.
    Step(ComparedStep),
}

/// One figure, compared between the runs.
#[derive(Clone, Debug)]
pub struct ComparedRow {
    /// The subject of the row.
    pub subject: RowSubject,
    /// The grouping that it belongs to.
    pub by: DiffBy,
    /// Which figure.
    pub figure: Figure,
    /// The pool. If its names differ: its device, or its purpose if it has no device.
    pub pool: String,
    /// Its device.
    pub device: String,
    /// The layer, if all runs agree; otherwise empty.
    pub layer: String,
    /// The role that all runs agree on.
    pub role: Option<Role>,
    /// One figure for each run.
    pub runs: Vec<Option<RunFigure>>,
    /// The largest difference between repeats of one run.
    pub spread: Option<Bytes>,
    /// Whether every change is within that difference.
    pub within_spread: bool,
    /// Which pools it compares.
    pub(super) slot: usize,
}

/// The figure of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunFigure {
    /// The median of its repeats.
    pub bytes: Bytes,
    /// The lowest of them.
    pub low: Bytes,
    /// The highest of them.
    pub high: Bytes,
    /// The median minus that of the first run.
    pub delta: Option<i64>,
}

impl ComparedRow {
    /// The figure of a run.
    #[must_use]
    pub fn bytes(&self, run: usize) -> Option<Bytes> {
        self.runs.get(run).copied().flatten().map(|figure| figure.bytes)
    }

    /// The figure of a run minus that of the first.
    #[must_use]
    pub fn delta(&self, run: usize) -> Option<i64> {
        self.runs.get(run).copied().flatten().and_then(|figure| figure.delta)
    }

    /// The largest absolute change.
    #[must_use]
    pub fn change(&self) -> Bytes {
        largest_change((0..self.runs.len()).map(|run| self.delta(run)))
    }

    /// The row in words.
    #[must_use]
    pub fn text(&self) -> String {
        match (&self.subject, self.figure) {
            (RowSubject::Pool, Figure::Ever) => format!("{}, peak of the process", self.pool),
            (RowSubject::Pool, _) => format!("{}, peak", self.pool),
            (RowSubject::Held(part), _) => part.to_string(),
            (RowSubject::Step(step), Figure::InUse) => format!("{step}, at the end"),
            (RowSubject::Step(step), _) => step.to_string(),
        }
    }

    /// The part of the pool's memory that the row shows.
    pub(super) fn part(&self) -> Option<&HeldPart> {
        match &self.subject {
            RowSubject::Held(part) => Some(part),
            RowSubject::Pool | RowSubject::Step(_) => None,
        }
    }

    /// The figures that are known.
    pub(super) fn known(&self) -> impl Iterator<Item = Bytes> {
        self.runs.iter().flatten().map(|figure| figure.bytes)
    }

    pub(super) fn is_known_in_every_run(&self) -> bool {
        self.runs.iter().all(Option::is_some)
    }
}

/// The largest absolute value of several changes.
#[must_use]
pub fn largest_change(deltas: impl IntoIterator<Item = Option<i64>>) -> Bytes {
    Bytes(deltas.into_iter().flatten().map(i64::unsigned_abs).max().unwrap_or(0))
}

/// The rows of a grouping and a slot.
pub(super) fn rows_of(slot: usize, rows: &[ComparedRow], by: DiffBy) -> impl Iterator<Item = &ComparedRow> {
    rows.iter().filter(move |row| row.by == by && row.slot == slot)
}

impl Comparison<'_> {
    /// A row with the figure that `of` returns for each report.
    pub(super) fn row(
        &self,
        slot: usize,
        (by, figure): (DiffBy, Figure),
        subject: RowSubject,
        of: impl Fn(usize) -> Option<Bytes>,
    ) -> ComparedRow {
        let known = |numbers: std::ops::Range<usize>| {
            let mut known: Vec<Bytes> = numbers.filter_map(&of).collect();
            known.sort_unstable();
            known
        };
        let known: Vec<Vec<Bytes>> = self.numbers().map(known).collect();
        let base = known.first().and_then(|known| median(known));
        let figures = |known: &Vec<Bytes>| {
            let bytes = median(known)?;
            let delta = base.map(|base| signed_difference(bytes, base));
            Some(RunFigure { bytes, low: *known.first()?, high: *known.last()?, delta })
        };
        let runs: Vec<Option<RunFigure>> = known.iter().map(figures).collect();
        let repeated = known.iter().filter(|known| known.len() > 1);
        let spread = repeated.filter_map(|known| Some(known.last()?.saturating_sub(*known.first()?))).max();
        let slot_facts = self.slots.get(slot);
        let mut row = ComparedRow {
            subject,
            by,
            figure,
            pool: slot_facts.map(|slot| slot.label.clone()).unwrap_or_default(),
            device: slot_facts.map(|slot| slot.device.clone()).unwrap_or_default(),
            layer: String::new(),
            role: None,
            runs,
            spread,
            within_spread: false,
            slot,
        };
        row.within_spread = spread.is_some_and(|spread| row.change() <= spread);
        row
    }

    /// The peak in the trace, and the peak of the whole run if it differs.
    pub(super) fn peaks(&self, slot: usize) -> Vec<ComparedRow> {
        let peak = |report: usize| self.pool(slot, report)?.peak;
        let whole = |report: usize| {
            let pool = self.pool(slot, report)?;
            pool.lifetime_peak.and(pool.highest())
        };
        // A figure of only one run cannot be compared.
        let is_known = self.pools(slot).all(|pool| pool.lifetime_peak.is_some());
        let is_another = (0..self.reports.len()).any(|report| whole(report) != peak(report));
        let of_run = (is_known && is_another)
            .then(|| self.row(slot, (DiffBy::Device, Figure::Ever), RowSubject::Pool, whole));
        let of_trace = self.row(slot, (DiffBy::Device, Figure::Peak), RowSubject::Pool, peak);
        of_run.into_iter().chain([of_trace]).collect()
    }
}

/// The median; for an even number, the mean of the two middle values in whole bytes.
fn median(sorted: &[Bytes]) -> Option<Bytes> {
    let upper = *sorted.get(sorted.len() / 2)?;
    let lower = *sorted.get(sorted.len().checked_sub(1)? / 2)?;
    Some(Bytes(lower.0 + (upper.0 - lower.0) / 2))
}

fn signed_difference(bytes: Bytes, base: Bytes) -> i64 {
    let delta = i128::from(bytes.0) - i128::from(base.0);
    i64::try_from(delta).unwrap_or(if delta < 0 { i64::MIN } else { i64::MAX })
}
