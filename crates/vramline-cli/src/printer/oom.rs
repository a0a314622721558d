//! Draws a post-mortem: the verdict with its arithmetic, the pool as a picture, what to do.

use std::fmt::Write;

use vramline::analysis::oom::{MAP_WIDTH, OomWord};
use vramline::postmortem::Verdict;
use vramline::units::{Bytes, thousands};
use vramline::view::oom::{FailureView, OomReport};

use super::{Style, heading, notes_of, printable, shorten, table};

/// Rows of the picture; what is left out is summed up.
const ROWS: usize = 24;

/// Live chunks and holders that are listed.
const LISTED: usize = 8;

pub(crate) fn oom(report: &OomReport, is_all: bool, style: Style) -> String {
    let mut out = String::new();
    for file in &report.files {
        let _ = writeln!(out, "{}{}{}", style.dim, printable(file), style.plain);
    }
    if report.failures.is_empty() {
        let _ = writeln!(
            out,
            "\n{}{}{}\nVramline looked for out-of-memory texts of TensorFlow, JAX, XLA, PyTorch and the libraries \
             in docs/reference/dialects.md, and for TensorFlow's dumps.",
            style.bold, report.headline, style.plain
        );
        notes_of(&mut out, &report.warnings, style);
        return out;
    }
    if report.verdict.word == OomWord::WentOn {
        let _ = writeln!(out, "\n{}{}{}", style.bold, printable(&report.headline), style.plain);
    }
    let told: usize = report.failures.len();
    for (number, group) in report.groups.iter().enumerate() {
        let members = group.failures.iter().filter_map(|&at| Some((at, report.failures.get(at)?)));
        for (turn, (at, failure)) in members.enumerate() {
            if turn > 0 && !is_all {
                break;
            }
            let again = if is_all { 0 } else { group.failures.len() - 1 };
            verdict(&mut out, failure, (at, told, again), style);
            // The first failure is usually the one that matters.
            if is_all || number == 0 {
                details(&mut out, failure, style);
            }
        }
    }
    if !is_all && report.groups.len() > 1 {
        let _ = writeln!(
            out,
            "\n{}The first failure is usually the one that matters; --all shows the others in full.{}",
            style.dim, style.plain
        );
    }
    if let Some(soft) = &report.soft.text {
        let _ = writeln!(out, "\n{}Beside this: {}.{}", style.dim, printable(soft), style.plain);
    }
    notes_of(&mut out, &report.warnings, style);
    out
}

fn verdict(out: &mut String, failure: &FailureView, (at, told, again): (usize, usize, usize), style: Style) {
    let count = if told > 1 { format!("Failure {} of {told}: ", at + 1) } else { String::new() };
    let headline = printable(&failure.headline);
    let _ = writeln!(out, "\n{}{count}{headline}{}", style.bold, style.plain);
    let mut facts = Vec::new();
    if let Some(first) = failure.told_by.first() {
        let line = first.line.map_or(String::new(), |line| format!(":{line}"));
        facts.push(format!("{}{line}", printable(&first.file)));
    }
    facts.extend(failure.op.iter().map(|op| format!("op {}", shorten(&printable(op)))));
    facts.extend(failure.executable.iter().map(|name| format!("executable {}", shorten(&printable(name)))));
    if let (Some(shape), Some(dtype)) = (&failure.shape, &failure.dtype) {
        facts.push(format!("{} {}", printable(shape), printable(dtype)));
    }
    if failure.attempts > 1 {
        facts.push(format!("tried {} times", failure.attempts));
    }
    if again > 0 {
        facts.push(format!("{} more like it", thousands(again as u64)));
    }
    let _ = writeln!(out, "  {}{}{}", style.dim, facts.join(", "), style.plain);
}

fn details(out: &mut String, failure: &FailureView, style: Style) {
    arithmetic(out, failure, style);
    picture(out, failure, style);
    bridge(out, failure, style);
    holders(out, failure, style);
    buffers(out, failure, style);
    if !failure.advice.is_empty() {
        heading(out, "What to do", style);
        for advice in &failure.advice {
            let _ = writeln!(out, "  - {}", printable(&advice.text));
        }
    }
}

/// The figures of the verdict, to the byte where they are known.
fn arithmetic(out: &mut String, failure: &FailureView, style: Style) {
    let lines: [(&str, Option<Bytes>, Option<Bytes>, &str); 9] = [
        ("request", failure.rounded_low_bytes, failure.rounded_high_bytes, "R, as the allocator rounds it"),
        ("free", failure.free_low_bytes, failure.free_high_bytes, "F, in chunks that the request may use"),
        ("largest piece", failure.largest_free_bytes, failure.largest_free_bytes, "of these"),
        (
            "unallocated",
            failure.unallocated_low_bytes,
            failure.unallocated_high_bytes,
            "U, what the limit leaves",
        ),
        ("short by", failure.short_by_low_bytes, failure.short_by_high_bytes, "R - F - U"),
        ("slack", failure.slack_low_bytes, failure.slack_high_bytes, "in use beyond what was asked for"),
        ("in use", failure.in_use_low_bytes, failure.in_use_high_bytes, "whole chunks"),
        ("limit", failure.limit_low_bytes, failure.limit_high_bytes, "of the pool"),
        (
            "other processes",
            failure.other_processes_low_bytes,
            failure.other_processes_high_bytes,
            "O, what they hold of the device",
        ),
    ];
    // A text without figures has no arithmetic.
    if lines.iter().all(|(_, low, ..)| low.is_none()) {
        return;
    }
    heading(out, "Arithmetic", style);
    for (name, low, high, meaning) in lines {
        // Only PyTorch and TensorFlow's asynchronous pool speak of others.
        if name == "other processes" && low.is_none() {
            continue;
        }
        let bytes = match (low, high) {
            (Some(low), Some(high)) if low == high => thousands(low.0),
            (Some(low), Some(high)) => format!("{} to {}", thousands(low.0), thousands(high.0)),
            _ => "not told".to_owned(),
        };
        let _ = writeln!(out, "  {name:<15} {bytes:>31}  {}{meaning}{}", style.dim, style.plain);
    }
    let Some(steps) = comparison(failure) else { return };
    let _ = writeln!(out, "  {steps}");
}

