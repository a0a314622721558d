//! Ranks with like peaks.
//!
//! In a pipeline each stage has a peak of its own, and so have ranks with other experts: that is how such a job is, and nothing is
//! wrong with it. Such an imbalance is regular in the numbers of the ranks. So Vramline looks for the simplest rule that gives nearly
//! every rank a group with like peaks: one group; blocks of consecutive ranks; every so many ranks; blocks that repeat. What a rule
//! leaves over are outliers. Where no rule holds for most ranks, only ranks far from all others are.

use std::collections::BTreeMap;

use crate::units::Bytes;

/// Peaks are alike within this share of the group's median, one part in so many,
const ALIKE_SHARE: u64 = 100;
/// or within this, for small jobs.
const ALIKE_LEAST: u64 = 1 << 20;
/// A rule leaves over at most one rank in so many, but may always leave one.
const MAX_OUTLIERS_SHARE: usize = 8;
/// A rule whose groups have fewer ranks would hold by chance.
const MIN_GROUP: usize = 2;
/// The minimum number of ranks that can have an outlier: of two nobody can say which one differs.
const MIN_RANKS: usize = 3;
/// A rank is far from others whose peaks vary if it is this many times as far as the median of them.
const FAR: u64 = 6;

/// How the peaks of the ranks of a job relate to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grouping {
    /// Nearly all are alike.
    Alike,
    /// Groups of ranks, regular in their numbers: stages of a pipeline, experts.
    Regular,
    /// They vary from rank to rank.
    Varied,
    /// There are too few ranks to tell.
    Few,
}

words!(Grouping { Alike => "alike", Regular => "regular", Varied => "varied", Few => "few" });

/// Ranks with like peaks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankGroup {
    /// The ranks, in order, without the outliers.
    pub ranks: Vec<u64>,
    /// Ranks whose numbers belong to the group and whose peaks do not.
    pub outliers: Vec<u64>,
    /// The lowest peak of the ranks.
    pub lowest: Bytes,
    /// The highest.
    pub highest: Bytes,
    /// The rank with the median peak.
    pub typical: u64,
}

/// Which group a rank is in: blocks of `block` ranks, of which every `groups`-th is of one group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rule {
    block: u64,
    groups: u64,
}

impl Rule {
    fn group(self, rank: u64) -> u64 {
        rank / self.block.max(1) % self.groups.max(1)
    }
}

/// Ranks with their peaks, in groups.
#[must_use]
pub fn grouped(peaks: &[(u64, Bytes)], world_size: Option<u64>) -> (Grouping, Vec<RankGroup>) {
    let one = Rule { block: 1, groups: 1 };
    if peaks.len() < MIN_RANKS {
        return (Grouping::Few, split(peaks, one, |_| u64::MAX));
    }
    let known = peaks.iter().map(|(rank, _)| rank.saturating_add(1)).max().unwrap_or(1);
    let size = world_size.unwrap_or(known).max(known);
    let most_outliers = (peaks.len() / MAX_OUTLIERS_SHARE).max(1);
    let mut best: Option<(usize, Rule)> = None;
    for rule in rules(size) {
        let groups = split(peaks, rule, alike);
        let outliers: usize = groups.iter().map(|group| group.outliers.len()).sum();
        let small =
            groups.iter().filter(|group| group.ranks.len() + group.outliers.len() < MIN_GROUP).count();
        // Only where ranks are missing may a group be as small, and only a few groups: ranks alone would follow any rule.
        let missing = usize::try_from(size).unwrap_or(usize::MAX).saturating_sub(peaks.len());
        let is_by_chance = small > missing || (small > 0 && 2 * small >= groups.len());
        if outliers > most_outliers || is_by_chance {
            continue;
        }
        // An outlier must be worth more than a group, else a rule is bent until it fits.
        let cost = groups.len() + 2 * outliers;
        if best.is_none_or(|(least, _)| cost < least) {
            best = Some((cost, rule));
        }
    }
    match best {
        Some((_, rule)) if rule == one => (Grouping::Alike, split(peaks, one, alike)),
        Some((_, rule)) => (Grouping::Regular, split(peaks, rule, alike)),
        None => (Grouping::Varied, split(peaks, one, far_from(peaks))),
    }
}

/// What peaks may differ from the median of their group.
fn alike(median: Bytes) -> u64 {
    (median.0 / ALIKE_SHARE).max(ALIKE_LEAST)
}

