//! Draws a packing as text: the verdict, what adds up, each job with its limit, and how to start it.

use std::fmt::Write;

use vramline::units::Bytes;
use vramline::view::pack::{PackDeviceView, PackJobView, PackView};

use super::{Style, capitalised, heading, notes_of, printable, table};

pub(crate) fn pack(document: &PackView, style: Style) -> String {
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
    let titles = PackJobView::TITLES;
    let columns = [
        (titles.name, false),
        (titles.minimum_bytes, true),
        (titles.basis, false),
        (titles.limit_bytes, true),
        (if document.device.is_host { "the program's own" } else { titles.outside_counted_bytes }, true),
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
    let rows: Vec<Vec<String>> = document.jobs.iter().map(row).collect();
    table(out, &columns, &rows, style);
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
    let text = if document.left_bytes < 0 { "too little" } else { "left" };
    line(out, text, left.to_string());
}
