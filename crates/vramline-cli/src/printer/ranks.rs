//! Draws the ranks of a job as text: on the first screen, and as a table in a full report.

use vramline::analysis::ranks::groups::Grouping;
use vramline::units::{Bytes, change_text};
use vramline::view::diff::Diff;
use vramline::view::ranks::{RankView, RanksView};

use super::screen::{titled, wrapped};
use super::{Style, heading, or_dash, printable, table, table_lines};

/// A job of at most this many ranks is listed rank by rank on the first screen.
const LISTED: usize = 8;

/// Ranks of a table in a full report.
const TABLE: usize = 64;

/// Ranks of a comparison on its first screen.
const COMPARED: usize = 6;

/// The answer over the job after its headline.
pub(super) fn explanation(ranks: &RanksView) -> Vec<String> {
    ranks.sentences.iter().skip(1).flat_map(|sentence| wrapped(sentence, 0, 3)).collect()
}

/// A few ranks, a line each.
pub(super) fn in_short(ranks: &RanksView, style: Style) -> Vec<String> {
    if ranks.ranks.len() > LISTED {
        return Vec::new();
    }
    let (columns, rows) = rows(ranks, ranks.ranks.iter());
    table_lines(&columns, &rows, style)
}

/// What the part below the ranks is about.
pub(super) fn title(ranks: &RanksView, style: Style) -> Vec<String> {
    let main = ranks.ranks.iter().find(|rank| Some(rank.rank) == ranks.main);
    let line = main
        .map(|main| format!("{}Rank {} on {}{}", style.bold, main.rank, printable(&main.host), style.plain));
    line.into_iter().collect()
}

/// The ranks of a full report: all of a small job; of a large one those that the answer names.
pub(super) fn ranks(out: &mut String, ranks: &RanksView, style: Style) {
    let is_small = ranks.ranks.len() <= TABLE;
    let named: Vec<u64> =
        [ranks.main].into_iter().flatten().chain(peaks(ranks)).chain(members(ranks)).collect();
    let shown = ranks.ranks.iter().filter(|rank| is_small || named.contains(&rank.rank)).take(TABLE);
    let (columns, rows) = rows(ranks, shown);
    let title = match rows.len() == ranks.ranks.len() {
        true => "Ranks".to_owned(),
        false => format!("{} of {} ranks (--json lists all)", rows.len(), ranks.ranks.len()),
    };
    heading(out, &title, style);
    table(out, &columns, &rows, style);
}

fn peaks(ranks: &RanksView) -> impl Iterator<Item = u64> {
    [&ranks.highest, &ranks.lowest, &ranks.tightest].into_iter().flatten().map(|peak| peak.rank)
}

/// Outliers, and of each group the typical rank.
fn members(ranks: &RanksView) -> impl Iterator<Item = u64> {
    let outliers = ranks.outliers.iter().map(|outlier| outlier.rank);
    outliers.chain(ranks.groups.iter().map(|group| group.typical))
}

type Columns = Vec<(&'static str, bool)>;

fn rows<'a>(ranks: &RanksView, shown: impl Iterator<Item = &'a RankView>) -> (Columns, Vec<Vec<String>>) {
    let titles = RankView::TITLES;
    let has_room = ranks.ranks.iter().any(|rank| rank.headroom_bytes.is_some());
    let has_roles = ranks.ranks.iter().any(|rank| rank.task_role.is_some());
    let has_rule = matches!(ranks.grouping, Grouping::Alike | Grouping::Regular);
    let mut columns = vec![(titles.rank, true), (titles.host, false)];
    columns.extend(has_roles.then_some((titles.task_role, false)));
    columns.extend([(titles.device, false), (titles.peak_bytes, true)]);
    columns.extend(has_room.then_some((titles.headroom_bytes, true)));
    columns.extend([("of its group", true), (titles.steps, true), (titles.end, false)]);
    let row = |rank: &RankView| {
        let mut cells = vec![rank.rank.to_string(), printable(&rank.host)];
        if has_roles {
            let role = rank.task_role.map_or("-", |role| role.word());
            cells.push(role.to_owned());
        }
        cells.extend([rank.device.as_deref().map_or("-".to_owned(), printable), or_dash(rank.peak_bytes)]);
        if has_room {
            cells.push(or_dash(rank.headroom_bytes));
        }
        let outlier = ranks.outliers.iter().find(|outlier| outlier.rank == rank.rank);
        // Without a rule, or without a peak, the rank is not known to be like any other.
        let is_alike = has_rule && rank.peak_bytes.is_some();
        let otherwise = if is_alike { "alike" } else { "-" };
        cells.push(outlier.map_or(otherwise.to_owned(), |outlier| change_text(outlier.difference_bytes)));
        cells.extend([rank.steps.to_string(), rank.end.word().to_owned()]);
        cells
    };
    (columns, shown.map(row).collect())
}

/// The ranks of a comparison, the largest growth first.
pub(super) fn compared(
    document: &Diff,
    letters: &[String],
    most: Option<usize>,
    style: Style,
) -> Vec<String> {
    let all = document.ranks.len();
    if all == 0 {
        return Vec::new();
    }
    let mut columns: Vec<(&str, bool)> = vec![("rank", true)];
    columns.extend(letters.iter().map(|letter| (letter.as_str(), true)));
    columns.push(("change", true));
    let shown = document.ranks.iter().take(most.unwrap_or(all));
    let rows: Vec<Vec<String>> = shown
        .map(|change| {
            let mut cells = vec![change.rank.to_string()];
            cells.extend(change.peak_bytes.iter().map(|&bytes: &Option<Bytes>| or_dash(bytes)));
            let deltas = change.deltas_bytes.iter().skip(1);
            let texts: Vec<String> = deltas.map(|delta| delta.map_or("-".to_owned(), change_text)).collect();
            cells.push(texts.join(" / "));
            cells
        })
        .collect();
    let mut lines = table_lines(&columns, &rows, style);
    lines.extend(titled(
        "Ranks",
        &format!("{} of {all} grew; the largest growth comes first", document.ranks_grown),
        1,
        style,
    ));
    lines
}

/// The same on the first screen of a comparison.
pub(super) fn compared_in_short(document: &Diff, letters: &[String], style: Style) -> Vec<String> {
    compared(document, letters, Some(COMPARED), style)
}
