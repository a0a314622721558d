//! Rows about memory: devices, pools, steps, and what held the peak.

use crate::analysis::dataset::{DatasetDevice, DatasetPool};
use crate::analysis::limit::LimitSetter;
use crate::document::{Cells, Document};
use crate::ledger::{LineKind, Teller};
use crate::snapshot::Role;
use crate::units::{Bytes, Nanos};
use crate::view::export::Allocation;
use crate::view::ledger::LedgerView;
use crate::view::report::{HeldView, PoolView, Row};
use crate::view::run::StepView;

/// A device.
#[derive(Debug, Document, Cells)]
pub(super) struct DeviceRow {
    /// `GPU:0`, `TPU:0`, `CPU:0`, or `HOST` for pinned host memory.
    device: String,
    /// The product's name.
    #[field(null = "the driver was not queried, or the device is not a GPU")]
    name: Option<String>,
    /// All its memory.
    #[field(null = "neither driver nor profiler reports it")]
    total_bytes: Option<Bytes>,
    /// The version of NVIDIA's driver.
    #[field(null = "the driver was not queried")]
    driver_version: Option<String>,
    /// Peak of the job's processes together, by the driver or the kernel.
    #[field(null = "the driver was not queried")]
    held_peak_bytes: Option<Bytes>,
    /// Bytes of these processes outside their pools at the start: context and libraries.
    #[field(null = "there is no reading of the driver that can be compared with the pools")]
    context_bytes: Option<Bytes>,
    /// The most that was outside the pools.
    #[field(null = "there is no reading of the driver that can be compared with the pools")]
    outside_peak_bytes: Option<Bytes>,
    /// The most that one of the pools reserved.
    #[field(null = "nothing reports the size of the pools")]
    reserved_peak_bytes: Option<Bytes>,
    /// The highest peak of one of the pools.
    #[field(null = "the framework does not count the memory of this device")]
    pool_peak_bytes: Option<Bytes>,
}

impl DeviceRow {
    pub(super) fn of(device: &DatasetDevice) -> DeviceRow {
        let highest = device.highest.as_ref();
        DeviceRow {
            device: device.device.clone(),
            name: device.name.clone(),
            total_bytes: device.total,
            driver_version: device.driver_version.clone(),
            held_peak_bytes: highest.and_then(|highest| highest.held),
            context_bytes: highest.and_then(|highest| highest.context),
            outside_peak_bytes: highest.and_then(|highest| highest.outside),
            reserved_peak_bytes: highest.and_then(|highest| highest.taken),
            pool_peak_bytes: device.pool_peak,
        }
    }
}

