//! The report as a document: what each pool held at its peak, and how sure that is.
//!
//! These structures are the JSON document (`docs/reference/json.md`); the terminal prints the same values. In every pool
//! `named + unnamed + slack + before_recording = peak`, and the roles add up to `named + unnamed`.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer, ser::SerializeMap};

use super::caching::CachingView;
use super::findings::FindingView;
use super::ledger::{self, LedgerView};
use super::patterns::PatternsView;
use super::replayed::ReplayedView;
use super::run::{EpochView, InventoryView, MarkView, PhaseView, RunView, StepView};
use super::windows::{PeakPlaceView, WindowView};
use crate::analysis::headline::{ReportAnswer, ReportWord};
use crate::analysis::held::{HeldMoment, HeldRow, HeldRows, LongHeldBlock, RestOfRows};
use crate::analysis::limit::LimitSetter;
use crate::analysis::report::{BeforeRecording, PoolAnalysis, ReportAnalysis, SourceClock, SourceFacts};
use crate::document::{Described, Document, Shape, Unknowns};
use crate::dtype::Dtype;
use crate::event::{Framework, Hardware, Vendor};
use crate::snapshot::Role;
use crate::units::{Bytes, Nanos};
use crate::warning::{Unknown, Warning};

/// What [`report`](crate::report()) answers: the peak of each pool, what it consisted of, steps, the ledger, and findings.
#[derive(Debug, Serialize, Document)]
pub struct Report {
    /// `report`.
    pub kind: &'static str,
    /// The answer in a sentence.
    pub headline: String,
    /// The sentences that go on from there.
    pub explanation: Vec<String>,
    /// The answer in a word, with its figures.
    pub verdict: ReportVerdict,
    /// What was read.
    pub source: SourceView,
    /// The pools; of a recording the highest peak first.
    #[field(each)]
    pub pools: Vec<PoolView>,
    /// Steps, each with the figures of one pool.
    pub steps: Vec<StepView>,
    /// The job; recordings only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub run: Option<RunView>,
    /// Epochs, each with the figures of one pool.
    pub epochs: Vec<EpochView>,
    /// Steps that did the same, each with the figures of one pool.
    pub phases: Vec<PhaseView>,
    /// The traces of each process; recordings only.
    pub windows: Vec<WindowView>,
    /// Other marks of a recording.
    pub marks: Vec<MarkView>,
    /// The variables that a process lists, by role.
    pub inventory: Vec<InventoryView>,
    /// Who holds which byte of each device, from the whole device down to roles; recordings only.
    #[field(unit = "list", empty = "only recordings have one", switch = "vramline run -- CMD")]
    pub ledger: Vec<LedgerView>,
    /// What is worth knowing, the most bytes first; leaks and staircases before everything.
    #[field(unit = "list")]
    pub findings: Vec<FindingView>,
    /// What the reader should know.
    pub warnings: Vec<Warning>,
    /// Each null with its reason.
    pub unknowns: Vec<Unknown>,
}

/// The answer in a word, with its figures.
#[derive(Debug, Serialize, Document)]
pub struct ReportVerdict {
    /// `out-of-memory`; `not-traced`: the allocator that holds the memory is not in the trace; `unknown`; `full`: the peak is 95 % of the limit or more; `fits`.
    #[field(title = "verdict")]
    pub word: ReportWord,
    /// The pool with the highest peak.
    #[field(null = "nothing tells the memory of a pool")]
    pub pool: Option<String>,
    /// Its device.
    #[field(null = "nothing tells the memory of a pool")]
    pub device: Option<String>,
    /// The most that it held, in the trace or by the framework's counters.
    #[field(null = "nothing tells the memory of a pool")]
    pub peak_bytes: Option<Bytes>,
    /// What it may take, unless that is a built-in default.
    #[field(
        null = "nothing tells how much is available, or only the framework's built-in default for a pool in host memory, which no memory backs"
    )]
    pub limit_bytes: Option<Bytes>,
}

/// What was read.
#[derive(Debug, Serialize, Document)]
pub struct SourceView {
    /// `xplane`, `torch-snapshot`, `recording`, or of a file that knows one moment `memory-dump`, `oom-log`, `pprof`, `hlo`, `memory-profile`.
    pub format: &'static str,
    /// `tensorflow`, `jax` or `pytorch`.
    #[field(null = "nothing in the trace shows which framework wrote it")]
    pub framework: Option<Framework>,
    /// The recording, and the traces that were read.
    #[field(title = "file")]
    pub files: Vec<String>,
    /// What the zero of every `_ns` time is.
    #[field(unit = "text")]
    pub clock: &'static str,
    /// Unix time of that zero.
    #[field(title = "began", null = "the file does not tell when it began")]
    pub wall_clock_zero_ns: Option<Nanos>,
}

