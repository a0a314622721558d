//! Draws a report as text: the verdict, then who held what, then the findings.

use std::fmt::Write;

use vramline::snapshot::Role;
use vramline::units::Bytes;
use vramline::view::replayed::ReplayedView;
use vramline::view::report::{PoolView, Report};

use super::{Style, capitalised, heading, held, ledger, notes_of, percent, pool, printable, run, thousands};
use crate::cli::By;

/// Warnings that the pools which matter are not in the trace.
const SILENT: [&str; 2] = ["silent-allocator", "cuda-malloc-async"];

pub(crate) fn report(report: &Report, by: By, style: Style) -> String {
    let mut out = String::new();
    for file in &report.source.files {
        let _ = writeln!(out, "{}{}{}", style.dim, printable(file), style.plain);
    }
    run::job(&mut out, report, style);
    if let Some(failed) = report.warnings.iter().find(|warning| warning.code == "out-of-memory") {
        let _ = writeln!(out, "\n{}{}.{}", style.bold, capitalised(&printable(&failed.text)), style.plain);
    }
    let Some(main) = report.pools.first() else {
        let what = if report.run.is_some() {
            "No figures in this recording."
        } else {
            "No memory events in this trace."
        };
        let _ = writeln!(out, "\n{}{what}{}", style.bold, style.plain);
        run::happenings(&mut out, report, style);
        notes(&mut out, report, style);
        return out;
    };
    // What is shown then is not what was asked for: that comes first.
    if let Some(silent) = report.warnings.iter().find(|warning| SILENT.contains(&warning.code)) {
        let _ = writeln!(out, "\n{}{}.{}", style.bold, capitalised(&printable(&silent.text)), style.plain);
    }
    verdict(&mut out, report, main, style);
    ledger::ledger(&mut out, report, style);
    pool::pools(&mut out, report, style);
    report.pools.iter().for_each(|pool| pool::cached(&mut out, pool, style));
    for pool in report.pools.iter().filter(|pool| is_worth_showing(pool, main)) {
        if let Some(held) = &pool.at_peak {
            held::held_at(&mut out, pool, held, "At the peak", by, style);
        }
        if let Some(held) = &pool.at {
            held::held_at(&mut out, pool, held, "At that moment", by, style);
        }
    }
    held::held_long(&mut out, main, style);
    // A recording's steps come in phases; without any, the trace shows steps by itself.
    if report.phases.is_empty() {
        run::steps(&mut out, report, main, style);
    }
    if report.run.is_some() {
        run::phases(&mut out, report, style);
        run::epochs(&mut out, report, main, style);
        run::inventory(&mut out, report, style);
        run::happenings(&mut out, report, style);
    }
    findings(&mut out, report, style);
    notes(&mut out, report, style);
    out
}

