//! Draws a replay as text: how exact it is, why the pool is larger than what was asked for, what other settings would do.

use std::fmt::Write;

use vramline::replay::AnsweredBy;
use vramline::units::{Bytes, thousands};
use vramline::view::replay::{GrowthView, MomentView, OpView, Replay, ReplayPoolView, WhatIfView};

use super::{Column, Style, clock, heading, percent, printable, shorten, table};

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

fn exactness(out: &mut String, pool: &ReplayPoolView, style: Style) {
    let _ = writeln!(
        out,
        "{}{}{} {}({}, {}){}",
        style.bold,
        printable(&pool.headline),
        style.plain,
        style.dim,
        pool.preset,
        pool.model,
        style.plain
    );
    if let Some(driver) = &pool.driver {
        let _ = write!(
            out,
            "  {} of {} calls to the driver at their moment and of their size",
            thousands(driver.matches),
            thousands(driver.calls)
        );
        if driver.failures > 0 {
            let _ = write!(
                out,
                ", {} of {} failed requests fail",
                thousands(driver.failure_matches),
                thousands(driver.failures)
            );
        }
        let only_here = driver.only_here + driver.failures_only_here;
        if only_here > 0 {
            let _ = write!(out, "; {} calls and failures are the replay's alone", thousands(only_here));
        }
        out.push('\n');
    }
    if let (None, Some(least)) = (pool.limit_bytes, pool.least_limit_bytes) {
        let _ =
            writeln!(out, "  the driver refused more than {least}: what-ifs without a limit have that one");
    }
    for assumed in &pool.assumes {
        let _ = writeln!(out, "  assumed: {}", printable(assumed));
    }
    if let Some(first) = &pool.first_mismatch {
        let replayed = match (first.replayed_address, first.replayed_chunk_bytes) {
            (Some(address), Some(chunk)) => format!("{address:x} ({} bytes)", thousands(chunk.0)),
            _ => "no room for it".to_owned(),
        };
        let when = clock(first.at_ns);
        let asked = format!("{} asked by {}", first.asked_bytes, shown(&first.op));
        let chunk = thousands(first.chunk_bytes.0);
        let _ = match first.address {
            Some(address) => writeln!(
                out,
                "  first difference at {when}: {asked} lies at {address:x} ({chunk} bytes), the replay has {replayed}"
            ),
            None => {
                writeln!(out, "  first difference at {when}, after {} allocations:", thousands(first.alloc))
            }
        };
        for line in &first.around {
            let _ = writeln!(out, "    {}", printable(line));
        }
    }
}

fn shown(op: &str) -> String {
    if op.is_empty() { "(no name)".to_owned() } else { shorten(&printable(op)) }
}

fn sizes(out: &mut String, pool: &ReplayPoolView) {
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

fn parts(out: &mut String, pool: &ReplayPoolView, style: Style) {
    let Some(moment) = &pool.at_peak else { return };
    heading(out, &format!("The pool at the peak, {}", clock(moment.at_ns)), style);
    let words = Words::of(pool);
    let whole = moment.in_use_bytes + moment.pending_bytes + moment.cached_bytes;
    let mut line = |name: &str, bytes: Bytes, meaning: String| {
        let share = percent(bytes, whole);
        let bytes = bytes.to_string();
        let _ = writeln!(out, "  {bytes:>9}  {share:>7}  {name:<10} {}{meaning}{}", style.dim, style.plain);
    };
    line("requested", moment.requested_bytes, "asked for and held".to_owned());
    line("slack", moment.slack_bytes, format!("internal: {} larger than their requests", words.chunks));
    if moment.pending_bytes > Bytes::ZERO {
        line("pending", moment.pending_bytes, "freed, and still used by another stream".to_owned());
    }
    line("cached", moment.cached_bytes, format!("free; the largest hole is {}", moment.largest_free_bytes));
    if moment.external_bytes > Bytes::ZERO {
        let meaning = format!("of that, in holes too small for the {} still to come", moment.upcoming_bytes);
        line("external", moment.external_bytes, meaning);
    }
    if moment.idle_bytes > Bytes::ZERO {
        line("idle", moment.idle_bytes, format!("of that, in {}s that are wholly free", words.region));
    }
    let end = pool.at_end.as_ref();
    for (when, moment) in [("at the peak", Some(moment)), ("at the end", end)] {
        stranded(out, when, moment, &words);
    }
}

/// What the allocator calls its parts.
struct Words {
    region: &'static str,
    chunks: &'static str,
}

impl Words {
    fn of(pool: &ReplayPoolView) -> Words {
        // Only PyTorch's allocator tells its calls of the driver.
        match pool.driver {
            Some(_) => Words { region: "segment", chunks: "blocks" },
            None => Words { region: "region", chunks: "chunks" },
        }
    }
}

fn stranded(out: &mut String, when: &str, moment: Option<&MomentView>, words: &Words) {
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
            format!("a {}", words.region)
        } else {
            format!("{} {}s", moment.stranded.len(), words.region)
        }
    );
}

