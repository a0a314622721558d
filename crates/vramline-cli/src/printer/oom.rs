//! Draws a post-mortem: the verdict with its figures and what to do on the first screen; arithmetic and the pool's picture with `--full`.

use std::fmt::Write;

use vramline::analysis::moments::HeldSource;
use vramline::analysis::oom::{MAP_WIDTH, OomWord};
use vramline::failure::SizeRange;
use vramline::postmortem::Verdict;
use vramline::postmortem::advice::shown;
use vramline::units::{Bytes, capitalised, counted, thousands};
use vramline::view::moments::{HeldThenView, OwnerView};
use vramline::view::oom::{FailureView, OomReport};

use super::screen::{COLUMNS, Section, again, cut, fitting_table, screen, titled, wrapped};
use super::{Style, heading, notes_of, printable, shorten, table};

/// Rows of the picture; what is left out is summed up.
const ROWS: usize = 24;

/// Live chunks and holders that are listed.
const LISTED: usize = 8;

/// Advice, holders, other failures and notes of a first screen.
const ADVICE: usize = 3;
const SCREEN_HOLDERS: usize = 5;
const SCREEN_FAILURES: usize = 4;
const SCREEN_NOTES: usize = 2;

/// How much of a post-mortem is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OomDetail {
    /// The answer on one screen.
    FirstScreen,
    /// The first failure in full.
    Full,
    /// Every failure in full.
    All,
}

pub(crate) fn oom(report: &OomReport, detail: OomDetail, style: Style) -> String {
    match (detail, report.failures.first()) {
        (OomDetail::FirstScreen, Some(first)) => first_screen(report, first, style),
        (OomDetail::FirstScreen, None) => without_failures(report, style),
        (OomDetail::Full, _) => full(report, false, style),
        (OomDetail::All, _) => full(report, true, style),
    }
}

fn first_screen(report: &OomReport, first: &FailureView, style: Style) -> String {
    let lines = wrapped(&report.headline, 0, 5);
    let headline: Vec<String> =
        lines.into_iter().map(|line| format!("{}{line}{}", style.alert, style.plain)).collect();
    let notes = report.warnings.iter().take(SCREEN_NOTES);
    let notes: Vec<String> = notes.flat_map(|warning| titled("Note", &warning.text, 2, style)).collect();
    let soft = report.soft.text.iter().flat_map(|soft| titled("Also", soft, 2, style)).collect();
    screen(vec![
        Section::whole(vec![format!("{}{}{}", style.dim, place(first), style.plain)]),
        Section::whole(headline),
        Section::trimmed(figures(first), 3, 3),
        Section::trimmed(what_to_do(first, style), 3, 1),
        Section::trimmed(owned_then(first.held.as_ref(), SCREEN_HOLDERS, style), 0, 4),
        Section::trimmed(if first.held.is_some() { Vec::new() } else { held_then(first, style) }, 0, 4),
        Section::trimmed(others(report), 2, 2),
        Section::trimmed(soft, 0, 5),
        Section::trimmed(notes, 0, 6),
        Section::whole(next(report, style)),
    ])
}

/// Where the failure is reported, and for what the memory was.
fn place(failure: &FailureView) -> String {
    cut(&facts(failure, 0).join("   "), COLUMNS)
}

/// The figures that decide, in sizes for people. What the text does not report is left out.
fn figures(failure: &FailureView) -> Vec<String> {
    let both = |low: Option<Bytes>, high: Option<Bytes>| low.zip(high);
    let pool = both(failure.free_low_bytes, failure.free_high_bytes);
    // Worth a line only if the free memory is in several blocks.
    let largest = failure.largest_free_bytes.filter(|largest| pool != Some((*largest, *largest)));
    let is_device_full =
        failure.device_free_bytes.is_some() && failure.unallocated_bytes == failure.device_free_bytes;
    let growth = if is_device_full { "all that is free on the device" } else { "" };
    let lines = [
        ("requested", both(failure.rounded_low_bytes, failure.rounded_high_bytes), ""),
        ("pool, in use", both(failure.in_use_low_bytes, failure.in_use_high_bytes), ""),
        ("pool, free", pool, "reserved from the driver, not in use"),
        ("pool, largest free", largest.map(|bytes| (bytes, bytes)), ""),
        ("pool, can grow by", both(failure.unallocated_low_bytes, failure.unallocated_high_bytes), growth),
        (
            "pool, limit",
            both(failure.limit_low_bytes, failure.limit_high_bytes)
                .filter(|_| failure.program_budget_bytes.is_none()),
            "",
        ),
        (
            "pool, rounding",
            both(failure.slack_low_bytes, failure.slack_high_bytes),
            "part of in use: larger blocks than requested",
        ),
        ("program, needs", failure.program_needs_bytes.map(|bytes| (bytes, bytes)), ""),
        ("program, allowed", failure.program_budget_bytes.map(|bytes| (bytes, bytes)), ""),
        ("device, free", failure.device_free_bytes.map(|bytes| (bytes, bytes)), ""),
        (
            "device, this process",
            failure.this_process_bytes.map(|bytes| (bytes, bytes)),
            "pool, context and libraries",
        ),
        (
            "device, other processes",
            both(failure.other_processes_low_bytes, failure.other_processes_high_bytes),
            "",
        ),
        ("device, total", failure.device_total_bytes.map(|bytes| (bytes, bytes)), ""),
    ];
    let line = |(name, range, meaning): (&str, Option<(Bytes, Bytes)>, &str)| {
        let size = range_text(range?);
        Some(format!("  {name:<24} {size:>22}  {meaning}").trim_end().to_owned())
    };
    lines.into_iter().filter_map(line).collect()
}