/// One pool.
#[derive(Debug, Serialize, Document)]
pub struct PoolView {
    /// The allocator, as the framework names it.
    #[field(title = "pool")]
    pub name: String,
    /// `GPU:0`, `TPU:0`, `CPU:0`, `HOST` for pinned host memory, empty where the name does not tell.
    pub device: String,
    /// What the profiler tells of that device; absent where it tells nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hardware: Option<HardwareView>,
    /// The machine, as the profiler names it.
    pub host: String,
    /// The process.
    #[field(null = "the file does not tell the process")]
    pub pid: Option<u64>,
    /// The process' rank in a distributed job.
    #[field(null = "no variable of a launcher told the process' rank")]
    pub rank: Option<u64>,
    /// True when the first event's counts are its own block: nothing was allocated before; false when they are more.
    #[field(null = "no first event tells the allocator's counts")]
    pub from_start: Option<bool>,
    /// What the pool may take: in use + available.
    #[field(null = "nothing tells how much is available")]
    pub limit_bytes: Option<Bytes>,
    /// Who set that: `built-in`: nobody, it is the framework's default for a pool in host memory, such as TensorFlow's on the CPU: 64 GiB whatever the machine has, and nothing is measured against it; `environment`: TF_CPU_BFC_MEM_LIMIT_IN_MB; `run`: vramline run --limit; `framework`: the framework has it, and nothing tells who set it.
    #[field(title = "limit set by", null = "the limit is not known")]
    pub limit_by: Option<LimitSetter>,
    /// Allocation events.
    #[field(null = "there is no history of this pool", switch = "vramline run --trace auto")]
    pub allocs: Option<u64>,
    /// Free events.
    #[field(null = "there is no history of this pool", switch = "vramline run --trace auto")]
    pub frees: Option<u64>,
    /// The most in use in the trace, by the allocator's own count (whole chunks); see `moment`.
    #[field(null = "the framework does not count this device's memory")]
    pub peak_bytes: Option<Bytes>,
    /// The most in use since the process began, as the allocator tells it.
    #[field(title = "ever", null = "nothing tells a high-water mark")]
    pub lifetime_peak_bytes: Option<Bytes>,
    /// When the peak was first reached.
    #[field(title = "at", null = "there is no history of this pool", switch = "vramline run --trace auto")]
    pub peak_at_ns: Option<Nanos>,
    /// The moment of `peak_bytes` and `at_peak`: `peak`: a history or the framework's high-water mark knows it; `dump`: the file tells what was in use when it was written and no history knows the peak, which was as high or higher; `program`: what a compiled program asks for.
    pub moment: HeldMoment,
    /// Which trace of the process shows the peak; see `windows`. Of several it is that with the highest.
    #[field(null = "no trace of a recording shows this pool", switch = "vramline run --trace auto")]
    pub window: Option<u64>,
    /// Where in the program the peak was reached.
    #[field(
        null = "only recordings tell, and only where a trace shows the peak",
        switch = "vramline run -- CMD"
    )]
    pub peak_in: Option<PeakPlaceView>,
    /// Where in the program `lifetime_peak_bytes` was reached, where no trace shows that moment.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rose_in: Option<PeakPlaceView>,
    /// What was held at the moment that `moment` tells; `pools[].at`, present with `--at`, has the same fields.
    #[field(
        title = "at the peak",
        null = "no trace of this process shows what the pool held",
        switch = "vramline run --trace auto"
    )]
    pub at_peak: Option<HeldView>,
    /// What was held at the moment of `--at`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<HeldView>,
    /// Share of the pool's free bytes outside its largest free block, as the allocator told it.
    #[field(title = "fragm.", null = "the allocator told none: nothing was free, or it does not measure it")]
    pub fragmentation_at_peak: Option<f32>,
    /// What was in use before the trace begins.
    #[field(null = "there is no history of this pool", switch = "vramline run --trace auto")]
    pub before_recording: Option<BeforeView>,
    /// What PyTorch keeps from the driver; PyTorch's snapshots only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caching: Option<CachingView>,
    /// What a replay of the first trace says; there where the allocator has rules and the pool at most 200,000 events.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replay: Option<ReplayedView>,
    /// How its steps repeat each other; there where the pool has at most 200,000 events and its trace shows four steps.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub patterns: Option<PatternsView>,
    /// The ten blocks with the most bytes x seconds.
    pub held_long: Vec<LongView>,
}

/// What a profiler tells of a device.
#[derive(Debug, Serialize, Document)]
pub struct HardwareView {
    /// Who made it: `AMD` or `NVIDIA`.
    #[field(null = "the profiler does not tell who made the device")]
    pub vendor: Option<Vendor>,
    /// Its architecture: `gfx9.4` of AMD, else the compute capability, as `9.0`; empty where not told.
    pub architecture: String,
    /// All its memory.
    #[field(title = "memory", null = "the profiler does not tell the device's memory")]
    pub memory_bytes: Option<Bytes>,
}

