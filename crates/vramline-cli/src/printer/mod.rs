//! Draws a report as text: verdict first, one screen, readable without colour.

pub(crate) mod diff;
pub(crate) mod doctor;
pub(crate) mod oom;
pub(crate) mod pack;
pub(crate) mod plan;
pub(crate) mod replay;
pub(crate) mod top;
pub(crate) mod verify;

use std::collections::HashSet;
use std::fmt::Write;

use vramline::snapshot::Role;
use vramline::units::{Bytes, Nanos, Span};
use vramline::view::fields::title;
use vramline::view::ledger::LedgerView;
use vramline::view::replayed::ReplayedView;
use vramline::view::report::{HeldView, LongView, PoolView, Report, Row, StepView};
use vramline::warning::Warning;

use crate::cli::By;
use crate::variables::NO_COLOR;

/// Whether headings stand out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    pub(crate) bold: &'static str,
    pub(crate) dim: &'static str,
    pub(crate) plain: &'static str,
}

impl Style {
    /// Bold and dim on a terminal, unless the user asked for none.
    pub(crate) fn of_terminal(is_terminal: bool) -> Style {
        if is_terminal && std::env::var_os(NO_COLOR).is_none_or(|value| value.is_empty()) {
            Style { bold: "\x1b[1m", dim: "\x1b[2m", plain: "\x1b[0m" }
        } else {
            Style { bold: "", dim: "", plain: "" }
        }
    }
}

/// How many of the blocks held for long are shown.
const LONG_ROWS: usize = 5;

/// How many streams and failed requests are shown.
const STREAM_ROWS: usize = 6;
const FAILURE_ROWS: usize = 3;

/// Warnings that the pools which matter are not in the trace.
const SILENT: [&str; 2] = ["silent-allocator", "cuda-malloc-async"];

