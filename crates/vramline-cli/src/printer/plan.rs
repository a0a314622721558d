//! Draws a plan as text: the verdict, then what the batch takes, and how sure that is.

use std::fmt::Write;

use vramline::units::Bytes;
use vramline::view::plan::{CompiledView, FixView, PartView, PlanView, PredictionView, ProbeView};

use super::{Style, heading, notes_of, or_dash, percent, printable, table};

/// The width of the bars of a curve.
const BAR: u64 = 40;

pub(crate) fn plan(document: &PlanView, curve: bool, style: Style) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}{}{}", style.bold, printable(&document.headline), style.plain);
    largest(&mut out, document);
    for prediction in &document.predictions {
        batch(&mut out, document, prediction, style);
    }
    fixes(&mut out, document, style);
    if curve {
        draw(&mut out, document, style);
    }
    probes(&mut out, document, style);
    compiled(&mut out, document, style);
    heading(&mut out, "Not in these figures", style);
    for text in &document.not_modelled {
        let _ = writeln!(out, "  - {text}");
    }
    notes_of(&mut out, &document.warnings, style);
    out
}

fn largest(out: &mut String, document: &PlanView) {
    let Some(limit) = document.limit_bytes.filter(|_| !document.probes.is_empty()) else { return };
    let name = printable(&document.variable);
    let (sure, likely) = (document.largest_batch.sure, document.largest_batch.likely);
    let _ = match (sure, likely) {
        (Some(sure), Some(likely)) if likely > sure => writeln!(
            out,
            "Largest {name} within {limit}: {sure} for sure; up to {likely} more often than not."
        ),
        (Some(sure), _) => writeln!(out, "Largest {name} within {limit}: {sure}."),
        (None, Some(likely)) => {
            writeln!(out, "Largest {name} within {limit}: perhaps {likely}; none is sure.")
        }
        (None, None) => writeln!(out, "No {name} fits {limit}."),
    };
}

fn batch(out: &mut String, document: &PlanView, prediction: &PredictionView, style: Style) {
    heading(out, &format!("{} {}", printable(&document.variable), prediction.batch), style);
    let titles = PredictionView::TITLES;
    let line = |out: &mut String, title: &str, value: String| {
        let _ = writeln!(out, "  {title:<28} {value}");
    };
    let range = format!("{}  ({} to {})", prediction.peak_bytes, prediction.low_bytes, prediction.high_bytes);
    line(out, titles.peak_bytes, range);
    let pool = if prediction.pool_low_bytes == prediction.pool_high_bytes {
        prediction.pool_bytes.to_string()
    } else {
        format!(
            "{}  ({} to {})",
            prediction.pool_bytes, prediction.pool_low_bytes, prediction.pool_high_bytes
        )
    };
    line(out, titles.pool_bytes, pool);
    if let (Some(process), Some(outside)) = (prediction.process_bytes, document.outside_bytes) {
        line(
            out,
            titles.process_bytes,
            format!("{process}  (as nvidia-smi counts: {outside} are beside the pool)"),
        );
    }
    line(out, titles.minimum_bytes, or_dash(prediction.minimum_bytes));
    line(out, titles.exact_share, format!("{:.1} %", prediction.exact_share * 100.0));
    let mut rows: Vec<Vec<String>> = Vec::new();
    let mut roles: Vec<(&str, Bytes)> =
        prediction.by_role.iter().map(|(role, bytes)| (role.word(), *bytes)).collect();
    roles.sort_by_key(|(role, bytes)| (std::cmp::Reverse(*bytes), *role));
    let slack = ("slack", prediction.slack_bytes);
    let all: Bytes = roles.iter().map(|(_, bytes)| *bytes).sum::<Bytes>() + prediction.slack_bytes;
    let is_there = |(_, bytes): &(&str, Bytes)| *bytes > Bytes::ZERO;
    for (role, bytes) in roles.into_iter().chain([slack]).filter(is_there) {
        rows.push(vec![bytes.to_string(), percent(bytes, all), role.to_owned()]);
    }
    out.push('\n');
    table(out, &[("bytes", true), ("share", true), ("role", false)], &rows, style);
    if prediction.parts.len() > 1 {
        out.push('\n');
        let part = |part: &PartView| {
            let sizes = [part.low_bytes, part.median_bytes, part.high_bytes].map(|bytes| bytes.to_string());
            [vec![part.part.word().replace('-', " ")], sizes.to_vec()].concat()
        };
        let rows: Vec<Vec<String>> = prediction.parts.iter().map(part).collect();
        let columns = [
            (PartView::TITLES.part, false),
            (PartView::TITLES.low_bytes, true),
            (PartView::TITLES.median_bytes, true),
            (PartView::TITLES.high_bytes, true),
        ];
        table(out, &columns, &rows, style);
    }
}

