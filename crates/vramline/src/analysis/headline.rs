//! The answer of a report in a sentence, the figures behind it, and the sentences that go on from there.

use super::caching::CachedWhen;
use super::held::{HeldMoment, HeldRows};
use super::replayed::Replayed;
use super::report::{PoolAnalysis, ReportAnalysis};
use super::windows;
use crate::event::Framework;
use crate::snapshot::Role;
use crate::units::{Bytes, thousands};
use crate::warning::Warning;

/// Warnings that the pools which matter are not in the trace.
const SILENT: [&str; 2] = ["silent-allocator", "cuda-malloc-async"];

/// A share of its limit from which on a pool is called full.
const FULL_PERCENT: u128 = 95;

/// The answer of a report.
#[derive(Clone, Debug)]
pub struct ReportAnswer {
    /// One sentence.
    pub headline: String,
    /// What goes on from there: what held the peak, what was lost around it.
    pub explanation: Vec<String>,
    /// The answer in a word.
    pub word: ReportWord,
    /// The pool that it is about: the one with the highest peak.
    pub pool: Option<String>,
    /// Its device.
    pub device: Option<String>,
    /// The most that it held.
    pub peak: Option<Bytes>,
    /// What it may take, where somebody set that.
    pub limit: Option<Bytes>,
}

/// The answer of a report in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportWord {
    /// An allocation failed.
    OutOfMemory,
    /// The allocator that holds the memory is not in the trace.
    NotTraced,
    /// Nothing tells the memory.
    Unknown,
    /// The peak is close to the limit.
    Full,
    /// It fits, as far as is known.
    Fits,
}

words!(ReportWord {
    OutOfMemory => "out-of-memory",
    NotTraced => "not-traced",
    Unknown => "unknown",
    Full => "full",
    Fits => "fits",
});

impl ReportAnswer {
    /// Before anything is known.
    pub(super) fn open() -> ReportAnswer {
        ReportAnswer {
            headline: String::new(),
            explanation: Vec::new(),
            word: ReportWord::Unknown,
            pool: None,
            device: None,
            peak: None,
            limit: None,
        }
    }

    /// The answer of a report whose pools and warnings are known.
    pub(super) fn of(report: &ReportAnalysis) -> ReportAnswer {
        let main = report.pools.first();
        let find = |codes: &[&str]| {
            let warning = report.warnings.iter().find(|warning| codes.contains(&warning.code));
            warning.map(sentence)
        };
        let (failed, silent) = (find(&["out-of-memory"]), find(&SILENT));
        let (peak, limit) =
            (main.and_then(PoolAnalysis::highest), main.and_then(PoolAnalysis::binding_limit));
        let word = match (&failed, &silent, peak) {
            (Some(_), ..) => ReportWord::OutOfMemory,
            (None, Some(_), _) => ReportWord::NotTraced,
            (None, None, None) => ReportWord::Unknown,
            (None, None, Some(peak)) if limit.is_some_and(|limit| is_full(peak, limit)) => ReportWord::Full,
            _ => ReportWord::Fits,
        };
        let about = match main {
            Some(pool) => about_pool(report, pool),
            None if report.job.is_some() => vec!["No figures in this recording.".to_owned()],
            None if report.source.framework == Some(Framework::PyTorch) => {
                vec!["The snapshot is empty: it tells of no memory.".to_owned()]
            }
            None => vec!["No memory events in this trace.".to_owned()],
        };
        let mut sentences = failed.into_iter().chain(silent).chain(about);
        ReportAnswer {
            headline: sentences.next().unwrap_or_default(),
            explanation: sentences.collect(),
            word,
            pool: main.map(|pool| pool.name.clone()),
            device: main.map(|pool| pool.device.clone()),
            peak,
            limit,
        }
    }
}

fn is_full(peak: Bytes, limit: Bytes) -> bool {
    u128::from(peak.0) * 100 >= u128::from(limit.0) * FULL_PERCENT
}

/// A warning as a sentence.
fn sentence(warning: &Warning) -> String {
    let mut letters = warning.text.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string()).unwrap_or_default();
    format!("{first}{}.", letters.as_str())
}

fn about_pool(report: &ReportAnalysis, pool: &PoolAnalysis) -> Vec<String> {
    let program = match report.source.framework {
        Some(Framework::TensorFlow) => "TensorFlow",
        Some(Framework::Jax) => "JAX",
        Some(Framework::PyTorch) => "PyTorch",
        None => "The program",
    };
    let name = &pool.name;
    let Some(peak) = pool.peak else {
        return vec![format!("{program} does not tell the memory of {name}.")];
    };
    let mut sentences = Vec::new();
    // The trace of a recording covers its first steps; the counters cover all of it.
    let ever = pool.lifetime_peak.filter(|&ever| ever > peak && report.job.is_some());
    if let Some(ever) = ever {
        sentences.push(windows::not_traced(program, ever, pool));
    }
    let Some(held) = &pool.at_peak else {
        sentences.push(format!("{program} held {peak} on {name} at the peak; no trace shows what held it."));
        return sentences;
    };
    let of_limit = pool
        .binding_limit()
        .map_or(String::new(), |limit| format!(", {} of its limit of {limit}", peak.percent_of(limit)));
    let of_steps = if ever.is_some() { " of the traced steps" } else { "" };
    // Of the first steps there is nothing to say; of others the reader wants to know which.
    let place = pool.peak_in.as_ref().filter(|_| pool.window > Some(1));
    let place = place.map_or(String::new(), |place| format!(", {place}"));
    sentences.push(match pool.moment {
        HeldMoment::Peak => {
            format!("{program} held {peak} in {name} at the peak{of_steps}{place}{of_limit}.")
        }
        HeldMoment::Dump => {
            let count = held.rows.iter().map(|row| row.count).sum::<u64>();
            let count = thousands(count.saturating_add(held.rest.map_or(0, |rest| rest.count)));
            format!(
                "{program} held {peak} in {name}, in {count} blocks, at the moment of the dump{of_limit}."
            )
        }
        HeldMoment::Program => format!("The compiled program asks for {peak} in {name}."),
    });
    sentences.extend(by_role(held, peak));
    sentences.extend(apart(held, peak, pool.moment));
    sentences.extend(cached_at_dump(pool));
    // A replay is of the first trace, and so is what it says of its peak.
    let replay = pool.replay.as_ref().filter(|_| pool.window.is_none_or(|window| window == 1));
    sentences.extend(replay.map(around_the_peak));
    sentences
}

