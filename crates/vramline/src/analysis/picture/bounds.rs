//! How much of everything a page has room for, and a report shortened to that.

use crate::analysis::report::ReportAnalysis;

/// Rows of a pool's peak in a report that becomes a page.
pub const PAGE_PEAK_ROWS: usize = 400;

/// Rows of a pool's peak for each row of any other moment.
const PEAK_ROWS_PER_MOMENT_ROW: usize = 6;

/// The fewest characters that a text is cut to.
const MIN_TEXT_CHARS: usize = 40;

/// How much of everything a page keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PictureRoom {
    /// Pools that are listed.
    pub pools: usize,
    /// Of these, with a timeline.
    pub drawn_pools: usize,
    /// What each of the first pools has.
    pub full_pool: PoolRoom,
    /// What each of the others has.
    pub other_pool: PoolRoom,
    /// Kept moments of a pool.
    pub moments: usize,
    /// Rows of each of them.
    pub moment_rows: usize,
    /// Steps.
    pub steps: usize,
    /// Entries of any other list of the report.
    pub entries: usize,
    /// Characters of a text.
    pub text_chars: usize,
    /// Bytes of all names.
    pub name_bytes: usize,
}

/// How much of a pool a page draws.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolRoom {
    /// Columns of the timeline.
    pub columns: usize,
    /// Allocations of the map.
    pub blocks: usize,
}

impl Default for PictureRoom {
    fn default() -> PictureRoom {
        PictureRoom {
            pools: 64,
            drawn_pools: 12,
            full_pool: PoolRoom { columns: 1 << 15, blocks: 1 << 16 },
            other_pool: PoolRoom { columns: 1 << 12, blocks: 1 << 12 },
            moments: 96,
            moment_rows: 60,
            steps: 4000,
            entries: 2000,
            text_chars: 400,
            name_bytes: 4 << 20,
        }
    }
}

/// A quarter of what a page keeps, and one at least.
fn quarter(count: usize) -> usize {
    (count / 4).max(1)
}

impl PoolRoom {
    fn smaller(self) -> PoolRoom {
        PoolRoom { columns: quarter(self.columns), blocks: quarter(self.blocks) }
    }
}

impl PictureRoom {
    /// A quarter of this room; `None` where nothing is left that could be long.
    #[must_use]
    pub fn smaller(self) -> Option<PictureRoom> {
        let smaller = PictureRoom {
            pools: quarter(self.pools),
            drawn_pools: quarter(self.drawn_pools),
            full_pool: self.full_pool.smaller(),
            other_pool: self.other_pool.smaller(),
            moments: quarter(self.moments),
            moment_rows: quarter(self.moment_rows),
            steps: quarter(self.steps),
            entries: quarter(self.entries),
            text_chars: (self.text_chars / 2).max(MIN_TEXT_CHARS),
            name_bytes: quarter(self.name_bytes),
        };
        let columns = |room: PictureRoom| [room.full_pool.columns, room.other_pool.columns];
        (columns(smaller) != columns(self)).then_some(smaller)
    }

    /// The longest list of any document in the page.
    #[must_use]
    pub(crate) fn max_list(self) -> usize {
        self.entries.max(self.steps)
    }

    /// Cuts a text.
    pub(crate) fn cut_text(self, text: &mut String) {
        if text.len() > self.text_chars
            && let Some((end, _)) = text.char_indices().nth(self.text_chars)
        {
            text.truncate(end);
            text.push('…');
        }
    }

    /// Shortens the lists of a report to the room there is, and returns notes on what was left out.
    pub(super) fn shorten(self, report: &mut ReportAnalysis, lengths: &ReportLengths) -> Vec<String> {
        let mut said = Vec::new();
        let cut = |said: &mut Vec<String>, count: usize, most: usize, what: &str| {
            if count > most {
                said.push(format!("the page lists {most} of {count} {what}"));
            }
        };
        cut(&mut said, lengths.pools, self.pools, "pools");
        report.pools.truncate(self.pools);
        if lengths.steps > self.steps {
            said.push(format!(
                "the page shows one of every {} steps ({} in total): the one with the highest peak",
                lengths.steps.div_ceil(self.steps),
                lengths.steps
            ));
            self.keep_highest_steps(report);
        }
        cut(&mut said, lengths.marks, self.entries, "marks");
        report.marks.truncate(self.entries);
        cut(&mut said, lengths.epochs, self.entries, "epochs");
        report.epochs.truncate(self.entries);
        cut(&mut said, lengths.warnings, self.entries, "notes");
        report.warnings.truncate(self.entries);
        report.inventory.truncate(self.entries);
        report.phases.truncate(self.entries);
        report.windows.truncate(self.entries);
        for pool in &mut report.pools {
            if let Some(caching) = &mut pool.caching {
                caching.failures.truncate(self.entries);
                caching.streams.truncate(self.entries);
                caching.failures.iter_mut().for_each(|failure| failure.stack.truncate(self.moment_rows));
            }
            for held in pool.at_peak.iter_mut().chain(&mut pool.at) {
                held.fold(self.moment_rows.saturating_mul(PEAK_ROWS_PER_MOMENT_ROW));
                held.rows.iter_mut().for_each(|row| row.stack.clear());
            }
        }
        said
    }

    /// Keeps of every few steps the one with the highest peak.
    fn keep_highest_steps(self, report: &mut ReportAnalysis) {
        let each = report.steps.len().div_ceil(self.steps).max(1);
        let mut steps = std::mem::take(&mut report.steps).into_iter();
        while let Some(highest) = steps.by_ref().take(each).max_by_key(|step| step.peak.max(step.current)) {
            report.steps.push(highest);
        }
    }
}

/// How long the lists of a report are before anything is left out.
#[derive(Clone, Copy, Debug)]
pub struct ReportLengths {
    pools: usize,
    steps: usize,
    marks: usize,
    epochs: usize,
    warnings: usize,
}

impl ReportLengths {
    /// The lengths of a whole report.
    #[must_use]
    pub fn of(report: &ReportAnalysis) -> ReportLengths {
        ReportLengths {
            pools: report.pools.len(),
            steps: report.steps.len(),
            marks: report.marks.len(),
            epochs: report.epochs.len(),
            warnings: report.warnings.len(),
        }
    }
}