/// A size for people. The text rounds its figures, so many sizes are ranges; their exact ends are in the JSON.
fn range_text((low, high): (Bytes, Bytes)) -> String {
    if low == Bytes::ZERO && high > low { format!("at most {high}") } else { shown(SizeRange { low, high }) }
}

fn what_to_do(failure: &FailureView, style: Style) -> Vec<String> {
    if failure.advice.is_empty() {
        return Vec::new();
    }
    let mut lines = vec![format!("{}What to do{}", style.bold, style.plain)];
    for (number, advice) in failure.advice.iter().take(ADVICE).enumerate() {
        lines.extend(wrapped(&format!("  {}. {}", number + 1, capitalised(&advice.text)), 5, 3));
    }
    lines
}

/// Who held the memory, by owner, and how much of it in the first steps.
fn owned_then(held: Option<&HeldThenView>, most: usize, style: Style) -> Vec<String> {
    let Some(held) = held.filter(|held| !held.owners.is_empty()) else { return Vec::new() };
    let when = match held.shown_by {
        HeldSource::Failure | HeldSource::Trace => "when the allocation failed",
        HeldSource::Snapshot => "at the last snapshot",
        HeldSource::NewestTrace => "at the peak of the newest trace",
    };
    let step = held.after_step.map_or(String::new(), |step| format!(", after step {step}"));
    let title = format!("{}Held {when}{step}: {}{}", style.bold, held.in_use_bytes, style.plain);
    let has_before = held.before_bytes.is_some();
    let row = |owner: &OwnerView| {
        let mut row = vec![owner.bytes.to_string()];
        row.extend(has_before.then(|| owner.before_bytes.map_or("-".to_owned(), |bytes| bytes.to_string())));
        row.extend([thousands(owner.count), owner.role.word().to_owned(), named(owner_text(owner))]);
        row
    };
    let rows: Vec<Vec<String>> = held.owners.iter().take(most).map(row).collect();
    let mut columns = vec![("size", true)];
    columns.extend(has_before.then_some(("first steps", true)));
    columns.extend([("blocks", true), ("role", false), ("owner", false)]);
    let last = columns.len() - 1;
    let lines = fitting_table(&columns, &rows, &[last], style);
    std::iter::once(title).chain(lines).collect()
}

/// An owner in words: the layer, else the place in the program.
fn owner_text(owner: &OwnerView) -> &str {
    if owner.layer.is_empty() { &owner.source } else { &owner.layer }
}

/// What held the pool, or what the compiled program needs.
fn held_then(failure: &FailureView, style: Style) -> Vec<String> {
    let title = |text: &str| format!("{}{text}{}", style.bold, style.plain);
    if !failure.holders.is_empty() {
        let has_ops = failure.holders.iter().take(SCREEN_HOLDERS).any(|holder| !holder.op.is_empty());
        let rows: Vec<Vec<String>> = failure
            .holders
            .iter()
            .take(SCREEN_HOLDERS)
            .map(|holder| {
                let mut row =
                    vec![holder.bytes.to_string(), thousands(holder.count), holder.chunk_bytes.to_string()];
                row.extend(has_ops.then(|| named(&holder.op)));
                row
            })
            .collect();
        let mut columns = vec![("total", true), ("blocks", true), ("each", true)];
        columns.extend(has_ops.then_some(("op", false)));
        let lines = fitting_table(&columns, &rows, if has_ops { &[3] } else { &[] }, style);
        return std::iter::once(title("Largest in use (blocks of the same size are added up)"))
            .chain(lines)
            .collect();
    }
    if failure.buffers.is_empty() {
        return Vec::new();
    }
    let rows: Vec<Vec<String>> = failure
        .buffers
        .iter()
        .take(SCREEN_HOLDERS)
        .map(|buffer| {
            let operator = if buffer.operator.is_empty() { &buffer.label } else { &buffer.operator };
            vec![buffer.high_bytes.to_string(), printable(&buffer.shape), named(operator)]
        })
        .collect();
    let columns = [("size", true), ("shape", false), ("op", false)];
    let lines = fitting_table(&columns, &rows, &[1, 2], style);
    std::iter::once(title("Largest buffers of the compiled program")).chain(lines).collect()
}

