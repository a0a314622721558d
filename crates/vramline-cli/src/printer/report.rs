//! Draws a report as text: the first screen with the answer, and everything with `--full`.

use std::fmt::Write;

use vramline::analysis::headline::{ReportWord, warnings_in_answer};
use vramline::analysis::held::{GroupBy, HeldMoment};
use vramline::units::{Bytes, counted};
use vramline::view::ranks::RanksView;
use vramline::view::report::{PoolView, Report, Row};

use super::screen::{COLUMNS, Section, again, bars, cut, fitting_table, screen, titled, wrapped};
use super::{Style, heading, held, ledger, notes_of, patterns, pool, printable, ranks, run};

/// Files that are named at the top of a full report.
const FILES: usize = 4;

/// Rows, findings, notes and other pools of a first screen.
const ROWS: usize = 6;
const FINDINGS: usize = 3;
const NOTES: usize = 3;
const OTHER_POOLS: usize = 4;

/// The answer on one screen.
pub(crate) fn first_screen(report: &Report, by: GroupBy, style: Style) -> String {
    let main = report.pools.first();
    let mut explanation: Vec<String> = Vec::new();
    // What holds of the whole job stands above.
    let over_job = report.ranks.as_ref().map_or(0, |ranks| ranks.sentences.len().saturating_sub(1));
    for sentence in report.explanation.iter().skip(over_job) {
        explanation.extend(wrapped(sentence, 0, 3));
    }
    let in_answer = warnings_in_answer(&report.warnings);
    let notes: Vec<String> = report
        .warnings
        .iter()
        .enumerate()
        .filter(|(at, _)| !in_answer.contains(at))
        .take(NOTES)
        .flat_map(|(_, warning)| titled("Note", &warning.text, 2, style))
        .collect();
    // The first are those on the job: a rank that is missing, a clock that is off.
    let least_notes = if report.ranks.is_some() { notes.len().min(2) } else { 0 };
    screen(vec![
        Section::whole(subject(report, style)),
        Section::whole(headline(report, style)),
        Section::trimmed(of_ranks(report, ranks::explanation), 3, 2).attached(),
        Section::trimmed(of_ranks(report, |ranks| ranks::in_short(ranks, style)), 0, 3),
        Section::whole(of_ranks(report, |ranks| ranks::title(ranks, style))),
        Section::trimmed(findings_in_short(report, style), 2, 1),
        Section::whole(bars(&parts(report), style)),
        Section::trimmed(explanation, 2, 2),
        Section::trimmed(main.map(|pool| largest(pool, by, style)).unwrap_or_default(), 4, 4),
        Section::trimmed(other_pools(report, style), 1, 3),
        Section::trimmed(notes, least_notes, 5),
        Section::whole(next(report, style)),
    ])
}

/// Lines about the ranks of a job, if there are several.
fn of_ranks(report: &Report, lines: impl Fn(&RanksView) -> Vec<String>) -> Vec<String> {
    report.ranks.as_ref().map(lines).unwrap_or_default()
}

/// The file, the job, and where it ran, in as few lines as hold them.
fn subject(report: &Report, style: Style) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for part in report.subject.iter().map(|part| cut(&printable(part), COLUMNS)) {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 3 + part.chars().count() <= COLUMNS => {
                let _ = write!(line, "   {part}");
            }
            _ => lines.push(part),
        }
    }
    lines.into_iter().map(|line| format!("{}{line}{}", style.dim, style.plain)).collect()
}

fn headline(report: &Report, style: Style) -> Vec<String> {
    let colour = if report.verdict.word == ReportWord::OutOfMemory { style.alert } else { style.bold };
    let lines = wrapped(&report.headline, 0, 4);
    lines.into_iter().map(|line| format!("{colour}{line}{}", style.plain)).collect()
}

/// Findings, a line or two each; of the first also what to do.
fn findings_in_short(report: &Report, style: Style) -> Vec<String> {
    let mut lines = Vec::new();
    for (number, finding) in report.findings.iter().take(FINDINGS).enumerate() {
        let label = format!("! {}:", finding.rule);
        let mut text = wrapped(&format!("{label} {}", finding.text), 2, if number == 0 { 3 } else { 2 });
        if let Some(first) = text.first_mut() {
            *first = first.replacen(&label, &format!("{}{label}{}", style.alert, style.plain), 1);
        }
        lines.append(&mut text);
        if number == 0 && !finding.fix.is_empty() {
            lines.extend(wrapped(&format!("  Fix: {}", finding.fix), 7, 2));
        }
    }
    let more = report.findings.len().saturating_sub(FINDINGS);
    if more > 0 {
        lines.push(format!("  {more} more with --full"));
    }
    lines
}

