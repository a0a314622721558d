//! The comparison of runs as a document.

use serde::Serialize;

use crate::analysis::diff::{
    ComparedRow, DiffAnalysis, DiffBy, DiffVerdict, DiffWord, Figure, Gate, PeakAlarm, RankChange,
    RowSubject, RunFigure, SideFacts,
};
use crate::document::{Document, Unknowns};
use crate::event::Framework;
use crate::event::Phase;
use crate::snapshot::Role;
use crate::units::Bytes;
use crate::warning::{Unknown, Warning};

/// The whole document.
#[derive(Debug, Serialize, Document)]
pub struct Diff {
    /// `diff`.
    pub kind: &'static str,
    /// The runs, in the order of every list below; the others are compared with the first.
    #[field(title = "run")]
    pub runs: Vec<String>,
    /// The answer, one sentence for each run after the first.
    pub headline: String,
    /// The answer as a word, with its figures.
    pub verdict: DiffVerdictView,
    /// The runs.
    pub sides: Vec<SideView>,
    /// The compared figures.
    pub rows: Vec<DiffRow>,
    /// The peaks of each rank, the largest growth first; empty unless jobs of several ranks are compared.
    pub ranks: Vec<RankChangeView>,
    /// The number of ranks whose peak is higher in a later run than in the first.
    pub ranks_grown: usize,
    /// `none` without --fail-over, `pass`, `fail`, or `unknown` if no peak can be compared.
    pub gate: Gate,
    /// The value of --fail-over, if given.
    #[field(title = "allowed")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fail_over: Option<String>,
    /// Figures that make the gate fail.
    pub alarms: Vec<AlarmView>,
    /// Figures that grew too much, but by no more than repeats of one run differ.
    pub tolerated: Vec<AlarmView>,
    /// Notes for the reader.
    pub warnings: Vec<Warning>,
    /// The reason for each null.
    pub unknowns: Vec<Unknown>,
}

/// A run.
#[derive(Debug, Serialize, Document)]
pub struct SideView {
    /// The run, as in `runs`.
    #[field(title = "run")]
    pub name: String,
    /// The files, one for each repeat.
    #[field(title = "file")]
    pub files: Vec<String>,
    /// As in a report.
    pub format: &'static str,
    /// As in a report.
    #[field(null = "the file does not show which framework wrote it")]
    pub framework: Option<&'static str>,
    /// Number of repeats of the run.
    pub repeats: usize,
}

/// A figure of every run.
#[derive(Clone, Debug, Serialize, Document)]
pub struct DiffRow {
    /// The pool's peak, the role, the op or variable, the layer, or the step. Rounding and blocks from before the trace are rows too.
    pub what: String,
    /// `device`, `role`, `op`, `layer` or `step`.
    pub by: DiffBy,
    /// `peak`: peak in the trace or the step; `ever`: peak of the whole run; `at-peak`: bytes at the traced peak; `in-use`: bytes at the end of the step, if its peak is unknown in a run.
    pub figure: Figure,
    /// The pool. If its names differ: its device, or its purpose if it has no device.
    pub pool: String,
    /// Its device, as in a report.
    pub device: String,
    /// For an op: its layer, if all runs agree.
    pub layer: String,
    /// For an op: its role, if all runs agree; otherwise empty.
    pub role: &'static str,
    /// For a step: `train`, `validation`, `predict` or `other`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<Phase>,
    /// For a step: its epoch, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub epoch: Option<u64>,
    /// For a step: its number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub step: Option<i64>,
    /// Bytes for each run. For repeats: the median (for an even number, the mean of the two middle values, rounded down). Without repeats, the `at-peak` rows of a grouping add up to the pool's `peak`.
    #[field(
        null = "the run has no such pool or step, or its figure was not recorded",
        switch = "vramline run --trace auto --step-peaks"
    )]
    pub bytes: Vec<Option<Bytes>>,
    /// The lowest of its repeats.
    #[field(
        title = "lowest",
        null = "the run has no such pool or step, or its figure was not recorded",
        switch = "vramline run --trace auto --step-peaks"
    )]
    pub low_bytes: Vec<Option<Bytes>>,
    /// The highest of its repeats.
    #[field(
        title = "highest",
        null = "the run has no such pool or step, or its figure was not recorded",
        switch = "vramline run --trace auto --step-peaks"
    )]
    pub high_bytes: Vec<Option<Bytes>>,
    /// Bytes of the last run minus those of the first; negative if it needs less.
    #[field(
        title = "change",
        null = "one of the figures is unknown",
        switch = "vramline run --trace auto --step-peaks"
    )]
    pub delta_bytes: Option<i64>,
    /// The same for every run; zero for the first.
    #[field(
        title = "changes",
        null = "the run has no such pool or step, or its figure was not recorded",
        switch = "vramline run --trace auto --step-peaks"
    )]
    pub deltas_bytes: Vec<Option<i64>>,
    /// The largest difference between repeats of one run.
    #[field(
        null = "no run has repeats with this figure",
        switch = "vramline diff --repeats A1 A2 A3 --repeats B1 B2 B3"
    )]
    pub spread_bytes: Option<Bytes>,
    /// Whether every change is within that difference.
    #[field(title = "noise")]
    pub within_spread: bool,
}