/// A pool.
#[derive(Debug, Document, Cells)]
pub(super) struct PoolRow {
    /// The number of the pool in its recording, from 0; `peaks.pool_number` is the same.
    pool_number: usize,
    /// The allocator, as the framework names it.
    pool: String,
    /// `GPU:0`, `TPU:0`, `CPU:0`, `HOST` for pinned host memory; empty if the pool's name does not show it.
    device: String,
    /// The process id.
    #[field(null = "the file does not contain the process id")]
    pid: Option<u64>,
    /// The process' rank in a distributed job.
    #[field(null = "no launcher variable contains the rank")]
    rank: Option<u64>,
    /// The limit of the pool.
    #[field(null = "the available bytes are unknown")]
    limit_bytes: Option<Bytes>,
    /// The origin of the limit: `built-in`, `environment`, `run` or `framework`.
    #[field(null = "the limit is unknown")]
    limit_by: Option<&'static str>,
    /// Number of allocation events.
    #[field(null = "no trace shows the history of the pool")]
    allocs: Option<u64>,
    /// Peak bytes in use in the trace, including rounding; see `moment`.
    #[field(null = "the framework does not count the memory of this device")]
    peak_bytes: Option<Bytes>,
    /// Peak bytes in use since the process started.
    #[field(null = "no peak counter was recorded")]
    lifetime_peak_bytes: Option<Bytes>,
    /// The most that the pool reserved from the driver.
    #[field(null = "neither a replay, a snapshot nor a counter shows it")]
    reserved_bytes: Option<Bytes>,
    /// How that is known: `replay`, `snapshot` or `counter`.
    #[field(null = "the size of the pool is unknown")]
    reserved_by: Option<&'static str>,
    /// The moment of `peak_bytes` and of the next columns: `peak`, `dump`, `program` or `failure`.
    moment: &'static str,
    /// Bytes in use at the moment; the rows of `peaks` add up to it.
    #[field(null = "no trace shows what the pool held")]
    in_use_bytes: Option<Bytes>,
    /// Requested bytes: parameters.
    #[field(null = "no trace shows what the pool held")]
    parameters_bytes: Option<Bytes>,
    /// Requested bytes: gradients.
    #[field(null = "no trace shows what the pool held")]
    gradients_bytes: Option<Bytes>,
    /// Requested bytes: optimizer state.
    #[field(null = "no trace shows what the pool held")]
    optimizer_bytes: Option<Bytes>,
    /// Requested bytes: activations.
    #[field(null = "no trace shows what the pool held")]
    activations_bytes: Option<Bytes>,
    /// Requested bytes: training data.
    #[field(null = "no trace shows what the pool held")]
    inputs_bytes: Option<Bytes>,
    /// Requested bytes: kept across steps, and none of the others.
    #[field(null = "no trace shows what the pool held")]
    state_bytes: Option<Bytes>,
    /// Requested bytes: scratch memory and short-lived results.
    #[field(null = "no trace shows what the pool held")]
    temporaries_bytes: Option<Bytes>,
    /// Requested bytes: no rule applies.
    #[field(null = "no trace shows what the pool held")]
    unknown_bytes: Option<Bytes>,
    /// Rounding: bytes beyond the requests.
    #[field(null = "no trace shows what the pool held")]
    rounding_bytes: Option<Bytes>,
    /// Bytes that were allocated before the trace.
    #[field(null = "no trace shows what the pool held")]
    before_recording_bytes: Option<Bytes>,
    /// What the same requests need in one region, by a replay: `reserved_bytes` less this is the cost of fragmentation.
    #[field(null = "the pool was not replayed")]
    joined_bytes: Option<Bytes>,
    /// Whether the replay reproduces every address and size.
    #[field(null = "the pool was not replayed")]
    replay_exact: Option<bool>,
    /// Share of the pool's free bytes outside its largest free block.
    #[field(null = "the allocator does not report it, or nothing was free")]
    fragmentation: Option<f64>,
}

impl PoolRow {
    pub(super) fn of(number: usize, pool: &PoolView, place: &DatasetPool) -> PoolRow {
        let held = pool.at_peak.as_ref();
        let role = |role: Role| held.map(|held| held.by_role.get(role));
        PoolRow {
            pool_number: number,
            pool: pool.name.clone(),
            device: pool.device.clone(),
            pid: pool.pid,
            rank: pool.rank,
            limit_bytes: pool.limit_bytes,
            limit_by: pool.limit_by.map(LimitSetter::word),
            allocs: pool.allocs,
            peak_bytes: pool.peak_bytes,
            lifetime_peak_bytes: pool.lifetime_peak_bytes,
            reserved_bytes: place.sizes.reserved,
            reserved_by: place.sizes.by,
            moment: pool.moment.word(),
            in_use_bytes: held.map(|held| held.in_use_bytes),
            parameters_bytes: role(Role::Parameters),
            gradients_bytes: role(Role::Gradients),
            optimizer_bytes: role(Role::Optimizer),
            activations_bytes: role(Role::Activations),
            inputs_bytes: role(Role::Inputs),
            state_bytes: role(Role::State),
            temporaries_bytes: role(Role::Temporaries),
            unknown_bytes: role(Role::Unknown),
            rounding_bytes: held.map(|held| held.slack_bytes),
            before_recording_bytes: held.map(|held| held.before_recording_bytes),
            joined_bytes: pool.replay.as_ref().map(|replay| replay.joined_bytes),
            replay_exact: pool.replay.as_ref().map(|replay| replay.exact),
            fragmentation: pool.fragmentation_at_peak.map(f64::from),
        }
    }
}

