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
    let mut devices: Vec<&str> = report.ledger.iter().map(|line| line.device.as_str()).collect();
    devices.dedup();
    for device in devices {
        let lines: Vec<_> = report.ledger.iter().filter(|line| line.device == device).collect();
        let Some(first) = lines.first() else { continue };
        heading(out, &format!("The ledger of {}", title(first)), style);
        if first.bytes.is_none() {
            let _ = writeln!(out, "  {}", printable(&first.reason));
        }
        let is_worth = |line: &&&LedgerView| {
            line.bytes != Some(0) && (line.bytes.is_some() || line.reason != first.reason)
        };
        let row = |line: &&LedgerView| {
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

/// The device, the moment, and how far from it the figures of the driver or of the kernel are.
fn title(first: &LedgerView) -> String {
    let is_host = first.source == Teller::Host;
    let host = if is_host { " (host memory)" } else { "" };
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
    format!("{}{host} at {}{moment}{distance}", first.device, clock(first.at_ns))
}