/// The verdict alone, a sentence or two a line.
pub(crate) fn verdict_lines(report: &Report) -> Vec<String> {
    let mut out = String::new();
    let first = ["out-of-memory"].iter().chain(&SILENT);
    for warning in first.flat_map(|code| report.warnings.iter().find(|warning| warning.code == *code)) {
        let _ = writeln!(out, "{}.", capitalised(&printable(&warning.text)));
    }
    match report.pools.first() {
        Some(main) => verdict(&mut out, report, main, Style { bold: "", dim: "", plain: "" }),
        None => out.push_str("There are no memory events in it.\n"),
    }
    out.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

/// Small pools beside a large one are named in the table only.
fn is_worth_showing(pool: &PoolView, main: &PoolView) -> bool {
    pool.peak_bytes.map(|bytes| bytes.0.saturating_mul(20)) >= main.peak_bytes.map(|bytes| bytes.0)
}

fn verdict(out: &mut String, report: &Report, pool: &PoolView, style: Style) {
    let framework = match report.source.framework {
        Some("tensorflow") => "TensorFlow",
        Some("jax") => "JAX",
        Some("pytorch") => "PyTorch",
        _ => "The program",
    };
    let Some(peak) = pool.peak_bytes else {
        let _ = writeln!(
            out,
            "\n{}{framework} does not tell the memory of {}.{}",
            style.bold,
            printable(&pool.name),
            style.plain
        );
        return;
    };
    // The trace of a recording covers its first steps; the counters cover all of it.
    let ever = pool.lifetime_peak_bytes.filter(|&ever| ever > peak && report.run.is_some());
    if let Some(ever) = ever {
        let _ = writeln!(
            out,
            "\n{}{framework} held {ever} in {} at the peak of the run, after the traced steps.{}",
            style.bold,
            printable(&pool.name),
            style.plain
        );
    }
    let Some(held) = &pool.at_peak else {
        let _ = writeln!(
            out,
            "\n{}{framework} held {peak} on {} at the peak; no trace shows what held it.{}",
            style.bold,
            printable(&pool.name),
            style.plain
        );
        return;
    };
    let of_limit = pool
        .limit_bytes
        .map_or(String::new(), |limit| format!(", {} of its limit of {limit}", percent(peak, limit)));
    let _ = writeln!(
        out,
        "\n{}{framework} held {peak} in {} at the peak{}{of_limit}.{}",
        style.bold,
        printable(&pool.name),
        if ever.is_some() { " of the traced steps" } else { "" },
        style.plain
    );
    let requested = held.named_bytes + held.unnamed_bytes;
    let mut parts: Vec<(Bytes, String)> = Role::ALL
        .iter()
        .filter(|&&role| role != Role::Unknown)
        .map(|&role| (held.by_role.get(role), role.word().to_owned()))
        .filter(|(bytes, _)| bytes.share_of(peak).is_some_and(|share| share >= 0.01))
        .collect();
    parts.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    let parts: Vec<String> = parts.into_iter().map(|(bytes, word)| format!("{word} {bytes}")).collect();
    if !parts.is_empty() {
        let _ = writeln!(out, "That is {}.", parts.join(", "));
    }
    let mut apart = Vec::new();
    if held.slack_bytes > Bytes::ZERO {
        apart.push(format!(
            "{} ({}) is slack: chunks larger than what was asked for",
            held.slack_bytes,
            percent(held.slack_bytes, peak)
        ));
    }
    if held.before_recording_bytes > Bytes::ZERO {
        let share = percent(held.before_recording_bytes, peak);
        apart.push(format!("{} ({share}) is in use since before the recording", held.before_recording_bytes));
    }
    if held.unnamed_bytes > Bytes::ZERO
        && held.unnamed_bytes.share_of(requested).is_some_and(|share| share >= 0.01)
    {
        apart.push(format!("{} ({}) has no name", held.unnamed_bytes, percent(held.unnamed_bytes, peak)));
    }
    if !apart.is_empty() {
        let _ = writeln!(out, "Of the peak, {}.", apart.join("; "));
    }
    if let Some(replay) = &pool.replay {
        replayed(out, replay);
    }
}

/// What a replay says of the pool around the peak, in a line.
fn replayed(out: &mut String, replay: &ReplayedView) {
    let reproduced =
        format!("{} of {} addresses", thousands(replay.address_matches), thousands(replay.allocs));
    // Figures of a replay that goes another way than the trace are of another pool.
    if replay.address_matches < replay.allocs {
        let _ =
            writeln!(out, "A replay reproduces {reproduced}: too few to tell how fragmented the pool is.");
        return;
    }
    let how = if replay.exact { "By exact replay" } else { "By replay from an assumed start" };
    if replay.growths < 2 {
        let _ = writeln!(
            out,
            "{how}, the pool was taken at once, {}; any allocator needs {}.",
            replay.pool_bytes, replay.load_bytes
        );
        return;
    }
    let free = replay.cached_at_peak_bytes;
    let mut more = Vec::new();
    if replay.pool_bytes > replay.pool_at_peak_bytes {
        more.push(format!("at most it was {}", replay.pool_bytes));
    }
    if replay.joined_bytes < replay.pool_bytes {
        more.push(format!("in one piece {} would do", replay.joined_bytes));
    }
    more.push(format!("any allocator needs {}", replay.load_bytes));
    let _ = writeln!(
        out,
        "{how}, the pool was {} then, of which {free} ({}) was free; {}.",
        replay.pool_at_peak_bytes,
        percent(free, replay.pool_at_peak_bytes),
        more.join("; ")
    );
}

fn findings(out: &mut String, report: &Report, style: Style) {
    if report.findings.is_empty() {
        return;
    }
    heading(out, "Findings", style);
    for finding in &report.findings {
        let _ =
            writeln!(out, "  - {}{}{}: {}", style.bold, finding.rule, style.plain, printable(&finding.text));
        let _ = writeln!(out, "    {}fix:{} {}", style.dim, style.plain, printable(&finding.fix));
    }
}

fn notes(out: &mut String, report: &Report, style: Style) {
    notes_of(out, &report.warnings, style);
}