/// A holder of memory at the peak of a pool.
#[derive(Debug, Document, Cells)]
pub(super) struct PeakRow {
    /// The number of the pool in its recording.
    pool_number: usize,
    /// The allocator, as the framework names it.
    pool: String,
    /// The device of the pool.
    device: String,
    /// The process id.
    #[field(null = "the file does not contain the process id")]
    pid: Option<u64>,
    /// `blocks`: blocks of one op, shape and type; `rounding`: bytes beyond all requests; `before the recording`: bytes that were allocated
    /// before the trace.
    holder: &'static str,
    /// Its bytes; all rows of a pool add up to `pools.in_use_bytes`.
    bytes: Bytes,
    /// Number of blocks.
    #[field(null = "the row is not blocks")]
    count: Option<u64>,
    /// The role; empty if the row is not blocks.
    role: &'static str,
    /// The op that requested them; empty if unknown.
    op: String,
    /// The model layer; empty if unknown.
    layer: String,
    /// The variable whose value it is; empty if unknown.
    variable: String,
    /// The shape; empty if unknown.
    shape: String,
    /// Element type; empty if unknown.
    dtype: &'static str,
    /// The source location; empty if unknown.
    source: String,
    /// The evidence for the role, or why there is no name.
    evidence: &'static str,
}

impl PeakRow {
    /// The holders of a pool at one moment.
    pub(super) fn all(number: usize, pool: &PoolView, held: &HeldView) -> Vec<PeakRow> {
        let row = |holder: &'static str, bytes: Bytes| PeakRow {
            pool_number: number,
            pool: pool.name.clone(),
            device: pool.device.clone(),
            pid: pool.pid,
            holder,
            bytes,
            count: None,
            role: "",
            op: String::new(),
            layer: String::new(),
            variable: String::new(),
            shape: String::new(),
            dtype: "",
            source: String::new(),
            evidence: "",
        };
        let of_blocks = |blocks: &Row| PeakRow {
            count: Some(blocks.count),
            role: blocks.role,
            op: blocks.op.clone(),
            layer: blocks.layer.clone(),
            variable: blocks.variable.clone(),
            shape: blocks.shape.clone(),
            dtype: blocks.dtype,
            source: blocks.source.clone(),
            evidence: blocks.evidence,
            ..row("blocks", blocks.bytes)
        };
        let others = [("rounding", held.slack_bytes), ("before the recording", held.before_recording_bytes)];
        let others = others.into_iter().filter(|(_, bytes)| *bytes > Bytes::ZERO);
        held.rows.iter().map(of_blocks).chain(others.map(|(holder, bytes)| row(holder, bytes))).collect()
    }
}

/// A step, with the figures of one pool.
#[derive(Debug, Document, Cells)]
pub(super) struct StepRow {
    /// The pool of the figures.
    pool: String,
    /// The process id.
    #[field(null = "the trace does not contain the process id")]
    pid: Option<u64>,
    /// The program's own step number, or a count from zero.
    step: i64,
    /// Number of batches.
    batches: u64,
    /// The `fit` of Keras that it belongs to, from 1 in each process.
    #[field(null = "the step belongs to no fit")]
    fit: Option<u64>,
    /// The epoch, from zero.
    #[field(null = "the step belongs to no epoch, or the epoch was not recorded")]
    epoch: Option<u64>,
    /// `train`, `validation`, `predict` or `other`.
    phase: &'static str,
    /// How the step is known: `keras`, `trainer`, `api`, `trace` or `inferred`.
    how: &'static str,
    /// The name of the called function.
    name: String,
    /// Its start, on the clock of its process.
    begin_ns: Nanos,
    /// Peak bytes in use during the step.
    #[field(null = "per-step peaks are recorded only for traced steps, and with `--step-peaks`")]
    peak_bytes: Option<Bytes>,
    /// Bytes in use at its end.
    #[field(null = "the framework reported no figure at its end")]
    current_bytes: Option<Bytes>,
}

impl From<&StepView> for StepRow {
    fn from(step: &StepView) -> StepRow {
        StepRow {
            pool: step.pool.clone(),
            pid: step.pid,
            step: step.step,
            batches: step.batches,
            fit: step.fit,
            epoch: step.epoch,
            phase: step.phase.word(),
            how: step.how.word(),
            name: step.name.clone(),
            begin_ns: step.begin_ns,
            peak_bytes: step.peak_bytes,
            current_bytes: step.current_bytes,
        }
    }
}

