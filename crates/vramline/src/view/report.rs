//! The report as a document: what each pool held at its peak, with the evidence.
//!
//! These structures are the JSON document (`docs/reference/json.md`); the terminal prints the same values. In every pool
//! `named + unnamed + slack + before_recording = peak`, and the roles add up to `named + unnamed`.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer, ser::SerializeMap};

use super::caching::CachingView;
use super::findings::FindingView;
use super::ledger::{self, LedgerView};
use super::patterns::PatternsView;
use super::ranks::RanksView;
use super::replayed::ReplayedView;
use super::run::{EpochView, InventoryView, MarkView, PhaseView, RunView, StepView};
use super::windows::{PeakPlaceView, WindowView};
use crate::analysis::headline::{PeakPart, ReportAnswer, ReportWord};
use crate::analysis::held::{HeldMoment, HeldRow, HeldRows, LongHeldBlock, RestOfRows};
use crate::analysis::limit::LimitSetter;
use crate::analysis::report::{BeforeRecording, PoolAnalysis, ReportAnalysis, SourceClock, SourceFacts};
use crate::document::{Described, Document, Shape, Unknowns};
use crate::dtype::Dtype;
use crate::event::{Framework, Hardware, Vendor};
use crate::snapshot::Role;
use crate::units::{Bytes, Nanos};
use crate::warning::{Unknown, Warning};

/// The answer of [`report`](crate::report()): the peak of each pool, what it consisted of, steps, the ledger and findings.
#[derive(Debug, Serialize, Document)]
pub struct Report {
    /// `report`.
    pub kind: &'static str,
    /// What the report is about: file, command, how it ended, framework and device; those that are known.
    pub subject: Vec<String>,
    /// The answer in one or two sentences.
    pub headline: String,
    /// What the peak of the first pool consists of, the largest part first.
    pub parts: Vec<PeakPartView>,
    /// Further sentences: what the driver counts, fragmentation, steps.
    pub explanation: Vec<String>,
    /// The answer as a word, with its figures.
    pub verdict: ReportVerdict,
    /// What was read.
    pub source: SourceView,
    /// The pools; in a recording, highest peak first.
    #[field(each)]
    pub pools: Vec<PoolView>,
    /// Steps, each with the figures of one pool.
    pub steps: Vec<StepView>,
    /// The job; only in recordings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<RunView>,
    /// The ranks of the job; only in recordings of several ranks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ranks: Option<RanksView>,
    /// Epochs, each with the figures of one pool.
    pub epochs: Vec<EpochView>,
    /// Phases, each with the figures of one pool.
    pub phases: Vec<PhaseView>,
    /// The traces of each process; only in recordings.
    pub windows: Vec<WindowView>,
    /// Marks of a recording other than steps and epochs.
    pub marks: Vec<MarkView>,
    /// The variables that a process lists, by role.
    pub inventory: Vec<InventoryView>,
    /// What holds the memory of each device, from the whole device down to roles; only in recordings.
    #[field(unit = "list", empty = "only recordings have a ledger", switch = "vramline run -- CMD")]
    pub ledger: Vec<LedgerView>,
    /// The same at the end of the job, for devices whose driver calls were recorded.
    #[field(unit = "list")]
    pub ledger_at_end: Vec<LedgerView>,
    /// Findings, most bytes first; leaks and staircases before all others.
    #[field(unit = "list")]
    pub findings: Vec<FindingView>,
    /// Notes for the reader.
    pub warnings: Vec<Warning>,
    /// The reason for each null.
    pub unknowns: Vec<Unknown>,
}

/// A part of the peak. The parts add up to `in_use_bytes` of the first pool's `at_peak`.
#[derive(Debug, Serialize, Document)]
pub struct PeakPartView {
    /// A role, `rounding` or `before the recording`.
    #[field(title = "part")]
    pub what: &'static str,
    /// Its bytes.
    pub bytes: Bytes,
}

/// The answer as a word, with its figures.
#[derive(Debug, Serialize, Document)]
pub struct ReportVerdict {
    /// `out-of-memory`; `not-traced`: the trace does not show the allocator that holds the memory; `unknown`; `full`: the peak is at least 95 % of the limit; `fits`.
    #[field(title = "verdict")]
    pub word: ReportWord,
    /// The pool with the highest peak.
    #[field(null = "the memory of no pool is known")]
    pub pool: Option<String>,
    /// Its device.
    #[field(null = "the memory of no pool is known")]
    pub device: Option<String>,
    /// Its peak, in the trace or by the framework's counters.
    #[field(null = "the memory of no pool is known")]
    pub peak_bytes: Option<Bytes>,
    /// Its limit, unless that is a built-in default.
    #[field(
        null = "the limit is unknown, or it is only the framework's built-in default for a pool in host memory"
    )]
    pub limit_bytes: Option<Bytes>,
}