/// The other failures, a line each.
fn others(report: &OomReport) -> Vec<String> {
    let first =
        |group: &vramline::view::oom::GroupView| Some((*group.failures.first()?, group.failures.len()));
    let mut lines: Vec<String> = Vec::new();
    for (number, (at, count)) in report.groups.iter().filter_map(first).enumerate() {
        let Some(failure) = report.failures.get(at) else { continue };
        // The first is in the headline; only its repeats are news.
        if number == 0 && count > 1 {
            lines.push(format!("The same failure appears {} more.", times(count - 1)));
        }
        if number > 0 {
            let more = if count > 1 { format!(" ({count} times)") } else { String::new() };
            lines.extend(wrapped(&format!("Failure {}{more}: {}", at + 1, failure.headline), 2, 2));
        }
    }
    let left_out = report.groups.len().saturating_sub(1 + SCREEN_FAILURES);
    if left_out > 0 {
        lines.truncate(SCREEN_FAILURES * 2);
        lines.push(format!("{} more with --all", counted(left_out, "failure")));
    }
    lines
}

fn times(count: usize) -> String {
    if count == 1 { "once".to_owned() } else { format!("{} times", thousands(count as u64)) }
}

fn next(report: &OomReport, style: Style) -> Vec<String> {
    let path = again(report.files.first());
    titled("Next", &format!("vramline oom {path} --full (arithmetic and details)"), 2, style)
}

fn without_failures(report: &OomReport, style: Style) -> String {
    let mut out = String::new();
    for file in &report.files {
        let _ = writeln!(out, "{}{}{}", style.dim, cut(&printable(file), COLUMNS), style.plain);
    }
    let lines = wrapped(&report.headline, 0, 6).join("\n");
    let _ = writeln!(out, "\n{}{lines}{}", style.bold, style.plain);
    if let Some(killed) = &report.killed {
        let lines = owned_then(Some(killed), LISTED, style).join("\n");
        let _ = writeln!(out, "\n{lines}");
        notes_of(&mut out, &report.warnings, style);
        return out;
    }
    let meaning = match report.soft.text {
        Some(_) => {
            "If the job died, this log does not show that memory was the cause. Read its last lines, or run the job again under \
             `vramline run -- ...`, which records how it ends."
        }
        None => {
            "Vramline looked for the out-of-memory messages of TensorFlow, JAX, XLA, PyTorch and other libraries, and for \
             TensorFlow's memory dumps (docs/reference/dialects.md lists them)."
        }
    };
    let _ = writeln!(out, "{}", wrapped(meaning, 0, 3).join("\n"));
    notes_of(&mut out, &report.warnings, style);
    out
}

/// The first failure of each kind, or every one, with everything that is known.
fn full(report: &OomReport, is_all: bool, style: Style) -> String {
    if report.failures.is_empty() {
        return without_failures(report, style);
    }
    let mut out = String::new();
    for file in &report.files {
        let _ = writeln!(out, "{}{}{}", style.dim, printable(file), style.plain);
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
            "\n{}The first failure is usually the one that matters. --all shows every failure in full.{}",
            style.dim, style.plain
        );
    }
    if let Some(soft) = &report.soft.text {
        let _ = writeln!(out, "\n{}Also: {}.{}", style.dim, printable(soft), style.plain);
    }
    notes_of(&mut out, &report.warnings, style);
    out
}

fn verdict(out: &mut String, failure: &FailureView, (at, told, again): (usize, usize, usize), style: Style) {
    let count = if told > 1 { format!("Failure {} of {told}: ", at + 1) } else { String::new() };
    let headline = printable(&failure.headline);
    let _ = writeln!(out, "\n{}{count}{headline}{}", style.bold, style.plain);
    let _ = writeln!(out, "  {}{}{}", style.dim, facts(failure, again).join(", "), style.plain);
}

/// Where a failure is reported, op, shape, and how often it was tried.
fn facts(failure: &FailureView, again: usize) -> Vec<String> {
    let mut facts = Vec::new();
    if let Some(first) = failure.told_by.first() {
        let line = first.line.map_or(String::new(), |line| format!(":{line}"));
        facts.push(format!("{}{line}", printable(&first.file)));
    }
    facts.extend(failure.op.iter().map(|op| format!("op {}", shorten(&printable(op)))));
    facts.extend(failure.executable.iter().map(|name| format!("executable {}", shorten(&printable(name)))));
    if let (Some(shape), Some(dtype)) = (&failure.shape, &failure.dtype) {
        facts.push(format!("{}{}", printable(dtype), printable(shape)));
    }
    if failure.attempts > 1 {
        facts.push(format!("tried {} times", failure.attempts));
    }
    if again > 0 {
        facts.push(format!("{} like it", counted(again, "more failure")));
    }
    facts
}

