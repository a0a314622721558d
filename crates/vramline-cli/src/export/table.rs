//! Writes allocations as CSV (RFC 4180, nulls empty) and as JSON (one row per line).

use std::io::{self, Write};

use vramline::analysis::export::PoolHistory;
use vramline::view::export::{Allocation, allocations};

/// The columns, in the order of every format.
pub(crate) const COLUMNS: [&str; 18] = [
    "pool",
    "device",
    "host",
    "pid",
    "address",
    "born_ns",
    "freed_ns",
    "bytes",
    "chunk_bytes",
    "op",
    "layer",
    "role",
    "variable",
    "shape",
    "dtype",
    "step",
    "phase",
    "at_peak",
];

pub(crate) fn csv(pools: &[PoolHistory<'_>], out: &mut impl Write) -> Result<(), anyhow::Error> {
    write!(out, "{}\r\n", COLUMNS.join(","))?;
    for row in pools.iter().flat_map(allocations) {
        let number = |value: Option<u64>| value.map_or(String::new(), |value| value.to_string());
        let signed = |value: Option<i64>| value.map_or(String::new(), |value| value.to_string());
        let Allocation {
            pool, device, host, op, layer, role, variable, shape, dtype, phase, at_peak, ..
        } = &row;
        text(out, pool, "")?;
        text(out, device, ",")?;
        text(out, host, ",")?;
        write!(out, ",{},{}", number(row.pid), number(row.address))?;
        write!(out, ",{},{}", row.born_ns.0, signed(row.freed_ns.map(|time| time.0)))?;
        write!(out, ",{},{}", row.bytes.0, row.chunk_bytes.0)?;
        for cell in [op.as_str(), layer, role, variable, shape, dtype] {
            text(out, cell, ",")?;
        }
        write!(out, ",{}", signed(row.step))?;
        text(out, phase, ",")?;
        write!(out, ",{at_peak}\r\n")?;
    }
    Ok(())
}

/// Writes a cell of text, quoted if necessary.
fn text(out: &mut impl Write, cell: &str, before: &str) -> io::Result<()> {
    if cell.contains([',', '"', '\n', '\r']) {
        write!(out, "{before}\"{}\"", cell.replace('"', "\"\""))
    } else {
        write!(out, "{before}{cell}")
    }
}

pub(crate) fn json(pools: &[PoolHistory<'_>], out: &mut impl Write) -> Result<(), anyhow::Error> {
    write!(out, "{{\"kind\":\"export\",\"allocations\":[")?;
    for (number, row) in pools.iter().flat_map(allocations).enumerate() {
        out.write_all(if number > 0 { b",\n" } else { b"\n" })?;
        serde_json::to_writer(&mut *out, &row).map_err(io::Error::from)?;
    }
    writeln!(out, "\n]}}")?;
    Ok(())
}
