//! Draws a replay as text: how exact it is, why the pool is larger than what was asked for, what other settings would do.

use std::fmt::Write;

use vramline::units::Bytes;
use vramline::view::fields::{REPLAY, title_in};
use vramline::view::replay::{MomentView, OpView, PoolView, Replay, WhatIfView};

use super::{Column, Style, clock, heading, percent, printable, shorten, table, thousands};

/// Growths that are shown; the largest ones.
const GROWTHS: usize = 8;

pub(crate) fn replay(document: &Replay, style: Style) -> String {
    let mut out = String::new();
    for file in &document.files {
        let _ = writeln!(out, "{}{}{}", style.dim, printable(file), style.plain);
    }
    out.push('\n');
    for pool in &document.pools {
        exactness(&mut out, pool, style);
    }
    if let Some(pool) = document.pools.first() {
        sizes(&mut out, pool);
        parts(&mut out, pool, style);
        growths(&mut out, pool, style);
        causes(&mut out, pool, style);
    }
    what_if(&mut out, document, style);
    if let Some(asked) = &document.asked {
        heading(&mut out, &format!("A request for {} more", asked.asked_bytes), style);
        if asked.fits {
            let _ = writeln!(out, "  has room");
        }
        for line in &asked.dump {
            let _ = writeln!(out, "{}", printable(line));
        }
    }
    for warning in &document.warnings {
        let _ = writeln!(out, "\nnote: {}", printable(&warning.text));
        if !warning.hint.is_empty() {
            let _ = writeln!(out, "hint: {}", printable(&warning.hint));
        }
    }
    out
}

fn exactness(out: &mut String, pool: &PoolView, style: Style) {
    let word = if pool.exact {
        "Replayed exactly"
    } else if pool.from_start == Some(true) {
        "Not reproduced"
    } else {
        "Replayed from an assumed start"
    };
    let _ = writeln!(
        out,
        "{}{word}: {} of {} allocations of {} at their recorded addresses, {} with their recorded sizes.{} {}({}, {}){}",
        style.bold,
        thousands(pool.address_matches),
        thousands(pool.allocs),
        printable(&pool.name),
        thousands(pool.size_matches),
        style.plain,
        style.dim,
        pool.preset,
        pool.model,
        style.plain
    );
    for assumed in &pool.assumes {
        let _ = writeln!(out, "  assumed: {}", printable(assumed));
    }
    if let Some(first) = &pool.first_mismatch {
        let _ = writeln!(
            out,
            "  first difference at {}: {} asked by {} lies at {:x} ({} bytes), the replay has {}",
            clock(first.at_ns),
            first.asked_bytes,
            shown(&first.op),
            first.address,
            thousands(first.chunk_bytes.0),
            match (first.replayed_address, first.replayed_chunk_bytes) {
                (Some(address), Some(chunk)) => format!("{address:x} ({} bytes)", thousands(chunk.0)),
                _ => "no room for it".to_owned(),
            }
        );
        for line in &first.around {
            let _ = writeln!(out, "    {}", printable(line));
        }
    }
}

fn shown(op: &str) -> String {
    if op.is_empty() { "(no name)".to_owned() } else { shorten(&printable(op)) }
}

fn sizes(out: &mut String, pool: &PoolView) {
    let _ = writeln!(
        out,
        "\nThe peak is {} in a pool of {}. At most {} were asked for at once ({} in whole granules),",
        pool.peak_bytes, pool.pool_bytes, pool.load_requested_bytes, pool.load_rounded_bytes
    );
    let is_best = pool.packing_bound_bytes == pool.load_rounded_bytes;
    let _ = writeln!(
        out,
        "and the same lifetimes can be packed into {}{}: an allocator with foresight could save {}.",
        pool.packing_bound_bytes,
        if is_best { ", which is the least possible" } else { "" },
        pool.pool_bytes.saturating_sub(pool.packing_bound_bytes)
    );
}

fn parts(out: &mut String, pool: &PoolView, style: Style) {
    let Some(moment) = &pool.at_peak else { return };
    heading(out, &format!("The pool at the peak, {}", clock(moment.at_ns)), style);
    let whole = moment.in_use_bytes + moment.cached_bytes;
    let mut line = |name: &str, bytes: Bytes, meaning: String| {
        let share = percent(bytes, whole);
        let bytes = bytes.to_string();
        let _ = writeln!(out, "  {bytes:>9}  {share:>6}  {name:<10} {}{meaning}{}", style.dim, style.plain);
    };
    line("requested", moment.requested_bytes, "asked for and held".to_owned());
    line("slack", moment.slack_bytes, "internal: chunks larger than their requests".to_owned());
    line("cached", moment.cached_bytes, format!("free; the largest hole is {}", moment.largest_free_bytes));
    if moment.external_bytes > Bytes::ZERO {
        let meaning = format!("of that, in holes too small for the {} still to come", moment.upcoming_bytes);
        line("external", moment.external_bytes, meaning);
    }
    let end = pool.at_end.as_ref();
    for (when, moment) in [("at the peak", Some(moment)), ("at the end", end)] {
        stranded(out, when, moment);
    }
}