fn details(out: &mut String, failure: &FailureView, style: Style) {
    arithmetic(out, failure, style);
    picture(out, failure, style);
    bridge(out, failure, style);
    let owned = owned_then(failure.held.as_ref(), usize::MAX, style);
    if !owned.is_empty() {
        let _ = writeln!(out, "\n{}", owned.join("\n"));
    }
    holders(out, failure, style);
    buffers(out, failure, style);
    if !failure.advice.is_empty() {
        heading(out, "What to do", style);
        for advice in &failure.advice {
            let _ = writeln!(out, "  - {}", capitalised(&printable(&advice.text)));
        }
    }
}

/// The figures of the verdict, to the byte where they are known.
fn arithmetic(out: &mut String, failure: &FailureView, style: Style) {
    let lines: [(&str, Option<Bytes>, Option<Bytes>, &str); 9] = [
        (
            "request",
            failure.rounded_low_bytes,
            failure.rounded_high_bytes,
            "R: the requested size, rounded up by the allocator",
        ),
        (
            "free",
            failure.free_low_bytes,
            failure.free_high_bytes,
            "F: free in the pool, in blocks that the request could use",
        ),
        (
            "largest free",
            failure.largest_free_bytes,
            failure.largest_free_bytes,
            "the largest of these blocks",
        ),
        (
            "unallocated",
            failure.unallocated_low_bytes,
            failure.unallocated_high_bytes,
            "U: how much more the pool may reserve under its limit",
        ),
        ("short by", failure.short_by_low_bytes, failure.short_by_high_bytes, "R - F - U"),
        ("rounding", failure.slack_low_bytes, failure.slack_high_bytes, "in use beyond what was requested"),
        ("in use", failure.in_use_low_bytes, failure.in_use_high_bytes, "blocks in use, rounding included"),
        ("limit", failure.limit_low_bytes, failure.limit_high_bytes, "of the pool"),
        (
            "other processes",
            failure.other_processes_low_bytes,
            failure.other_processes_high_bytes,
            "O: memory of other processes on the device",
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
            _ => "unknown".to_owned(),
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
        Verdict::Device if has_neighbours => "U + O >= R: device full".to_owned(),
        Verdict::Device => "U >= R: device full".to_owned(),
        Verdict::Fragmented => "U < R, F + U >= R, and F is at least 5 % of the pool: fragmented".to_owned(),
        Verdict::Slack => "F + U < R, and rounding >= R - F - U: rounding".to_owned(),
        Verdict::Exhausted if !is_short => {
            "F + U >= R, but F is less than 5 % of the pool: exhausted".to_owned()
        }
        Verdict::Exhausted if failure.slack_low_bytes.is_none() => "F + U < R: exhausted".to_owned(),
        Verdict::Exhausted => "F + U < R, and rounding < R - F - U: exhausted".to_owned(),
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
        "  {}# in use, x rounding, : mostly free, . free; one row per region, to scale{}",
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
        let what = counted(rest.len(), "more region");
        let _ = writeln!(out, "  {what:<MAP_WIDTH$}  {:>9}  {:>9} free", bytes.to_string(), free.to_string());
    }
}

fn bridge(out: &mut String, failure: &FailureView, style: Style) {
    let Some(bridge) = &failure.bridge else { return };
    heading(out, "Blocks in use between the free blocks", style);
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
    let columns = [("address", false), ("block", true), ("requested", true), ("op", false)];
    table(out, &columns, &rows, style);
    if bridge.live.len() > LISTED {
        let _ = writeln!(out, "  and {} more (--json lists all)", bridge.live.len() - LISTED);
    }
    let _ = writeln!(
        out,
        "  in region {}: {}, {} in total",
        bridge.region + 1,
        counted(bridge.holes, "free block"),
        bridge.free_bytes
    );
}

fn holders(out: &mut String, failure: &FailureView, style: Style) {
    if failure.holders.is_empty() {
        return;
    }
    heading(out, "In use at the failure", style);
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
    let columns = [("bytes", true), ("blocks", true), ("each", true), ("requested", true), ("op", false)];
    table(out, &columns, &rows, style);
}

fn buffers(out: &mut String, failure: &FailureView, style: Style) {
    if failure.buffers.is_empty() {
        return;
    }
    heading(out, "Buffers of the compiled program at its peak, as XLA reports them", style);
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