/// What was read.
#[derive(Debug, Serialize, Document)]
pub struct SourceView {
    /// `xplane`, `torch-snapshot` or `recording`; for a file that shows one moment only `memory-dump`, `oom-log`, `pprof`, `hlo` or `memory-profile`.
    pub format: &'static str,
    /// `tensorflow`, `jax` or `pytorch`.
    #[field(null = "the trace does not show which framework wrote it")]
    pub framework: Option<Framework>,
    /// The recording, and the traces that were read.
    #[field(title = "file")]
    pub files: Vec<String>,
    /// The zero point of all `_ns` times.
    #[field(unit = "text")]
    pub clock: &'static str,
    /// Unix time of that zero point.
    #[field(title = "start", null = "the file does not contain its start time")]
    pub wall_clock_zero_ns: Option<Nanos>,
}

/// One pool.
#[derive(Debug, Serialize, Document)]
pub struct PoolView {
    /// The allocator, as the framework names it.
    #[field(title = "pool")]
    pub name: String,
    /// `GPU:0`, `TPU:0`, `CPU:0`, `HOST` for pinned host memory; empty if the pool's name does not show it.
    pub device: String,
    /// What the profiler reports about that device; absent if it reports nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hardware: Option<HardwareView>,
    /// The machine, as the profiler names it.
    pub host: String,
    /// The process.
    #[field(null = "the file does not contain the process id")]
    pub pid: Option<u64>,
    /// The process' rank in a distributed job.
    #[field(null = "no launcher variable contains the rank")]
    pub rank: Option<u64>,
    /// True if the counts of the first event contain only its own block, so nothing was allocated before; false if they contain more.
    #[field(null = "there is no first event with the allocator's counts")]
    pub from_start: Option<bool>,
    /// The limit of the pool: in use + available.
    #[field(null = "the available bytes are unknown")]
    pub limit_bytes: Option<Bytes>,
    /// The origin of the limit: `built-in`: the framework's default for a pool in host memory, such as 64 GiB for TensorFlow on the CPU on every machine, which no verdict uses; `environment`: TF_CPU_BFC_MEM_LIMIT_IN_MB; `run`: vramline run --limit; `framework`: the framework reports it, and its origin is unknown.
    #[field(title = "limit set by", null = "the limit is unknown")]
    pub limit_by: Option<LimitSetter>,
    /// Number of allocation events.
    #[field(null = "there is no history of this pool", switch = "vramline run --trace auto")]
    pub allocs: Option<u64>,
    /// Number of free events.
    #[field(null = "there is no history of this pool", switch = "vramline run --trace auto")]
    pub frees: Option<u64>,
    /// Peak bytes in use in the trace, by the allocator's own count, including rounding; see `moment`.
    #[field(null = "the framework does not count the memory of this device")]
    pub peak_bytes: Option<Bytes>,
    /// Peak bytes in use since the process started, as reported by the allocator.
    #[field(title = "peak of the process", null = "no peak counter was recorded")]
    pub lifetime_peak_bytes: Option<Bytes>,
    /// When the peak was first reached.
    #[field(title = "at", null = "there is no history of this pool", switch = "vramline run --trace auto")]
    pub peak_at_ns: Option<Nanos>,
    /// The moment of `peak_bytes` and `at_peak`: `peak`: known from a history or the framework's peak counter; `dump`: when the file was written, because there is no history (the peak was at least as high); `program`: what a compiled program requests.
    pub moment: HeldMoment,
    /// The number of the trace that shows the peak; see `windows`. Of several traces, the one with the highest peak.
    #[field(null = "no trace of a recording shows this pool", switch = "vramline run --trace auto")]
    pub window: Option<u64>,
    /// Where in the program the peak was reached.
    #[field(
        null = "only recordings show it, and only if a trace covers the peak",
        switch = "vramline run -- CMD"
    )]
    pub peak_in: Option<PeakPlaceView>,
    /// Where in the program `lifetime_peak_bytes` was reached, if no trace shows that moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rose_in: Option<PeakPlaceView>,
    /// What was allocated at the moment that `moment` names; `pools[].at`, present with `--at`, has the same fields.
    #[field(
        title = "at the peak",
        null = "no trace shows what the pool held",
        switch = "vramline run --trace auto"
    )]
    pub at_peak: Option<HeldView>,
    /// What was allocated at the moment of `--at`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<HeldView>,
    /// Share of the pool's free bytes outside its largest free block, as reported by the allocator.
    #[field(title = "fragm.", null = "the allocator does not report it, or nothing was free")]
    pub fragmentation_at_peak: Option<f32>,
    /// What was in use before the trace.
    #[field(null = "there is no history of this pool", switch = "vramline run --trace auto")]
    pub before_recording: Option<BeforeView>,
    /// What PyTorch reserves from the driver; only in PyTorch snapshots.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caching: Option<CachingView>,
    /// The replay of the first trace; present if the allocator is known and the pool has at most 200,000 events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay: Option<ReplayedView>,
    /// How its steps repeat each other; present if the pool has at most 200,000 events and its trace shows at least four steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patterns: Option<PatternsView>,
    /// The ten blocks with the largest product of bytes and seconds.
    pub held_long: Vec<LongView>,
}

