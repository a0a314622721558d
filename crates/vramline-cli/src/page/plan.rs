//! A plan as an HTML page without a script: the verdict, a chart of memory by batch size, roles and fixes.

use std::fmt::Write;

use vramline::units::Bytes;
use vramline::view::plan::{CurvePoint, PlanView, PredictionView};

use super::{escaped, static_page};

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 360.0;
/// Room for the labels left of the chart and below it.
const LEFT: f64 = 80.0;
const BELOW: f64 = 40.0;
const TOP: f64 = 16.0;

/// The whole page.
pub(crate) fn page(document: &PlanView) -> String {
    let name = format!("Memory plan by {}", document.variable);
    let mut content = format!(
        "<section id=\"verdict\" aria-label=\"Verdict\"><p>{}</p>{}</section>\n<main id=\"page\">\n",
        escaped(&document.headline),
        largest(document)
    );
    content.push_str(&drawing(document));
    for prediction in &document.predictions {
        content.push_str(&roles(document, prediction));
    }
    content.push_str(&fixes(document));
    let warnings = document.warnings.iter().map(|warning| format!("{} {}", warning.text, warning.hint));
    let notes: String = warnings
        .chain(document.not_modelled.iter().cloned())
        .map(|text| format!("<li>{}</li>", escaped(&text)))
        .collect();
    let _ =
        write!(content, "<section><h2>Not included, and warnings</h2><ul>{notes}</ul></section>\n</main>");
    static_page(&name, &content)
}

fn largest(document: &PlanView) -> String {
    let (Some(limit), Some(likely)) = (document.limit_bytes, document.largest_batch.likely) else {
        return String::new();
    };
    let sure =
        document.largest_batch.sure.map_or("none is certain".to_owned(), |sure| format!("{sure} is certain"));
    format!(
        "<p>Largest {} that fits {limit}: {sure}; up to {likely} fits in more than half of the runs.</p>",
        escaped(&document.variable)
    )
}

/// The chart of memory by batch size: a line for the median, a band for the range, and the limit.
fn drawing(document: &PlanView) -> String {
    let (Some(first), Some(last)) = (document.curve.first(), document.curve.last()) else {
        return String::new();
    };
    let most = document.curve.iter().map(|point| point.high_bytes).chain(document.limit_bytes).max();
    let highest = most.unwrap_or_default().0.max(1);
    let most = highest as f64 * 1.05;
    let (from, to) = (first.batch as f64, (last.batch as f64).max(first.batch as f64 + 1.0));
    let x = |batch: u64| LEFT + (batch as f64 - from) / (to - from) * (WIDTH - LEFT - 12.0);
    let y = |bytes: Bytes| TOP + (1.0 - bytes.0 as f64 / most) * (HEIGHT - TOP - BELOW);
    let place = |point: &CurvePoint, bytes: Bytes| format!("{:.1},{:.1}", x(point.batch), y(bytes));
    let line: Vec<String> = document.curve.iter().map(|point| place(point, point.peak_bytes)).collect();
    let up = document.curve.iter().map(|point| place(point, point.high_bytes));
    let down = document.curve.iter().rev().map(|point| place(point, point.low_bytes));
    let band: Vec<String> = up.chain(down).collect();
    let name = escaped(&document.variable);
    let mut out = format!(
        "<section><h2>Memory by {name}</h2>\n<svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" width=\"100%\" \
         aria-label=\"The peak at {name} {} is {}, at {} it is {}\">\n",
        first.batch, first.peak_bytes, last.batch, last.peak_bytes
    );
    for quarter in 0..=4 {
        let bytes = Bytes(highest / 4 * quarter);
        let at = y(bytes);
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"var(--line)\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\" font-size=\"12\" fill=\"var(--soft)\">{bytes}</text>",
            LEFT - 8.0,
            at + 4.0
        );
    }
    let every = (document.curve.len() / 8).max(1);
    for point in document.curve.iter().step_by(every) {
        let _ = writeln!(
            out,
            "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\" font-size=\"12\" fill=\"var(--soft)\">{}</text>",
            x(point.batch),
            HEIGHT - BELOW + 20.0,
            point.batch
        );
    }
    let _ = writeln!(out, "<polygon points=\"{}\" fill=\"var(--accent)\" opacity=\"0.2\"/>", band.join(" "));
    let _ = writeln!(
        out,
        "<polyline points=\"{}\" fill=\"none\" stroke=\"var(--accent)\" stroke-width=\"2\"/>",
        line.join(" ")
    );
    if let Some(limit) = document.limit_bytes {
        let at = y(limit);
        let _ = writeln!(
            out,
            "<line x1=\"{LEFT}\" x2=\"{WIDTH}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"var(--limit)\" stroke-dasharray=\"6 4\"/>\
             <text x=\"{:.1}\" y=\"{:.1}\" font-size=\"12\" fill=\"var(--limit)\">limit {limit}</text>",
            LEFT + 6.0,
            at - 6.0
        );
    }
    for probe in &document.probes {
        let _ = writeln!(
            out,
            "<circle cx=\"{:.1}\" cy=\"{:.1}\" r=\"3\" fill=\"var(--ink)\"><title>probe: {} {}</title></circle>",
            x(probe.batch),
            y(probe.peak_bytes),
            probe.batch,
            probe.peak_bytes
        );
    }
    let _ = writeln!(
        out,
        "</svg>\n<p class=\"hint\">Line: peak of a typical run. Band: range of nearly all runs. Dots: probes.</p></section>"
    );
    out
}

fn roles(document: &PlanView, prediction: &PredictionView) -> String {
    let mut rows: Vec<(&str, Bytes)> =
        prediction.by_role.iter().map(|(role, bytes)| (role.word(), *bytes)).collect();
    rows.sort_unstable();
    rows.push(("rounding", prediction.slack_bytes));
    rows.retain(|(_, bytes)| *bytes > Bytes::ZERO);
    rows.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let rows: String =
        rows.iter().map(|(role, bytes)| format!("<tr><td>{role}</td><td>{bytes}</td></tr>")).collect();
    let minimum = prediction.minimum_bytes.map_or("unknown".to_owned(), |bytes| bytes.to_string());
    format!(
        "<section><h2>{} {}</h2><p>Peak: {} in use ({} to {}). Reserved from the driver: {}. Smallest limit that fits: {minimum}.</p>\
         <table><thead><tr><th>role at the peak</th><th>bytes</th></tr></thead><tbody>{rows}</tbody></table></section>\n",
        escaped(&document.variable),
        prediction.batch,
        prediction.peak_bytes,
        prediction.low_bytes,
        prediction.high_bytes,
        prediction.pool_bytes
    )
}

fn fixes(document: &PlanView) -> String {
    let Some(first) = document.fixes.first() else { return String::new() };
    let or_unknown = |bytes: Option<Bytes>| bytes.map_or("unknown".to_owned(), |bytes| bytes.to_string());
    let row = |fix: &vramline::view::plan::FixView| {
        format!(
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td><code>{}</code></td></tr>",
            escaped(&fix.name),
            fix.saving_in_words(),
            or_unknown(fix.peak_bytes),
            escaped(&fix.text),
            escaped(&fix.snippet)
        )
    };
    let rows: String = document.fixes.iter().map(row).collect();
    format!(
        "<section><h2>Ways to use less memory at {} {}</h2><table><thead><tr><th>fix</th><th>saves</th><th>new peak</th><th>effect</th>\
         <th>how</th></tr></thead><tbody>{rows}</tbody></table><p class=\"hint\">{}</p></section>\n",
        escaped(&document.variable),
        first.batch,
        escaped(document.no_help)
    )
}