/// What a pool held at one moment.
#[derive(Debug, Serialize, Document)]
pub struct HeldView {
    /// The moment.
    #[field(title = "at", null = "there is no history of this pool", switch = "vramline run --trace auto")]
    pub time_ns: Option<Nanos>,
    /// In use then: named + unnamed + slack + before_recording.
    pub in_use_bytes: Bytes,
    /// Requested by blocks whose op is known.
    pub named_bytes: Bytes,
    /// Requested by blocks of which only size and time are known.
    #[field(title = "without a name")]
    pub unnamed_bytes: Bytes,
    /// What those blocks take beyond their request: rounding, and chunks that were not split.
    pub slack_bytes: Bytes,
    /// In use, but allocated before the trace begins (whole chunks).
    #[field(title = "before the recording")]
    pub before_recording_bytes: Bytes,
    /// Requested bytes by role, which add up to named + unnamed: parameters (weights and their non-trained companions), gradients (results
    /// of the backward pass), optimizer (the optimizer's state), activations (results of the forward pass that wait for the backward
    /// pass), inputs (training data), state (held by the program across steps, and none of the others), temporaries (scratch and results that are soon consumed), unknown (what none of the rules can
    /// tell).
    pub by_role: ByRole,
    /// What was held, grouped, the most bytes first.
    pub rows: Vec<Row>,
    /// The rows that `--top` left out.
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
    /// Requested by the blocks of this row; all rows (and `rest`) add up to named + unnamed.
    pub bytes: Bytes,
    /// Blocks.
    pub count: u64,
    /// The op that asked; empty where nothing names it, or where a row joins several.
    pub op: String,
    /// The model layer, from the op's scope.
    pub layer: String,
    /// One of the roles; empty where a row joins several.
    pub role: &'static str,
    /// As the framework writes it.
    pub shape: String,
    /// Element type.
    #[field(title = "type")]
    pub dtype: &'static str,
    /// Where in the program, as far as the trace shows it.
    pub source: String,
    /// What the role rests on, or why there is no name.
    #[field(unit = "text")]
    pub evidence: &'static str,
    /// The variable whose value it is, where a recording lists it.
    pub variable: String,
    /// Where the program asked, innermost frame first; empty where not told, or where the row joins several.
    pub stack: Vec<String>,
    /// Taken beyond the request.
    pub slack_bytes: Bytes,
    /// How long the oldest block of the row had been held.
    #[field(null = "no event shows the allocation")]
    pub age_ns: Option<u64>,
    /// How often the op ran in the trace.
    #[field(title = "calls", null = "the trace times no op of that name (a row may have no op, or several)")]
    pub op_calls: Option<u64>,
    /// How long the op ran, all calls together.
    #[field(null = "the trace times no op of that name (a row may have no op, or several)")]
    pub op_time_ns: Option<u64>,
}

/// Rows that were left out.
#[derive(Debug, Serialize, Document)]
pub struct Rest {
    /// Rows left out by `--top`; `rest` is absent where none is.
    pub rows: usize,
    /// Their bytes.
    pub bytes: Bytes,
    /// Their blocks.
    pub count: u64,
}

/// What was in use before the trace begins.
#[derive(Debug, Serialize, Document)]
pub struct BeforeView {
    /// In use when the trace begins (whole chunks).
    #[field(title = "before")]
    pub at_begin_bytes: Bytes,
    /// Of these, freed in the trace: frees without an allocation.
    #[field(title = "freed since")]
    pub freed_bytes: Bytes,
    /// How many blocks that were.
    #[field(title = "blocks")]
    pub freed_blocks: u64,
}

/// A block that was held long.
#[derive(Debug, Serialize, Document)]
pub struct LongView {
    /// Requested; the list has the ten blocks with the most bytes x seconds.
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
    /// How long it was held in the trace.
    pub held_ns: u64,
    /// Chunk bytes times seconds held.
    #[field(unit = "bytes x s")]
    pub byte_seconds: f64,
}

impl From<ReportAnalysis> for Report {
    fn from(report: ReportAnalysis) -> Report {
        let mut document = Report {
            kind: "report",
            headline: report.answer.headline.clone(),
            explanation: report.answer.explanation.clone(),
            verdict: report.answer.into(),
            source: report.source.into(),
            pools: report.pools.into_iter().map(PoolView::from).collect(),
            steps: report.steps.into_iter().map(StepView::from).collect(),
            run: report.job.map(RunView::from),
            epochs: report.epochs.into_iter().map(EpochView::from).collect(),
            phases: report.phases.into_iter().map(PhaseView::from).collect(),
            windows: report.windows.into_iter().map(WindowView::from).collect(),
            marks: report.marks.into_iter().map(MarkView::from).collect(),
            inventory: report.inventory.into_iter().map(InventoryView::from).collect(),
            ledger: ledger::rows(&report.ledgers),
            findings: report.findings.into_iter().map(FindingView::from).collect(),
            warnings: report.warnings,
            unknowns: Vec::new(),
        };
        document.unknowns = Unknowns::of(&document);
        document
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
                SourceClock::Profile => "nanoseconds since the profile began, as the profiler wrote them",
                SourceClock::OneMoment => "none: the file knows one moment",
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