/// The parts of the peak; what is less than a hundredth is added up.
fn parts(report: &Report) -> Vec<(String, Bytes)> {
    let whole: Bytes = report.parts.iter().map(|part| part.bytes).sum();
    let is_large = |bytes: Bytes| bytes.share_of(whole).is_some_and(|share| share >= 0.01);
    let large = report.parts.iter().filter(|part| is_large(part.bytes));
    let small: Bytes = report.parts.iter().filter(|part| !is_large(part.bytes)).map(|part| part.bytes).sum();
    let mut parts: Vec<(String, Bytes)> = large.map(|part| (part.what.to_owned(), part.bytes)).collect();
    if small > Bytes::ZERO {
        parts.push(("others".to_owned(), small));
    }
    parts
}

/// The rows with the most bytes, as narrow as a screen.
fn largest(pool: &PoolView, by: GroupBy, style: Style) -> Vec<String> {
    let Some(held) = &pool.at_peak else { return Vec::new() };
    let when = match pool.moment {
        HeldMoment::Peak if pool.lifetime_peak_bytes > pool.peak_bytes => "at the highest traced moment",
        HeldMoment::Peak => "at the peak",
        HeldMoment::Dump => "at the moment of the dump",
        HeldMoment::Failure => "at the failed allocation",
        HeldMoment::Program => "in the compiled program",
    };
    let grouped = match by {
        GroupBy::Op => "",
        GroupBy::Layer | GroupBy::RepeatedLayer => ", by layer",
        GroupBy::Role => ", by role",
        GroupBy::Stack => ", by call stack",
    };
    let has_layers = held.rows.iter().take(ROWS).any(|row| !row.layer.is_empty());
    let mut columns = vec![("size", true), ("share", true), ("role", false)];
    if has_layers {
        columns.push(("layer", false));
    }
    columns.push(("what", false));
    let row = |row: &Row| {
        // A group may have several roles, and may be of no layer.
        let role = if row.role.is_empty() && by != GroupBy::Op { "several" } else { row.role };
        let is_of_layers = matches!(by, GroupBy::Layer | GroupBy::RepeatedLayer);
        let layer = if row.layer.is_empty() && is_of_layers { "(no layer)" } else { &row.layer };
        let mut cells = vec![row.bytes.to_string(), row.bytes.percent_of(held.in_use_bytes), role.to_owned()];
        cells.extend(has_layers.then(|| layer.to_owned()));
        cells.push(match (what(row), by) {
            (what, GroupBy::Op) if what.is_empty() => format!("{}, no name", counted(row.count, "block")),
            // A group of several ops has no name of its own.
            (what, _) if what.is_empty() => counted(row.count, "block"),
            (what, _) if row.count > 1 => format!("{} x {what}", row.count),
            (what, _) => what,
        });
        cells
    };
    let rows: Vec<Vec<String>> = held.rows.iter().take(ROWS).map(row).collect();
    if rows.is_empty() {
        return Vec::new();
    }
    let flexible: &[usize] = if has_layers { &[3, 4] } else { &[3] };
    let title = format!("{}Largest {when}{grouped}{}", style.bold, style.plain);
    std::iter::once(title).chain(fitting_table(&columns, &rows, flexible, style)).collect()
}

/// What a row is, in a few words: variable or op, type and shape, source line. Empty if nothing is known.
fn what(row: &Row) -> String {
    let name = [&row.variable, &row.op].into_iter().find(|name| !name.is_empty());
    let name = name.map(|name| {
        let name = name.strip_prefix("StatefulPartitionedCall/").unwrap_or(name);
        // Beside its layer, the last part of an op's name says the rest.
        let is_op = row.variable.is_empty() && !row.layer.is_empty() && !name.contains(".py:");
        let last = name.rsplit('/').next().filter(|_| is_op);
        last.unwrap_or(name).to_owned()
    });
    let shape = (!row.shape.is_empty()).then(|| format!("{}{}", row.dtype, row.shape));
    // PyTorch's ops are source lines already.
    let source = if name.as_ref().is_some_and(|name| name.contains(".py:")) { "" } else { &row.source };
    let known = [name.unwrap_or_default(), shape.unwrap_or_default(), source.to_owned()];
    let words: Vec<String> = known.into_iter().filter(|word| !word.is_empty()).collect();
    words.join("  ")
}