/// A column of a table: its title, and whether it is flush right.
pub(crate) type Column = (&'static str, bool);

pub(crate) fn report(report: &Report, by: By, style: Style) -> String {
    let mut out = String::new();
    for file in &report.source.files {
        let _ = writeln!(out, "{}{}{}", style.dim, printable(file), style.plain);
    }
    job(&mut out, report, style);
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
        happenings(&mut out, report, style);
        notes(&mut out, report, style);
        return out;
    };
    // What is shown then is not what was asked for: that comes first.
    if let Some(silent) = report.warnings.iter().find(|warning| SILENT.contains(&warning.code)) {
        let _ = writeln!(out, "\n{}{}.{}", style.bold, capitalised(&printable(&silent.text)), style.plain);
    }
    verdict(&mut out, report, main, style);
    ledger(&mut out, report, style);
    pools(&mut out, report, style);
    report.pools.iter().for_each(|pool| cached(&mut out, pool, style));
    for pool in report.pools.iter().filter(|pool| is_worth_showing(pool, main)) {
        if let Some(held) = &pool.at_peak {
            held_at(&mut out, pool, held, "At the peak", by, style);
        }
        if let Some(held) = &pool.at {
            held_at(&mut out, pool, held, "At that moment", by, style);
        }
    }
    held_long(&mut out, main, style);
    // A recording's steps come in phases; without any, the trace shows steps by itself.
    if report.phases.is_empty() {
        steps(&mut out, report, main, style);
    }
    if report.run.is_some() {
        phases(&mut out, report, style);
        epochs(&mut out, report, main, style);
        inventory(&mut out, report, style);
        happenings(&mut out, report, style);
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

fn pools(out: &mut String, report: &Report, style: Style) {
    let differ =
        |of: &dyn Fn(&PoolView) -> String| report.pools.iter().map(of).collect::<HashSet<_>>().len() > 1;
    let several_hosts = differ(&|pool| pool.host.clone());
    let several_processes = differ(&|pool| or_dash(pool.pid));
    let mut columns: Vec<Column> = vec![
        ("pool", false),
        (title("pools[].device"), false),
        (title("pools[].limit_bytes"), true),
        (title("pools[].peak_bytes"), true),
        (title("pools[].lifetime_peak_bytes"), true),
        (title("pools[].peak_at_ns"), true),
        (title("pools[].allocs"), true),
        (title("pools[].frees"), true),
        (title("pools[].fragmentation_at_peak"), true),
        (title("pools[].from_start"), false),
    ];
    if several_processes {
        columns.insert(0, (title("pools[].pid"), true));
    }
    if several_hosts {
        columns.insert(0, (title("pools[].host"), false));
    }
    let rows = report.pools.iter().map(|pool| {
        let mut row = vec![
            pool.name.clone(),
            pool.device.clone(),
            or_dash(pool.limit_bytes),
            or_dash(pool.peak_bytes),
            or_dash(pool.lifetime_peak_bytes),
            or_dash(pool.peak_at_ns),
            or_dash(pool.allocs.map(thousands)),
            or_dash(pool.frees.map(thousands)),
            pool.fragmentation_at_peak.map_or("-".to_owned(), |value| format!("{:.1} %", value * 100.0)),
            match pool.from_start {
                Some(true) => "yes",
                Some(false) => "no",
                None => "-",
            }
            .to_owned(),
        ];
        if several_processes {
            row.insert(0, or_dash(pool.pid));
        }
        if several_hosts {
            row.insert(0, pool.host.clone());
        }
        row
    });
    heading(out, "Pools", style);
    table(out, &columns, &rows.collect::<Vec<_>>(), style);
}

/// What PyTorch's allocator kept from the driver beyond what was allocated.
fn cached(out: &mut String, pool: &PoolView, style: Style) {
    let Some(caching) = &pool.caching else { return };
    heading(out, &format!("Taken from the driver by {}", pool.name), style);
    const PREFIX: &str = "pools[].caching.moments[].";
    let column = |field: &str| (title(&format!("{PREFIX}{field}")), true);
    let has_expandable = caching.moments.iter().any(|moment| moment.expandable_bytes > Bytes::ZERO);
    let mut columns: Vec<Column> = vec![
        (title("pools[].caching.moments[].when"), false),
        column("reserved_bytes"),
        column("allocated_bytes"),
        column("pending_bytes"),
        column("whole_segments_bytes"),
        column("split_remainders_bytes"),
    ];
    if has_expandable {
        columns.push(column("expandable_bytes"));
    }
    let rows = caching.moments.iter().map(|moment| {
        let when = match moment.when {
            "peak" => "most allocated",
            "reserved-peak" => "most reserved",
            _ => "at the end",
        };
        let mut row = vec![when.to_owned()];
        let bytes = [
            moment.reserved_bytes,
            moment.allocated_bytes,
            moment.pending_bytes,
            moment.whole_segments_bytes,
            moment.split_remainders_bytes,
        ];
        row.extend(bytes.map(|bytes| bytes.to_string()));
        row.extend(has_expandable.then(|| moment.expandable_bytes.to_string()));
        row
    });
    table(out, &columns, &rows.collect::<Vec<_>>(), style);
    if let Some(end) = caching.moments.last() {
        let _ = writeln!(
            out,
            "  cached at the end: {} in whole segments, which torch.cuda.empty_cache() returns; {} in split remainders, \
             which it does not{}",
            end.whole_segments_bytes,
            end.split_remainders_bytes,
            if has_expandable {
                format!("; {} in expandable segments, of which it returns whole pages", end.expandable_bytes)
            } else {
                String::new()
            }
        );
    }
    let is_plain = caching.streams.iter().all(|used| used.stream == 0 && used.private_pool.is_empty());
    for used in caching.streams.iter().filter(|_| !is_plain).take(STREAM_ROWS) {
        let private = if used.private_pool.is_empty() {
            String::new()
        } else {
            format!(", private pool {}", used.private_pool)
        };
        let _ = writeln!(
            out,
            "  stream {}{private}: {} reserved in {} segments, {} allocated",
            used.stream,
            used.reserved_bytes,
            thousands(used.segments),
            used.allocated_bytes
        );
    }
    let more = caching.streams.len().saturating_sub(STREAM_ROWS);
    if more > 0 && !is_plain {
        let _ = writeln!(out, "  and {more} more streams (--json has them all)");
    }
    for failure in caching.failures.iter().take(FAILURE_ROWS) {
        let place =
            if failure.op.is_empty() { String::new() } else { format!(", at {}", printable(&failure.op)) };
        let _ = writeln!(
            out,
            "  {}out of memory{} at {}: {} asked for with {} free on the device; {} allocated, {} reserved then{place}",
            style.bold,
            style.plain,
            clock(failure.at_ns),
            or_dash(failure.asked_bytes),
            or_dash(failure.device_free_bytes),
            failure.allocated_bytes,
            failure.reserved_bytes
        );
    }
    let more = caching.failures.len().saturating_sub(FAILURE_ROWS);
    if more > 0 {
        let _ = writeln!(out, "  and {more} more requests that failed (--json has them all)");
    }
}

fn held_at(out: &mut String, pool: &PoolView, held: &HeldView, when: &str, by: By, style: Style) {
    heading(
        out,
        &match held.time_ns {
            Some(time) => format!("{when}, {} of {}: {} in use", clock(time), pool.name, held.in_use_bytes),
            None => format!("What {} held: {}", pool.name, held.in_use_bytes),
        },
        style,
    );
    let lines = [
        ("named", held.named_bytes, "requested by ops that are known"),
        ("without a name", held.unnamed_bytes, "requested; size and time are known"),
        ("slack", held.slack_bytes, "taken beyond what was requested"),
        ("before the recording", held.before_recording_bytes, "in use; allocated before the trace begins"),
    ];
    for (name, bytes, meaning) in lines.iter().filter(|(_, bytes, _)| *bytes > Bytes::ZERO) {
        let share = percent(*bytes, held.in_use_bytes);
        let _ = writeln!(
            out,
            "  {:>9}  {share:>6}  {name:<21} {}{meaning}{}",
            bytes.to_string(),
            style.dim,
            style.plain
        );
    }
    if held.rows.is_empty() {
        return;
    }
    out.push('\n');
    if by == By::Stack {
        stacks(out, held, style);
    } else {
        let (columns, rows) = held_rows(held, by);
        table(out, &columns, &rows, style);
    }
    if let Some(rest) = &held.rest {
        let _ = writeln!(
            out,
            "  {:>9}  in {} more rows (--top {})",
            rest.bytes.to_string(),
            rest.rows,
            rest.rows + held.rows.len()
        );
    }
}

fn held_rows(held: &HeldView, by: By) -> (Vec<Column>, Vec<Vec<String>>) {
    const PREFIX: &str = "pools[].at_peak.rows[].";
    let column = |field: &str, right: bool| (title(&format!("{PREFIX}{field}")), right);
    let mut columns: Vec<Column> =
        vec![column("bytes", true), ("share", true), column("count", true), column("age_ns", true)];
    match by {
        By::Op => columns.extend([
            column("role", false),
            column("op", false),
            column("shape", false),
            column("op_time_ns", true),
        ]),
        By::Layer => columns.push(column("layer", false)),
        By::Role => columns.push(column("role", false)),
        By::Stack => {}
    }
    let row = |row: &Row| {
        let mut cells = vec![
            row.bytes.to_string(),
            percent(row.bytes, held.in_use_bytes),
            thousands(row.count),
            row.age_ns.map_or("-".to_owned(), |ns| Span(ns.saturating_mul(1000)).to_string()),
        ];
        match by {
            By::Op => cells.extend([
                row.role.to_owned(),
                shown_op(row),
                format!("{} {}", row.shape, row.dtype).trim().to_owned(),
                row.op_time_ns.map_or(String::new(), |ns| Span(ns.saturating_mul(1000)).to_string()),
            ]),
            By::Layer => {
                cells.push(if row.layer.is_empty() { "(no layer)".to_owned() } else { row.layer.clone() });
            }
            By::Role => cells.push(row.role.to_owned()),
            By::Stack => {}
        }
        cells
    };
    (columns, held.rows.iter().map(row).collect())
}

/// Whole stacks take a line for each frame.
fn stacks(out: &mut String, held: &HeldView, style: Style) {
    for row in &held.rows {
        let _ = writeln!(
            out,
            "  {:>9}  {:>6}  {} in {} blocks{}",
            row.bytes.to_string(),
            percent(row.bytes, held.in_use_bytes),
            if row.role.is_empty() { "several roles" } else { row.role },
            thousands(row.count),
            if row.stack.is_empty() { ", no stack told" } else { "" }
        );
        for frame in &row.stack {
            let _ = writeln!(out, "{}{:22}{}{}", style.dim, "", printable(frame), style.plain);
        }
    }
}

fn shown_op(row: &Row) -> String {
    if !row.variable.is_empty() {
        return shorten(&row.variable);
    }
    match (row.op.as_str(), row.source.as_str()) {
        ("", "") => "(no name)".to_owned(),
        ("", source) => format!("(no name, in {source})"),
        (op, _) => shorten(op),
    }
}

/// The name without the call that wraps every name of a graph, and cut in the middle where it is long.
pub(crate) fn shorten(op: &str) -> String {
    const MOST: usize = 46;
    let op = op.strip_prefix("StatefulPartitionedCall/").unwrap_or(op);
    let count = op.chars().count();
    if count <= MOST {
        return op.to_owned();
    }
    let head: String = op.chars().take(MOST / 2 - 1).collect();
    let tail: String = op.chars().skip(count - MOST / 2).collect();
    format!("{head}…{tail}")
}

fn held_long(out: &mut String, pool: &PoolView, style: Style) {
    let shown: Vec<&LongView> = pool.held_long.iter().take(LONG_ROWS).collect();
    if shown.is_empty() {
        return;
    }
    const PREFIX: &str = "pools[].held_long[].";
    heading(out, "Large and held for long", style);
    let column = |field: &str, right: bool| (title(&format!("{PREFIX}{field}")), right);
    let columns = [
        column("bytes", true),
        column("held_ns", true),
        column("freed_ns", true),
        column("role", false),
        column("op", false),
        column("shape", false),
    ];
    let rows = shown
        .into_iter()
        .map(|long| {
            vec![
                long.bytes.to_string(),
                Span(long.held_ns.saturating_mul(1000)).to_string(),
                long.freed_ns.map_or("never".to_owned(), clock),
                long.role.to_owned(),
                if long.op.is_empty() { "(no name)".to_owned() } else { shorten(&long.op) },
                format!("{} {}", long.shape, long.dtype).trim().to_owned(),
            ]
        })
        .collect::<Vec<_>>();
    table(out, &columns, &rows, style);
}

fn steps(out: &mut String, report: &Report, main: &PoolView, style: Style) {
    let steps: Vec<&StepView> = report
        .steps
        .iter()
        .filter(|step| step.pool == main.name && step.host == main.host && step.pid == main.pid)
        .collect();
    let (Some(first), Some(last)) = (steps.first(), steps.last()) else { return };
    let Some(highest) = steps.iter().max_by_key(|step| step.peak_bytes) else { return };
    let Some(lowest) = steps.iter().min_by_key(|step| step.peak_bytes) else { return };
    let how = if first.how == "inferred" { ", inferred" } else { "" };
    heading(out, &format!("{} steps{how}", steps.len()), style);
    let _ = writeln!(
        out,
        "  peaks from {} (step {}) to {} (step {}); in use after the first {}, after the last {}",
        or_dash(lowest.peak_bytes),
        lowest.step,
        or_dash(highest.peak_bytes),
        highest.step,
        or_dash(first.current_bytes),
        or_dash(last.current_bytes)
    );
}

/// The command, how it ended, and who took part.
fn job(out: &mut String, report: &Report, style: Style) {
    let Some(run) = &report.run else { return };
    if !run.command.is_empty() {
        let exit =
            run.exit.as_deref().map_or("still running, or its launcher was killed".to_owned(), |exit| {
                if exit == "code 0" { "done".to_owned() } else { format!("ended with {exit}") }
            });
        let command = printable(&run.command.join(" "));
        let _ = writeln!(out, "{}{command}: {exit}{}", style.dim, style.plain);
    }
    if run.processes.len() > 1 {
        let _ = writeln!(out, "{}{} processes{}", style.dim, run.processes.len(), style.plain);
    }
}

/// Steps by phase, warm-up against steady state.
fn phases(out: &mut String, report: &Report, style: Style) {
    if report.phases.is_empty() {
        return;
    }
    let several = report.run.as_ref().is_some_and(|run| run.processes.len() > 1);
    heading(out, "Steps", style);
    const PREFIX: &str = "phases[].";
    let column = |field: &str, right: bool| (title(&format!("{PREFIX}{field}")), right);
    let mut columns = vec![
        column("phase", false),
        column("steps", true),
        column("batches", true),
        column("first_peak_bytes", true),
        column("later_peak_bytes", true),
        column("later_peaks_known", true),
        column("current_bytes", true),
        column("how", false),
        column("pool", false),
    ];
    if several {
        columns.push(column("pid", true));
    }
    let rows = report.phases.iter().map(|phase| {
        let mut row = vec![
            phase.phase.to_owned(),
            thousands(phase.steps),
            thousands(phase.batches),
            or_dash(phase.first_peak_bytes),
            or_dash(phase.later_peak_bytes),
            thousands(phase.later_peaks_known),
            or_dash(phase.current_bytes),
            phase.how.to_owned(),
            phase.pool.clone(),
        ];
        if several {
            row.push(or_dash(phase.pid));
        }
        row
    });
    table(out, &columns, &rows.collect::<Vec<_>>(), style);
    if report.steps.iter().any(|step| step.peak_bytes.is_none()) {
        let _ = writeln!(
            out,
            "  {}a step's own peak is known in the trace, and with --step-peaks{}",
            style.dim, style.plain
        );
    }
}

/// Epochs that fit a screen.
const EPOCHS: usize = 8;

fn epochs(out: &mut String, report: &Report, main: &PoolView, style: Style) {
    let epochs: Vec<_> =
        report.epochs.iter().filter(|epoch| epoch.pool == main.name && epoch.host == main.host).collect();
    if epochs.is_empty() {
        return;
    }
    heading(out, &format!("{} epochs", epochs.len()), style);
    let column = |field: &str| (title(&format!("epochs[].{field}")), true);
    let columns = [column("epoch"), column("peak_bytes"), column("current_bytes")];
    let row = |epoch: &&vramline::view::run::EpochView| {
        vec![epoch.epoch.to_string(), or_dash(epoch.peak_bytes), or_dash(epoch.current_bytes)]
    };
    let left_out = epochs.len().saturating_sub(EPOCHS);
    table(out, &columns, &epochs.iter().skip(left_out).map(row).collect::<Vec<_>>(), style);
    if left_out > 0 {
        let _ = writeln!(out, "  the first {left_out} are in --json");
    }
}

fn inventory(out: &mut String, report: &Report, style: Style) {
    let told: Vec<String> = report
        .inventory
        .iter()
        .filter(|entry| entry.role != "unknown")
        .map(|entry| format!("{} {} in {} variables", entry.role, entry.bytes, thousands(entry.variables)))
        .collect();
    if !told.is_empty() {
        heading(out, "Variables that the program lists", style);
        let _ = writeln!(out, "  {}", told.join(", "));
    }
}

/// Labels, settings, the trace's ends and exceptions; the last ones, where there are many.
const HAPPENINGS: usize = 10;

fn happenings(out: &mut String, report: &Report, style: Style) {
    let is_told = |kind: &str| matches!(kind, "mark" | "trace" | "setting" | "exception");
    let mut marks: Vec<_> = report.marks.iter().filter(|mark| is_told(&mark.kind)).collect();
    let left_out = marks.len().saturating_sub(HAPPENINGS);
    marks.drain(..left_out);
    if marks.is_empty() {
        return;
    }
    heading(out, "What happened", style);
    let column = |field: &str, right: bool| (title(&format!("marks[].{field}")), right);
    let columns = [
        column("time_ns", true),
        column("kind", false),
        column("current_bytes", true),
        column("peak_bytes", true),
        column("label", false),
    ];
    let row = |mark: &&vramline::view::run::MarkView| {
        let label = mark.label.lines().next().unwrap_or_default();
        let label: String = label.chars().take(100).collect();
        vec![
            mark.time_ns.to_string(),
            mark.kind.clone(),
            or_dash(mark.current_bytes),
            or_dash(mark.peak_bytes),
            label,
        ]
    };
    table(out, &columns, &marks.iter().map(row).collect::<Vec<_>>(), style);
    if left_out > 0 {
        let _ = writeln!(out, "  {left_out} earlier ones are in --json");
    }
}

/// Who holds which byte. Lines that are nothing, and machines of which nothing is known, are not worth a line.
fn ledger(out: &mut String, report: &Report, style: Style) {
    let mut devices: Vec<&str> = report.ledger.iter().map(|line| line.device.as_str()).collect();
    devices.dedup();
    for device in devices {
        let lines: Vec<_> = report.ledger.iter().filter(|line| line.device == device).collect();
        let Some(first) = lines.first() else { continue };
        heading(out, &format!("The ledger of {device} at {}", clock(first.at_ns)), style);
        if first.bytes.is_none() {
            let _ = writeln!(out, "  {}", printable(&first.reason));
        }
        let is_worth = |line: &&&LedgerView| {
            line.bytes != Some(0) && (line.bytes.is_some() || line.reason != first.reason)
        };
        let row = |line: &&LedgerView| {
            let name = format!("{}{}", "  ".repeat(line.depth), line.line);
            vec![
                line.bytes.map_or("-".to_owned(), signed),
                name,
                if line.bytes.is_none() { line.reason.clone() } else { line.detail.clone() },
                line.source.to_owned(),
            ]
        };
        let rows: Vec<Vec<String>> = lines.iter().filter(is_worth).map(row).collect();
        table(out, &[("bytes", true), ("line", false), ("", false), ("source", false)], &rows, style);
    }
}

fn signed(bytes: i64) -> String {
    let sign = if bytes < 0 { "-" } else { "" };
    format!("{sign}{}", Bytes(bytes.unsigned_abs()))
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

fn notes_of(out: &mut String, warnings: &[Warning], style: Style) {
    if warnings.is_empty() {
        return;
    }
    heading(out, "Notes", style);
    for warning in warnings {
        let _ = writeln!(out, "  - {}", printable(&warning.text));
        if !warning.hint.is_empty() {
            let _ = writeln!(out, "    {}hint:{} {}", style.dim, style.plain, printable(&warning.hint));
        }
    }
}

pub(crate) fn heading(out: &mut String, text: &str, style: Style) {
    let _ = writeln!(out, "\n{}{}{}", style.bold, printable(text), style.plain);
}

pub(crate) fn table(out: &mut String, columns: &[(&str, bool)], rows: &[Vec<String>], style: Style) {
    let width = |i: usize, title: &str| {
        let cells = rows.iter().filter_map(|row| row.get(i)).map(|cell| cell.chars().count());
        cells.chain([title.chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = columns.iter().enumerate().map(|(i, (title, _))| width(i, title)).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut line = String::from(" ");
        for ((cell, width), (_, right)) in cells.zip(&widths).zip(columns) {
            let _ = if *right { write!(line, " {cell:>width$} ") } else { write!(line, " {cell:<width$} ") };
        }
        line.trim_end().to_owned()
    };
    let titles = line(&mut columns.iter().map(|(title, _)| *title));
    let _ = writeln!(out, "{}{titles}{}", style.dim, style.plain);
    for row in rows {
        let cells: Vec<String> = row.iter().map(|cell| printable(cell)).collect();
        let _ = writeln!(out, "{}", line(&mut cells.iter().map(String::as_str)));
    }
}

/// Names come from files: what would steer a terminal is shown as a sign that it was there.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

pub(crate) fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

pub(crate) fn percent(part: Bytes, whole: Bytes) -> String {
    part.share_of(whole).map_or("-".to_owned(), |share| format!("{:.1} %", share * 100.0))
}

fn or_dash<T: std::fmt::Display>(value: Option<T>) -> String {
    value.map_or("-".to_owned(), |value| value.to_string())
}

/// A moment with enough digits to be given back as `--at`.
pub(crate) fn clock(time: Nanos) -> String {
    #[expect(clippy::cast_precision_loss, reason = "microseconds of a trace's clock")]
    let seconds = time.0 as f64 / 1e9;
    format!("{seconds:.6}s")
}

/// 5060 -> 5,060
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}
