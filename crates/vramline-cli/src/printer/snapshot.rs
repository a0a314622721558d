//! Draws what the processes of a job did when they were asked for a snapshot.

use std::fmt::Write;

use vramline::analysis::asked::AskedState;
use vramline::units::Bytes;
use vramline::view::snapshot::{AskedView, SnapshotReport};

use super::screen::{again, fitting_table, titled};
use super::{Style, printable};

/// Processes that are listed.
const LISTED: usize = 24;

pub(crate) fn snapshot(report: &SnapshotReport, style: Style) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}{}{}", style.bold, printable(&report.headline), style.plain);
    let rows: Vec<Vec<String>> = report.processes.iter().take(LISTED).flat_map(rows).collect();
    let columns = [
        ("process", false),
        ("rank", true),
        ("device", false),
        ("in use", true),
        ("peak", true),
        ("answer", false),
    ];
    let _ = writeln!(out, "\n{}", fitting_table(&columns, &rows, &[5], style).join("\n"));
    if report.processes.len() > LISTED {
        let _ = writeln!(out, "  {} more with --json", report.processes.len() - LISTED);
    }
    if report.answered > 0 {
        let path = again(Some(&report.path));
        let next = titled("Next", &format!("vramline report {path}"), 2, style);
        let _ = writeln!(out, "\n{}", next.join("\n"));
    }
    out
}

fn rows(process: &AskedView) -> Vec<Vec<String>> {
    let size = |bytes: Option<Bytes>| bytes.map_or("-".to_owned(), |bytes| bytes.to_string());
    let rank = process.rank.map_or("-".to_owned(), |rank| rank.to_string());
    let name = format!("{} {}", printable(&process.host), process.pid);
    let bare = (String::from("-"), None, None);
    let mut devices: Vec<(String, Option<Bytes>, Option<Bytes>)> = process
        .devices
        .iter()
        .map(|read| (printable(&read.device), read.current_bytes, read.peak_bytes))
        .collect();
    if devices.is_empty() {
        devices.push(bare);
    }
    let row = |(number, (device, current, peak)): (usize, (String, Option<Bytes>, Option<Bytes>))| {
        let answer = if number == 0 { answer(process) } else { String::new() };
        vec![name.clone(), rank.clone(), device, size(current), size(peak), answer]
    };
    devices.into_iter().enumerate().map(row).collect()
}

fn answer(process: &AskedView) -> String {
    let number = process.window.map_or(String::new(), |number| format!(" {number}"));
    let why = process.reason.as_deref().map_or(String::new(), |why| format!(": {}", printable(why)));
    match process.state {
        AskedState::Taken => format!("snapshot{number} taken"),
        AskedState::Opened => format!("trace{number} of the next steps opened{why}"),
        AskedState::Counters => format!("counters only{why}"),
        AskedState::Failed => format!("failed{why}"),
        AskedState::NoAnswer => "no answer".to_owned(),
        AskedState::Ended => "has ended".to_owned(),
    }
}
