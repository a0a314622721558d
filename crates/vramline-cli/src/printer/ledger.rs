//! Draws the ledger of a report as text.

use std::fmt::Write;

use vramline::ledger::Teller;
use vramline::ledger::moments::LedgerMoment;
use vramline::units::Span;
use vramline::view::ledger::LedgerView;
use vramline::view::report::Report;

use super::{Style, clock, heading, printable, signed, table};

/// Who holds which byte. Lines of zero bytes are left out, and lines that are unknown for the same reason as the whole device.
pub(super) fn ledger(out: &mut String, report: &Report, style: Style) {
    let has_hosts =
        report.ledger.iter().any(|line| Some(&line.host) != report.ledger.first().map(|one| &one.host));
    // Devices of several hosts have the same names: a ledger begins with the line that is part of no other.
    for lines in report.ledger.chunk_by(|_, next| next.part_of.is_some()) {
        let Some(first) = lines.first() else { continue };
        heading(out, &format!("The ledger of {}", title(first, has_hosts)), style);
        if first.bytes.is_none() {
            let _ = writeln!(out, "  {}", printable(&first.reason));
        }
        let is_worth = |line: &&LedgerView| {
            line.bytes != Some(0) && (line.bytes.is_some() || line.reason != first.reason)
        };
        let row = |line: &LedgerView| {
            let name = format!("{}{}", "  ".repeat(line.depth), line.line.title());
            vec![
                line.bytes.map_or("-".to_owned(), signed),
                name,
                if line.bytes.is_none() { line.reason.clone() } else { line.detail.clone() },
                line.source.word().to_owned(),
            ]
        };
        let rows: Vec<Vec<String>> = lines.iter().filter(is_worth).map(row).collect();
        table(out, &[("bytes", true), ("line", false), ("", false), ("source", false)], &rows, style);
    }
}

/// The device with its host if there are several, the moment, and how far from it the figures of the driver or of the kernel are.
fn title(first: &LedgerView, has_hosts: bool) -> String {
    let is_host = first.source == Teller::Host;
    let memory = if is_host { " (host memory)" } else { "" };
    let host = first.host.as_deref().filter(|_| has_hosts);
    let host = host.map_or(String::new(), |host| format!(" on {}", printable(host)));
    let moment = match first.moment {
        LedgerMoment::Peak => ", the peak",
        LedgerMoment::TracedPeak => ", the peak of the traced steps",
        LedgerMoment::HighestReading => ", the highest reading",
        LedgerMoment::LastReading => ", the last reading",
        LedgerMoment::ProcessPeak => ", the peak of the process",
        LedgerMoment::End => ", the end",
        LedgerMoment::Asked => "",
    };
    let source = if is_host { "the kernel" } else { "the driver" };
    let distance = match first.told_at_ns.map(|told| told.0.saturating_sub(first.at_ns.0)) {
        None | Some(0) => String::new(),
        Some(off) => {
            let way = if off < 0 { "earlier" } else { "later" };
            format!("; the figures of {source} are {} {way}", Span(off.unsigned_abs().saturating_mul(1000)))
        }
    };
    format!("{}{memory}{host} at {}{moment}{distance}", first.device, clock(first.at_ns))
}
