//! Draws a verified prediction as text.

use vramline::units::Bytes;
use vramline::view::verify::Verify;

use super::screen::{Section, bold, fitting_table, notes, screen, titled};
use super::{Style, notes_of, or_dash};

/// Notes of a first screen.
const SCREEN_NOTES: usize = 4;

pub(crate) fn verify(document: &Verify, is_full: bool, style: Style) -> String {
    let columns = [("", false), ("predicted", true), ("measured", true), ("each run", false)];
    let runs = |runs: &[Bytes]| runs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let mut rows = vec![vec![
        format!("batch size {}", document.batch),
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
    let mut sections = vec![
        Section::whole(bold(&document.headline, style)),
        Section::whole(fitting_table(&columns, &rows, &[0, 3], style)),
    ];
    if !is_full {
        sections.push(Section::trimmed(notes(&document.warnings, SCREEN_NOTES, style), 0, 1));
        let next = "--runs 8 (more measurements), --full (everything), --json";
        sections.push(Section::whole(titled("Next", next, 1, style)));
    }
    let mut out = screen(sections);
    if is_full {
        notes_of(&mut out, &document.warnings, style);
    }
    out
}
