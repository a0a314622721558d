//! Draws a replay as text: how exact it is, why the pool is larger than the peak, what other settings would do; growths one by one
//! with `--full`.

use std::fmt::Write;

use vramline::replay::AnsweredBy;
use vramline::units::{Bytes, counted, plural, thousands};
use vramline::view::replay::{CauseView, GrowthView, MomentView, OpView, Replay, ReplayPoolView, WhatIfView};

use super::screen::{COLUMNS, Section, bold, cut, fitting_table, notes, screen, titled, wrapped};
use super::{Column, Style, clock, heading, percent, printable, shorten, table};

/// Growths that are shown; the largest ones.
const GROWTHS: usize = 8;

/// Causes, other pools and notes of a first screen.
const SCREEN_CAUSES: usize = 4;
const SCREEN_POOLS: usize = 4;
const SCREEN_NOTES: usize = 2;

/// The title of the causes.
const WHY_LARGER: &str = "Why the pool is larger than the peak (the causes overlap)";

/// The answer on one screen.
pub(crate) fn first_screen(document: &Replay, style: Style) -> String {
    let file = document.files.first().map_or(String::new(), |file| cut(&printable(file), COLUMNS));
    let Some(main) = document.pools.first() else { return full(document, style) };
    let parts: Vec<String> = parts(main, style)
        .into_iter()
        .filter(|line| line.detail == LineDetail::FirstScreen)
        .map(|line| cut(&line.text, COLUMNS))
        .collect();
    let cause = |cause: &CauseView| {
        wrapped(&format!("  {:>9}  {}", cause.bytes.to_string(), printable(&cause.text)), 13, 2)
    };
    let mut causes: Vec<String> = main.causes.iter().take(SCREEN_CAUSES).flat_map(cause).collect();
    if !causes.is_empty() {
        causes.insert(0, format!("{}{WHY_LARGER}{}", style.bold, style.plain));
    }
    let others = document.pools.iter().skip(1).take(SCREEN_POOLS);
    let others: Vec<String> = others.flat_map(|pool| titled("Also", &pool.headline, 2, style)).collect();
    let setting = Words::of(main).setting;
    let next = format!("--what-if {setting} (another setting), --find limit (smallest limit), --full");
    let asked = document.asked.as_ref().map(|asked| {
        let answer = if asked.fits { "fits" } else { "does not fit" };
        titled("Request", &format!("another request of {} {answer}", asked.asked_bytes), 1, style)
    });
    screen(vec![
        Section::whole(vec![format!("{}{file}{}", style.dim, style.plain)]),
        Section::whole(bold(&sizes(main), style)),
        Section::whole(wrapped(&main.headline, 0, 3)).attached(),
        Section::trimmed(what_if_lines(document, LineDetail::FirstScreen, style), 4, 1),
        Section::whole(asked.unwrap_or_default()),
        Section::trimmed(parts, 3, 4),
        Section::trimmed(causes, 3, 3),
        Section::trimmed(others, 0, 5),
        Section::trimmed(notes(&document.warnings, SCREEN_NOTES, style), 0, 6),
        Section::whole(titled("Next", &next, 1, style)),
    ])
}