/// What a profiler reports about a device.
#[derive(Debug, Serialize, Document)]
pub struct HardwareView {
    /// Its vendor: `AMD` or `NVIDIA`.
    #[field(null = "the profiler does not report the vendor")]
    pub vendor: Option<Vendor>,
    /// Its architecture: `gfx9.4` for AMD, otherwise the compute capability such as `9.0`; empty if unknown.
    pub architecture: String,
    /// Its total memory.
    #[field(title = "memory", null = "the profiler does not report the memory of the device")]
    pub memory_bytes: Option<Bytes>,
}

/// What a pool held at one moment.
#[derive(Debug, Serialize, Document)]
pub struct HeldView {
    /// The moment.
    #[field(title = "at", null = "there is no history of this pool", switch = "vramline run --trace auto")]
    pub time_ns: Option<Nanos>,
    /// Bytes in use: named + unnamed + slack + before_recording.
    pub in_use_bytes: Bytes,
    /// Requested bytes of blocks whose op is known.
    pub named_bytes: Bytes,
    /// Requested bytes of blocks of which only size and time are known.
    #[field(title = "unnamed")]
    pub unnamed_bytes: Bytes,
    /// Rounding: bytes that the allocator handed out beyond the requests, including blocks that it did not split.
    #[field(title = "rounding")]
    pub slack_bytes: Bytes,
    /// Bytes in use that were allocated before the trace, including rounding.
    #[field(title = "before the recording")]
    pub before_recording_bytes: Bytes,
    /// Requested bytes by role, which add up to named + unnamed: parameters (weights and non-trained variables of layers), gradients (results
    /// of the backward pass), optimizer (the optimizer's state), activations (results of the forward pass that the backward pass
    /// needs), inputs (training data), state (kept by the program across steps, and none of the others), temporaries (scratch memory and short-lived results), unknown (no rule
    /// applies).
    pub by_role: ByRole,
    /// The blocks in groups, most bytes first.
    pub rows: Vec<Row>,
    /// The rows that `--top` omitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rest: Option<Rest>,
}

/// Bytes of every role, in the order of [`Role::ALL`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ByRole(BTreeMap<Role, Bytes>);

impl ByRole {
    /// The bytes of a role.
    #[must_use]
    pub fn get(&self, role: Role) -> Bytes {
        self.0.get(&role).copied().unwrap_or_default()
    }
}

impl Described for ByRole {
    fn shape() -> Shape {
        BTreeMap::<Role, Bytes>::shape()
    }
}

impl Serialize for ByRole {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(Role::ALL.len()))?;
        for role in Role::ALL {
            map.serialize_entry(role.word(), &self.get(role))?;
        }
        map.end()
    }
}