/// The same for peaks that vary: a multiple of what half of them stay within.
fn far_from(peaks: &[(u64, Bytes)]) -> impl Fn(Bytes) -> u64 + Copy {
    let mut all: Vec<u64> = peaks.iter().map(|(_, peak)| peak.0).collect();
    let middle = median(&mut all);
    let mut away: Vec<u64> = all.iter().map(|peak| peak.abs_diff(middle)).collect();
    let far = median(&mut away).saturating_mul(FAR);
    move |group| far.max(alike(group))
}

fn median(values: &mut [u64]) -> u64 {
    values.sort_unstable();
    values.get(values.len() / 2).copied().unwrap_or(0)
}

/// Every rule that divides a job of this size, the simplest first.
fn rules(size: u64) -> Vec<Rule> {
    let divisors = |of: u64| (1..=of).filter(move |by| of.is_multiple_of(*by));
    let mut rules = Vec::new();
    // A job of more ranks than were ever run would take long to divide.
    if size <= 1 << 17 {
        for block in divisors(size) {
            let groups =
                divisors(size / block).filter(|groups| *groups > 1 && *groups <= size / MIN_GROUP as u64);
            rules.extend(groups.map(|groups| Rule { block, groups }));
        }
    }
    rules.push(Rule { block: 1, groups: 1 });
    rules.sort_by_key(|rule| (rule.groups, std::cmp::Reverse(rule.block)));
    rules
}

fn split(peaks: &[(u64, Bytes)], rule: Rule, within: impl Fn(Bytes) -> u64) -> Vec<RankGroup> {
    let mut groups: BTreeMap<u64, Vec<(Bytes, u64)>> = BTreeMap::new();
    for (rank, peak) in peaks {
        groups.entry(rule.group(*rank)).or_default().push((*peak, *rank));
    }
    groups.into_values().filter_map(|members| RankGroup::of(members, &within)).collect()
}

impl RankGroup {
    fn of(mut members: Vec<(Bytes, u64)>, within: &impl Fn(Bytes) -> u64) -> Option<RankGroup> {
        members.sort_unstable();
        // Of an even number the lower of the two in the middle: of two ranks the one that holds more is the outlier.
        let (middle, _) = *members.get((members.len() - 1) / 2)?;
        let far = within(middle);
        let (alike, outliers): (Vec<_>, Vec<_>) =
            members.into_iter().partition(|(peak, _)| peak.0.abs_diff(middle.0) <= far);
        // Of the ranks with the median peak the lowest.
        let typical = alike.iter().find(|(peak, _)| *peak == middle).map(|(_, rank)| *rank)?;
        let numbers = |members: &[(Bytes, u64)]| {
            let mut ranks: Vec<u64> = members.iter().map(|(_, rank)| *rank).collect();
            ranks.sort_unstable();
            ranks
        };
        Some(RankGroup {
            lowest: alike.first().map(|(peak, _)| *peak)?,
            highest: alike.last().map(|(peak, _)| *peak)?,
            typical,
            ranks: numbers(&alike),
            outliers: numbers(&outliers),
        })
    }
}

