//! Draws a plan as text: does it fit, the largest batch size that does, and what would need less; everything with `--full`.

use std::fmt::Write;

use vramline::analysis::plan::variable_title;
use vramline::snapshot::Role;
use vramline::units::{Bytes, counted};
use vramline::view::plan::{CompiledView, FixView, PartView, PlanView, PredictionView, ProbeView};

use super::screen::{Section, bars, bold, fitting_table, notes, screen, titled, wrapped};
use super::{Style, heading, notes_of, or_dash, percent, printable, table};

/// The width of the bars of a curve.
const BAR: u64 = 40;

/// Predictions, fixes and notes of a first screen.
const SCREEN_BATCHES: usize = 6;
const SCREEN_FIXES: usize = 5;
const SCREEN_NOTES: usize = 3;

/// The share of the peak that a fix on the first screen saves at least.
const MIN_SAVING: f64 = 0.01;

/// The answer on one screen.
pub(crate) fn first_screen(document: &PlanView, style: Style) -> String {
    let parts = match document.predictions.as_slice() {
        // Without names, every byte has the role unknown.
        [only] if only.by_role.iter().any(|(role, bytes)| *role != Role::Unknown && *bytes > Bytes::ZERO) => {
            bars(&roles(only), style)
        }
        _ => Vec::new(),
    };
    let next = "--full (everything, with the code of each fix), --curve (chart), --json";
    screen(vec![
        Section::whole(bold(&document.headline, style)),
        Section::whole(
            document.largest_batch.text.as_ref().map(|text| wrapped(text, 0, 2)).unwrap_or_default(),
        )
        .attached(),
        Section::whole(confirmation(document).map(|text| wrapped(text, 0, 2)).unwrap_or_default()).attached(),
        Section::trimmed(predicted(document, style), 3, 1),
        Section::whole(next_probe(document).map(|text| wrapped(text, 0, 2)).unwrap_or_default()),
        Section::trimmed(parts, 0, 4),
        Section::trimmed(fixes_in_short(document, style), 4, 2),
        Section::trimmed(notes(&document.warnings, SCREEN_NOTES, style), 2, 3),
        Section::whole(
            [titled("Based on", &based_on(document), 2, style), titled("Next", next, 1, style)].concat(),
        ),
    ])
}

/// What each batch size takes.
fn predicted(document: &PlanView, style: Style) -> Vec<String> {
    let fits = |fits: Option<bool>| match fits {
        Some(true) => "yes",
        Some(false) => "no",
        None => "-",
    };
    let row = |prediction: &PredictionView| {
        vec![
            prediction.batch.to_string(),
            prediction.peak_bytes.to_string(),
            range(prediction.low_bytes, prediction.high_bytes),
            prediction.pool_bytes.to_string(),
            or_dash(prediction.minimum_bytes),
            or_dash(prediction.process_bytes),
            fits(prediction.fits).to_owned(),
        ]
    };
    let rows: Vec<Vec<String>> = document.predictions.iter().take(SCREEN_BATCHES).map(row).collect();
    let variable = variable(document);
    let columns = [
        (variable.as_str(), true),
        ("peak", true),
        ("range", false),
        ("reserved", true),
        ("needs at least", true),
        ("in nvidia-smi", true),
        ("fits", false),
    ];
    // Columns without any figure are left out.
    let is_known = |at: usize| rows.iter().any(|row| row.get(at).is_some_and(|cell| cell != "-"));
    let kept: Vec<usize> = (0..columns.len()).filter(|&at| is_known(at)).collect();
    let columns: Vec<(&str, bool)> = kept.iter().filter_map(|&at| columns.get(at).copied()).collect();
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| kept.iter().filter_map(|&at| row.get(at).cloned()).collect()).collect();
    if rows.is_empty() { Vec::new() } else { fitting_table(&columns, &rows, &[], style) }
}

/// Both ends of a range, or one size where they read alike.
fn range(low: Bytes, high: Bytes) -> String {
    let (low, high) = (low.to_string(), high.to_string());
    if low == high { low } else { format!("{low} to {high}") }
}

/// The parts of a prediction, the most bytes first.
fn roles(prediction: &PredictionView) -> Vec<(String, Bytes)> {
    let roles = prediction.by_role.iter().map(|(role, bytes)| (role.word().to_owned(), *bytes));
    let mut parts: Vec<(String, Bytes)> = roles
        .chain([("rounding".to_owned(), prediction.slack_bytes)])
        .filter(|(_, bytes)| *bytes > Bytes::ZERO)
        .collect();
    parts.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    parts
}