fn growths(out: &mut String, pool: &ReplayPoolView, style: Style) {
    if pool.growths.is_empty() {
        return;
    }
    let titles = GrowthView::TITLES;
    let columns: [Column; 7] = [
        (titles.at_ns, true),
        (titles.asked_bytes, true),
        (titles.free_bytes, true),
        (titles.largest_free_bytes, true),
        (titles.missed_by_bytes, true),
        (titles.got_bytes, true),
        (titles.op, false),
    ];
    heading(
        out,
        "Why it grew: what was asked for, what was free, by how much the largest hole missed",
        style,
    );
    remembered(out, pool);
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

/// The largest growth at a time when enough was free, only not in one piece.
fn remembered(out: &mut String, pool: &ReplayPoolView) {
    let is_enough = |growth: &&GrowthView| {
        growth.free_bytes >= growth.rounded_bytes && growth.missed_by_bytes > Bytes::ZERO
    };
    let enough = pool.growths.iter().filter(is_enough);
    let Some(growth) = enough.max_by_key(|growth| growth.got_bytes) else { return };
    let _ = writeln!(
        out,
        "  {} were free when {} were asked for, but the largest hole of {} missed by {}: {} more were taken.",
        growth.free_bytes,
        growth.asked_bytes,
        growth.largest_free_bytes,
        growth.missed_by_bytes,
        growth.got_bytes
    );
}

fn causes(out: &mut String, pool: &ReplayPoolView, style: Style) {
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
    let titles = WhatIfView::TITLES;
    let columns: [Column; 6] = [
        (titles.setting, false),
        (titles.fits, false),
        (titles.peak_bytes, true),
        (titles.pool_bytes, true),
        (titles.retries, true),
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
        let failed = match answer.waits {
            Some(waits) => format!("if {} requests wait for other threads: {failed}", thousands(waits)),
            None => failed,
        };
        vec![
            if answer.setting.is_empty() { "as it was".to_owned() } else { printable(&answer.setting) },
            match answer.fits {
                Some(true) => "yes",
                Some(false) => "no",
                None if answer.is_lower_bound && answer.recorded_fits == Some(true) => "so far",
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
    if document.what_if.iter().any(|answer| answer.by == AnsweredBy::Bounds) {
        let _ = writeln!(
            out,
            "  cuda_malloc_async: the rules of the driver's pool are not public; at least what was asked for at once, and a guess at the worst"
        );
    }
    if document.what_if.iter().any(|answer| answer.is_lower_bound) {
        let _ = writeln!(
            out,
            "  the run ended early: at least this; what it would have asked for after that is not known"
        );
    }
    let _ = writeln!(
        out,
        "  in the recorded order of requests; threads may come in another order in another run"
    );
}
