//! Prints the state of the machine as text: devices, recorded jobs, processes, warnings.

use std::fmt::Write;

use vramline::analysis::ranks::groups::ranks_text;
use vramline::analysis::top::{BarPart, HostState};
use vramline::event::Phase;
use vramline::units::{Bytes, Nanos, capitalised};
use vramline::view::top::{Top, TopDevice, TopHost, TopJob, TopProcess};

use super::{Column, Style, heading, notes_of, or_dash, printable, signed, table};

pub(crate) fn top(document: &Top, style: Style) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}{}{}", style.bold, summary(document), style.plain);
    heading(&mut out, "Devices", style);
    devices(&mut out, document, style);
    if !document.jobs.is_empty() {
        heading(&mut out, "Recorded jobs", style);
        let rows = document.jobs.iter().map(|job| {
            vec![
                job.state.word().to_owned(),
                job.processes.to_string(),
                job.path.clone(),
                job.command.clone(),
            ]
        });
        let titles = TopJob::TITLES;
        let columns: [Column; 4] =
            [(titles.state, false), (titles.processes, true), (titles.path, false), (titles.command, false)];
        table(&mut out, &columns, &rows.collect::<Vec<_>>(), style);
    }
    if !document.processes.is_empty() {
        heading(&mut out, "Processes", style);
        processes(&mut out, document, style);
    }
    notes_of(&mut out, &document.warnings, style);
    out
}

/// The hosts of the recorded jobs.
pub(crate) fn hosts(document: &Top, style: Style) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}{}{}", style.bold, summary(document), style.plain);
    heading(&mut out, "Hosts", style);
    if document.hosts.is_empty() {
        out.push_str("  No recorded job. Give the recording, or the folder that contains it.\n");
    } else {
        let titles = TopHost::TITLES;
        let columns: [Column; 9] = [
            (titles.job_name, false),
            (titles.host, false),
            ("ranks", true),
            ("step", true),
            (titles.in_use_bytes, true),
            (titles.peak_bytes, true),
            (titles.headroom_bytes, true),
            (titles.age_ns, true),
            (titles.state, false),
        ];
        let row = |host: &TopHost| {
            vec![
                job_of(host, document),
                host_name(host),
                ranks(host),
                steps(host),
                or_dash(host.in_use_bytes),
                of_rank(host.peak_bytes, host.peak_rank),
                of_rank(host.headroom_bytes, host.headroom_rank),
                age(host),
                state(host),
            ]
        };
        table(&mut out, &columns, &document.hosts.iter().map(row).collect::<Vec<_>>(), style);
    }
    notes_of(&mut out, &document.warnings, style);
    out
}

/// The job of a host: its name, else its recording.
pub(crate) fn job_of(host: &TopHost, document: &Top) -> String {
    let recording = || {
        let path = document.jobs.get(host.job).map_or("", |job| job.path.as_str());
        path.rsplit('/').next().unwrap_or(path).to_owned()
    };
    printable(&host.job_name.clone().unwrap_or_else(recording))
}

/// The name of a host.
pub(crate) fn host_name(host: &TopHost) -> String {
    host.host.as_deref().map_or("-".to_owned(), printable)
}

/// `8 of 512`; of ranks that were not seen, their numbers.
pub(crate) fn ranks(host: &TopHost) -> String {
    let count = host.ranks.len();
    match host.world_size {
        Some(size) => format!("{count} of {size}"),
        None if count == 0 => "-".to_owned(),
        None => count.to_string(),
    }
}

/// The last step of the ranks of a host: `17`, or `17-19` if they differ.
pub(crate) fn steps(host: &TopHost) -> String {
    match (host.lowest_step, host.highest_step) {
        (Some(lowest), Some(highest)) if lowest != highest => format!("{lowest}-{highest}"),
        (lowest, _) => or_dash(lowest),
    }
}

/// A figure, and the rank that has it.
pub(crate) fn of_rank(bytes: Option<Bytes>, rank: Option<u64>) -> String {
    match (bytes, rank) {
        (Some(bytes), Some(rank)) => format!("{bytes} rank {rank}"),
        (bytes, _) => or_dash(bytes),
    }
}

