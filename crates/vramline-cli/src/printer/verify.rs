//! Draws a verified prediction as text.

use std::fmt::Write;

use vramline::units::Bytes;
use vramline::view::verify::Verify;

use super::{Style, notes_of, or_dash, printable, table};

pub(crate) fn verify(document: &Verify, style: Style) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}{}{}\n", style.bold, printable(&document.headline), style.plain);
    let columns = [("", false), ("predicted", true), ("measured", true), ("each run", false)];
    let runs = |runs: &[Bytes]| runs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let mut rows = vec![vec![
        format!("batch {}", document.batch),
        document.without_predicted_bytes.to_string(),
        document.without_measured_bytes.to_string(),
        runs(&document.without_runs_bytes),
    ]];
    if !document.fix.is_empty() {
        rows.push(vec![
            format!("with {}", document.fix),
            or_dash(document.predicted_bytes),
            document.measured_bytes.to_string(),
            runs(&document.runs_bytes),
        ]);
    }
    table(&mut out, &columns, &rows, style);
    notes_of(&mut out, &document.warnings, style);
    out
}
