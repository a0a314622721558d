//! Draws a packing as text: the verdict, what adds up, each job with its limit, and how to start it.

use std::fmt::Write;

use vramline::units::Bytes;
use vramline::view::fields::{PACK, title_in};
use vramline::view::pack::{JobView, PackView};

use super::{Style, capitalised, heading, notes_of, printable, table};

pub(crate) fn pack(document: &PackView, style: Style) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}{}{}", style.bold, printable(&document.verdict), style.plain);
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
    let title = |id| title_in(PACK, id);
    let columns = [
        (title("jobs[].name"), false),
        (title("jobs[].minimum_bytes"), true),
        (title("jobs[].basis"), false),
        (title("jobs[].limit_bytes"), true),
        (title("jobs[].outside_counted_bytes"), true),
        (title("jobs[].total_bytes"), true),
    ];
    let row = |job: &JobView| {
        let assumed = if job.outside_bytes.is_none() { " assumed" } else { "" };
        vec![
            printable(&job.name),
            job.minimum_bytes.to_string(),
            job.basis.replace('-', " "),
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
    let jobs: Bytes = document.jobs.iter().map(|job| job.total_bytes).sum();
    let line = |out: &mut String, text: &str, bytes: String| {
        let _ = writeln!(out, "  {bytes:>10}  {text}");
    };
    line(out, title_in(PACK, "device.total_bytes"), document.device.total_bytes.to_string());
    for (id, bytes) in [
        ("device.reserved_bytes", document.device.reserved_bytes),
        ("device.taken_bytes", document.device.taken_bytes),
    ] {
        if bytes > Bytes::ZERO {
            line(out, title_in(PACK, id), bytes.to_string());
        }
    }
    line(out, "the jobs", jobs.to_string());
    let left = Bytes(document.left_bytes.unsigned_abs());
    let text = if document.left_bytes < 0 { "too little" } else { "left" };
    line(out, text, left.to_string());
}