/// The age of the newest data of a host.
pub(crate) fn age(host: &TopHost) -> String {
    host.age_ns.map_or("-".to_owned(), elapsed)
}

/// What a host does, in words.
pub(crate) fn state(host: &TopHost) -> String {
    match (host.state, host.exit_code, host.exit_signal, host.age_ns) {
        (HostState::Unseen, ..) => format!("not seen: {}", ranks_text(&host.ranks)),
        (HostState::Silent, _, _, Some(age)) => format!("no news for {}", elapsed(age)),
        (HostState::Ended, _, Some(signal), _) => format!("ended (signal {signal})"),
        (HostState::Ended, Some(code), ..) if code != 0 => format!("ended (code {code})"),
        (state, ..) => state.word().to_owned(),
    }
}

/// The summary of the machine in one line.
pub(crate) fn summary(document: &Top) -> String {
    printable(&document.headline)
}

fn devices(out: &mut String, document: &Top, style: Style) {
    let present = |part: BarPart| {
        document.devices.iter().any(|device| device.parts.iter().any(|known| known.part == part))
    };
    let shown: Vec<BarPart> = BarPart::ALL.into_iter().filter(|part| present(*part)).collect();
    let mut columns: Vec<Column> = vec![
        (TopDevice::TITLES.name, false),
        (TopDevice::TITLES.model, false),
        (TopDevice::TITLES.total_bytes, true),
    ];
    columns.extend(shown.iter().map(|part| (part_title(*part), true)));
    let row = |device: &TopDevice| {
        let model =
            device.model.as_deref().unwrap_or(if device.is_stand_in { "host memory" } else { "unknown" });
        let total = match (device.total_bytes, device.error) {
            (Some(total), _) => total.to_string(),
            (None, Some(error)) => error.to_owned(),
            (None, None) => "unknown".to_owned(),
        };
        let mut row = vec![device.name.clone(), model.to_owned(), total];
        let bytes =
            |part: &BarPart| device.parts.iter().find(|known| known.part == *part).map(|known| known.bytes);
        row.extend(shown.iter().map(|part| or_dash(bytes(part).map(signed))));
        row
    };
    table(out, &columns, &document.devices.iter().map(row).collect::<Vec<_>>(), style);
}

/// The title of a part of a device's memory.
pub(crate) fn part_title(part: BarPart) -> &'static str {
    match part {
        BarPart::DriverReserved => "driver reserved",
        BarPart::InUse => "in use",
        BarPart::CachedFree => "cached",
        BarPart::ContextAndOutside => "context and libraries",
        BarPart::ContextCachedAndOutside => "cached, context and libraries",
        BarPart::ProgramsOwn => "other memory of jobs",
        BarPart::CachedAndProgramsOwn => "cached and other memory of jobs",
        BarPart::NotResident => "reserved, not resident",
        BarPart::OtherProcesses => "other processes",
        BarPart::Unattributed => "unattributed",
        BarPart::Free => "free",
    }
}

fn processes(out: &mut String, document: &Top, style: Style) {
    let titles = TopProcess::TITLES;
    let columns: [Column; 12] = [
        (titles.pid, true),
        (titles.device, false),
        ("memory", true),
        ("reserved", true),
        (titles.in_use_bytes, true),
        (titles.cached_bytes, true),
        (titles.step, true),
        (titles.step_peak_bytes, true),
        (titles.peak_bytes, true),
        (titles.headroom_bytes, true),
        (titles.phase, false),
        (titles.command, false),
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
            process.phase.map_or("-", Phase::word).to_owned(),
            command(process),
        ]
    };
    table(out, &columns, &all.iter().map(row).collect::<Vec<_>>(), style);
    for process in all.iter().filter(|process| process.exception.is_some()) {
        let text = process.exception.as_deref().unwrap_or_default();
        let _ = writeln!(out, "  process {} ended with {}", process.pid, capitalised(&printable(text)));
    }
}

/// The command of a process, without the folder of its program.
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

/// Bytes, or a dash if unknown.
pub(crate) fn bytes(bytes: Option<Bytes>) -> String {
    or_dash(bytes)
}