/// A line of the ledger of a device.
#[derive(Debug, Document, Cells)]
pub(super) struct LedgerRow {
    /// The number of the line in its recording, from 0.
    line_number: usize,
    /// The device.
    device: String,
    /// Which moment the ledger is of, as in the JSON of a report.
    moment: &'static str,
    /// What the line is, as in the JSON of a report.
    line: &'static str,
    /// The process, the pool, the cause of a change, or an explanation of the line.
    detail: String,
    /// The library whose driver calls took the memory.
    #[field(null = "the line is not the memory of one library, or the library is unknown")]
    library: Option<String>,
    /// Number of things in the line.
    #[field(null = "the line does not count things")]
    count: Option<u64>,
    /// The process of the line, with the driver's process id.
    #[field(null = "the line does not belong to a single process")]
    pid: Option<u64>,
    /// The number of the line it is part of; every line is the sum of its parts.
    #[field(null = "the line is the whole device")]
    part_of: Option<usize>,
    /// Its depth in the tree.
    depth: usize,
    /// Its bytes; negative if they are subtracted.
    #[field(null = "see `reason`")]
    bytes: Option<i64>,
    /// The source of the figure: driver, calls, host, framework, trace, replay, derived or estimated.
    source: &'static str,
    /// Why the bytes are unknown; else empty.
    reason: String,
}

impl LedgerRow {
    pub(super) fn of(number: usize, line: &LedgerView) -> LedgerRow {
        LedgerRow {
            line_number: number,
            device: line.device.clone(),
            moment: line.moment.word(),
            line: LineKind::word(line.line),
            detail: line.detail.clone(),
            library: line.library.clone(),
            count: line.count,
            pid: line.pid.map(u64::from),
            part_of: line.part_of,
            depth: line.depth,
            bytes: line.bytes,
            source: Teller::word(line.source),
            reason: line.reason.clone(),
        }
    }
}

/// An allocation.
#[derive(Debug, Document, Cells)]
pub(super) struct AllocationRow {
    /// The allocator, as the framework names it.
    pool: String,
    /// The device of the pool.
    device: String,
    /// The process id.
    #[field(null = "the file does not contain the process id")]
    pid: Option<u64>,
    /// The address of the block.
    #[field(null = "the source does not contain it, or it does not fit into 63 bits")]
    address: Option<i64>,
    /// When it was allocated, on the source's clock.
    born_ns: Nanos,
    /// When it was freed.
    #[field(null = "the trace does not show it")]
    freed_ns: Option<Nanos>,
    /// Requested bytes.
    bytes: Bytes,
    /// Bytes of the block that the allocator handed out.
    chunk_bytes: Bytes,
    /// The op that requested it; empty if unknown.
    op: String,
    /// The model layer; empty if unknown.
    layer: String,
    /// The role.
    role: &'static str,
    /// The variable whose value it is; empty if unknown.
    variable: String,
    /// The shape; empty if unknown.
    shape: String,
    /// Element type; empty if unknown.
    dtype: &'static str,
    /// The step that it was allocated in.
    #[field(null = "it was allocated in no step")]
    step: Option<i64>,
    /// The phase of that step; empty if there is none.
    phase: &'static str,
    /// Whether it is alive at its pool's peak.
    at_peak: bool,
}

impl From<Allocation> for AllocationRow {
    fn from(row: Allocation) -> AllocationRow {
        AllocationRow {
            pool: row.pool,
            device: row.device,
            pid: row.pid,
            address: row.address.and_then(|address| i64::try_from(address).ok()),
            born_ns: row.born_ns,
            freed_ns: row.freed_ns,
            bytes: row.bytes,
            chunk_bytes: row.chunk_bytes,
            op: row.op,
            layer: row.layer,
            role: row.role,
            variable: row.variable,
            shape: row.shape,
            dtype: row.dtype,
            step: row.step,
            phase: row.phase,
            at_peak: row.at_peak,
        }
    }
}
