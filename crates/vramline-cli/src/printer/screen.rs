//! A first screen: sections that are trimmed until they fit 32 lines of 100 columns.
//!
//! Each section says how many of its lines it needs at least and how much it matters; what is left out is in `--full`. Here are also
//! the tools that keep a line within its columns: [`wrapped`] and [`cut`].

use vramline::units::Bytes;
use vramline::warning::Warning;

use super::{Style, printable, table_lines};
use crate::input::STDIN_NAME;

/// Columns of a first screen.
pub(crate) const COLUMNS: usize = 100;

/// Lines of a first screen.
pub(crate) const LINES: usize = 32;

/// The width of the longest bar.
const BAR: usize = 24;

/// A part of a first screen; an empty line separates it from the part above.
pub(super) struct Section {
    lines: Vec<String>,
    /// Lines that are never trimmed.
    least: usize,
    /// Sections with a higher rank are trimmed first.
    rank: u8,
    /// Whether it follows the section above without an empty line.
    is_attached: bool,
}

impl Section {
    /// A section of which every line stays.
    pub(super) fn whole(lines: Vec<String>) -> Section {
        Section { least: lines.len(), lines, rank: 0, is_attached: false }
    }

    /// A section that gives up lines down to `least`, before those with a lower rank do.
    pub(super) fn trimmed(lines: Vec<String>, least: usize, rank: u8) -> Section {
        Section { lines, least, rank, is_attached: false }
    }

    /// The same without an empty line above.
    pub(super) fn attached(mut self) -> Section {
        self.is_attached = true;
        self
    }
}

/// Puts sections together within the lines of a screen.
pub(super) fn screen(mut sections: Vec<Section>) -> String {
    sections.retain(|section| !section.lines.is_empty());
    while count(&sections) > LINES {
        let last = sections.iter().enumerate().filter(|(_, section)| section.lines.len() > section.least);
        let Some((at, _)) = last.max_by_key(|(_, section)| section.rank) else { break };
        if let Some(section) = sections.get_mut(at) {
            section.lines.pop();
        }
        sections.retain(|section| !section.lines.is_empty());
    }
    let mut out = String::new();
    for (number, section) in sections.iter().enumerate() {
        if number > 0 && !section.is_attached {
            out.push('\n');
        }
        for line in &section.lines {
            out.push_str(line);
            out.push('\n');
        }
    }
    out
}

fn count(sections: &[Section]) -> usize {
    let gaps = sections.iter().skip(1).filter(|section| !section.is_attached).count();
    sections.iter().map(|section| section.lines.len()).sum::<usize>() + gaps
}

/// A text broken between words; lines after the first are indented by `indent`, at most `most` lines, the last of which ends with `…`
/// where the text goes on.
pub(super) fn wrapped(text: &str, indent: usize, most: usize) -> Vec<String> {
    let text = printable(text);
    let mut lines: Vec<String> = Vec::new();
    // Spaces in front stay.
    let words = text.trim_start();
    let mut line = " ".repeat(text.len() - words.len());
    let mut is_begun = false;
    for word in words.split(' ') {
        let room = COLUMNS - if lines.is_empty() { 0 } else { indent };
        if is_begun && width(&line) + 1 + width(word) > room {
            lines.push(std::mem::take(&mut line));
        } else if is_begun {
            line.push(' ');
        }
        line.push_str(word);
        is_begun = true;
    }
    lines.push(line);
    let goes_on = lines.len() > most;
    lines.truncate(most);
    if let Some(last) = lines.last_mut().filter(|_| goes_on) {
        let room = COLUMNS.saturating_sub(indent + 2);
        *last = format!("{} …", last.chars().take(room).collect::<String>().trim_end());
    }
    let spaces = " ".repeat(indent);
    let indented = |(at, line): (usize, &String)| {
        // A word that is longer than a line is cut.
        let line = if at == 0 { line.clone() } else { format!("{spaces}{line}") };
        cut(&line, COLUMNS)
    };
    lines.iter().enumerate().map(indented).collect()
}

/// A titled text: the title in a column of its own.
pub(super) fn titled(title: &str, text: &str, most: usize, style: Style) -> Vec<String> {
    let mut lines = wrapped(&format!("{title:<10} {text}"), 11, most);
    if let Some(first) = lines.first_mut() {
        *first = first.replacen(title, &format!("{}{title}{}", style.bold, style.plain), 1);
    }
    lines
}

/// How a path is given again: standard input only as `-`.
pub(super) fn again(path: Option<&String>) -> String {
    match path.map(String::as_str) {
        None => "PATH".to_owned(),
        Some(STDIN_NAME) => "-".to_owned(),
        Some(path) => printable(path),
    }
}

/// Notes of a first screen: the first ones, without their hints.
pub(super) fn notes(warnings: &[Warning], most: usize, style: Style) -> Vec<String> {
    warnings.iter().take(most).flat_map(|warning| titled("Note", &warning.text, 2, style)).collect()
}

