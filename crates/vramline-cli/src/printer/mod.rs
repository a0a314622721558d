//! Draws documents as text: verdict first, one screen, readable without colour. Here is what every printer needs: headings,
//! tables, and figures for people.

pub(crate) mod diff;
pub(crate) mod doctor;
mod held;
mod ledger;
pub(crate) mod oom;
pub(crate) mod pack;
mod patterns;
pub(crate) mod plan;
mod pool;
pub(crate) mod replay;
pub(crate) mod report;
mod run;
pub(crate) mod top;
pub(crate) mod verify;

use std::fmt::Write;

use vramline::units::{Bytes, Nanos};
use vramline::warning::Warning;

use crate::variables::NO_COLOR;

/// Whether headings stand out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    pub(crate) bold: &'static str,
    pub(crate) dim: &'static str,
    pub(crate) plain: &'static str,
}

impl Style {
    /// Bold and dim on a terminal, unless the user asked for none.
    pub(crate) fn of_terminal(is_terminal: bool) -> Style {
        if is_terminal && std::env::var_os(NO_COLOR).is_none_or(|value| value.is_empty()) {
            Style { bold: "\x1b[1m", dim: "\x1b[2m", plain: "\x1b[0m" }
        } else {
            Style { bold: "", dim: "", plain: "" }
        }
    }
}

/// A column of a table: its title, and whether it is flush right.
pub(crate) type Column = (&'static str, bool);

fn notes_of(out: &mut String, warnings: &[Warning], style: Style) {
    if warnings.is_empty() {
        return;
    }
    heading(out, "Notes", style);
    for warning in warnings {
        let _ = writeln!(out, "  - {}", printable(&warning.text));
        if !warning.hint.is_empty() {
            let _ = writeln!(out, "    {}hint:{} {}", style.dim, style.plain, printable(&warning.hint));
        }
    }
}

pub(crate) fn heading(out: &mut String, text: &str, style: Style) {
    let _ = writeln!(out, "\n{}{}{}", style.bold, printable(text), style.plain);
}

pub(crate) fn table(out: &mut String, columns: &[(&str, bool)], rows: &[Vec<String>], style: Style) {
    let width = |i: usize, title: &str| {
        let cells = rows.iter().filter_map(|row| row.get(i)).map(|cell| cell.chars().count());
        cells.chain([title.chars().count()]).max().unwrap_or(0)
    };
    let widths: Vec<usize> = columns.iter().enumerate().map(|(i, (title, _))| width(i, title)).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut line = String::from(" ");
        for ((cell, width), (_, right)) in cells.zip(&widths).zip(columns) {
            let _ = if *right { write!(line, " {cell:>width$} ") } else { write!(line, " {cell:<width$} ") };
        }
        line.trim_end().to_owned()
    };
    let titles = line(&mut columns.iter().map(|(title, _)| *title));
    let _ = writeln!(out, "{}{titles}{}", style.dim, style.plain);
    for row in rows {
        let cells: Vec<String> = row.iter().map(|cell| printable(cell)).collect();
        let _ = writeln!(out, "{}", line(&mut cells.iter().map(String::as_str)));
    }
}

/// Names come from files: what would steer a terminal is shown as a sign that it was there.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
}

pub(crate) fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

/// The name without the call that wraps every name of a graph, and cut in the middle where it is long.
pub(crate) fn shorten(op: &str) -> String {
    const MAX_SIGNS: usize = 46;
    let op = op.strip_prefix("StatefulPartitionedCall/").unwrap_or(op);
    let count = op.chars().count();
    if count <= MAX_SIGNS {
        return op.to_owned();
    }
    let head: String = op.chars().take(MAX_SIGNS / 2 - 1).collect();
    let tail: String = op.chars().skip(count - MAX_SIGNS / 2).collect();
    format!("{head}…{tail}")
}

pub(crate) fn percent(part: Bytes, whole: Bytes) -> String {
    part.percent_of(whole)
}

fn or_dash<T: std::fmt::Display>(value: Option<T>) -> String {
    value.map_or("-".to_owned(), |value| value.to_string())
}

fn signed(bytes: i64) -> String {
    let sign = if bytes < 0 { "-" } else { "" };
    format!("{sign}{}", Bytes(bytes.unsigned_abs()))
}

/// A moment with enough digits to be given back as `--at`.
pub(crate) fn clock(time: Nanos) -> String {
    #[expect(clippy::cast_precision_loss, reason = "microseconds of a trace's clock")]
    let seconds = time.0 as f64 / 1e9;
    format!("{seconds:.6}s")
}
