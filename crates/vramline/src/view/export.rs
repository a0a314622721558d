//! What other tools get: every allocation with its life, and the bytes in use over time.
//!
//! Rows come one at a time, because a trace may hold millions of them: whoever writes a format keeps none. One block is one row,
//! also where the report breaks it down to the instructions of a compiled program.

use serde::Serialize;

use crate::Reading;
use crate::recording::reader::RecordedProcess;
use crate::trace::recorded::{self, RecordedStep};
use crate::trace::{Lifetime, PoolTrace, Trace};
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
    pub steps: Vec<StepExport>,
    trace: &'a Trace,
    pool: &'a PoolTrace,
}

/// A step on the trace's clock.
#[derive(Clone, Copy, Debug)]
pub struct StepExport {
    /// Its number.
    pub number: i64,
    /// What it did.
    pub phase: &'static str,
    /// When it begins.
    pub begin: Nanos,
    /// When it ends.
    pub end: Nanos,
}

/// One allocation. The names of these fields are the columns of every format.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "docs/export.md says it")]
pub struct Allocation {
    pub pool: String,
    pub device: String,
    pub host: String,
    pub pid: Option<u64>,
    pub address: Option<u64>,
    pub born_ns: Nanos,
    pub freed_ns: Option<Nanos>,
    pub bytes: Bytes,
    pub chunk_bytes: Bytes,
    pub op: String,
    pub layer: String,
    pub role: &'static str,
    pub variable: String,
    pub shape: String,
    pub dtype: &'static str,
    pub step: Option<i64>,
    pub phase: &'static str,
    pub at_peak: bool,
}

/// The pools of everything that was read; those without a history are not among them.
#[must_use]
pub fn pools(reading: &Reading) -> Vec<PoolExport<'_>> {
    let mut pools = Vec::new();
    for host in &reading.hosts {
        let trace = &host.trace;
        let processes = reading.recorded.as_ref().map(|recorded| &recorded.processes);
        let process = host.process.zip(processes).and_then(|(number, processes)| processes.get(number));
        for pool in &trace.pools {
            let name = trace.history.pool(pool.id).map_or("", |pool| &pool.name);
            let device = trace.device_of(pool);
            let pid = process.map(|process| u64::from(process.id.pid())).or(trace.history.pid);
            let steps = steps(trace, process, &device);
            let peak = pool.peak().map(|peak| peak.bytes);
            pools.push(PoolExport { name, device, host: &trace.history.host, pid, peak, steps, trace, pool });
        }
    }
    pools
}

/// The steps that a recording tells, else those that the trace shows.
fn steps(trace: &Trace, process: Option<&RecordedProcess>, device: &str) -> Vec<StepExport> {
    let told = process.map(|process| recorded::steps(process, Some(trace))).unwrap_or_default();
    let view = |step: &RecordedStep| {
        Some(StepExport {
            number: step.number,
            phase: step.phase.word(),
            begin: recorded::on_clock(&trace.history, step.begin)?,
            end: recorded::on_clock(&trace.history, step.end)?,
        })
    };
    let mut steps: Vec<StepExport> =
        told.iter().filter(|step| step.device == device).filter_map(view).collect();
    if steps.is_empty() {
        let clock = |time: Picos| time.on_clock(trace.history.origin);
        steps.extend(trace.steps.iter().map(|step| StepExport {
            number: step.number,
            phase: step.phase.word(),
            begin: clock(step.begin),
            end: clock(step.until),
        }));
    }
    steps.sort_by_key(|step| step.begin);
    steps
}

impl PoolExport<'_> {
    /// Every allocation, in order of time.
    pub fn allocations(&self) -> impl Iterator<Item = Allocation> {
        self.trace.lifetimes(self.pool).map(|life| self.allocation(&life))
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

    fn allocation(&self, life: &Lifetime) -> Allocation {
        let history = &self.trace.history;
        let clock = |time: Picos| time.on_clock(history.origin);
        let born = clock(life.born);
        let after = self.steps.partition_point(|step| step.begin <= born);
        let step = after.checked_sub(1).and_then(|at| self.steps.get(at)).filter(|step| born <= step.end);
        Allocation {
            pool: self.name.to_owned(),
            device: self.device.clone(),
            host: self.host.to_owned(),
            pid: self.pid,
            address: life.address,
            born_ns: born,
            freed_ns: life.freed.map(clock),
            bytes: life.held.requested,
            chunk_bytes: life.held.chunk,
            op: history.names.get(life.held.op).to_owned(),
            layer: life.held.layer.clone(),
            role: life.held.role.word(),
            variable: life.held.variable.clone(),
            shape: history.names.get(life.held.shape).to_owned(),
            dtype: life.held.dtype.word(),
            step: step.map(|step| step.number),
            phase: step.map_or("", |step| step.phase),
            at_peak: life.is_at_peak,
        }
    }
}