/// A group of blocks.
#[derive(Debug, Serialize, Document, Clone)]
pub struct Row {
    /// Requested bytes of the blocks of this row; all rows (and `rest`) add up to named + unnamed.
    pub bytes: Bytes,
    /// Number of blocks.
    pub count: u64,
    /// The op that requested them; empty if unknown, or if the row combines several.
    pub op: String,
    /// The model layer, from the op's scope.
    pub layer: String,
    /// One of the roles; empty if the row combines several.
    pub role: &'static str,
    /// The shape, as written by the framework.
    pub shape: String,
    /// Element type.
    #[field(title = "type")]
    pub dtype: &'static str,
    /// The source location, as far as the trace shows it.
    pub source: String,
    /// The evidence for the role, or why there is no name.
    #[field(unit = "text")]
    pub evidence: &'static str,
    /// The variable whose value it is, if the recording lists it.
    pub variable: String,
    /// The call stack of the request, innermost frame first; empty if unknown, or if the row combines several.
    pub stack: Vec<String>,
    /// Rounding: bytes beyond the request.
    #[field(title = "rounding")]
    pub slack_bytes: Bytes,
    /// Age of the oldest block of the row.
    #[field(null = "no event shows the allocation")]
    pub age_ns: Option<u64>,
    /// Number of times that the op ran in the trace.
    #[field(
        title = "calls",
        null = "the trace has no run time for this op, or the row has no op or several"
    )]
    pub op_calls: Option<u64>,
    /// Total run time of the op.
    #[field(null = "the trace has no run time for this op, or the row has no op or several")]
    pub op_time_ns: Option<u64>,
}

/// Rows that were omitted.
#[derive(Debug, Serialize, Document)]
pub struct Rest {
    /// Number of rows omitted by `--top`; `rest` is absent if there are none.
    pub rows: usize,
    /// Their bytes.
    pub bytes: Bytes,
    /// Their blocks.
    pub count: u64,
}

/// What was in use before the trace.
#[derive(Debug, Serialize, Document)]
pub struct BeforeView {
    /// Bytes in use when the trace begins, including rounding.
    #[field(title = "before")]
    pub at_begin_bytes: Bytes,
    /// Bytes of those that were freed in the trace.
    #[field(title = "freed since")]
    pub freed_bytes: Bytes,
    /// Number of blocks that were freed.
    #[field(title = "blocks")]
    pub freed_blocks: u64,
}

/// A long-lived block.
#[derive(Debug, Serialize, Document)]
pub struct LongView {
    /// Requested bytes; the list has the ten blocks with the largest product of bytes and seconds.
    pub bytes: Bytes,
    /// As in rows.
    pub op: String,
    /// As in rows.
    pub layer: String,
    /// As in rows.
    pub role: &'static str,
    /// As in rows.
    pub shape: String,
    /// As in rows.
    #[field(title = "type")]
    pub dtype: &'static str,
    /// When it was allocated.
    pub born_ns: Nanos,
    /// When it was freed.
    #[field(null = "the trace ends before the block was freed")]
    pub freed_ns: Option<Nanos>,
    /// Its lifetime in the trace.
    pub held_ns: u64,
    /// Block size times lifetime in seconds.
    #[field(unit = "bytes x s")]
    pub byte_seconds: f64,
}

impl From<ReportAnalysis> for Report {
    fn from(report: ReportAnalysis) -> Report {
        let mut document = Report {
            kind: "report",
            subject: report.answer.subject.clone(),
            headline: report.answer.headline.clone(),
            parts: report.answer.parts.iter().map(PeakPartView::from).collect(),
            explanation: report.answer.explanation.clone(),
            verdict: report.answer.into(),
            source: report.source.into(),
            pools: report.pools.into_iter().map(PoolView::from).collect(),
            steps: report.steps.into_iter().map(StepView::from).collect(),
            run: report.job.map(RunView::from),
            ranks: report.ranks.map(RanksView::from),
            epochs: report.epochs.into_iter().map(EpochView::from).collect(),
            phases: report.phases.into_iter().map(PhaseView::from).collect(),
            windows: report.windows.into_iter().map(WindowView::from).collect(),
            marks: report.marks.into_iter().map(MarkView::from).collect(),
            inventory: report.inventory.into_iter().map(InventoryView::from).collect(),
            ledger: ledger::rows(&report.ledgers),
            ledger_at_end: ledger::rows(&report.ledgers_at_end),
            findings: report.findings.into_iter().map(FindingView::from).collect(),
            warnings: report.warnings,
            unknowns: Vec::new(),
        };
        document.unknowns = Unknowns::of(&document);
        document
    }
}

impl From<&PeakPart> for PeakPartView {
    fn from(part: &PeakPart) -> PeakPartView {
        PeakPartView { what: part.what, bytes: part.bytes }
    }
}

impl From<ReportAnswer> for ReportVerdict {
    fn from(answer: ReportAnswer) -> ReportVerdict {
        ReportVerdict {
            word: answer.word,
            pool: answer.pool,
            device: answer.device,
            peak_bytes: answer.peak,
            limit_bytes: answer.limit,
        }
    }
}