/// The comparisons that lead to the verdict, in order.
fn comparison(failure: &FailureView) -> Option<String> {
    let verdict = failure.verdict?;
    if failure.rounded_low_bytes.is_none() || failure.unallocated_low_bytes.is_none() {
        return None;
    }
    let has_neighbours = failure.other_processes_low_bytes.is_some_and(|others| others > Bytes::ZERO);
    let is_short = failure.short_by_high_bytes.is_some_and(|short| short > Bytes::ZERO);
    Some(match verdict {
        Verdict::Device if has_neighbours => "U + O >= R: device".to_owned(),
        Verdict::Device => "U >= R: device".to_owned(),
        Verdict::Fragmented => {
            "U < R, but F + U >= R, and F is at least a twentieth of the pool: fragmented".to_owned()
        }
        Verdict::Slack => "F + U < R, but slack >= R - F - U: slack".to_owned(),
        Verdict::Exhausted if !is_short => {
            "F + U >= R, but F is less than a twentieth of the pool: exhausted".to_owned()
        }
        Verdict::Exhausted if failure.slack_low_bytes.is_none() => "F + U < R: exhausted".to_owned(),
        Verdict::Exhausted => "F + U < R, and slack < R - F - U: exhausted".to_owned(),
        Verdict::Limit => "F + U < R, under a limit that was set: limit".to_owned(),
    })
}

fn picture(out: &mut String, failure: &FailureView, style: Style) {
    if failure.regions.is_empty() {
        return;
    }
    heading(out, "The pool", style);
    let _ = writeln!(
        out,
        "  {}# in use, x slack, : mostly free, . free; one row a region, to scale{}",
        style.dim, style.plain
    );
    let shown = if failure.regions.len() > ROWS { ROWS - 1 } else { failure.regions.len() };
    for region in failure.regions.iter().take(shown) {
        let _ = writeln!(
            out,
            "  {:<MAP_WIDTH$}  {:>9}  {:>9} free",
            region.map,
            region.bytes.to_string(),
            region.free_bytes.to_string()
        );
    }
    let rest = failure.regions.get(shown..).unwrap_or_default();
    if !rest.is_empty() {
        let bytes: Bytes = rest.iter().map(|region| region.bytes).sum();
        let free: Bytes = rest.iter().map(|region| region.free_bytes).sum();
        let what = format!("{} more regions", rest.len());
        let _ = writeln!(out, "  {what:<MAP_WIDTH$}  {:>9}  {:>9} free", bytes.to_string(), free.to_string());
    }
}

fn bridge(out: &mut String, failure: &FailureView, style: Style) {
    let Some(bridge) = &failure.bridge else { return };
    heading(out, "Between the holes that would have to merge", style);
    let rows: Vec<Vec<String>> = bridge
        .live
        .iter()
        .take(LISTED)
        .map(|chunk| {
            vec![
                format!("{:#x}", chunk.address),
                chunk.bytes.to_string(),
                chunk.requested_bytes.map_or("-".to_owned(), |bytes| bytes.to_string()),
                named(&chunk.op),
            ]
        })
        .collect();
    let columns = [("address", false), ("chunk", true), ("requested", true), ("op", false)];
    table(out, &columns, &rows, style);
    if bridge.live.len() > LISTED {
        let _ = writeln!(out, "  and {} more (--json)", bridge.live.len() - LISTED);
    }
    let _ =
        writeln!(out, "  in region {}: {} holes with {}", bridge.region + 1, bridge.holes, bridge.free_bytes);
}

fn holders(out: &mut String, failure: &FailureView, style: Style) {
    if failure.holders.is_empty() {
        return;
    }
    heading(out, "Held then", style);
    let rows: Vec<Vec<String>> = failure
        .holders
        .iter()
        .take(LISTED)
        .map(|holder| {
            vec![
                holder.bytes.to_string(),
                thousands(holder.count),
                holder.chunk_bytes.to_string(),
                holder.requested_bytes.map_or("-".to_owned(), |bytes| bytes.to_string()),
                named(&holder.op),
            ]
        })
        .collect();
    let columns = [("bytes", true), ("chunks", true), ("each", true), ("requested", true), ("op", false)];
    table(out, &columns, &rows, style);
}

fn buffers(out: &mut String, failure: &FailureView, style: Style) {
    if failure.buffers.is_empty() {
        return;
    }
    heading(out, "The executable's peak, as XLA tells it", style);
    let rows: Vec<Vec<String>> = failure
        .buffers
        .iter()
        .take(LISTED)
        .map(|buffer| {
            let operator = if buffer.operator.is_empty() { &buffer.label } else { &buffer.operator };
            vec![buffer.high_bytes.to_string(), printable(&buffer.shape), named(operator)]
        })
        .collect();
    table(out, &[("bytes", true), ("shape", false), ("op", false)], &rows, style);
}

fn named(op: &str) -> String {
    if op.is_empty() { "-".to_owned() } else { shorten(&printable(op)) }
}
