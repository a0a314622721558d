//! Draws a packing as text: whether the jobs fit, the limit of each, what adds up, and how to start them.

use std::fmt::Write;

use vramline::units::{Bytes, capitalised};
use vramline::view::pack::{PackDeviceView, PackJobView, PackView};

use super::screen::{COLUMNS, Section, bold, cut, fitting_table, notes, screen, titled, wrapped};
use super::{Column, Style, heading, notes_of, printable, table};

/// Notes and jobs of a first screen.
const SCREEN_NOTES: usize = 3;
const SCREEN_JOBS: usize = 6;

pub(crate) fn pack(document: &PackView, is_full: bool, style: Style) -> String {
    if is_full { full(document, style) } else { first_screen(document, style) }
}

fn first_screen(document: &PackView, style: Style) -> String {
    let (columns, rows) = jobs_table(document);
    let mut table_of_device = String::new();
    device(&mut table_of_device, document, style);
    let of_device: Vec<String> = table_of_device.lines().skip(1).map(|line| cut(line, COLUMNS)).collect();
    let launch =
        document.jobs.iter().take(SCREEN_JOBS).filter_map(|job| Some((&job.name, job.launch.first()?)));
    let command = |(name, line): (&String, &String)| {
        wrapped(&format!("  {}: {}", printable(name), printable(line)), 6, 4)
    };
    let mut commands: Vec<String> = launch.flat_map(command).collect();
    commands.insert(0, format!("{}Start them{}", style.bold, style.plain));
    let next = "--full (every way to start them, advice), --json";
    screen(vec![
        Section::whole(bold(&document.headline, style)),
        Section::trimmed(fitting_table(&columns, &rows, &[0], style), 4, 2),
        Section::trimmed(of_device, 3, 3),
        Section::trimmed(commands, 3, 1),
        Section::trimmed(notes(&document.warnings, SCREEN_NOTES, style), 2, 4),
        Section::whole(titled("Next", next, 1, style)),
    ])
}

fn full(document: &PackView, style: Style) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}{}{}", style.bold, printable(&document.headline), style.plain);
    jobs(&mut out, document, style);
    device(&mut out, document, style);
    heading(&mut out, "Start them", style);
    let width = document.jobs.iter().map(|job| job.name.chars().count()).max().unwrap_or(0);
    for job in &document.jobs {
        for (at, line) in job.launch.iter().enumerate() {
            let before = if at == 0 { printable(&job.name) } else { "  or".to_owned() };
            let _ = writeln!(out, "  {before:<width$}  {}", printable(line));
        }
    }
    for text in &document.advice {
        let _ = writeln!(out, "  - {text}");
    }
    notes_of(&mut out, &document.warnings, style);
    out
}

fn jobs(out: &mut String, document: &PackView, style: Style) {
    heading(out, "Jobs", style);
    let (columns, rows) = jobs_table(document);
    table(out, &columns, &rows, style);
}

/// Each job with what it needs and gets.
fn jobs_table(document: &PackView) -> (Vec<Column>, Vec<Vec<String>>) {
    let titles = PackJobView::TITLES;
    let columns = vec![
        (titles.name, false),
        (titles.minimum_bytes, true),
        (titles.basis, false),
        (titles.limit_bytes, true),
        (if document.device.is_host { "outside the pool" } else { titles.outside_counted_bytes }, true),
        (titles.total_bytes, true),
    ];
    let row = |job: &PackJobView| {
        let assumed = if job.outside_bytes.is_none() { " assumed" } else { "" };
        vec![
            printable(&job.name),
            job.minimum_bytes.to_string(),
            job.basis.word().replace('-', " "),
            job.limit_bytes.to_string(),
            format!("{}{assumed}", job.outside_counted_bytes),
            job.total_bytes.to_string(),
        ]
    };
    (columns, document.jobs.iter().map(row).collect())
}

fn device(out: &mut String, document: &PackView, style: Style) {
    heading(out, &capitalised(&document.device.name), style);
    let titles = PackDeviceView::TITLES;
    let jobs: Bytes = document.jobs.iter().map(|job| job.total_bytes).sum();
    let line = |out: &mut String, text: &str, bytes: String| {
        let _ = writeln!(out, "  {bytes:>10}  {text}");
    };
    line(out, titles.total_bytes, document.device.total_bytes.to_string());
    for (title, bytes) in [
        (titles.reserved_bytes, document.device.reserved_bytes),
        (titles.taken_bytes, document.device.taken_bytes),
    ] {
        if bytes > Bytes::ZERO {
            line(out, title, bytes.to_string());
        }
    }
    line(out, "the jobs", jobs.to_string());
    let left = Bytes(document.left_bytes.unsigned_abs());
    let text = if document.left_bytes < 0 { "missing" } else { "left" };
    line(out, text, left.to_string());
}
