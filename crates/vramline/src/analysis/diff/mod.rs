//! The comparison of runs: whose peak is higher, by how much, and what makes the difference.
//!
//! A pure function of finished reports. Pools are matched by name, then by device, or, where no device is told, by what they are
//! for; what they held by role, op and layer; steps by their number, never by time. A figure of a run that was repeated is the
//! median of its repeats, and a difference that is no larger than what repeats of one run differ by is no alarm. In every pool the
//! rows of a grouping (with slack and what was there before the recording) add up to the traced peak, so their differences add up
//! to its difference.

mod curves;
mod doubts;
mod gate;
mod held;
mod page;
mod ranks;
mod rows;
mod slots;
mod steps;
mod threshold;
mod verdict;

use std::collections::BTreeMap;
use std::path::PathBuf;

use super::report::ReportAnalysis;
use crate::event::Framework;
use crate::warning::Warning;

pub(crate) use curves::CURVE_COLUMNS;
pub use curves::{PoolCurve, pool_curves};
pub use gate::{Gate, GateAnalysis, PeakAlarm};
pub use held::HeldPart;
pub(crate) use page::{ListedRows, RowCut};
pub use ranks::RankChange;
pub use rows::{ComparedRow, Figure, RowSubject, RunFigure, largest_change};
pub use steps::ComparedStep;
pub use threshold::{NotAThreshold, Threshold};
pub use verdict::{DiffVerdict, DiffWord, LargestPart, PeakCause, RunVerdict, VerdictPeak};

use slots::Comparison;

/// How the rows of a comparison are grouped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiffBy {
    /// One row for each pool's peak.
    Device,
    /// One row for each role at the peak.
    Role,
    /// One row for each op at the peak.
    Op,
    /// One row for each model layer at the peak.
    Layer,
    /// One row for each step.
    Step,
}

words!(DiffBy { Device => "device", Role => "role", Op => "op", Layer => "layer", Step => "step" });

/// What a comparison is asked for.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiffOptions {
    /// Only rows of this grouping, beside the pools' peaks.
    pub by: Option<DiffBy>,
    /// How much more than the first run is an alarm.
    pub fail_over: Option<Threshold>,
}

/// A run, with one report for each time it was made.
#[derive(Debug)]
pub struct RunSide {
    /// What the run is called.
    pub name: String,
    /// The reports of its repeats, by op and with every row.
    pub reports: Vec<ReportAnalysis>,
}

/// Everything that a comparison says.
#[derive(Clone, Debug)]
pub struct DiffAnalysis {
    /// The runs; the first is what the others are compared with.
    pub sides: Vec<SideFacts>,
    /// The answer in short.
    pub verdict: DiffVerdict,
    /// The figures, pool by pool; each has one figure for each run.
    pub rows: Vec<ComparedRow>,
    /// The peaks of each rank, the largest growth first; empty unless jobs of several ranks are compared.
    pub ranks: Vec<RankChange>,
    /// Whether a run needs too much more than the first.
    pub gate: GateAnalysis,
    /// What the reader should know of the comparison.
    pub warnings: Vec<Warning>,
}

/// What was read of a run.
#[derive(Clone, Debug)]
pub struct SideFacts {
    /// What the run is called.
    pub name: String,
    /// The files, one for each repeat.
    pub files: Vec<String>,
    /// The format's word, of the first repeat.
    pub format: &'static str,
    /// The framework that wrote the first repeat.
    pub framework: Option<Framework>,
    /// How many times the run was made.
    pub repeats: usize,
}

impl SideFacts {
    fn of(side: &RunSide) -> SideFacts {
        let first = side.reports.first();
        SideFacts {
            name: side.name.clone(),
            files: side.reports.iter().filter_map(|report| report.source.files.first().cloned()).collect(),
            format: first.map_or("", |report| report.source.format),
            framework: first.and_then(|report| report.source.framework),
            repeats: side.reports.len(),
        }
    }
}

/// Compares runs with the first of them.
#[must_use]
pub fn diff(sides: &[RunSide], options: &DiffOptions) -> DiffAnalysis {
    let comparison = Comparison::of(sides);
    let mut warnings = doubts::told(sides);
    let mut rows = Vec::new();
    for slot in 0..comparison.slots.len() {
        rows.extend(comparison.peaks(slot));
        for by in [DiffBy::Role, DiffBy::Op, DiffBy::Layer] {
            rows.extend(comparison.held(slot, by));
        }
        let (steps, by_order) = comparison.steps(slot);
        rows.extend(steps);
        warnings.extend(by_order);
    }
    let common = comparison.common();
    let main = common.first().copied();
    let has_few_common_ops = main.is_some_and(|slot| doubts::has_few_common_ops(slot, &rows));
    if has_few_common_ops {
        warnings.push(doubts::few_common_ops());
    }
    match main {
        Some(slot) => warnings.extend(comparison.different_starts(slot)),
        None => warnings.extend(comparison.no_common_pool()),
    }
    warnings.extend(comparison.other_programs(&common));
    let verdict = comparison.verdict(main, &rows, has_few_common_ops);
    let ranks = ranks::changes(sides);
    let mut gate = comparison.gate(options.fail_over, &common, &rows);
    gate.add_ranks(&ranks, sides);
    warnings.extend(doubts::other_ranks(sides));
    if let Some(by) = options.by {
        rows.retain(|row| row.by == by || row.by == DiffBy::Device);
    }
    DiffAnalysis { sides: sides.iter().map(SideFacts::of).collect(), verdict, rows, ranks, gate, warnings }
}

/// Names for runs, from their paths: as short as tells them apart.
#[must_use]
pub fn names(sides: &[Vec<PathBuf>]) -> Vec<String> {
    let short = |paths: &Vec<PathBuf>| {
        let first = paths.first()?;
        Some(first.file_name().unwrap_or(first.as_os_str()).to_string_lossy().into_owned())
    };
    let full = |paths: &Vec<PathBuf>| paths.first().map(|path| path.display().to_string());
    let shorts: Vec<String> = sides.iter().map(|side| short(side).unwrap_or_default()).collect();
    let mut taken: BTreeMap<String, usize> = BTreeMap::new();
    let mut names: Vec<String> = Vec::new();
    for (side, short) in sides.iter().zip(&shorts) {
        let is_alone = shorts.iter().filter(|other| *other == short).count() == 1;
        let name = if is_alone { short.clone() } else { full(side).unwrap_or_default() };
        let more = if side.len() > 1 { format!(" and {} more", side.len() - 1) } else { String::new() };
        // Sides of repeats may begin with the same file.
        let same = taken.entry(name.clone()).or_default();
        *same += 1;
        let number = if *same > 1 { format!(" ({same})") } else { String::new() };
        names.push(format!("{name}{number}{more}"));
    }
    names
}
