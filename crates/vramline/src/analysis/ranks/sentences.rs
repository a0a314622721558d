//! What the report says of the ranks of a job, a sentence each: the answer over the job, and notes on what is missing.

use super::clocks::AlignedBy;
use super::difference::Difference;
use super::endings::FirstFailure;
use super::groups::{Grouping, RankGroup, ranks_text};
use super::{JobRanks, Outlier, RanksAnalysis};
use crate::units::{Bytes, Nanos, capitalised, counted, duration_text, plural, thousands};
use crate::warning::Warning;

/// Outliers that have a sentence of their own.
const TOLD_OUTLIERS: usize = 3;
/// Groups that are listed in a sentence.
const TOLD_GROUPS: usize = 4;
/// Parts of a difference that are told.
const TOLD_PARTS: usize = 3;
/// A wall clock that is off by this much is worth a word; less is what NTP leaves.
const WALL_OFF: i64 = 1_000_000_000;

/// The answer over the job.
pub(super) fn of(ranks: &RanksAnalysis) -> Vec<String> {
    let first = ranks.first_failure.as_ref().map(|first| failure(first, ranks.hosts.len() > 1));
    let mut sentences: Vec<String> = first.into_iter().flatten().collect();
    sentences.extend(spread(ranks));
    sentences.extend(groups(ranks));
    sentences.extend(ranks.outliers.iter().take(TOLD_OUTLIERS).map(outlier));
    let more = ranks.outliers.len().saturating_sub(TOLD_OUTLIERS);
    if more > 0 {
        let all: Vec<u64> = ranks.outliers.iter().skip(TOLD_OUTLIERS).map(|outlier| outlier.rank).collect();
        sentences.push(format!(
            "{} more than 1 % from their group: {}.",
            plural(more, "other rank is", "other ranks are"),
            sorted_text(all)
        ));
    }
    sentences.extend(clock(ranks));
    sentences
}

fn sorted_text(mut ranks: Vec<u64>) -> String {
    ranks.sort_unstable();
    ranks_text(&ranks)
}

/// "ranks 1-3", "rank 4".
fn named(ranks: &[u64]) -> String {
    let word = if ranks.len() == 1 { "rank" } else { "ranks" };
    format!("{word} {}", ranks_text(ranks))
}

fn failure(first: &FirstFailure, has_hosts: bool) -> Vec<String> {
    let mut sentences = Vec::new();
    if first.at_once.is_empty() {
        let others = first.later.len() + first.lost_peers.len() + first.killed.len();
        let is_alone = if others == 0 { "" } else { " first" };
        let host = if has_hosts { format!(" on {}", first.host) } else { String::new() };
        sentences.push(format!("Rank {}{host} ran out of memory{is_alone}.", first.rank));
    } else {
        let mut all = first.at_once.clone();
        all.push(first.rank);
        let within = first.clock_residual.map_or_else(
            || "the clocks of their hosts cannot be compared".to_owned(),
            |residual| match residual.0 {
                0 => "the recording does not show their times".to_owned(),
                _ => format!("the clocks of their hosts are aligned to {}", short_text(residual)),
            },
        );
        all.sort_unstable();
        sentences.push(format!(
            "{} ran out of memory; which was first is unknown, because {within}.",
            capitalised(&named(&all))
        ));
    }
    let mut followed = Vec::new();
    if !first.later.is_empty() {
        followed.push(format!("{} ran out of memory later", named(&first.later)));
    }
    if !first.lost_peers.is_empty() {
        followed.push(format!("{} failed in an operation with other ranks", named(&first.lost_peers)));
    }
    if !first.killed.is_empty() {
        followed.push(format!("{} ended without a last word, as killed processes do", named(&first.killed)));
    }
    if !followed.is_empty() {
        sentences.push(format!("After it, {}.", followed.join("; ")));
    }
    sentences
}

fn spread(ranks: &RanksAnalysis) -> Vec<String> {
    let count = thousands(ranks.ranks.len() as u64);
    let (Some(highest), Some(lowest)) = (ranks.highest, ranks.lowest) else {
        return vec![format!("The memory of none of the {count} ranks is known.")];
    };
    let range = if highest.peak == lowest.peak {
        format!("The peak is {} on each of the {count} ranks", highest.peak)
    } else {
        let more = highest.peak.saturating_sub(lowest.peak);
        format!(
            "Peaks of {count} ranks: {} on rank {} to {} on rank {}, a difference of {more} ({})",
            highest.peak,
            highest.rank,
            lowest.peak,
            lowest.rank,
            more.percent_of(highest.peak)
        )
    };
    let room = ranks.tightest.and_then(|tightest| {
        Some(format!("; rank {} has the least headroom, {}", tightest.rank, tightest.headroom?))
    });
    vec![format!("{range}{}.", room.unwrap_or_default())]
}

