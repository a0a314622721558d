//! *Internal.* A series that is drawn: any window of it, at any width, in time that does not depend on how many points it has.
//!
//! A pyramid with a fan-out of sixteen: level one sums up sixteen points each, level two sixteen of level one, and so on, each
//! as (least, most, last). A window is put together from a few entries of each level, so the highest point of every window
//! survives at every width, by construction. Building goes once over the points; the levels are a tenth of them in size.
//! Between its points a series keeps its value: it is a figure that changes at moments.

use std::ops::Range;

/// Entries that one entry of the next level sums up.
pub(crate) const FAN_OUT: usize = 16;

/// What a stretch of points comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Summary {
    /// The least.
    pub min: u64,
    /// The most.
    pub max: u64,
    /// The last.
    pub last: u64,
}

impl Summary {
    fn of(point: u64) -> Summary {
        Summary { min: point, max: point, last: point }
    }

    /// Both stretches, `next` after this one.
    #[must_use]
    pub fn then(self, next: Summary) -> Summary {
        Summary { min: self.min.min(next.min), max: self.max.max(next.max), last: next.last }
    }
}

fn join(known: Option<Summary>, next: Summary) -> Option<Summary> {
    Some(known.map_or(next, |known| known.then(next)))
}

/// Points in order, and what stretches of them come to.
#[derive(Clone, Debug, Default)]
pub struct Pyramid {
    points: Vec<u64>,
    /// From the finest, each entry of which sums up [`FAN_OUT`] points, to one of at most that many entries.
    levels: Vec<Vec<Summary>>,
}

impl Pyramid {
    /// Builds it, once.
    #[must_use]
    pub fn new(points: Vec<u64>) -> Pyramid {
        let mut levels: Vec<Vec<Summary>> = Vec::new();
        if points.len() > FAN_OUT {
            let of_points = |points: &[u64]| points.iter().fold(None, |all, &at| join(all, Summary::of(at)));
            levels.push(points.chunks(FAN_OUT).filter_map(of_points).collect());
        }
        while let Some(below) = levels.last().filter(|below| below.len() > FAN_OUT) {
            let of_level = |part: &[Summary]| part.iter().fold(None, |all, &next| join(all, next));
            levels.push(below.chunks(FAN_OUT).filter_map(of_level).collect());
        }
        Pyramid { points, levels }
    }

    /// How many points there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.points.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.points.is_empty()
    }

    /// A point.
    #[must_use]
    pub fn get(&self, at: usize) -> Option<u64> {
        self.points.get(at).copied()
    }

    /// An entry of a level; level zero is the points.
    fn entry(&self, level: usize, at: usize) -> Option<Summary> {
        match level.checked_sub(1) {
            None => self.get(at).map(Summary::of),
            Some(level) => self.levels.get(level)?.get(at).copied(),
        }
    }

    /// The coarsest level with an entry that begins at a point and does not reach beyond `end`, and how many points it covers.
    fn coarsest(&self, at: usize, end: usize) -> (usize, usize) {
        let (mut level, mut width) = (0, 1);
        while level < self.levels.len() && at.is_multiple_of(width * FAN_OUT) && at + width * FAN_OUT <= end {
            (level, width) = (level + 1, width * FAN_OUT);
        }
        (level, width)
    }

    /// What the points of a stretch come to; `None` where there are none.
    #[must_use]
    pub fn summary(&self, range: Range<usize>) -> Option<Summary> {
        let Range { start: mut at, end } = range.start..range.end.min(self.len());
        let mut all = None;
        while at < end {
            let (level, width) = self.coarsest(at, end);
            all = join(all, self.entry(level, at / width)?);
            at += width;
        }
        all
    }

    /// The first of the highest points of a stretch, and how high it is.
    #[must_use]
    pub fn highest(&self, range: Range<usize>) -> Option<(usize, u64)> {
        let max = self.summary(range.clone())?.max;
        let end = range.end.min(self.len());
        let mut at = range.start;
        while at < end {
            let (mut level, mut width) = self.coarsest(at, end);
            // Down to the point, where it is in here.
            while self.entry(level, at / width)?.max == max {
                if level == 0 {
                    return Some((at, max));
                }
                (level, width) = (level - 1, width / FAN_OUT);
                while self.entry(level, at / width)?.max != max {
                    at += width;
                }
            }
            at += width;
        }
        None
    }
}

/// One column of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// When it begins.
    pub begin: i64,
    /// What the series was in it, with the value that it begins with.
    pub summary: Summary,
}

/// A figure that changes at moments.
#[derive(Clone, Debug, Default)]
pub struct Series {
    times: Vec<i64>,
    values: Pyramid,
}

impl Series {
    /// Moments in order, each with the value from then on.
    #[must_use]
    pub fn new(points: impl IntoIterator<Item = (i64, u64)>) -> Series {
        let (times, values): (Vec<i64>, Vec<u64>) = points.into_iter().unzip();
        Series { times, values: Pyramid::new(values) }
    }

    /// Every moment with its value.
    pub fn points(&self) -> impl ExactSizeIterator<Item = (i64, u64)> {
        self.times.iter().copied().zip(self.values.points.iter().copied())
    }

    /// A window as at most `width` columns of the same length. Those before the first point are left out.
    #[must_use]
    pub fn window(&self, window: Range<i64>, width: usize) -> Vec<Column> {
        let length = i128::from(window.end) - i128::from(window.start);
        if length <= 0 || width == 0 {
            return Vec::new();
        }
        let count = i128::try_from(width).unwrap_or(i128::MAX).min(length);
        let edge = |at: i128| {
            // In the window, so that it fits.
            i64::try_from(i128::from(window.start) + length * at / count).unwrap_or(window.end)
        };
        let place = |time: i64| self.times.partition_point(|&at| at < time);
        let (mut columns, mut from) = (Vec::new(), place(window.start));
        for at in 0..count {
            let (begin, until) = (edge(at), edge(at + 1));
            let to = place(until);
            let is_new = self.times.get(from).is_some_and(|&time| time == begin);
            // What the last point before it left.
            let carried = from.checked_sub(1).filter(|_| !is_new).and_then(|last| self.values.get(last));
            let inside = self.values.summary(from..to);
            let summary = match (carried.map(Summary::of), inside) {
                (Some(carried), Some(inside)) => Some(carried.then(inside)),
                (carried, inside) => carried.or(inside),
            };
            columns.extend(summary.map(|summary| Column { begin, summary }));
            from = to;
        }
        columns
    }

    /// The whole as at most `width` columns.
    #[must_use]
    pub fn whole(&self, width: usize) -> Vec<Column> {
        match (self.times.first(), self.times.last()) {
            (Some(&first), Some(&last)) => self.window(first..last.saturating_add(1), width),
            _ => Vec::new(),
        }
    }
}