/// Everything that a replay says.
pub(crate) fn full(document: &Replay, style: Style) -> String {
    let mut out = String::new();
    for file in &document.files {
        let _ = writeln!(out, "{}{}{}", style.dim, printable(file), style.plain);
    }
    out.push('\n');
    for pool in &document.pools {
        exactness(&mut out, pool, style);
    }
    if let Some(pool) = document.pools.first() {
        let _ = writeln!(out, "\n{}", sizes(pool));
        let parts = parts(pool, style);
        if !parts.is_empty() {
            out.push('\n');
        }
        for line in parts {
            let _ = writeln!(out, "{}", line.text);
        }
        growths(&mut out, pool, style);
        causes(&mut out, pool, style);
    }
    what_if(&mut out, document, style);
    if let Some(asked) = &document.asked {
        heading(&mut out, &format!("Another request of {}", asked.asked_bytes), style);
        if asked.fits {
            let _ = writeln!(out, "  fits");
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
        "{}{}{}\n  {}allocator {}, preset {}{}",
        style.bold,
        printable(&pool.headline),
        style.plain,
        style.dim,
        pool.model,
        pool.preset,
        style.plain
    );
    if let Some(driver) = &pool.driver {
        let _ = write!(
            out,
            "  {} of {} calls to the driver match in time and size",
            thousands(driver.matches),
            thousands(driver.calls)
        );
        if driver.failures > 0 {
            let _ = write!(
                out,
                ", {} of {} failed requests fail in the replay too",
                thousands(driver.failure_matches),
                thousands(driver.failures)
            );
        }
        let only_here = driver.only_here + driver.failures_only_here;
        if only_here > 0 {
            let _ = write!(out, "; {} only in the replay", counted(only_here, "call or failure"));
        }
        out.push('\n');
    }
    if let (None, Some(least)) = (pool.limit_bytes, pool.least_limit_bytes) {
        let _ = writeln!(
            out,
            "  the driver refused to give more than {least}: a what-if without a limit uses that as its limit"
        );
    }
    for assumed in &pool.assumes {
        let _ = writeln!(out, "  assumed: {}", printable(assumed));
    }
    if let Some(first) = &pool.first_mismatch {
        let replayed = match (first.replayed_address, first.replayed_chunk_bytes) {
            (Some(address), Some(chunk)) => format!("{address:x} ({} bytes)", thousands(chunk.0)),
            _ => "nowhere: there is no room for it".to_owned(),
        };
        let when = clock(first.at_ns);
        let asked = format!("{} requested by {}", first.asked_bytes, shown(&first.op));
        let chunk = thousands(first.chunk_bytes.0);
        let _ = match first.address {
            Some(address) => writeln!(
                out,
                "  first difference at {when}: {asked} is at {address:x} ({chunk} bytes) in the trace; in the replay it is at {replayed}"
            ),
            None => {
                writeln!(out, "  first difference at {when}, after {}:", counted(first.alloc, "allocation"))
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

/// Peak, pool, and what an ideal allocator would need.
fn sizes(pool: &ReplayPoolView) -> String {
    let less = pool.pool_bytes.saturating_sub(pool.packing_bound_bytes);
    let ideal = if less == Bytes::ZERO {
        "An ideal allocator would need the same.".to_owned()
    } else {
        format!("An ideal allocator would need {}, {less} less than the pool.", pool.packing_bound_bytes)
    };
    format!(
        "The pool reserved {} for a peak of {}. The tensors alone requested {}. {ideal}",
        pool.pool_bytes, pool.peak_bytes, pool.load_requested_bytes
    )
}

/// Where a line is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineDetail {
    /// On the first screen, and with `--full`.
    FirstScreen,
    /// Only with `--full`.
    Full,
}

/// A line, and where it is printed.
struct DetailedLine {
    text: String,
    detail: LineDetail,
}

/// What the pool consisted of at the peak, with its title; empty if that is unknown.
fn parts(pool: &ReplayPoolView, style: Style) -> Vec<DetailedLine> {
    let Some(moment) = &pool.at_peak else { return Vec::new() };
    let title = format!("{}The pool at the peak, {}{}", style.bold, clock(moment.at_ns), style.plain);
    let mut lines = vec![DetailedLine { text: title, detail: LineDetail::FirstScreen }];
    let words = Words::of(pool);
    let whole = moment.in_use_bytes + moment.pending_bytes + moment.cached_bytes;
    let mut line = |name: &str, bytes: Bytes, meaning: String| {
        let share = percent(bytes, whole);
        let bytes = bytes.to_string();
        let text = format!("  {bytes:>9}  {share:>7}  {name:<10}  {}{meaning}{}", style.dim, style.plain);
        lines.push(DetailedLine { text, detail: LineDetail::FirstScreen });
    };
    line("requested", moment.requested_bytes, "by live tensors".to_owned());
    line("rounding", moment.slack_bytes, "handed out beyond the requests".to_owned());
    if moment.pending_bytes > Bytes::ZERO {
        line("pending", moment.pending_bytes, "freed, but still used by another stream".to_owned());
    }
    line(
        "cached",
        moment.cached_bytes,
        format!("free; the largest free block is {}", moment.largest_free_bytes),
    );
    if moment.external_bytes > Bytes::ZERO {
        let meaning = format!("part of cached: too small for the next request of {}", moment.upcoming_bytes);
        line("fragmented", moment.external_bytes, meaning);
    }
    if moment.idle_bytes > Bytes::ZERO {
        line(
            "idle",
            moment.idle_bytes,
            format!("part of cached (overlaps): {}s that are completely free", words.region),
        );
    }
    let end = pool.at_end.as_ref();
    for (when, moment) in [("at the peak", Some(moment)), ("at the end", end)] {
        let text = stranded(when, moment, &words);
        lines.extend(text.map(|text| DetailedLine { text, detail: LineDetail::Full }));
    }
    lines
}

/// What the allocator calls its parts.
struct Words {
    region: &'static str,
    /// The setting to try first.
    setting: &'static str,
}

impl Words {
    fn of(pool: &ReplayPoolView) -> Words {
        // Only PyTorch's allocator reports its calls to the driver.
        match pool.driver {
            Some(_) => Words { region: "segment", setting: "expandable=on" },
            None => Words { region: "region", setting: "growth=off" },
        }
    }
}

/// Regions that are nearly empty; `None` if there are none.
fn stranded(when: &str, moment: Option<&MomentView>, words: &Words) -> Option<String> {
    let moment = moment.filter(|moment| !moment.stranded.is_empty())?;
    let held: Bytes =
        moment.stranded.iter().map(|region| region.bytes.saturating_sub(region.live_bytes)).sum();
    let first = moment.stranded.first();
    let example = first.map_or(String::new(), |region| {
        format!(
            ", for example {} with {} in use ({})",
            region.bytes,
            region.live_bytes,
            region.ops.first().map_or("(no name)".to_owned(), |op| shown(&op.op))
        )
    });
    let regions = counted(moment.stranded.len(), words.region);
    Some(format!("  {when}, {held} is free in {regions} with few live blocks{example}"))
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
        "Why the pool grew: the request, what was free, and by how much the largest free block was too small",
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
        let _ = writeln!(out, "  and {} smaller", pool.growths.len() - rows.len());
    }
}

/// The largest growth at a time when enough was free, but fragmented.
fn remembered(out: &mut String, pool: &ReplayPoolView) {
    let is_enough = |growth: &&GrowthView| {
        growth.free_bytes >= growth.rounded_bytes && growth.missed_by_bytes > Bytes::ZERO
    };
    let enough = pool.growths.iter().filter(is_enough);
    let Some(growth) = enough.max_by_key(|growth| growth.got_bytes) else { return };
    let _ = writeln!(
        out,
        "  {} was free when {} was requested, but the largest free block of {} was {} too small: the pool grew by {}.",
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
    heading(out, WHY_LARGER, style);
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
    if !document.what_if.is_empty() {
        let _ = writeln!(out, "\n{}", what_if_lines(document, LineDetail::Full, style).join("\n"));
    }
}

/// What other settings would do, as a table with its footnotes.
fn what_if_lines(document: &Replay, detail: LineDetail, style: Style) -> Vec<String> {
    if document.what_if.is_empty() {
        return Vec::new();
    }
    let titles = WhatIfView::TITLES;
    let columns: [Column; 5] = [
        (titles.setting, false),
        (titles.fits, false),
        (titles.peak_bytes, true),
        (titles.pool_bytes, true),
        (titles.retries, true),
    ];
    let mut lines = vec![format!("{}What if{}", style.bold, style.plain)];
    let range = |low: Bytes, high: Bytes| {
        if low.to_string() == high.to_string() { high.to_string() } else { format!("{low} to {high}") }
    };
    let row = |answer: &WhatIfView| {
        vec![
            setting(answer),
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
        ]
    };
    let rows: Vec<Vec<String>> = document.what_if.iter().map(row).collect();
    lines.extend(fitting_table(&columns, &rows, &[0], style));
    for answer in &document.what_if {
        lines.extend(what_failed(answer).into_iter().flat_map(|text| footnote(&text, detail)));
    }
    if document.what_if.iter().any(|answer| answer.by == AnsweredBy::Bounds) {
        lines.extend(footnote(
            "cuda_malloc_async: the driver's rules are not public, so this is a lower bound and a rough upper bound.",
            detail,
        ));
    }
    lines.push(
        "  This holds for the recorded order of requests; threads may run in another order next time."
            .to_owned(),
    );
    lines
}

/// The setting of a what-if, as the user wrote it.
fn setting(answer: &WhatIfView) -> String {
    if answer.setting.is_empty() { "as recorded".to_owned() } else { printable(&answer.setting) }
}

/// The request that fails with a setting, or that other threads must wait for.
fn what_failed(answer: &WhatIfView) -> Option<String> {
    let failed = answer.failed.as_ref()?;
    let when = failed.at_ns.map_or(String::new(), |at| format!(" at {}", clock(at)));
    let request = format!("the request of {} by {}", failed.asked_bytes, shown(&failed.op));
    let free = if failed.free_bytes == Bytes::ZERO {
        "no memory of the pool is free".to_owned()
    } else {
        format!("{} is free, in blocks of at most {}", failed.free_bytes, failed.largest_free_bytes)
    };
    let setting = setting(answer);
    Some(match answer.waits {
        Some(waits) => {
            let wait = plural(waits, "request waits", "requests wait");
            format!("{setting}: fits only if {wait} for other threads, first {request}{when}: {free}.")
        }
        None if answer.fits == Some(false) => format!("{setting}: {request} fails{when}: {free}."),
        None => format!("{setting}: in the recorded order, {request} fails{when}: {free}."),
    })
}

/// A line under a table: wrapped on a first screen, whole with `--full`.
fn footnote(text: &str, detail: LineDetail) -> Vec<String> {
    match detail {
        LineDetail::FirstScreen => wrapped(&format!("  {text}"), 4, 3),
        LineDetail::Full => vec![format!("  {text}")],
    }
}
