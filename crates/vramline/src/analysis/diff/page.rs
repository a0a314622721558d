//! What the page of a comparison has of it: everything is bounded, and what was left out is said.

use std::cmp::Reverse;

use super::rows::ComparedRow;
use super::{DiffAnalysis, DiffBy};

/// Rows of each grouping that a page lists, and of steps.
const MAX_ROWS: usize = 400;
const MAX_STEP_ROWS: usize = 4000;

/// The rows that a page lists.
#[derive(Clone, Debug)]
pub(crate) struct PageRows<'a> {
    /// The rows, in the order of the comparison.
    pub rows: Vec<&'a ComparedRow>,
    /// The groupings of which some are left out.
    pub cuts: Vec<RowCut>,
}

/// A grouping of which a page lists some rows only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowCut {
    /// The grouping.
    pub by: DiffBy,
    /// How many rows the page lists.
    pub listed: usize,
    /// How many there are.
    pub all: usize,
    /// Which are listed.
    pub which: ListedRows,
}

/// Which rows of a grouping a page lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ListedRows {
    /// The first.
    First,
    /// Those that changed most.
    MostChanged,
}

impl DiffAnalysis {
    /// The rows that a page lists.
    #[must_use]
    pub(crate) fn page_rows(&self) -> PageRows<'_> {
        let mut is_listed = vec![true; self.rows.len()];
        let mut cuts = Vec::new();
        for (by, listed, which) in [
            (DiffBy::Op, MAX_ROWS, ListedRows::MostChanged),
            (DiffBy::Layer, MAX_ROWS, ListedRows::MostChanged),
            (DiffBy::Step, MAX_STEP_ROWS, ListedRows::First),
        ] {
            let mut of_group: Vec<(usize, &ComparedRow)> =
                self.rows.iter().enumerate().filter(|(_, row)| row.by == by).collect();
            let all = of_group.len();
            if all <= listed {
                continue;
            }
            if which == ListedRows::MostChanged {
                of_group.sort_by_key(|(_, row)| Reverse(row.change()));
            }
            for (at, _) in of_group.into_iter().skip(listed) {
                if let Some(is_listed) = is_listed.get_mut(at) {
                    *is_listed = false;
                }
            }
            cuts.push(RowCut { by, listed, all, which });
        }
        let rows = self.rows.iter().zip(is_listed).filter(|(_, is_listed)| *is_listed);
        PageRows { rows: rows.map(|(row, _)| row).collect(), cuts }
    }
}
