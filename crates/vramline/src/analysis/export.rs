//! What other tools and programs get: the pools that have a history, their steps, every allocation with its life, and the bytes in use
//! over time.
//!
//! Rows come one at a time, because a trace may hold millions of them: whoever writes a format keeps none. One block is one row,
//! also where the report breaks it down to the instructions of a compiled program.

use super::reading::{Host, Reading};
use crate::dtype::Dtype;
use crate::recording::reader::RecordedProcess;
use crate::snapshot::Role;
use crate::trace::recorded::{self, RecordedStep};
use crate::trace::{Lifetime, Phase, PoolTrace, Trace};
use crate::units::{Bytes, Nanos, Picos};

/// A pool of memory with its history: one allocator of one process on one device.
#[derive(Debug)]
pub struct PoolHistory<'a> {
    /// The allocator, as the framework names it.
    pub name: &'a str,
    /// Its device, as in `GPU:0`; empty where the name does not tell.
    pub device: String,
    /// The machine.
    pub host: &'a str,
    /// The process; `None` where the source does not tell.
    pub pid: Option<u64>,
    /// The most in use, by the allocator's own count; `None` where the pool has no events.
    pub peak: Option<Bytes>,
    /// The steps that ran meanwhile, in order.
    pub steps: Vec<StepSpan>,
    trace: &'a Trace,
    pool: &'a PoolTrace,
}

/// A step of the program, on the trace's clock.
#[derive(Clone, Copy, Debug)]
pub struct StepSpan {
    /// Its number.
    pub number: i64,
    /// What it did.
    pub phase: Phase,
    /// When it begins.
    pub begin: Nanos,
    /// When it ends.
    pub end: Nanos,
}

/// One allocation with its life. Times are nanoseconds of the source's clock.
#[derive(Clone, Debug)]
pub struct Allocation<'a> {
    /// Where it lies.
    pub address: Option<u64>,
    /// When it was allocated.
    pub born: Nanos,
    /// When it was freed; `None` where the trace does not show it.
    pub freed: Option<Nanos>,
    /// The requested bytes.
    pub requested: Bytes,
    /// What the allocator took for it.
    pub chunk: Bytes,
    /// The op that asked, or the place in the program; empty where nothing names it.
    pub op: &'a str,
    /// The model layer; empty where the op's name does not tell.
    pub layer: String,
    /// What it is for.
    pub role: Role,
    /// The variable whose value it is, where a recording lists it; else empty.
    pub variable: String,
    /// Its shape, as the framework writes it; empty where not told.
    pub shape: &'a str,
    /// Its element type.
    pub dtype: Dtype,
    /// The step that it was allocated in.
    pub step: Option<StepSpan>,
    /// Whether it lives at the pool's peak.
    pub is_at_peak: bool,
}

/// Why there is nothing to walk through or to export.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NothingToExport {
    /// What was read has no history of allocations.
    #[error("it has no history of allocations")]
    NoHistory,
    /// No pool that has one is called so.
    #[error("no pool with a history has this name")]
    NoSuchPool,
}

/// Lists the pools that have a history; where `name` is given, those whose names contain it.
///
/// # Errors
///
/// Where there is none. Dumps, profiles and logs know one moment only; [`report`](crate::report()) shows it.
///
/// ```
/// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/tf221_cpu_cnn_from_start.xplane.pb");
/// let reading = vramline::read(path.as_ref())?;
/// for pool in vramline::pools(&reading, None)? {
///     let largest = pool.allocations().max_by_key(|allocation| allocation.requested);
///     assert!(largest.is_some_and(|largest| Some(largest.requested) < pool.peak), "{}", pool.name);
/// }
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn pools<'a>(reading: &'a Reading, name: Option<&str>) -> Result<Vec<PoolHistory<'a>>, NothingToExport> {
    let mut pools: Vec<PoolHistory<'a>> = Vec::new();
    for host in &reading.hosts {
        let processes = reading.recorded.as_ref().map(|recorded| &recorded.processes);
        let process = host.process.zip(processes).and_then(|(number, processes)| processes.get(number));
        pools.extend(host.trace.pools.iter().map(|pool| PoolHistory::of(host, pool, process)));
    }
    if pools.is_empty() {
        return Err(NothingToExport::NoHistory);
    }
    pools.retain(|pool| name.is_none_or(|part| pool.name.contains(part)));
    if pools.is_empty() { Err(NothingToExport::NoSuchPool) } else { Ok(pools) }
}

impl<'a> PoolHistory<'a> {
    fn of(host: &'a Host, pool: &'a PoolTrace, process: Option<&RecordedProcess>) -> PoolHistory<'a> {
        let trace = &host.trace;
        let device = trace.device_of(pool);
        PoolHistory {
            name: host.pool_name(pool),
            host: &trace.history.host,
            pid: process.map(|process| u64::from(process.id.pid())).or(trace.history.pid),
            peak: pool.peak().map(|peak| peak.bytes),
            steps: steps(trace, process, &device),
            device,
            trace,
            pool,
        }
    }

    /// Every allocation, in order of time.
    pub fn allocations(&self) -> impl Iterator<Item = Allocation<'_>> {
        self.trace.lifetimes(self.pool).map(|life| self.allocation(life))
    }

    /// The bytes in use after each event.
    pub fn levels(&self) -> impl Iterator<Item = (Nanos, Bytes)> {
        let origin = self.trace.history.origin;
        self.pool.levels(&self.trace.history.events).map(move |(time, bytes)| (time.on_clock(origin), bytes))
    }

    /// When the pool's last event was.
    #[must_use]
    pub fn end(&self) -> Nanos {
        self.pool.last_time(&self.trace.history.events).on_clock(self.trace.history.origin)
    }

    fn allocation(&self, life: Lifetime) -> Allocation<'_> {
        let history = &self.trace.history;
        let clock = |time: Picos| time.on_clock(history.origin);
        let born = clock(life.born);
        let after = self.steps.partition_point(|step| step.begin <= born);
        let step = after.checked_sub(1).and_then(|at| self.steps.get(at)).filter(|step| born <= step.end);
        Allocation {
            address: life.address,
            born,
            freed: life.freed.map(clock),
            requested: life.held.requested,
            chunk: life.held.chunk,
            op: history.names.get(life.held.op),
            layer: life.held.layer,
            role: life.held.role,
            variable: life.held.variable,
            shape: history.names.get(life.held.shape),
            dtype: life.held.dtype,
            step: step.copied(),
            is_at_peak: life.is_at_peak,
        }
    }
}

/// The steps that a recording tells, else those that the trace shows.
fn steps(trace: &Trace, process: Option<&RecordedProcess>, device: &str) -> Vec<StepSpan> {
    let told = process.map(|process| recorded::steps(process, &[])).unwrap_or_default();
    let on_clock = |step: &RecordedStep| {
        Some(StepSpan {
            number: step.number,
            phase: step.phase,
            begin: recorded::on_clock(&trace.history, step.begin)?,
            end: recorded::on_clock(&trace.history, step.end)?,
        })
    };
    let mut steps: Vec<StepSpan> =
        told.iter().filter(|step| step.device == device).filter_map(on_clock).collect();
    if steps.is_empty() {
        let clock = |time: Picos| time.on_clock(trace.history.origin);
        steps.extend(trace.steps.iter().map(|step| StepSpan {
            number: step.number,
            phase: step.phase,
            begin: clock(step.begin),
            end: clock(step.until),
        }));
    }
    steps.sort_by_key(|step| step.begin);
    steps
}
