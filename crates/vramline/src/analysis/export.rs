//! What other tools get: the pools that have a history, their steps, every allocation with its life, and the bytes in use over time.
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

/// A pool that has a history.
#[derive(Debug)]
pub struct PoolExport<'a> {
    /// The allocator, as the framework names it.
    pub name: &'a str,
    /// Its device.
    pub device: String,
    /// The machine.
    pub host: &'a str,
    /// The process.
    pub pid: Option<u64>,
    /// The most in use.
    pub peak: Option<Bytes>,
    /// The steps that ran meanwhile, in order.
    pub steps: Vec<ExportedStep>,
    trace: &'a Trace,
    pool: &'a PoolTrace,
}

/// A step on the trace's clock.
#[derive(Clone, Copy, Debug)]
pub struct ExportedStep {
    /// Its number.
    pub number: i64,
    /// What it did.
    pub phase: Phase,
    /// When it begins.
    pub begin: Nanos,
    /// When it ends.
    pub end: Nanos,
}

/// One allocation with its life.
#[derive(Clone, Debug)]
pub struct ExportedAllocation<'a> {
    /// Where it lies.
    pub address: Option<u64>,
    /// When it was allocated.
    pub born: Nanos,
    /// When it was freed; `None` where the trace does not show it.
    pub freed: Option<Nanos>,
    /// What was asked for.
    pub requested: Bytes,
    /// What the allocator took for it.
    pub chunk: Bytes,
    /// The op that asked.
    pub op: &'a str,
    /// The model layer.
    pub layer: String,
    /// What it is for.
    pub role: Role,
    /// The variable whose value it is.
    pub variable: String,
    /// Its shape.
    pub shape: &'a str,
    /// Its element type.
    pub dtype: Dtype,
    /// The step that it was allocated in.
    pub step: Option<ExportedStep>,
    /// Whether it lives at the pool's peak.
    pub is_at_peak: bool,
}

/// Why there is nothing to export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NothingToExport {
    /// What was read has no history of allocations.
    NoHistory,
    /// No pool that has one is called so.
    NoSuchPool,
}

/// The pools that have a history; where `name` is given, those whose names contain it.
pub fn pools<'a>(reading: &'a Reading, name: Option<&str>) -> Result<Vec<PoolExport<'a>>, NothingToExport> {
    let mut pools: Vec<PoolExport<'a>> = Vec::new();
    for host in &reading.hosts {
        let processes = reading.recorded.as_ref().map(|recorded| &recorded.processes);
        let process = host.process.zip(processes).and_then(|(number, processes)| processes.get(number));
        pools.extend(host.trace.pools.iter().map(|pool| PoolExport::of(host, pool, process)));
    }
    if pools.is_empty() {
        return Err(NothingToExport::NoHistory);
    }
    pools.retain(|pool| name.is_none_or(|part| pool.name.contains(part)));
    if pools.is_empty() { Err(NothingToExport::NoSuchPool) } else { Ok(pools) }
}

impl<'a> PoolExport<'a> {
    fn of(host: &'a Host, pool: &'a PoolTrace, process: Option<&RecordedProcess>) -> PoolExport<'a> {
        let trace = &host.trace;
        let device = trace.device_of(pool);
        PoolExport {
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
    pub fn allocations(&self) -> impl Iterator<Item = ExportedAllocation<'_>> {
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

    fn allocation(&self, life: Lifetime) -> ExportedAllocation<'_> {
        let history = &self.trace.history;
        let clock = |time: Picos| time.on_clock(history.origin);
        let born = clock(life.born);
        let after = self.steps.partition_point(|step| step.begin <= born);
        let step = after.checked_sub(1).and_then(|at| self.steps.get(at)).filter(|step| born <= step.end);
        ExportedAllocation {
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
fn steps(trace: &Trace, process: Option<&RecordedProcess>, device: &str) -> Vec<ExportedStep> {
    let told = process.map(|process| recorded::steps(process, Some(trace))).unwrap_or_default();
    let on_clock = |step: &RecordedStep| {
        Some(ExportedStep {
            number: step.number,
            phase: step.phase,
            begin: recorded::on_clock(&trace.history, step.begin)?,
            end: recorded::on_clock(&trace.history, step.end)?,
        })
    };
    let mut steps: Vec<ExportedStep> =
        told.iter().filter(|step| step.device == device).filter_map(on_clock).collect();
    if steps.is_empty() {
        let clock = |time: Picos| time.on_clock(trace.history.origin);
        steps.extend(trace.steps.iter().map(|step| ExportedStep {
            number: step.number,
            phase: step.phase,
            begin: clock(step.begin),
            end: clock(step.until),
        }));
    }
    steps.sort_by_key(|step| step.begin);
    steps
}