/// The other pools, one line for all of them where they are few.
fn other_pools(report: &Report, style: Style) -> Vec<String> {
    // The table of ranks has their pools.
    let others = report.pools.get(1..).filter(|_| report.ranks.is_none()).unwrap_or_default();
    let known: Vec<String> = others
        .iter()
        .filter_map(|pool| {
            let peak = pool.lifetime_peak_bytes.max(pool.peak_bytes)?;
            let host = match report.pools.iter().any(|other| other.host != pool.host) {
                true => format!(" of host {}", pool.host),
                false => String::new(),
            };
            let rank = match (pool.rank, pool.pid) {
                (Some(rank), _) => format!(", rank {rank}"),
                (None, Some(pid)) if others.iter().any(|other| other.pid != Some(pid)) => {
                    format!(", process {pid}")
                }
                _ => String::new(),
            };
            let place = if pool.device.is_empty() || pool.device == pool.name {
                String::new()
            } else {
                format!(" on {}", pool.device)
            };
            Some(format!("{}{place}{host}{rank} {peak}", pool.name))
        })
        .collect();
    if known.is_empty() {
        return Vec::new();
    }
    let more = known.len().saturating_sub(OTHER_POOLS);
    let mut text = known.iter().take(OTHER_POOLS).cloned().collect::<Vec<_>>().join("; ");
    if more > 0 {
        let _ = write!(text, "; {more} more");
    }
    titled("Others", &text, 3, style)
}

/// What to run next.
fn next(report: &Report, style: Style) -> Vec<String> {
    let path = again(report.source.files.first());
    let first = match report.verdict.word {
        ReportWord::OutOfMemory => format!("vramline oom {path} (cause and fixes)"),
        _ => format!("vramline report {path} --html FILE (page)"),
    };
    let line = format!("{first} or --full (everything)");
    titled("Next", &line, 2, style)
}

/// Everything that a report says.
pub(crate) fn full(report: &Report, by: GroupBy, style: Style) -> String {
    let mut out = String::new();
    for file in report.source.files.iter().take(FILES) {
        let _ = writeln!(out, "{}{}{}", style.dim, printable(file), style.plain);
    }
    let left_out = report.source.files.len().saturating_sub(FILES);
    if left_out > 0 {
        let _ = writeln!(out, "{}and {}{}", style.dim, counted(left_out, "more file"), style.plain);
    }
    run::job(&mut out, report, style);
    verdict(&mut out, report, style);
    if let Some(all) = &report.ranks {
        ranks::ranks(&mut out, all, style);
    }
    findings(&mut out, report, style);
    let Some(main) = report.pools.first() else {
        run::happenings(&mut out, report, style);
        notes(&mut out, report, style);
        return out;
    };
    ledger::ledger(&mut out, report, style);
    pool::pools(&mut out, report, style);
    report.pools.iter().for_each(|pool| pool::cached(&mut out, pool, style));
    for pool in report.pools.iter().filter(|pool| is_worth_showing(pool, main)) {
        if let Some(held) = &pool.at_peak {
            let when = match pool.moment {
                HeldMoment::Peak => "at the peak",
                HeldMoment::Dump => "at the moment of the dump",
                HeldMoment::Failure => "at the failed allocation",
                HeldMoment::Program => "in the compiled program",
            };
            held::held_at(&mut out, pool, held, when, by, style);
        }
        if let Some(held) = &pool.at {
            held::held_at(&mut out, pool, held, "at the time of --at", by, style);
        }
    }
    held::held_long(&mut out, main, style);
    patterns::patterns(&mut out, main, style);
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
    notes(&mut out, report, style);
    out
}

/// The answer alone, a sentence a line.
pub(crate) fn verdict_lines(report: &Report) -> Vec<String> {
    std::iter::once(&report.headline).chain(&report.explanation).map(|sentence| printable(sentence)).collect()
}

/// Small pools beside a large one are named in the table only.
fn is_worth_showing(pool: &PoolView, main: &PoolView) -> bool {
    pool.peak_bytes.map(|bytes| bytes.0.saturating_mul(20)) >= main.peak_bytes.map(|bytes| bytes.0)
}

/// The answer in bold, the parts of the peak, and what explains it.
fn verdict(out: &mut String, report: &Report, style: Style) {
    let _ = writeln!(out, "\n{}{}{}", style.bold, printable(&report.headline), style.plain);
    let parts = bars(&parts(report), style);
    if !parts.is_empty() {
        let _ = writeln!(out, "\n{}\n", parts.join("\n"));
    }
    for sentence in &report.explanation {
        let _ = writeln!(out, "{}", printable(sentence));
    }
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