fn fixes(out: &mut String, document: &PlanView, style: Style) {
    let Some(first) = document.fixes.first() else { return };
    heading(
        out,
        &format!("What would need less at {} {}", printable(&document.variable), first.batch),
        style,
    );
    let titles = FixView::TITLES;
    let columns = [
        (titles.saves_bytes, true),
        (titles.peak_bytes, true),
        (titles.pool_bytes, true),
        (titles.time_ratio, true),
        (titles.name, false),
        (titles.snippet, false),
    ];
    let row = |fix: &FixView| {
        let time = fix.time_ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}x"));
        vec![
            fix.saving_in_words(),
            or_dash(fix.peak_bytes),
            or_dash(fix.pool_bytes),
            time,
            fix.name.clone(),
            fix.snippet.clone(),
        ]
    };
    let rows: Vec<Vec<String>> = document.fixes.iter().map(row).collect();
    table(out, &columns, &rows, style);
    let _ = writeln!(out, "  {}{}{}", style.dim, document.no_help, style.plain);
    let _ = writeln!(
        out,
        "  {}To measure one: vramline verify --fix NAME --batch N -- CMD {{batch}}{}",
        style.dim, style.plain
    );
}

fn draw(out: &mut String, document: &PlanView, style: Style) {
    heading(out, &format!("Memory against {}", printable(&document.variable)), style);
    let most = document.curve.iter().map(|point| point.high_bytes).chain(document.limit_bytes).max();
    let most = most.unwrap_or_default().0.max(1);
    let cells = |bytes: Bytes| usize::try_from(bytes.0.saturating_mul(BAR) / most).unwrap_or(0);
    let limit = document.limit_bytes.map(cells);
    for point in &document.curve {
        let mut bar: Vec<char> = vec![' '; usize::try_from(BAR).unwrap_or(0) + 1];
        for (at, cell) in bar.iter_mut().enumerate() {
            if at < cells(point.peak_bytes) {
                *cell = '#';
            } else if at < cells(point.high_bytes) {
                *cell = '+';
            }
            if limit == Some(at) {
                *cell = '|';
            }
        }
        let bar: String = bar.into_iter().collect();
        let _ = writeln!(out, "  {:>8}  {bar} {}", point.batch, point.peak_bytes);
    }
    let told = if limit.is_some() { "; | the limit" } else { "" };
    let _ = writeln!(out, "  {}# the peak; + where some runs go{told}{}", style.dim, style.plain);
}

fn probes(out: &mut String, document: &PlanView, style: Style) {
    if document.probes.is_empty() {
        return;
    }
    heading(out, "Probes", style);
    let titles = ProbeView::TITLES;
    let columns = [
        (titles.batch, true),
        (titles.peak_bytes, true),
        (titles.steps, true),
        (titles.exact, false),
        (titles.file, false),
    ];
    let row = |probe: &ProbeView| {
        vec![
            probe.batch.to_string(),
            probe.peak_bytes.to_string(),
            probe.steps.to_string(),
            if probe.exact { "yes" } else { "no" }.to_owned(),
            printable(&probe.file),
        ]
    };
    let rows: Vec<Vec<String>> = document.probes.iter().map(row).collect();
    table(out, &columns, &rows, style);
}

fn compiled(out: &mut String, document: &PlanView, style: Style) {
    if document.compiled.is_empty() {
        return;
    }
    heading(out, "Compiled by XLA", style);
    let titles = CompiledView::TITLES;
    let columns = [
        (titles.batch, true),
        (titles.peak_bytes, true),
        (titles.argument_bytes, true),
        (titles.result_bytes, true),
        (titles.temporary_bytes, true),
        (titles.program, false),
    ];
    let row = |one: &CompiledView| {
        let sizes = [one.peak_bytes, one.argument_bytes, one.result_bytes, one.temporary_bytes];
        let sizes = sizes.map(|bytes| bytes.to_string()).to_vec();
        [vec![one.batch.to_string()], sizes, vec![printable(&one.program)]].concat()
    };
    let rows: Vec<Vec<String>> = document.compiled.iter().map(row).collect();
    table(out, &columns, &rows, style);
}
