//! Draws what can be measured on this machine: devices first, then one line for each thing; reasons and switches with `--full`.

use std::fmt::Write;

use vramline::source::driver::Identity;
use vramline::units::{Bytes, Span};
use vramline::view::doctor::{DeviceView, Doctor, Measure};

use super::screen::{COLUMNS, Section, bold, cut, fitting_table, notes, screen, titled, wrapped};
use super::{Column, Style, heading, notes_of, printable, table};

/// Notes of a first screen.
const SCREEN_NOTES: usize = 2;

pub(crate) fn doctor(document: &Doctor, is_full: bool, style: Style) -> String {
    if is_full { full(document, style) } else { first_screen(document, style) }
}

fn first_screen(document: &Doctor, style: Style) -> String {
    let mut about = String::new();
    machine(&mut about, document);
    let about: Vec<String> = about.lines().map(|line| cut(line, COLUMNS)).collect();
    let (columns, rows) = devices_table(document);
    let of_devices = if rows.is_empty() { Vec::new() } else { fitting_table(&columns, &rows, &[1], style) };
    let mut measures = Vec::new();
    for measure in &document.measures {
        measures.push(cut(&format!("  {}  {}: {}", answer(measure), measure.subject, measure.what), COLUMNS));
        // What would help is worth more than why it is missing.
        let help = measure.switch.as_ref().filter(|_| measure.can == Some(false));
        measures.extend(help.iter().flat_map(|switch| wrapped(&format!("       to enable: {switch}"), 9, 2)));
    }
    screen(vec![
        Section::whole(bold(&document.headline, style)),
        Section::trimmed(about, 2, 4),
        Section::trimmed(of_devices, 2, 3),
        Section::trimmed(measures, 3, 2),
        Section::trimmed(notes(&document.warnings, SCREEN_NOTES, style), 0, 5),
        Section::whole(titled(
            "Next",
            "vramline doctor --full (reasons), --deep (asks the frameworks)",
            1,
            style,
        )),
    ])
}

fn full(document: &Doctor, style: Style) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}{}{}", style.bold, document.headline, style.plain);
    machine(&mut out, document);
    devices(&mut out, document, style);
    let mut subjects: Vec<&str> = document.measures.iter().map(|measure| measure.subject.as_str()).collect();
    subjects.dedup();
    for subject in subjects {
        heading(&mut out, subject, style);
        for measure in document.measures.iter().filter(|measure| measure.subject == subject) {
            line(&mut out, measure, style);
        }
    }
    notes_of(&mut out, &document.warnings, style);
    out
}

fn machine(out: &mut String, document: &Doctor) {
    let driver = &document.driver;
    let or_none = |text: &Option<String>| text.as_deref().map_or("unknown".to_owned(), printable);
    let row = |out: &mut String, title: &str, text: &str| {
        let _ = writeln!(out, "  {title:<12}{text}");
    };
    match driver.error {
        Some(code) => row(out, "driver", &format!("none ({code})")),
        None => {
            let cuda = driver
                .cuda_version
                .as_deref()
                .map_or(String::new(), |cuda| format!(", CUDA up to {}", printable(cuda)));
            row(out, "driver", &format!("{}{cuda}", or_none(&driver.version)));
        }
    }
    let span = |nanos: Option<u64>| nanos.map(|nanos| Span(nanos.saturating_mul(1000)).to_string());
    if let (Some(start), Some(memory), Some(list)) =
        (span(driver.start_ns), span(driver.memory_call_ns), span(driver.process_list_call_ns))
    {
        row(
            out,
            "call times",
            &format!("{start} to load, {memory} for a device's memory, {list} for the list of processes"),
        );
    }
    if let (Some(total), Some(available)) = (document.host.total_bytes, document.host.available_bytes) {
        let limit = document.host.container_limit_bytes;
        let limit = limit.map_or(String::new(), |limit| format!("; this container is limited to {limit}"));
        row(out, "memory", &format!("{total}, {available} available{limit}"));
    }
    let counted = match document.host.is_outermost {
        Some(true) => "visible: this is not a container".to_owned(),
        Some(false) => {
            format!("in a container; this process is {}", numbers(&document.host.pids))
        }
        None => "unknown: the kernel does not name the namespace".to_owned(),
    };
    row(out, "processes", &counted);
    let python = &document.python;
    match &python.error {
        Some(error) => row(out, "Python", &printable(error)),
        None => {
            row(out, "Python", &format!("{} ({})", or_none(&python.version), or_none(&python.executable)));
        }
    }
}

fn numbers(pids: &[u32]) -> String {
    pids.iter().map(u32::to_string).collect::<Vec<_>>().join(" / ")
}

fn devices(out: &mut String, document: &Doctor, style: Style) {
    let (columns, rows) = devices_table(document);
    if rows.is_empty() {
        return;
    }
    heading(out, "Devices", style);
    table(out, &columns, &rows, style);
    identities(out, document, style);
}

/// Each device with its memory.
fn devices_table(document: &Doctor) -> (Vec<Column>, Vec<Vec<String>>) {
    let titles = DeviceView::TITLES;
    let columns = vec![
        (titles.index, true),
        (titles.name, false),
        (titles.capability, true),
        (titles.visible_as, false),
        (titles.total_bytes, true),
        (titles.reserved_bytes, true),
        (titles.used_bytes, true),
        (titles.free_bytes, true),
        (titles.processes, true),
    ];
    let bytes = |bytes: Option<Bytes>| bytes.map_or("?".to_owned(), |bytes| bytes.to_string());
    let text = |text: &Option<String>, none: &str| text.as_deref().map_or(none.to_owned(), printable);
    let row = |device: &DeviceView| {
        vec![
            device.index.to_string(),
            text(&device.name, "?"),
            text(&device.capability, "?"),
            text(&device.visible_as, "-"),
            bytes(device.total_bytes),
            bytes(device.reserved_bytes),
            bytes(device.used_bytes),
            bytes(device.free_bytes),
            device.processes.map_or("?".to_owned(), |count| count.to_string()),
        ]
    };
    (columns, document.devices.iter().map(row).collect())
}

/// Which sum of the driver's figures holds.
fn identities(out: &mut String, document: &Doctor, style: Style) {
    let mut identities: Vec<Identity> =
        document.devices.iter().filter_map(|device| device.identity).collect();
    identities.dedup();
    for identity in identities {
        let sum = match identity {
            Identity::UsedExcludesReserved => "total = reserved + free + used",
            Identity::UsedIncludesReserved => "total = free + used; reserved is part of used",
            Identity::Neither => "total is neither reserved + free + used nor free + used",
        };
        let _ = writeln!(out, "  {}checked: {sum}{}", style.dim, style.plain);
    }
}

fn answer(measure: &Measure) -> &'static str {
    match measure.can {
        Some(true) => "yes",
        Some(false) => "no ",
        None => "?  ",
    }
}

fn line(out: &mut String, measure: &Measure, style: Style) {
    let _ = writeln!(out, "  {}  {}", answer(measure), measure.what);
    if let Some(why) = &measure.why {
        let _ = writeln!(out, "       {}{}{}", style.dim, printable(why), style.plain);
    }
    if let Some(switch) = &measure.switch {
        let _ = writeln!(out, "       to enable: {}", printable(switch));
    }
}