impl From<SourceFacts> for SourceView {
    fn from(source: SourceFacts) -> SourceView {
        SourceView {
            format: source.format,
            framework: source.framework,
            files: source.files,
            clock: match source.clock {
                SourceClock::FirstEntry => "nanoseconds since the first entry of the snapshot's history",
                SourceClock::Profile => "nanoseconds since the profile began, as written by the profiler",
                SourceClock::OneMoment => "none: the file shows one moment only",
                SourceClock::FirstMark => "nanoseconds since the first mark of each process",
            },
            wall_clock_zero_ns: source.wall_clock_zero,
        }
    }
}

impl From<PoolAnalysis> for PoolView {
    fn from(pool: PoolAnalysis) -> PoolView {
        PoolView {
            name: pool.name,
            device: pool.device,
            hardware: pool.hardware.map(HardwareView::from),
            host: pool.host,
            pid: pool.pid,
            rank: pool.rank,
            from_start: pool.from_start,
            limit_bytes: pool.limit,
            limit_by: pool.limit_by,
            allocs: pool.allocs,
            frees: pool.frees,
            peak_bytes: pool.peak,
            lifetime_peak_bytes: pool.lifetime_peak,
            peak_at_ns: pool.peak_at,
            moment: pool.moment,
            window: pool.window,
            peak_in: pool.peak_in.map(PeakPlaceView::from),
            rose_in: pool.rose_in.map(PeakPlaceView::from),
            at_peak: pool.at_peak.map(HeldView::from),
            at: pool.at.map(HeldView::from),
            fragmentation_at_peak: pool.fragmentation_at_peak,
            before_recording: pool.before_recording.map(BeforeView::from),
            caching: pool.caching.map(CachingView::from),
            replay: pool.replay.map(ReplayedView::from),
            patterns: pool.patterns.map(PatternsView::from),
            held_long: pool.held_long.into_iter().map(LongView::from).collect(),
        }
    }
}

impl From<Hardware> for HardwareView {
    fn from(told: Hardware) -> HardwareView {
        let before = if told.vendor == Some(Vendor::Amd) { "gfx" } else { "" };
        HardwareView {
            vendor: told.vendor,
            architecture: told
                .compute
                .map_or(String::new(), |(major, minor)| format!("{before}{major}.{minor}")),
            memory_bytes: told.memory,
        }
    }
}

impl From<HeldRows> for HeldView {
    fn from(held: HeldRows) -> HeldView {
        HeldView {
            time_ns: held.time,
            in_use_bytes: held.in_use,
            named_bytes: held.named,
            unnamed_bytes: held.unnamed,
            slack_bytes: held.slack,
            before_recording_bytes: held.before_recording,
            by_role: ByRole(held.by_role),
            rows: held.rows.into_iter().map(Row::from).collect(),
            rest: held.rest.map(Rest::from),
        }
    }
}

impl From<HeldRow> for Row {
    fn from(row: HeldRow) -> Row {
        Row {
            bytes: row.bytes,
            count: row.count,
            op: row.op,
            layer: row.layer,
            role: row.role.map_or("", Role::word),
            shape: row.shape,
            dtype: row.dtype.map_or("", Dtype::word),
            source: row.source,
            evidence: row.evidence,
            variable: row.variable,
            stack: row.stack,
            slack_bytes: row.slack,
            age_ns: row.age_ns,
            op_calls: row.op_calls,
            op_time_ns: row.op_time_ns,
        }
    }
}

impl From<RestOfRows> for Rest {
    fn from(rest: RestOfRows) -> Rest {
        Rest { rows: rest.rows, bytes: rest.bytes, count: rest.count }
    }
}

impl From<BeforeRecording> for BeforeView {
    fn from(before: BeforeRecording) -> BeforeView {
        BeforeView {
            at_begin_bytes: before.at_begin,
            freed_bytes: before.freed,
            freed_blocks: before.freed_blocks,
        }
    }
}

impl From<LongHeldBlock> for LongView {
    fn from(long: LongHeldBlock) -> LongView {
        LongView {
            bytes: long.row.bytes,
            op: long.row.op,
            layer: long.row.layer,
            role: long.row.role.map_or("", Role::word),
            shape: long.row.shape,
            dtype: long.row.dtype.map_or("", Dtype::word),
            born_ns: long.born,
            freed_ns: long.freed,
            held_ns: long.row.age_ns.unwrap_or(0),
            byte_seconds: long.byte_seconds,
        }
    }
}