/// Everything that the peak consists of, the most first: roles, what none of them explains, rounding, and what was there before.
fn parts_of_peak(held: &HeldRows) -> Vec<(Bytes, &'static str)> {
    let roles = Role::ALL.into_iter().map(|role| (held.of_role(role), role.word()));
    let beside = [(held.slack, "rounding"), (held.before_recording, "from before the recording")];
    let mut parts: Vec<(Bytes, &'static str)> =
        roles.chain(beside).filter(|(bytes, _)| *bytes > Bytes::ZERO).collect();
    parts.sort_by_key(|(bytes, _)| std::cmp::Reverse(*bytes));
    parts
}

/// The peak as a sum. What is less than a hundredth is added up.
fn by_role(held: &HeldRows, peak: Bytes) -> Option<String> {
    let (large, small): (Vec<_>, Vec<_>) = parts_of_peak(held)
        .into_iter()
        .partition(|(bytes, _)| bytes.share_of(peak).is_some_and(|share| share >= 0.01));
    let mut told: Vec<String> = large.iter().map(|(bytes, what)| format!("{what} {bytes}")).collect();
    let others: Bytes = small.iter().map(|(bytes, _)| *bytes).sum();
    if others > Bytes::ZERO && !told.is_empty() {
        told.push(format!("others {others}"));
    }
    (!told.is_empty()).then(|| format!("That is {}.", told.join(", ")))
}

/// What a caching allocator kept beside what it had handed out when the snapshot was taken.
fn cached_at_dump(pool: &PoolAnalysis) -> Option<String> {
    let caching = pool.caching.as_ref().filter(|_| pool.moment == HeldMoment::Dump)?;
    let (_, end) = caching.moments.iter().find(|(when, _)| *when == CachedWhen::End)?;
    let cached = end.reserved.saturating_sub(end.active);
    let blocks =
        caching.free_blocks.map_or(String::new(), |blocks| format!(" in {} blocks", thousands(blocks)));
    Some(format!(
        "It had reserved {}, of which {cached} ({}){blocks} was cached and not in use.",
        end.reserved,
        cached.percent_of(end.reserved)
    ))
}

/// What no role explains.
fn apart(held: &HeldRows, peak: Bytes, moment: HeldMoment) -> Option<String> {
    let mut apart = Vec::new();
    if held.slack > Bytes::ZERO {
        let share = held.slack.percent_of(peak);
        apart.push(format!("{} ({share}) is rounding: chunks larger than what was asked for", held.slack));
    }
    if held.before_recording > Bytes::ZERO {
        let share = held.before_recording.percent_of(peak);
        apart.push(format!("{} ({share}) is in use since before the recording", held.before_recording));
    }
    let requested = held.named + held.unnamed;
    if held.unnamed > Bytes::ZERO && held.unnamed.share_of(requested).is_some_and(|share| share >= 0.01) {
        apart.push(format!("{} ({}) has no name", held.unnamed, held.unnamed.percent_of(peak)));
    }
    let whole = if moment == HeldMoment::Peak { "the peak" } else { "that" };
    (!apart.is_empty()).then(|| format!("Of {whole}, {}.", apart.join("; ")))
}

/// What a replay says of the pool around the peak.
fn around_the_peak(replay: &Replayed) -> String {
    let reproduced =
        format!("{} of {} addresses", thousands(replay.address_matches), thousands(replay.allocs));
    // Figures of a replay that goes another way than the trace are of another pool.
    if replay.address_matches < replay.allocs {
        return format!("A replay reproduces {reproduced}: too few to tell how fragmented the pool is.");
    }
    let how = if replay.is_exact { "By exact replay" } else { "By replay from an assumed start" };
    if replay.growths < 2 {
        return format!(
            "{how}, the pool was taken at once, {}; any allocator needs {}.",
            replay.pool, replay.load
        );
    }
    let free = replay.cached_at_peak;
    let mut more = Vec::new();
    if replay.pool > replay.pool_at_peak {
        more.push(format!("at most it was {}", replay.pool));
    }
    if replay.joined < replay.pool {
        more.push(format!("in one piece {} would do", replay.joined));
    }
    more.push(format!("any allocator needs {}", replay.load));
    format!(
        "{how}, the pool was {} then, of which {free} ({}) was free; {}.",
        replay.pool_at_peak,
        free.percent_of(replay.pool_at_peak),
        more.join("; ")
    )
}