fn groups(ranks: &RanksAnalysis) -> Option<String> {
    let group = |group: &RankGroup| {
        let peak = if group.lowest.to_string() == group.highest.to_string() {
            group.highest.to_string()
        } else {
            format!("{} to {}", group.lowest, group.highest)
        };
        format!("{} {peak}", ranks_text(&group.ranks))
    };
    match ranks.grouping {
        Grouping::Regular => {
            let told: Vec<String> = ranks.groups.iter().take(TOLD_GROUPS).map(group).collect();
            let more = ranks.groups.len().saturating_sub(TOLD_GROUPS);
            let more = if more > 0 { format!("; {}", counted(more, "more group")) } else { String::new() };
            Some(format!(
                "The ranks form {} with like peaks, as stages of a pipeline or experts do: {}{more}.",
                counted(ranks.groups.len(), "group"),
                told.join("; ")
            ))
        }
        Grouping::Varied => Some("The peaks vary from rank to rank without a rule.".to_owned()),
        Grouping::Alike
            if ranks.outliers.is_empty()
                && ranks.highest.map(|one| one.peak) != ranks.lowest.map(|one| one.peak) =>
        {
            Some("All ranks are alike: within 1 % or 1 MiB of the median.".to_owned())
        }
        Grouping::Alike | Grouping::Few => None,
    }
}

fn outlier(outlier: &Outlier) -> String {
    let bytes = Bytes(outlier.difference.unsigned_abs());
    let (more, sign) = if outlier.difference < 0 { ("less", -1) } else { ("more", 1) };
    let head = format!(
        "Rank {} holds {bytes} {more} than rank {}, which is typical",
        outlier.rank, outlier.compared_with
    );
    let Some(parts) = &outlier.parts else {
        return format!("{head}; no trace shows both peaks, so it is unknown what makes the difference.");
    };
    let is_of_it = |part: &&Difference| part.bytes.signum() == sign;
    let told: Vec<String> =
        parts.iter().filter(is_of_it).take(TOLD_PARTS).map(Difference::to_string).collect();
    format!("{head}: {}.", told.join(", "))
}

/// How well moments of different hosts can be compared.
fn clock(ranks: &RanksAnalysis) -> Option<String> {
    let others = || ranks.hosts.iter().filter(|host| host.by == AlignedBy::Steps);
    let worst = others().filter_map(|host| host.residual).max()?;
    Some(format!(
        "The clocks of {} are aligned by the ends of shared steps, to {}.",
        counted(others().count() + 1, "host"),
        short_text(worst)
    ))
}

/// A length of time that may be very short.
fn short_text(length: Nanos) -> String {
    match length.0 {
        0..1_000 => format!("{} ns", length.0),
        1_000..1_000_000 => format!("{} µs", length.0 / 1_000),
        1_000_000..1_000_000_000 => format!("{} ms", length.0 / 1_000_000),
        _ => duration_text(length),
    }
}

/// Notes on what is missing or mixed.
pub(super) fn warnings(ranks: &RanksAnalysis, job: &JobRanks) -> Vec<Warning> {
    let mut warnings = Vec::new();
    let mut add =
        |code, text: String, hint: &str| warnings.push(Warning { code, text, hint: hint.to_owned() });
    if let Some(size) = ranks.world_size.filter(|_| !ranks.missing.is_empty()) {
        add(
            "missing-ranks",
            format!(
                "the launcher announced {} ranks, and the recording has {}: {} missing",
                thousands(size),
                thousands(ranks.ranks.len() as u64),
                if ranks.missing.len() == 1 {
                    format!("rank {} is", ranks_text(&ranks.missing))
                } else {
                    format!("ranks {} are", ranks_text(&ranks.missing))
                }
            ),
            "record every host into the same folder, or join the folders with `vramline gather`",
        );
    }
    if ranks.earlier_attempts > 0 {
        add(
            "earlier-attempts",
            format!(
                "the report shows the last attempt of each rank; the recording has {} before that",
                plural(ranks.earlier_attempts, "attempt of a rank", "attempts of ranks")
            ),
            "",
        );
    }
    let versions: Vec<String> = job
        .versions
        .iter()
        .map(|(version, count)| format!("{version} ({})", plural(*count, "rank", "ranks")))
        .collect();
    if versions.len() > 1 {
        add(
            "mixed-versions",
            format!("the ranks were recorded by different versions of Vramline: {}", versions.join(", ")),
            "install the same version on every host: figures of one version may be missing in another",
        );
    }
    for host in ranks
        .hosts
        .iter()
        .filter(|host| host.wall_ahead.is_some_and(|ahead| ahead.saturating_abs() >= WALL_OFF))
    {
        let ahead = host.wall_ahead.unwrap_or_default();
        let first = ranks.hosts.first().map_or("", |host| host.host.as_str());
        add(
            "clock-off",
            format!(
                "the clock of host {} is {} {} that of host {first}; the report goes by shared steps instead",
                host.host,
                duration_text(Nanos(ahead.saturating_abs())),
                if ahead < 0 { "behind" } else { "ahead of" }
            ),
            "set the clocks of the hosts with NTP or chrony",
        );
    }
    let unaligned: Vec<&str> = ranks
        .hosts
        .iter()
        .filter(|host| host.by == AlignedBy::WallClock)
        .map(|host| host.host.as_str())
        .collect();
    if let Some(first) = unaligned.first() {
        let more = unaligned.len() - 1;
        let others = if more > 0 { format!(" and {}", counted(more, "other host")) } else { String::new() };
        add(
            "clocks-not-aligned",
            format!(
                "host {first}{others} shares too few steps with the first host, so its times are those of its own wall clock"
            ),
            "",
        );
    }
    warnings
}
