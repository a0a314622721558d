//! A plan as one page: the verdict, a drawing of memory against the batch size, what would hold it, and the fixes. It needs no script.

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

/// What varies, as people call it; escaped.
fn variable(document: &PlanView) -> String {
    if document.variable == "batch" { "batch size".to_owned() } else { escaped(&document.variable) }
}

/// The whole page.
pub(crate) fn page(document: &PlanView) -> String {
    let name = if document.variable == "batch" { "batch size" } else { &document.variable };
    let name = format!("Plan by {name}");
    let mut content = format!(
        "<section id=\"verdict\" aria-label=\"Verdict\"><p>{}</p>{}</section>\n<main id=\"page\">\n",
        escaped(&document.headline),
        document.largest_batch.text.as_ref().map_or(String::new(), |text| {
            format!("<p>{}</p><p>{}</p>", escaped(text), escaped(&document.confirmation.text))
        })
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
    let _ = write!(
        content,
        "<section id=\"notes\"><h2>Not included, and warnings</h2><ul>{notes}</ul></section>\n</main>"
    );
    static_page(&name, &content)
}

/// Memory against the batch size: the middle as a line, the interval as a band, the limit across.
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
    let name = variable(document);
    let limit = match document.limit_bytes {
        Some(_) => "<li><i class=\"swatch stroke limit\"></i>limit</li>",
        None => "",
    };
    let mut out = format!(
        "<section><h2>Memory against {name}</h2>\n\
         <ul class=\"legend\"><li><i class=\"swatch stroke job\"></i>peak in use of a typical run</li>\
         <li><i class=\"swatch traced\"></i>nearly all runs</li><li><i class=\"swatch dot\"></i>probe</li>{limit}</ul>\n\
         <div class=\"scroll\"><svg viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" width=\"100%\" \
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
    out.push_str("</svg></div></section>\n");
    out
}

fn roles(document: &PlanView, prediction: &PredictionView) -> String {
    let mut rows: Vec<(&str, Bytes)> =
        prediction.by_role.iter().map(|(role, bytes)| (role.word(), *bytes)).collect();
    rows.sort_unstable();
    rows.push(("rounding", prediction.slack_bytes));
    rows.retain(|(_, bytes)| *bytes > Bytes::ZERO);
    rows.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
    let rows: String = rows
        .iter()
        .map(|(role, bytes)| format!("<tr><td>{role}</td><td class=\"number\">{bytes}</td></tr>"))
        .collect();
    let minimum = prediction.minimum_bytes.map_or("unknown".to_owned(), |bytes| bytes.to_string());
    format!(
        "<section><h2>{} {}</h2><p>Peak in use: {} ({} to {}). Reserved by the pool: {}. Smallest limit that fits: {minimum}.</p>\
         <div class=\"scroll\"><table><thead><tr><th>role at the peak</th><th class=\"number\">bytes</th></tr></thead><tbody>{rows}</tbody></table></div>\
         </section>\n",
        capital(&variable(document)),
        prediction.batch,
        prediction.peak_bytes,
        prediction.low_bytes,
        prediction.high_bytes,
        prediction.pool_bytes
    )
}

fn capital(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| format!("{}{}", first.to_uppercase(), letters.as_str()))
}

fn fixes(document: &PlanView) -> String {
    let Some(first) = document.fixes.first() else { return String::new() };
    let or_unknown = |bytes: Option<Bytes>| bytes.map_or("unknown".to_owned(), |bytes| bytes.to_string());
    let row = |fix: &vramline::view::plan::FixView| {
        format!(
            "<tr><td>{}</td><td class=\"number\">{}</td><td class=\"number\">{}</td><td class=\"wide\">{}</td><td class=\"wide\"><code>{}</code></td></tr>",
            escaped(&fix.name),
            fix.saving_in_words(),
            or_unknown(fix.peak_bytes),
            escaped(&fix.text),
            escaped(&fix.snippet)
        )
    };
    let rows: String = document.fixes.iter().map(row).collect();
    format!(
        "<section><h2>How to use less memory at {} {}</h2><div class=\"scroll\"><table><thead><tr><th>fix</th><th class=\"number\">saves</th>\
         <th class=\"number\">new peak</th><th>what it does</th><th>how</th></tr></thead><tbody>{rows}</tbody></table></div>\
         <p class=\"hint\">{}</p></section>\n",
        variable(document),
        first.batch,
        escaped(document.no_help)
    )
}