/// Ranks as people write them: `0-3, 8`, `0, 4, 8, ..., 60`.
#[must_use]
pub fn ranks_text(ranks: &[u64]) -> String {
    /// Spans and single ranks that are written.
    const MOST: usize = 4;
    if let [first, second, .., last] = ranks
        && ranks.len() > MOST
    {
        let step = second - first;
        let is_even = ranks.windows(2).all(|pair| matches!(pair, [one, next] if next - one == step));
        if is_even && step > 1 {
            return format!("{first}, {second}, {}, ..., {last}", second + step);
        }
    }
    let mut spans: Vec<(u64, u64)> = Vec::new();
    for &rank in ranks {
        match spans.last_mut() {
            Some((_, last)) if last.saturating_add(1) == rank => *last = rank,
            _ => spans.push((rank, rank)),
        }
    }
    let text = |&(first, last): &(u64, u64)| match last - first {
        0 => first.to_string(),
        1 => format!("{first}, {last}"),
        _ => format!("{first}-{last}"),
    };
    let mut texts: Vec<String> = spans.iter().take(MOST).map(text).collect();
    let left: u64 = spans.iter().skip(MOST).map(|(first, last)| last - first + 1).sum();
    if left > 0 {
        texts.push(format!("{left} more"));
    }
    texts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grouped_mib(mib: &[u64]) -> (Grouping, Vec<RankGroup>) {
        let peaks: Vec<(u64, Bytes)> =
            mib.iter().enumerate().map(|(rank, mib)| (rank as u64, Bytes(mib << 20))).collect();
        grouped(&peaks, None)
    }

    fn outliers(groups: &[RankGroup]) -> Vec<u64> {
        groups.iter().flat_map(|group| group.outliers.clone()).collect()
    }

    #[test]
    fn one_rank_of_many_differs() {
        let (grouping, groups) = grouped_mib(&[5000, 4000, 4001, 4000, 3999, 4000, 4000, 4000]);
        assert_eq!((grouping, groups.len(), outliers(&groups)), (Grouping::Alike, 1, vec![0]));
        let group = groups.first().unwrap();
        assert_eq!((group.lowest.0 >> 20, group.highest.0 >> 20, group.typical), (3999, 4001, 1));
        let (grouping, groups) = grouped_mib(&[4000, 4000, 5000]);
        assert_eq!((grouping, outliers(&groups)), (Grouping::Alike, vec![2]));
    }

    #[test]
    fn two_ranks_are_too_few() {
        let (grouping, groups) = grouped_mib(&[5000, 4000]);
        assert_eq!((grouping, outliers(&groups)), (Grouping::Few, vec![]));
        assert_eq!(grouped(&[], Some(4)), (Grouping::Few, vec![]));
    }

    #[test]
    fn stages_of_a_pipeline_are_no_outliers() {
        let (grouping, groups) = grouped_mib(&[7000, 7000, 5000, 5000, 4000, 4000, 6000, 6010]);
        assert_eq!((grouping, outliers(&groups)), (Grouping::Regular, vec![]));
        let ranks: Vec<Vec<u64>> = groups.into_iter().map(|group| group.ranks).collect();
        assert_eq!(ranks, [[0, 1], [2, 3], [4, 5], [6, 7]]);
    }

    #[test]
    fn a_rank_of_a_stage_may_differ() {
        let (grouping, groups) = grouped_mib(&[8000, 7000, 5000, 5000, 4000, 4000, 6000, 6010]);
        assert_eq!((grouping, groups.len(), outliers(&groups)), (Grouping::Regular, 4, vec![0]));
    }

    #[test]
    fn experts_repeat() {
        let (grouping, groups) = grouped_mib(&[4000, 5000, 4000, 5000, 4000, 5000, 4000, 5000]);
        assert_eq!(grouping, Grouping::Regular);
        let ranks: Vec<Vec<u64>> = groups.into_iter().map(|group| group.ranks).collect();
        assert_eq!(ranks, [[0, 2, 4, 6], [1, 3, 5, 7]]);
        // Pairs of tensor parallel ranks, two stages, twice.
        let (grouping, groups) = grouped_mib(&[4000, 4000, 5000, 5000, 4000, 4000, 5000, 5000]);
        assert_eq!((grouping, groups.len(), outliers(&groups)), (Grouping::Regular, 2, vec![]));
    }

    #[test]
    fn peaks_that_vary_have_an_outlier_only_far_away() {
        let varied = [4000, 4300, 4100, 4500, 4200, 4400, 4050, 4250];
        let (grouping, groups) = grouped_mib(&varied);
        assert_eq!((grouping, outliers(&groups)), (Grouping::Varied, vec![]));
        let (grouping, groups) = grouped_mib(&[&varied[..], &[9000]].concat());
        assert_eq!((grouping, outliers(&groups)), (Grouping::Varied, vec![8]));
    }

    #[test]
    fn a_missing_rank_does_not_break_the_rule() {
        let peaks = [(0, 7000), (1, 7000), (2, 5000), (3, 5000), (4, 4000), (6, 6000), (7, 6000)];
        let peaks: Vec<(u64, Bytes)> = peaks.map(|(rank, mib)| (rank, Bytes(mib << 20))).into();
        let (grouping, groups) = grouped(&peaks, Some(8));
        assert_eq!((grouping, groups.len(), outliers(&groups)), (Grouping::Regular, 4, vec![]));
        // Each of few ranks alone would follow any rule.
        let (grouping, _) =
            grouped(&[(0, Bytes(7 << 30)), (1, Bytes(5 << 30)), (2, Bytes(4 << 30))], Some(1024));
        assert_eq!(grouping, Grouping::Varied);
    }

    #[test]
    fn ranks_are_written_short() {
        assert_eq!(ranks_text(&[]), "");
        assert_eq!(ranks_text(&[3]), "3");
        assert_eq!(ranks_text(&[0, 1, 2, 5]), "0-2, 5");
        assert_eq!(ranks_text(&[0, 4, 8, 12, 16]), "0, 4, 8, ..., 16");
        assert_eq!(ranks_text(&[0, 2, 5, 9, 11, 12, 20]), "0, 2, 5, 9, 3 more");
        assert_eq!(ranks_text(&(0..1024).collect::<Vec<_>>()), "0-1023");
    }
}
