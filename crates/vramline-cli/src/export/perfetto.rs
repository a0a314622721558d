//! Writes a trace in Chrome's event format, for Perfetto and chrome://tracing.
//!
//! A pool becomes a process of the trace, with a counter of its bytes in use, a thread for the steps, and lanes for allocations. Slices
//! of a lane must not overlap, so each allocation takes the lowest free lane.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::io::{self, Write};

use serde_json::json;
use vramline::analysis::export::PoolHistory;
use vramline::units::Nanos;
use vramline::view::export::{self, Allocation};

/// The lane of the steps. The lanes of allocations follow.
const STEPS_LANE: usize = 0;

pub(crate) fn write(pools: &[PoolHistory<'_>], out: &mut impl Write) -> Result<(), anyhow::Error> {
    write!(out, "{{\"displayTimeUnit\":\"ns\",\"traceEvents\":[")?;
    for (number, pool) in pools.iter().enumerate() {
        let pid = number + 1;
        let whose = pool.pid.map_or(String::new(), |pid| format!(", process {pid}"));
        let name = format!("{} ({}{whose})", pool.name, pool.device);
        out.write_all(if number > 0 { b",\n" } else { b"\n" })?;
        serde_json::to_writer(
            &mut *out,
            &json!({"ph": "M", "name": "process_name", "pid": pid, "tid": STEPS_LANE, "args": {"name": name}}),
        )
        .map_err(io::Error::from)?;
        let thread = json!({"ph": "M", "name": "thread_name", "pid": pid, "tid": STEPS_LANE, "args": {"name": "steps"}});
        event(out, &thread)?;
        for step in &pool.steps {
            let name = json!(format!("{} step {}", step.phase.word(), step.number));
            slice(
                out,
                pid,
                STEPS_LANE,
                &name,
                (step.begin, step.end),
                "step",
                &json!({"step": step.number}),
            )?;
        }
        let counter = json!(format!("{}, bytes in use", pool.name));
        for (time, bytes) in pool.levels() {
            write!(out, ",\n{{\"ph\":\"C\",\"pid\":{pid},\"name\":{counter},\"ts\":{}", micros(time.0))?;
            write!(out, ",\"args\":{{\"bytes\":{}}}}}", bytes.0)?;
        }
        allocations(out, pid, pool)?;
    }
    writeln!(out, "\n]}}")?;
    Ok(())
}

fn allocations(out: &mut impl Write, pid: usize, pool: &PoolHistory<'_>) -> io::Result<()> {
    let end = pool.end();
    let mut busy: BinaryHeap<Reverse<(Nanos, usize)>> = BinaryHeap::new();
    let mut free: BTreeSet<usize> = BTreeSet::new();
    let mut lanes = STEPS_LANE;
    for row in export::allocations(pool) {
        while let Some(Reverse((until, lane))) = busy.peek().copied() {
            if until > row.born_ns {
                break;
            }
            busy.pop();
            free.insert(lane);
        }
        let lane = free.pop_first().unwrap_or_else(|| {
            lanes += 1;
            lanes
        });
        let until = row.freed_ns.unwrap_or(end).max(row.born_ns);
        busy.push(Reverse((until, lane)));
        let Allocation { bytes, chunk_bytes, op, layer, role, variable, shape, dtype, step, at_peak, .. } =
            &row;
        let name =
            [variable, op].into_iter().find(|name| !name.is_empty()).map_or("(no name)", String::as_str);
        let args = json!({
            "bytes": bytes, "chunk_bytes": chunk_bytes, "op": op, "layer": layer, "variable": variable,
            "shape": shape, "dtype": dtype, "step": step, "at_peak": at_peak, "freed": row.freed_ns.is_some(),
        });
        slice(out, pid, lane, &json!(name), (row.born_ns, until), role, &args)?;
    }
    Ok(())
}

fn slice(
    out: &mut impl Write,
    pid: usize,
    lane: usize,
    name: &serde_json::Value,
    (begin, end): (Nanos, Nanos),
    category: &str,
    args: &serde_json::Value,
) -> io::Result<()> {
    let lasts = end.0.saturating_sub(begin.0).max(0);
    write!(out, ",\n{{\"ph\":\"X\",\"pid\":{pid},\"tid\":{lane},\"name\":{name},\"cat\":\"{category}\"")?;
    write!(out, ",\"ts\":{},\"dur\":{},\"args\":{args}}}", micros(begin.0), micros(lasts))
}

fn event(out: &mut impl Write, event: &serde_json::Value) -> io::Result<()> {
    write!(out, ",\n{event}")
}

/// Nanoseconds as microseconds, without rounding.
fn micros(nanos: i64) -> String {
    let sign = if nanos < 0 { "-" } else { "" };
    let nanos = nanos.unsigned_abs();
    format!("{sign}{}.{:03}", nanos / 1000, nanos % 1000)
}
