//! Draws a comparison as Markdown, for the comment of a pull request: the gate first, then the peaks, then details to unfold.
//!
//! Names come from files of strangers, and whoever reads the comment trusts it. So nothing in a name can format text, make a link, mention
//! a person or end the table.

use std::fmt::Write;

use vramline::analysis::diff::{DiffBy, Gate};
use vramline::view::diff::Diff;

use super::diff::{Compared, GateLine, gate, letters};
use super::printable;

/// A comment has a limit of 65536 characters; a name must not spend it.
const MAX_NAME: usize = 120;
/// Files that are named for each run.
const MAX_FILES: usize = 5;

/// The whole comment.
pub(crate) fn comment(document: &Diff, by: Option<DiffBy>, top: usize) -> String {
    let mut out = format!("### {}\n\n", title(document.gate));
    for line in gate(document) {
        let _ = match line {
            GateLine::Sentence(text) => writeln!(out, "{}\n", prose(&text)),
            GateLine::Introduction(text) => writeln!(out, "{}:\n", prose(&text)),
            GateLine::Item(text) => writeln!(out, "- {}", prose(&text)),
        };
    }
    if !out.ends_with("\n\n") {
        out.push('\n');
    }
    let _ = writeln!(out, "**{}**\n", prose(&document.headline));
    let compared = Compared::of(document, by, top);
    table(&mut out, &compared, |group| group == DiffBy::Device);
    if compared.groups.iter().any(|&group| group != DiffBy::Device) {
        out.push_str("\n<details>\n<summary>Details</summary>\n\n");
        table(&mut out, &compared, |group| group != DiffBy::Device);
        if !compared.left_out.is_empty() {
            let _ = writeln!(
                out,
                "\n{}; the table shows the largest changes.",
                prose(&compared.left_out.join(", "))
            );
        }
        out.push_str("\n</details>\n");
    }
    out.push_str("\n<details>\n<summary>Runs</summary>\n\n");
    for (letter, side) in letters(document).into_iter().zip(&document.sides) {
        let mut files: Vec<String> =
            side.files.iter().take(MAX_FILES).map(|file| prose(&cut(file))).collect();
        if side.files.len() > MAX_FILES {
            files.push(format!("{} more", side.files.len() - MAX_FILES));
        }
        let _ = writeln!(out, "- {letter}: {}", files.join(", "));
    }
    for warning in &document.warnings {
        let _ = writeln!(out, "- {}", prose(&warning.text));
    }
    out.push_str("\n</details>\n");
    out
}

fn title(gate: Gate) -> &'static str {
    match gate {
        Gate::Pass => "GPU memory: the gate passes",
        Gate::Fail => "GPU memory: the gate fails",
        Gate::Unknown => "GPU memory: the gate cannot decide",
        Gate::None => "GPU memory",
    }
}

fn table(out: &mut String, compared: &Compared, is_shown: impl Fn(DiffBy) -> bool) {
    let titles: Vec<&str> = compared.columns.iter().map(|(title, _)| title.as_str()).collect();
    let sides: Vec<&str> =
        compared.columns.iter().map(|(_, right)| if *right { "--:" } else { "---" }).collect();
    let _ = writeln!(out, "| {} |\n| {} |", titles.join(" | "), sides.join(" | "));
    for (row, _) in compared.rows.iter().zip(&compared.groups).filter(|(_, group)| is_shown(**group)) {
        let cells: Vec<String> = row.iter().map(|cell| prose(&cut(cell))).collect();
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
}

fn cut(text: &str) -> String {
    if text.chars().count() <= MAX_NAME {
        return text.to_owned();
    }
    text.chars().take(MAX_NAME - 1).chain(['…']).collect()
}

/// Text that Markdown shows as it is. What GitHub finds in finished text, mentions and links, is interrupted by a space without width.
fn prose(text: &str) -> String {
    const BREAK: char = '\u{200b}';
    let text = printable(text);
    let mut out = String::with_capacity(text.len());
    let mut before = ' ';
    for letter in text.chars() {
        match letter {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\\' | '`' | '*' | '_' | '{' | '}' | '[' | ']' | '|' | '~' | '!' | '$' => {
                out.extend(['\\', letter]);
            }
            '@' => out.extend([letter, BREAK]),
            '#' => out.extend(['\\', letter, BREAK]),
            // `http://` and `www.`; a dot in a name such as `layers.3` stays.
            '/' if before == ':' => out.extend([BREAK, letter]),
            '.' if before.eq_ignore_ascii_case(&'w') => out.extend([BREAK, letter]),
            _ => out.push(letter),
        }
        before = letter;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{MAX_NAME, cut, prose};

    #[test]
    fn a_name_formats_nothing() {
        assert_eq!(prose("a|b\n`c`"), "a\\|b\u{fffd}\\`c\\`");
        assert_eq!(prose("<img src=x>&amp;"), "&lt;img src=x&gt;&amp;amp;");
        assert_eq!(prose("[a](b) **c** __d__"), "\\[a\\](b) \\*\\*c\\*\\* \\_\\_d\\_\\_");
    }

    #[test]
    fn a_name_mentions_nobody_and_links_nowhere() {
        assert_eq!(prose("@all"), "@\u{200b}all");
        assert_eq!(prose("#12"), "\\#\u{200b}12");
        assert_eq!(prose("http://a"), "http:\u{200b}//a");
        assert_eq!(prose("www.a"), "www\u{200b}.a");
        assert_eq!(prose("layers.3.up"), "layers.3.up");
    }

    #[test]
    fn a_long_name_is_cut() {
        assert_eq!(cut(&"ä".repeat(500)).chars().count(), MAX_NAME);
    }
}
