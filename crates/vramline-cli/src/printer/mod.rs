//! Draws documents as text: the answer on one screen, everything with `--full`, readable without colour. Here is what every printer
//! needs: styles, headings, tables, and figures for people.

pub(crate) mod diff;
pub(crate) mod diff_markdown;
pub(crate) mod doctor;
mod held;
mod ledger;
pub(crate) mod oom;
pub(crate) mod pack;
mod patterns;
pub(crate) mod plan;
mod pool;
mod ranks;
pub(crate) mod replay;
pub(crate) mod report;
mod run;
mod screen;
pub(crate) mod snapshot;
pub(crate) mod top;
pub(crate) mod verify;

use std::fmt::Write;
use std::sync::OnceLock;

use vramline::units::{Bytes, Nanos};
use vramline::warning::Warning;

use crate::variables::NO_COLOR;

/// When output is coloured: the value of `--color`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum ColorChoice {
    /// On a terminal, unless NO_COLOR is set
    #[default]
    Auto,
    /// Always, also into a pipe or file
    Always,
    /// Never
    Never,
}

/// The choice of this process: one command has one.
static COLOR: OnceLock<ColorChoice> = OnceLock::new();

/// Settles when output is coloured, before anything is printed.
pub(crate) fn choose_color(choice: ColorChoice) {
    let _ = COLOR.set(choice);
}

/// How output stands out: nothing does outside of a terminal.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Style {
    pub(crate) bold: &'static str,
    pub(crate) dim: &'static str,
    /// Of bars.
    pub(crate) accent: &'static str,
    /// Of findings and failures.
    pub(crate) alert: &'static str,
    pub(crate) plain: &'static str,
    /// Whether bars are drawn.
    pub(crate) has_bars: bool,
}

impl Style {
    /// Colours and bars on a terminal, unless the user chose otherwise. NO_COLOR takes the colours, not the bars.
    pub(crate) fn of_terminal(is_terminal: bool) -> Style {
        let choice = COLOR.get().copied().unwrap_or_default();
        let is_refused = std::env::var_os(NO_COLOR).is_some_and(|value| !value.is_empty());
        let has_color = match choice {
            ColorChoice::Always => true,
            ColorChoice::Never => false,
            ColorChoice::Auto => is_terminal && !is_refused,
        };
        let has_bars = is_terminal || choice == ColorChoice::Always;
        if has_color {
            Style {
                bold: "\x1b[1m",
                dim: "\x1b[2m",
                accent: "\x1b[36m",
                alert: "\x1b[1;33m",
                plain: "\x1b[0m",
                has_bars,
            }
        } else {
            Style { has_bars, ..Style::default() }
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
    for line in table_lines(columns, rows, style) {
        let _ = writeln!(out, "{line}");
    }
}

/// A table: its titles, then a line for each row.
fn table_lines(columns: &[(&str, bool)], rows: &[Vec<String>], style: Style) -> Vec<String> {
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
    let mut lines = vec![format!("{}{titles}{}", style.dim, style.plain)];
    for row in rows {
        let cells: Vec<String> = row.iter().map(|cell| printable(cell)).collect();
        lines.push(line(&mut cells.iter().map(String::as_str)));
    }
    lines
}

/// Names come from files: what would steer a terminal is shown as a sign that it was there.
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c }).collect()
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

pub(crate) fn signed(bytes: i64) -> String {
    let sign = if bytes < 0 { "-" } else { "" };
    format!("{sign}{}", Bytes(bytes.unsigned_abs()))
}

/// A moment with enough digits to be given back as `--at`.
pub(crate) fn clock(time: Nanos) -> String {
    #[expect(clippy::cast_precision_loss, reason = "microseconds of a trace's clock")]
    let seconds = time.0 as f64 / 1e9;
    format!("{seconds:.6}s")
}