/// The peaks of one rank in each run.
#[derive(Debug, Serialize, Document)]
pub struct RankChangeView {
    /// The rank.
    pub rank: u64,
    /// Its peak in each run; of repeats the median.
    #[field(title = "peak", unit = "bytes", null = "the run has no such rank, or its memory is unknown")]
    pub peak_bytes: Vec<Option<Bytes>>,
    /// The same minus that of the first run.
    #[field(title = "changes", unit = "bytes", null = "the peak of the rank is unknown in one of the runs")]
    pub deltas_bytes: Vec<Option<i64>>,
}

impl From<&RankChange> for RankChangeView {
    fn from(change: &RankChange) -> RankChangeView {
        RankChangeView {
            rank: change.rank,
            peak_bytes: change.peaks.clone(),
            deltas_bytes: (0..change.peaks.len()).map(|run| change.delta(run)).collect(),
        }
    }
}

/// A figure that grew.
#[derive(Debug, Serialize, Document)]
pub struct AlarmView {
    /// The run whose peak grew.
    pub run: String,
    /// The pool; empty for a rank.
    pub pool: String,
    /// The rank whose peak grew most, in a job of several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rank: Option<u64>,
    /// Which peak: `peak` or `ever`.
    pub figure: Figure,
    /// Bytes of the first run; zero if it has no such pool.
    #[field(title = "first run")]
    pub base_bytes: Bytes,
    /// Bytes of this run.
    pub bytes: Bytes,
    /// The difference.
    pub more_bytes: Bytes,
    /// The same as a sentence.
    pub text: String,
}

impl From<&DiffAnalysis> for Diff {
    fn from(diff: &DiffAnalysis) -> Diff {
        let sides: Vec<SideView> = diff.sides.iter().map(SideView::from).collect();
        let rows: Vec<DiffRow> = diff.rows.iter().map(DiffRow::from).collect();
        let ranks = diff.ranks.iter().map(RankChangeView::from).collect();
        let ranks_grown = diff.ranks.iter().filter(|change| change.has_grown()).count();
        let mut document = Diff {
            kind: "diff",
            runs: diff.sides.iter().map(|side| side.name.clone()).collect(),
            headline: diff.verdict.to_string(),
            verdict: DiffVerdictView::from(&diff.verdict),
            unknowns: Vec::new(),
            sides,
            rows,
            ranks,
            ranks_grown,
            gate: diff.gate.gate,
            fail_over: diff.gate.fail_over.map(|threshold| threshold.to_string()),
            alarms: diff.gate.alarms.iter().map(AlarmView::from).collect(),
            tolerated: diff.gate.tolerated.iter().map(AlarmView::from).collect(),
            warnings: diff.warnings.clone(),
        };
        document.unknowns = Unknowns::of(&document);
        document
    }
}

impl From<&SideFacts> for SideView {
    fn from(side: &SideFacts) -> SideView {
        SideView {
            name: side.name.clone(),
            files: side.files.clone(),
            format: side.format,
            framework: side.framework.map(Framework::word),
            repeats: side.repeats,
        }
    }
}

impl From<&ComparedRow> for DiffRow {
    fn from(row: &ComparedRow) -> DiffRow {
        let column = |of: fn(&RunFigure) -> Bytes| row.runs.iter().map(|run| run.as_ref().map(of)).collect();
        let deltas: Vec<Option<i64>> = (0..row.runs.len()).map(|run| row.delta(run)).collect();
        let step = match &row.subject {
            RowSubject::Step(step) => Some(step),
            RowSubject::Pool | RowSubject::Held(_) => None,
        };
        DiffRow {
            what: row.text(),
            by: row.by,
            figure: row.figure,
            pool: row.pool.clone(),
            device: row.device.clone(),
            layer: row.layer.clone(),
            role: row.role.map_or("", Role::word),
            phase: step.map(|step| step.phase),
            epoch: step.and_then(|step| step.epoch),
            step: step.map(|step| step.number),
            bytes: column(|run| run.bytes),
            low_bytes: column(|run| run.low),
            high_bytes: column(|run| run.high),
            delta_bytes: deltas.last().copied().flatten(),
            deltas_bytes: deltas,
            spread_bytes: row.spread,
            within_spread: row.within_spread,
        }
    }
}

impl From<&PeakAlarm> for AlarmView {
    fn from(alarm: &PeakAlarm) -> AlarmView {
        AlarmView {
            run: alarm.run.clone(),
            pool: alarm.pool.clone(),
            rank: alarm.rank,
            figure: alarm.figure,
            base_bytes: alarm.base,
            bytes: alarm.bytes,
            more_bytes: alarm.more,
            text: alarm.text.clone(),
        }
    }
}

/// The answer as a word, with its figures.
#[derive(Debug, Serialize, Document)]
pub struct DiffVerdictView {
    /// For the run whose peak differs most from the first: `more`, `less`, `same` or `not-comparable`.
    #[field(title = "verdict")]
    pub word: DiffWord,
    /// That run.
    #[field(null = "there is nothing to compare")]
    pub run: Option<String>,
    /// The first run's peak.
    #[field(null = "there is nothing to compare")]
    pub base_bytes: Option<Bytes>,
    /// The run's peak minus the peak of the first run.
    #[field(null = "there is nothing to compare")]
    pub delta_bytes: Option<i64>,
}

impl From<&DiffVerdict> for DiffVerdictView {
    fn from(verdict: &DiffVerdict) -> DiffVerdictView {
        let most = verdict.farthest();
        DiffVerdictView {
            word: verdict.word(),
            run: most.map(|most| most.run.clone()),
            base_bytes: most.map(|most| most.base_bytes),
            delta_bytes: most.map(|most| most.delta),
        }
    }
}