fn stranded(out: &mut String, when: &str, moment: Option<&MomentView>) {
    let Some(moment) = moment.filter(|moment| !moment.stranded.is_empty()) else { return };
    let held: Bytes =
        moment.stranded.iter().map(|region| region.bytes.saturating_sub(region.live_bytes)).sum();
    let first = moment.stranded.first();
    let example = first.map_or(String::new(), |region| {
        format!(
            ", one of {} with {} in use ({})",
            region.bytes,
            region.live_bytes,
            region.ops.first().map_or("(no name)".to_owned(), |op| shown(&op.op))
        )
    });
    let _ = writeln!(
        out,
        "  {when}, {held} are free in {} that little holds open{example}",
        if moment.stranded.len() == 1 {
            "a region".to_owned()
        } else {
            format!("{} regions", moment.stranded.len())
        }
    );
}

fn growths(out: &mut String, pool: &PoolView, style: Style) {
    if pool.growths.is_empty() {
        return;
    }
    const PREFIX: &str = "pools[].growths[].";
    let column = |field: &str, right: bool| (title_in(REPLAY, &format!("{PREFIX}{field}")), right);
    let columns: [Column; 7] = [
        column("at_ns", true),
        column("asked_bytes", true),
        column("free_bytes", true),
        column("largest_free_bytes", true),
        column("missed_by_bytes", true),
        column("got_bytes", true),
        column("op", false),
    ];
    heading(
        out,
        "Why it grew: what was asked for, what was free, by how much the largest hole missed",
        style,
    );
    let mut largest: Vec<_> = pool.growths.iter().collect();
    largest.sort_by_key(|growth| std::cmp::Reverse(growth.got_bytes));
    largest.truncate(GROWTHS);
    largest.sort_by_key(|growth| growth.at_ns);
    let rows: Vec<Vec<String>> = largest
        .iter()
        .map(|growth| {
            vec![
                clock(growth.at_ns),
                growth.asked_bytes.to_string(),
                growth.free_bytes.to_string(),
                growth.largest_free_bytes.to_string(),
                growth.missed_by_bytes.to_string(),
                growth.got_bytes.to_string(),
                shown(&growth.op),
            ]
        })
        .collect();
    table(out, &columns, &rows, style);
    if pool.growths.len() > rows.len() {
        let _ = writeln!(out, "  and {} more, smaller", pool.growths.len() - rows.len());
    }
}

fn causes(out: &mut String, pool: &PoolView, style: Style) {
    if pool.causes.is_empty() {
        return;
    }
    heading(out, "What that comes from (these overlap)", style);
    for cause in &pool.causes {
        let bytes = cause.bytes.to_string();
        let _ = writeln!(out, "  {bytes:>9}  {:<14}  {}", cause.cause, printable(&cause.text));
        let ops: Vec<String> = cause.ops.iter().map(named).collect();
        if !ops.is_empty() {
            let _ = writeln!(out, "{:29}{}{}{}", "", style.dim, ops.join(", "), style.plain);
        }
    }
}

fn named(op: &OpView) -> String {
    format!("{} {}", shown(&op.op), op.bytes)
}

fn what_if(out: &mut String, document: &Replay, style: Style) {
    if document.what_if.is_empty() {
        return;
    }
    const PREFIX: &str = "what_if[].";
    let column = |field: &str, right: bool| (title_in(REPLAY, &format!("{PREFIX}{field}")), right);
    let columns: [Column; 6] = [
        column("setting", false),
        column("fits", false),
        column("peak_bytes", true),
        column("pool_bytes", true),
        column("retries", true),
        ("", false),
    ];
    heading(out, "What if", style);
    let range = |low: Bytes, high: Bytes| {
        if low.to_string() == high.to_string() { high.to_string() } else { format!("{low} to {high}") }
    };
    let row = |answer: &WhatIfView| {
        let failed = answer.failed.as_ref().map_or(String::new(), |failed| {
            let when = failed.at_ns.map_or(String::new(), |at| format!(" at {}", clock(at)));
            format!(
                "{} asked by {}{when}, {} free, largest hole {}",
                failed.asked_bytes,
                shown(&failed.op),
                failed.free_bytes,
                failed.largest_free_bytes
            )
        });
        vec![
            if answer.setting.is_empty() { "as it was".to_owned() } else { printable(&answer.setting) },
            match answer.fits {
                Some(true) => "yes",
                Some(false) => "no",
                None => "perhaps",
            }
            .to_owned(),
            range(answer.peak_low_bytes, answer.peak_bytes),
            range(answer.pool_low_bytes, answer.pool_bytes),
            thousands(answer.retries),
            failed,
        ]
    };
    let rows: Vec<Vec<String>> = document.what_if.iter().map(row).collect();
    table(out, &columns, &rows, style);
    let _ = writeln!(
        out,
        "  in the recorded order of requests; threads may come in another order in another run"
    );
}
