//! Draws what a pool held as text: at one moment, and its long-lived blocks.

use std::fmt::Write;

use vramline::analysis::held::GroupBy;
use vramline::units::{Bytes, Span, counted, thousands};
use vramline::view::report::{HeldView, LongView, PoolView, Row};

use super::{Column, Style, clock, heading, percent, printable, shorten, table};

/// Rows of the table of long-lived blocks.
const LONG_ROWS: usize = 5;

pub(super) fn held_at(
    out: &mut String,
    pool: &PoolView,
    held: &HeldView,
    when: &str,
    by: GroupBy,
    style: Style,
) {
    heading(
        out,
        &match held.time_ns {
            Some(time) => format!("{} {when} ({}): {} in use", pool.name, clock(time), held.in_use_bytes),
            None => format!("{} {when}: {} in use", pool.name, held.in_use_bytes),
        },
        style,
    );
    let known = match held.time_ns {
        Some(_) => "requested; only size and time are known",
        None => "requested; only the size is known",
    };
    let lines = [
        ("named", held.named_bytes, "requested; the op, call stack or variable is known"),
        ("without a name", held.unnamed_bytes, known),
        ("rounding", held.slack_bytes, "handed out beyond the requests"),
        ("before the recording", held.before_recording_bytes, "allocated before the trace began"),
    ];
    for (name, bytes, meaning) in lines.iter().filter(|(_, bytes, _)| *bytes > Bytes::ZERO) {
        let share = percent(*bytes, held.in_use_bytes);
        let _ = writeln!(
            out,
            "  {:>9}  {share:>6}  {name:<21} {}{meaning}{}",
            bytes.to_string(),
            style.dim,
            style.plain
        );
    }
    if held.rows.is_empty() {
        return;
    }
    out.push('\n');
    if by == GroupBy::Stack {
        stacks(out, held, style);
    } else {
        let (columns, rows) = held_rows(held, by);
        table(out, &columns, &rows, style);
    }
    if let Some(rest) = &held.rest {
        let _ = writeln!(
            out,
            "  {:>9}  in {} (--top {})",
            rest.bytes.to_string(),
            counted(rest.rows, "more row"),
            rest.rows + held.rows.len()
        );
    }
}

fn held_rows(held: &HeldView, by: GroupBy) -> (Vec<Column>, Vec<Vec<String>>) {
    let titles = Row::TITLES;
    let mut columns: Vec<Column> =
        vec![(titles.bytes, true), ("share", true), (titles.count, true), (titles.age_ns, true)];
    match by {
        GroupBy::Op => columns.extend([
            (titles.role, false),
            (titles.op, false),
            (titles.shape, false),
            (titles.op_time_ns, true),
        ]),
        GroupBy::Layer | GroupBy::RepeatedLayer => columns.push((titles.layer, false)),
        GroupBy::Role => columns.push((titles.role, false)),
        GroupBy::Stack => {}
    }
    let row = |row: &Row| {
        let mut cells = vec![
            row.bytes.to_string(),
            percent(row.bytes, held.in_use_bytes),
            thousands(row.count),
            row.age_ns.map_or("-".to_owned(), |ns| Span(ns.saturating_mul(1000)).to_string()),
        ];
        match by {
            GroupBy::Op => cells.extend([
                row.role.to_owned(),
                shown_op(row),
                format!("{} {}", row.shape, row.dtype).trim().to_owned(),
                row.op_time_ns.map_or(String::new(), |ns| Span(ns.saturating_mul(1000)).to_string()),
            ]),
            GroupBy::Layer | GroupBy::RepeatedLayer => {
                cells.push(if row.layer.is_empty() { "(no layer)".to_owned() } else { row.layer.clone() });
            }
            GroupBy::Role => cells.push(row.role.to_owned()),
            GroupBy::Stack => {}
        }
        cells
    };
    (columns, held.rows.iter().map(row).collect())
}

/// Whole stacks take a line for each frame.
fn stacks(out: &mut String, held: &HeldView, style: Style) {
    for row in &held.rows {
        let _ = writeln!(
            out,
            "  {:>9}  {:>6}  {} in {}{}",
            row.bytes.to_string(),
            percent(row.bytes, held.in_use_bytes),
            if row.role.is_empty() { "several roles" } else { row.role },
            counted(row.count, "block"),
            if row.stack.is_empty() { ", no call stack was recorded" } else { "" }
        );
        for frame in &row.stack {
            let _ = writeln!(out, "{}{:22}{}{}", style.dim, "", printable(frame), style.plain);
        }
    }
}

fn shown_op(row: &Row) -> String {
    if !row.variable.is_empty() {
        return shorten(&row.variable);
    }
    match (row.op.as_str(), row.source.as_str()) {
        ("", "") => "(no name)".to_owned(),
        ("", source) => format!("(no name, in {source})"),
        (op, _) => shorten(op),
    }
}

pub(super) fn held_long(out: &mut String, pool: &PoolView, style: Style) {
    let shown: Vec<&LongView> = pool.held_long.iter().take(LONG_ROWS).collect();
    if shown.is_empty() {
        return;
    }
    heading(out, "Large and long-lived", style);
    let titles = LongView::TITLES;
    let columns = [
        (titles.bytes, true),
        (titles.held_ns, true),
        (titles.freed_ns, true),
        (titles.role, false),
        (titles.op, false),
        (titles.shape, false),
    ];
    let rows = shown
        .into_iter()
        .map(|long| {
            vec![
                long.bytes.to_string(),
                Span(long.held_ns.saturating_mul(1000)).to_string(),
                long.freed_ns.map_or("never".to_owned(), clock),
                long.role.to_owned(),
                if long.op.is_empty() { "(no name)".to_owned() } else { shorten(&long.op) },
                format!("{} {}", long.shape, long.dtype).trim().to_owned(),
            ]
        })
        .collect::<Vec<_>>();
    table(out, &columns, &rows, style);
}