fn fixes_in_short(document: &PlanView, style: Style) -> Vec<String> {
    let Some(first) = document.fixes.first() else { return Vec::new() };
    let row = |fix: &FixView| {
        let time = fix.time_ratio.map_or("-".to_owned(), |ratio| format!("{ratio:.2}x"));
        vec![fix.saving_in_words(), or_dash(fix.peak_bytes), time, fix.name.clone()]
    };
    let is_worth_it = |fix: &&FixView| {
        let share =
            fix.saves_bytes.zip(fix.peak_bytes).and_then(|(saves, peak)| saves.share_of(peak + saves));
        share.is_none_or(|share| share >= MIN_SAVING)
    };
    let worth: Vec<&FixView> = document.fixes.iter().filter(is_worth_it).collect();
    // A fix without a prediction is worth a line only if there is no other.
    let predicted: Vec<&FixView> = worth.iter().copied().filter(|fix| fix.saves_bytes.is_some()).collect();
    let chosen = if predicted.is_empty() { worth } else { predicted };
    let Some(best) = chosen.first() else { return Vec::new() };
    let rows: Vec<Vec<String>> = chosen.iter().take(SCREEN_FIXES).map(|fix| row(fix)).collect();
    let columns = [("saves", true), ("peak", true), ("time", true), ("fix", false)];
    let title = format!(
        "{}How to use less memory at {} {}{}",
        style.bold,
        variable(document),
        first.batch,
        style.plain
    );
    // The code of one fix fits the screen; cut in the middle, none could be used.
    let code = printable(&best.snippet.split_whitespace().collect::<Vec<_>>().join(" "));
    let code = wrapped(&format!("  {}: {code}", best.name), 4, 3);
    std::iter::once(title).chain(fitting_table(&columns, &rows, &[3], style)).chain(code).collect()
}

/// What varies between the probes.
fn variable(document: &PlanView) -> String {
    printable(variable_title(&document.variable))
}

/// The runs that the plan was made from.
fn based_on(document: &PlanView) -> String {
    let mut batches: Vec<u64> = document.probes.iter().map(|probe| probe.batch).collect();
    let runs = batches.len();
    batches.sort_unstable();
    batches.dedup();
    let many = if batches.len() > 1 && document.variable == "batch" { "s" } else { "" };
    let listed = batches.iter().map(u64::to_string).collect::<Vec<_>>().join(", ");
    let variable = variable(document);
    if runs == 0 {
        return "what XLA compiled".to_owned();
    }
    format!(
        "{} with {variable}{many} {listed}. The limit is that of the pool: context and libraries need more (--full lists what is not \
         included)",
        counted(runs, "recorded run")
    )
}

/// Everything that a plan says.
pub(crate) fn full(document: &PlanView, curve: bool, style: Style) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}{}{}", style.bold, printable(&document.headline), style.plain);
    if let Some(text) = &document.largest_batch.text {
        let _ = writeln!(out, "{}", printable(text));
    }
    if let Some(text) = confirmation(document) {
        let _ = writeln!(out, "{}", printable(text));
    }
    for prediction in &document.predictions {
        batch(&mut out, document, prediction, style);
    }
    if let Some(text) = next_probe(document) {
        let _ = writeln!(out, "\n{}", printable(text));
    }
    fixes(&mut out, document, style);
    if curve {
        draw(&mut out, document, style);
    }
    probes(&mut out, document, style);
    compiled(&mut out, document, style);
    heading(&mut out, "Not included", style);
    for text in &document.not_modelled {
        let _ = writeln!(out, "  - {text}");
    }
    notes_of(&mut out, &document.warnings, style);
    out
}

/// Whether the answer ran.
fn confirmation(document: &PlanView) -> Option<&str> {
    let is_told = document.limit_bytes.is_some() && !document.probes.is_empty();
    is_told.then_some(document.confirmation.text.as_str())
}

/// The probe that would narrow the range.
fn next_probe(document: &PlanView) -> Option<&str> {
    document.next_probe.as_ref().map(|next| next.text.as_str())
}

fn batch(out: &mut String, document: &PlanView, prediction: &PredictionView, style: Style) {
    heading(out, &format!("{} {}", variable(document), prediction.batch), style);
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
            format!("{process}  (as nvidia-smi counts; {outside} of it is outside the pool)"),
        );
    }
    line(out, titles.minimum_bytes, or_dash(prediction.minimum_bytes));
    line(out, titles.exact_share, format!("{:.1} %", prediction.exact_share * 100.0));
    let parts = roles(prediction);
    let all: Bytes = parts.iter().map(|(_, bytes)| *bytes).sum();
    let row = |(role, bytes): (String, Bytes)| vec![bytes.to_string(), percent(bytes, all), role];
    let rows: Vec<Vec<String>> = parts.into_iter().map(row).collect();
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
    heading(out, &format!("How to use less memory at {} {}", variable(document), first.batch), style);
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
    if document.fixes.iter().any(|fix| fix.verify.is_some()) {
        let _ = writeln!(
            out,
            "  {}To measure a fix: vramline verify --fix NAME --batch N -- CMD {{batch}}{}",
            style.dim, style.plain
        );
    }
}

fn draw(out: &mut String, document: &PlanView, style: Style) {
    heading(out, &format!("Memory against {}", variable(document)), style);
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
    let limit = if limit.is_some() { ", | limit" } else { "" };
    let _ = writeln!(out, "  {}# peak, + upper end of the range{limit}{}", style.dim, style.plain);
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
    heading(out, "Programs compiled by XLA", style);
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
