//! Draws a report as text: the verdict, then who held what, then the findings.

use std::fmt::Write;

use vramline::analysis::held::{GroupBy, HeldMoment};
use vramline::view::report::{PoolView, Report};

use super::{Style, heading, held, ledger, notes_of, patterns, pool, printable, run};

/// Files that are named at the top.
const FILES: usize = 4;

pub(crate) fn report(report: &Report, by: GroupBy, style: Style) -> String {
    let mut out = String::new();
    for file in report.source.files.iter().take(FILES) {
        let _ = writeln!(out, "{}{}{}", style.dim, printable(file), style.plain);
    }
    let left_out = report.source.files.len().saturating_sub(FILES);
    if left_out > 0 {
        let _ = writeln!(out, "{}and {left_out} more files{}", style.dim, style.plain);
    }
    run::job(&mut out, report, style);
    verdict(&mut out, report, style);
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
                HeldMoment::Peak => "At the peak",
                HeldMoment::Dump => "At the moment of the dump",
                HeldMoment::Program => "What the compiled program asks for",
            };
            held::held_at(&mut out, pool, held, when, by, style);
        }
        if let Some(held) = &pool.at {
            held::held_at(&mut out, pool, held, "At that moment", by, style);
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
    findings(&mut out, report, style);
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

/// The answer in bold, and what goes on from there.
fn verdict(out: &mut String, report: &Report, style: Style) {
    let _ = writeln!(out, "\n{}{}{}", style.bold, printable(&report.headline), style.plain);
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