/// A headline, in bold.
pub(super) fn bold(headline: &str, style: Style) -> Vec<String> {
    let lines = wrapped(headline, 0, 5);
    lines.into_iter().map(|line| format!("{}{line}{}", style.bold, style.plain)).collect()
}

/// A text within `width` columns, cut in the middle.
pub(super) fn cut(text: &str, most: usize) -> String {
    let count = width(text);
    if count <= most {
        return text.to_owned();
    }
    let head = most.saturating_sub(1).div_ceil(2);
    let tail = most.saturating_sub(1) - head;
    let first: String = text.chars().take(head).collect();
    let last: String = text.chars().skip(count - tail).collect();
    format!("{first}…{last}")
}

/// Signs of a text that are seen: without the sequences that colour it.
fn width(text: &str) -> usize {
    let mut is_sequence = false;
    let mut count = 0;
    for sign in text.chars() {
        match sign {
            '\x1b' => is_sequence = true,
            'm' if is_sequence => is_sequence = false,
            _ if is_sequence => {}
            _ => count += 1,
        }
    }
    count
}

/// A bar in proportion to the largest value; empty where bars are not drawn.
fn bar(value: u64, largest: u64, style: Style) -> String {
    if !style.has_bars || largest == 0 || value == 0 {
        return String::new();
    }
    // In eighths of a column.
    let eighths = (u128::from(value) * (BAR as u128 * 8)).div_ceil(u128::from(largest));
    let eighths = usize::try_from(eighths).unwrap_or(0);
    let part = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"].get(eighths % 8).copied().unwrap_or_default();
    format!("{}{}{part}{}", style.accent, "█".repeat(eighths / 8), style.plain)
}

/// Parts of a whole: size, share and, on a terminal, a bar.
pub(super) fn bars(parts: &[(String, Bytes)], style: Style) -> Vec<String> {
    let whole: Bytes = parts.iter().map(|(_, bytes)| *bytes).sum();
    let largest = parts.iter().map(|(_, bytes)| bytes.0).max().unwrap_or(0);
    let wide = parts.iter().map(|(what, _)| width(what)).max().unwrap_or(0);
    let line = |(what, bytes): &(String, Bytes)| {
        let (size, share) = (bytes.to_string(), bytes.percent_of(whole));
        let text = format!("  {what:<wide$}  {size:>9}  {share:>6}  {}", bar(bytes.0, largest, style));
        text.trim_end().to_owned()
    };
    parts.iter().map(line).collect()
}

/// A table whose last columns are cut so that each line fits. `flexible` are the columns that may become narrower.
pub(super) fn fitting_table(
    columns: &[(&str, bool)],
    rows: &[Vec<String>],
    flexible: &[usize],
    style: Style,
) -> Vec<String> {
    let width_of = |at: usize| {
        let cells = rows.iter().filter_map(|row| row.get(at)).map(|cell| width(cell));
        let title = columns.get(at).map_or(0, |(title, _)| width(title));
        cells.chain([title]).max().unwrap_or(0)
    };
    // Every column has a space on each side, and the table one in front.
    let all: usize = 1 + (0..columns.len()).map(|at| width_of(at) + 2).sum::<usize>();
    let mut excess = all.saturating_sub(COLUMNS);
    let mut rows = rows.to_vec();
    for &at in flexible.iter().rev() {
        if excess == 0 {
            break;
        }
        let wide = width_of(at);
        let narrow = wide.saturating_sub(excess).max(12);
        excess = excess.saturating_sub(wide.saturating_sub(narrow));
        for cell in rows.iter_mut().filter_map(|row| row.get_mut(at)) {
            *cell = cut(cell, narrow);
        }
    }
    table_lines(columns, &rows, style)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_screen_gives_up_what_matters_least() {
        let lines = |count: usize, text: &str| vec![text.to_owned(); count];
        let shown = screen(vec![
            Section::whole(lines(3, "head")),
            Section::trimmed(lines(30, "table"), 4, 1),
            Section::trimmed(lines(10, "notes"), 0, 2),
            Section::whole(lines(1, "next")),
        ]);
        assert_eq!(shown.lines().count(), LINES);
        assert!(!shown.contains("notes") && shown.contains("next"));
        assert_eq!(shown.lines().filter(|line| *line == "table").count(), LINES - 3 - 1 - 2);
    }

    #[test]
    fn no_line_is_longer_than_the_screen() {
        let text = "word ".repeat(60) + &"x".repeat(150) + " end";
        let lines = wrapped(&text, 4, 10);
        assert!(lines.iter().all(|line| line.chars().count() <= COLUMNS), "{lines:?}");
        assert!(lines.last().is_some_and(|line| line.ends_with("end")));
        assert_eq!(wrapped(&text, 4, 2).len(), 2);
        assert!(wrapped(&text, 4, 2)[1].ends_with('…'));
        assert_eq!(cut("abcdefgh", 5), "ab…gh");
    }
}
