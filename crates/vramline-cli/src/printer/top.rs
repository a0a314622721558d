//! Draws one look at the machine as text: devices, then processes, then what could not be told.

use std::fmt::Write;

use vramline::units::{Bytes, Nanos};
use vramline::view::fields::{TOP, title_in};
use vramline::view::top::{Top, TopDevice, TopProcess};

use super::{Column, Style, capitalised, heading, notes_of, or_dash, printable, signed, table};

pub(crate) fn top(document: &Top, style: Style) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}{}{}", style.bold, summary(document), style.plain);
    heading(&mut out, "Devices", style);
    devices(&mut out, document, style);
    if !document.jobs.is_empty() {
        heading(&mut out, "Recorded jobs", style);
        let rows = document.jobs.iter().map(|job| {
            vec![job.state.to_owned(), job.processes.to_string(), job.path.clone(), job.command.clone()]
        });
        let column = |field: &str| title_in(TOP, &format!("jobs[].{field}"));
        let columns: [Column; 4] = [
            (column("state"), false),
            (column("processes"), true),
            (column("path"), false),
            (column("command"), false),
        ];
        table(&mut out, &columns, &rows.collect::<Vec<_>>(), style);
    }
    if !document.processes.is_empty() {
        heading(&mut out, "Processes", style);
        processes(&mut out, document, style);
    }
    notes_of(&mut out, &document.warnings, style);
    out
}

/// The machine in a line.
pub(crate) fn summary(document: &Top) -> String {
    let gpus = document.devices.iter().filter(|device| !device.is_stand_in).count();
    let running = document.jobs.iter().filter(|job| job.state == "running").count();
    let many = |count: usize, one: &str, more: &str| match count {
        0 => format!("no {one}"),
        1 => format!("1 {one}"),
        _ => format!("{count} {more}"),
    };
    let mut pids: Vec<u32> = document.processes.iter().map(|process| process.pid).collect();
    pids.sort_unstable();
    pids.dedup();
    format!(
        "{}: {}, {}, {}",
        printable(&document.host),
        many(gpus, "GPU", "GPUs"),
        many(pids.len(), "process", "processes"),
        many(running, "recorded job runs", "recorded jobs run")
    )
}

fn devices(out: &mut String, document: &Top, style: Style) {
    let present = |part: &str| {
        document.devices.iter().any(|device| device.parts.iter().any(|known| known.part == part))
    };
    let shown: Vec<&'static str> =
        vramline::view::top::PARTS.into_iter().filter(|part| present(part)).collect();
    let mut columns: Vec<Column> = vec![
        (title_in(TOP, "devices[].name"), false),
        (title_in(TOP, "devices[].model"), false),
        (title_in(TOP, "devices[].total_bytes"), true),
    ];
    columns.extend(shown.iter().map(|part| (*part, true)));
    let row = |device: &TopDevice| {
        let model = device.model.as_deref().unwrap_or(if device.is_stand_in { "host memory" } else { "?" });
        let total = match (device.total_bytes, device.error) {
            (Some(total), _) => total.to_string(),
            (None, Some(error)) => error.to_owned(),
            (None, None) => "?".to_owned(),
        };
        let mut row = vec![device.name.clone(), model.to_owned(), total];
        let bytes =
            |part: &&str| device.parts.iter().find(|known| known.part == *part).map(|known| known.bytes);
        row.extend(shown.iter().map(|part| or_dash(bytes(part).map(signed))));
        row
    };
    table(out, &columns, &document.devices.iter().map(row).collect::<Vec<_>>(), style);
}

fn processes(out: &mut String, document: &Top, style: Style) {
    let column = |field: &str, right: bool| (title_in(TOP, &format!("processes[].{field}")), right);
    let columns: [Column; 12] = [
        column("pid", true),
        column("device", false),
        column("held_bytes", true),
        column("pool_bytes", true),
        column("in_use_bytes", true),
        column("cached_bytes", true),
        column("step", true),
        column("step_peak_bytes", true),
        column("peak_bytes", true),
        column("headroom_bytes", true),
        column("phase", false),
        column("command", false),
    ];
    let mut all: Vec<&TopProcess> = document.processes.iter().collect();
    all.sort_by_key(|process| (std::cmp::Reverse(process.held_bytes), process.pid));
    let row = |process: &&TopProcess| {
        vec![
            process.pid.to_string(),
            if process.device.is_empty() { "-".to_owned() } else { process.device.clone() },
            or_dash(process.held_bytes),
            or_dash(process.pool_bytes),
            or_dash(process.in_use_bytes),
            or_dash(process.cached_bytes),
            or_dash(process.step),
            or_dash(process.step_peak_bytes),
            or_dash(process.peak_bytes),
            or_dash(process.headroom_bytes),
            process.phase.unwrap_or("-").to_owned(),
            command(process),
        ]
    };
    table(out, &columns, &all.iter().map(row).collect::<Vec<_>>(), style);
    for process in all.iter().filter(|process| process.exception.is_some()) {
        let text = process.exception.as_deref().unwrap_or_default();
        let _ = writeln!(out, "  process {} ended with {}", process.pid, capitalised(&printable(text)));
    }
}

/// What a process runs, the folder of its program left out.
pub(crate) fn command(process: &TopProcess) -> String {
    let (program, rest) = process.command.split_once(' ').unwrap_or((&process.command, ""));
    let name = program.rsplit('/').next().unwrap_or(program);
    printable(format!("{name} {rest}").trim_end())
}

/// `1:02:03`, `2:03`
pub(crate) fn elapsed(nanos: Nanos) -> String {
    let seconds = nanos.0.max(0) / 1_000_000_000;
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    if hours > 0 { format!("{hours}:{minutes:02}:{seconds:02}") } else { format!("{minutes}:{seconds:02}") }
}

/// Bytes or a dash.
pub(crate) fn bytes(bytes: Option<Bytes>) -> String {
    or_dash(bytes)
}
