//! Draws a comparison as text: the verdict, then one table with a column for each run.

use std::fmt::Write;

use vramline::analysis::diff::{DiffBy, Figure, Gate, largest_change};
use vramline::units::{Bytes, change_text};
use vramline::view::diff::{Diff, DiffRow};

use super::screen::{COLUMNS, Section, bold, cut, fitting_table, notes, screen, titled, wrapped};
use super::{Style, heading, notes_of, or_dash, printable, ranks, shorten, table};

/// Notes of a first screen.
const SCREEN_NOTES: usize = 2;

/// The answer on one screen.
pub(crate) fn first_screen(document: &Diff, by: Option<DiffBy>, top: usize, style: Style) -> String {
    let side = |(letter, side): (String, &vramline::view::diff::SideView)| {
        let files: Vec<String> = side.files.iter().take(1).map(|file| printable(file)).collect();
        let more = side.files.len().saturating_sub(1);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        format!(
            "{}{}{}",
            style.dim,
            cut(&format!("{letter}: {}{more}", files.join(", ")), COLUMNS),
            style.plain
        )
    };
    let sides: Vec<String> = letters(document).into_iter().zip(&document.sides).map(side).collect();
    let gate: Vec<String> = gate_lines(document).lines().flat_map(|line| wrapped(line, 4, 2)).collect();
    let table = Compared::of(document, by, top);
    let last = table.columns.len().saturating_sub(1);
    let columns: Vec<(&str, bool)> =
        table.columns.iter().map(|(title, right)| (title.as_str(), *right)).collect();
    let lines = fitting_table(&columns, &table.rows, &[last], style);
    let next = "--by layer (or role, op, step), --full (everything), --html FILE (page)";
    screen(vec![
        Section::trimmed(sides, 2, 5),
        Section::whole(bold(&document.headline, style)),
        Section::trimmed(gate, 2, 1).attached(),
        Section::trimmed(ranks::compared_in_short(document, &letters(document), style), 0, 2),
        Section::trimmed(lines, 4, 3),
        Section::trimmed(notes(&document.warnings, SCREEN_NOTES, style), 0, 4),
        Section::whole(titled("Next", next, 1, style)),
    ])
}

/// Everything that a comparison says.
pub(crate) fn full(document: &Diff, by: Option<DiffBy>, top: usize, style: Style) -> String {
    let mut out = String::new();
    for (letter, side) in letters(document).into_iter().zip(&document.sides) {
        let files: Vec<String> = side.files.iter().map(|file| printable(file)).collect();
        let _ = writeln!(out, "{}{letter}: {}{}", style.dim, files.join(", "), style.plain);
    }
    let _ = writeln!(out, "\n{}{}{}", style.bold, printable(&document.headline), style.plain);
    out.push_str(&gate_lines(document));
    let of_ranks = ranks::compared(document, &letters(document), None, style);
    if !of_ranks.is_empty() {
        heading(&mut out, "Peaks of ranks", style);
        let _ = writeln!(out, "{}", of_ranks.join("\n"));
    }
    rows(&mut out, document, by, top, style);
    notes_of(&mut out, &document.warnings, style);
    out
}

/// Names of files are too long for columns.
pub(super) fn letters(document: &Diff) -> Vec<String> {
    let letter = |number: usize| match u8::try_from(number) {
        Ok(number @ 0..26) => char::from(b'A' + number).to_string(),
        _ => format!("run {}", number + 1),
    };
    (0..document.runs.len()).map(letter).collect()
}

/// A line of what the gate says.
pub(super) enum GateLine {
    /// A sentence of its own.
    Sentence(String),
    /// What introduces items.
    Introduction(String),
    /// One of them.
    Item(String),
}

/// What a page begins with: the gate, where there is one, then the difference.
pub(crate) fn verdict_lines(document: &Diff) -> Vec<String> {
    let line = |line: GateLine| match line {
        GateLine::Sentence(text) | GateLine::Item(text) => text,
        GateLine::Introduction(text) => format!("{text}."),
    };
    gate(document).into_iter().map(line).chain([printable(&document.headline)]).collect()
}

/// What the gate says, and why; nothing where there is none.
pub(crate) fn gate_lines(document: &Diff) -> String {
    let line = |line: GateLine| match line {
        GateLine::Sentence(text) => format!("{text}\n"),
        GateLine::Introduction(text) => format!("{text}:\n"),
        GateLine::Item(text) => format!("  - {text}\n"),
    };
    gate(document).into_iter().map(line).collect()
}

pub(super) fn gate(document: &Diff) -> Vec<GateLine> {
    let Some(threshold) = &document.fail_over else { return Vec::new() };
    let is_noisy = !document.tolerated.is_empty();
    let mut lines = vec![match document.gate {
        Gate::Pass if is_noisy => GateLine::Introduction(format!(
            "The gate passes: a peak grew by more than {threshold}, but repeats of one run differ by as much"
        )),
        Gate::Pass => GateLine::Sentence(format!("The gate passes: no peak grew by more than {threshold}.")),
        Gate::Fail => GateLine::Introduction("The gate fails".to_owned()),
        Gate::Unknown | Gate::None => {
            GateLine::Sentence("The gate cannot decide: no peak is known in both runs.".to_owned())
        }
    }];
    lines.extend(document.alarms.iter().map(|alarm| GateLine::Item(printable(&alarm.text))));
    if is_noisy && document.gate != Gate::Pass {
        lines.push(GateLine::Introduction(format!(
            "More than {threshold}, but within the noise of repeated runs"
        )));
    }
    lines.extend(document.tolerated.iter().map(|noise| GateLine::Item(printable(&noise.text))));
    lines
}

