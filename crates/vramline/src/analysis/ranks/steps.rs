//! The steps of ranks: when each ended, and what was in use, in as many columns as a page has room for.
//!
//! A run of a million steps is kept as a few hundred columns, each with its highest values and the end of its last step. Columns are as
//! wide as a power of two, so that those of two ranks can always be joined to the same width.

use std::collections::BTreeMap;

use super::summary::RankSummary;
use crate::trace::Phase;
use crate::trace::recorded::RecordedStep;
use crate::units::Bytes;

/// The maximum number of columns of a rank.
const MAX_COLUMNS: usize = 256;

/// How steps of different ranks are matched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum StepsBy {
    /// By the program's own numbers, which never fall.
    #[default]
    Number,
    /// By their order: the numbers begin again in each epoch.
    Order,
}

words!(StepsBy { Number => "number", Order => "order" });

/// The training steps of a rank.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RankSteps {
    /// The number of steps.
    pub count: u64,
    /// How they are counted.
    pub by: StepsBy,
    /// The number of steps in a column, a power of two.
    width: i64,
    columns: BTreeMap<i64, StepColumn>,
}

/// The steps of a column.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StepColumn {
    /// The number of its last step.
    last: i64,
    /// When that ended, on the monotonic clock of the host.
    end: i64,
    /// The highest peak of a step.
    peak: Option<Bytes>,
    /// The most in use at the end of a step.
    current: Option<Bytes>,
}

impl StepColumn {
    fn join(self, later: StepColumn) -> StepColumn {
        let last = if later.last >= self.last { later } else { self };
        StepColumn { peak: self.peak.max(later.peak), current: self.current.max(later.current), ..last }
    }
}

impl RankSteps {
    /// The training steps of a device; all steps where none of them trains.
    #[must_use]
    pub fn of(steps: &[RecordedStep], device: &str) -> RankSteps {
        let of_device = || steps.iter().filter(|step| step.device == device || step.device.is_empty());
        let trains = |step: &&RecordedStep| step.phase == Phase::Train;
        let has_training = of_device().any(|step| trains(&step));
        let all: Vec<&RecordedStep> = of_device().filter(|step| !has_training || trains(step)).collect();
        let rises = all.windows(2).all(|pair| matches!(pair, [one, next] if one.number < next.number));
        let by = if rises { StepsBy::Number } else { StepsBy::Order };
        let mut made = RankSteps { count: all.len() as u64, by, width: 1, columns: BTreeMap::new() };
        for (order, step) in (0_i64..).zip(all) {
            let number = if by == StepsBy::Number { step.number } else { order };
            let end = step.end.monotonic;
            made.add(StepColumn { last: number, end, peak: step.peak, current: step.current });
            while made.columns.len() > MAX_COLUMNS {
                made.widen();
            }
        }
        made
    }

    fn add(&mut self, column: StepColumn) {
        let place = column.last.div_euclid(self.width.max(1));
        let known = self.columns.entry(place).or_insert(column);
        *known = known.join(column);
    }

    fn widen(&mut self) {
        self.width = self.width.saturating_mul(2);
        for column in std::mem::take(&mut self.columns).into_values() {
            self.add(column);
        }
    }

    /// The same in columns of at least this width.
    fn widened(&self, width: i64) -> RankSteps {
        let mut wider = self.clone();
        while wider.width < width {
            wider.widen();
        }
        wider
    }

    /// The steps whose ends are known, by their numbers, and when each ended.
    pub(super) fn ends(&self) -> impl Iterator<Item = (i64, i64)> + '_ {
        self.columns.values().map(|column| (column.last, column.end))
    }
}

/// Which figure of the steps a grid has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GridFigure {
    /// Peaks of steps.
    Peak,
    /// In use at the ends of steps: the peaks of most steps are unknown.
    Current,
}

words!(GridFigure { Peak => "peak", Current => "current" });

/// The memory of each rank by step.
#[derive(Clone, Debug)]
pub struct StepGrid {
    /// How steps are matched.
    pub by: StepsBy,
    /// The number of steps in a column.
    pub width: i64,
    /// The first step of each column.
    pub steps: Vec<i64>,
    /// Which figure the cells have.
    pub figure: GridFigure,
    /// One row for each rank, in their order; `None` where the rank has no such figure.
    pub rows: Vec<Vec<Option<Bytes>>>,
    /// Ranks whose steps are counted in another way, so that their rows are empty.
    pub not_matched: usize,
}

impl StepGrid {
    /// The grid of a job; `None` if no rank has steps.
    #[must_use]
    pub fn of(ranks: &[RankSummary]) -> Option<StepGrid> {
        let with_steps = || ranks.iter().map(|rank| &rank.steps).filter(|steps| steps.count > 0);
        let by_number = with_steps().filter(|steps| steps.by == StepsBy::Number).count();
        let by = if by_number * 2 >= with_steps().count() { StepsBy::Number } else { StepsBy::Order };
        let matched = || with_steps().filter(|steps| steps.by == by);
        let mut width = matched().map(|steps| steps.width).max()?;
        // Ranks with other numbers may need more columns together than each alone.
        let places = loop {
            let all = matched().flat_map(|steps| steps.columns.values());
            let mut places: Vec<i64> = all.map(|column| column.last.div_euclid(width)).collect();
            places.sort_unstable();
            places.dedup();
            if places.len() <= MAX_COLUMNS {
                break places;
            }
            width = width.saturating_mul(2);
        };
        let wide: Vec<Option<RankSteps>> = ranks
            .iter()
            .map(|rank| (rank.steps.count > 0 && rank.steps.by == by).then(|| rank.steps.widened(width)))
            .collect();
        let cells = || wide.iter().flatten().flat_map(|steps| steps.columns.values());
        let figure = if cells().filter(|cell| cell.peak.is_some()).count() * 2 >= cells().count() {
            GridFigure::Peak
        } else {
            GridFigure::Current
        };
        let cell = |column: &StepColumn| match figure {
            GridFigure::Peak => column.peak,
            GridFigure::Current => column.current,
        };
        let row = |steps: &Option<RankSteps>| -> Vec<Option<Bytes>> {
            let at = |place: &i64| steps.as_ref().and_then(|steps| steps.columns.get(place)).and_then(cell);
            places.iter().map(at).collect()
        };
        Some(StepGrid {
            by,
            width,
            steps: places.iter().map(|place| place.saturating_mul(width)).collect(),
            figure,
            rows: wide.iter().map(row).collect(),
            not_matched: with_steps().count() - matched().count(),
        })
    }
}