/// Groupings that are shown where none is asked for; a layer is the sum of its ops.
const SHOWN: [DiffBy; 4] = [DiffBy::Device, DiffBy::Role, DiffBy::Op, DiffBy::Step];

/// The table of a comparison.
pub(super) struct Compared {
    /// Titles, and whether a column has numbers.
    pub(super) columns: Vec<(String, bool)>,
    pub(super) rows: Vec<Vec<String>>,
    /// The grouping of each row.
    pub(super) groups: Vec<DiffBy>,
    /// How many rows of each grouping differ, where not all are shown.
    pub(super) left_out: Vec<String>,
}

impl Compared {
    pub(super) fn of(document: &Diff, by: Option<DiffBy>, top: usize) -> Compared {
        let titles = DiffRow::TITLES;
        let runs = letters(document);
        let mut columns: Vec<(String, bool)> = vec![(titles.by.to_owned(), false)];
        let several_runs = document.runs.len() > 2;
        columns.extend(runs.iter().map(|run| (run.clone(), true)));
        columns.push((titles.delta_bytes.to_owned(), true));
        let has_spread = document.rows.iter().any(|row| row.spread_bytes.is_some());
        if has_spread {
            columns.push((titles.spread_bytes.to_owned(), true));
        }
        columns.push((titles.what.to_owned(), false));
        let (mut lines, mut groups) = (Vec::new(), Vec::new());
        let mut left_out = Vec::new();
        let shown = |one: &DiffBy| by.is_none_or(|by| by == *one || *one == DiffBy::Device);
        let shown_groups = if by == Some(DiffBy::Layer) {
            [DiffBy::Device, DiffBy::Role, DiffBy::Layer, DiffBy::Step]
        } else {
            SHOWN
        };
        for group in shown_groups.iter().filter(|group| shown(group)) {
            let mut of_group: Vec<&DiffRow> = document.rows.iter().filter(|row| row.by == *group).collect();
            let is_held = !matches!(group, DiffBy::Device | DiffBy::Role);
            // What only one run has, or nobody holds, is in the JSON.
            let is_compared = |row: &DiffRow| {
                let known = row.bytes.iter().flatten();
                known.clone().count() > 1 && known.into_iter().any(|bytes| bytes.0 > 0)
            };
            of_group.retain(|row| *group == DiffBy::Device || is_compared(row));
            if is_held {
                of_group.sort_by_key(|row| std::cmp::Reverse(change(row)));
                let all = of_group.len();
                let changed = of_group.iter().filter(|row| change(row) > Bytes::ZERO).count();
                let asked = if by.is_some() { top } else { top.min(changed.max(3)) };
                of_group.truncate(asked);
                if all > of_group.len() {
                    let word = if *group == DiffBy::Op {
                        "ops"
                    } else if *group == DiffBy::Step {
                        "steps"
                    } else {
                        "layers"
                    };
                    left_out.push(format!("{changed} of {all} {word} differ"));
                }
            }
            for row in of_group {
                let mut line = vec![row.by.word().to_owned()];
                line.extend(row.bytes.iter().map(|&bytes| or_dash(bytes)));
                line.push(changes(row, several_runs));
                if has_spread {
                    line.push(or_dash(row.spread_bytes));
                }
                let has_two_peaks = |row: &DiffRow| {
                    let is_other = |other: &DiffRow| other.figure == Figure::Ever && other.pool == row.pool;
                    row.by == DiffBy::Device
                        && row.figure == Figure::Peak
                        && document.rows.iter().any(is_other)
                };
                line.push(match row.by {
                    DiffBy::Op => shorten(&row.what),
                    _ if has_two_peaks(row) => format!("{}, peak of the trace", row.pool),
                    _ => row.what.clone(),
                });
                lines.push(line);
                groups.push(row.by);
            }
        }
        Compared { columns, rows: lines, groups, left_out }
    }
}

fn rows(out: &mut String, document: &Diff, by: Option<DiffBy>, top: usize, style: Style) {
    let compared = Compared::of(document, by, top);
    let columns: Vec<(&str, bool)> =
        compared.columns.iter().map(|(title, right)| (title.as_str(), *right)).collect();
    heading(out, "Memory of each run, and the difference", style);
    table(out, &columns, &compared.rows, style);
    if !compared.left_out.is_empty() {
        let _ = writeln!(
            out,
            "  {}; the table shows the largest changes (--by, --top, --json)",
            compared.left_out.join(", ")
        );
    }
}

fn change(row: &DiffRow) -> Bytes {
    largest_change(row.deltas_bytes.iter().copied())
}

/// Of two runs the change with its share; of several one change for each.
fn changes(row: &DiffRow, several_runs: bool) -> String {
    let text = |delta: Option<i64>| delta.map_or("-".to_owned(), change_text);
    if several_runs {
        return row.deltas_bytes.iter().skip(1).map(|&delta| text(delta)).collect::<Vec<_>>().join(" / ");
    }
    let share = row.bytes.first().copied().flatten().zip(row.delta_bytes).and_then(|(base, delta)| {
        let share = Bytes(delta.unsigned_abs()).share_of(base)?;
        // Beyond that a share says no more than the bytes.
        (share < 10.0).then(|| format!(" ({}{:.1} %)", if delta < 0 { "-" } else { "+" }, share * 100.0))
    });
    let noise = if row.within_spread && change(row) > Bytes::ZERO { " ~" } else { "" };
    let share = share.filter(|_| row.delta_bytes != Some(0)).unwrap_or_default();
    format!("{}{share}{noise}", text(row.delta_bytes))
}
