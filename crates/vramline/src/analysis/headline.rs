//! The answer of a report: a headline, the parts of the peak, and the sentences that explain it.

use super::caching::CachedWhen;
use super::held::{HeldMoment, HeldRows};
use super::pool_size;
use super::report::{PoolAnalysis, ReportAnalysis};
use super::steps;
use super::subject;
use super::windows::PeakPlace;
use crate::event::Framework;
use crate::ledger::LineKind;
use crate::snapshot::Role;
use crate::trace::Phase;
use crate::units::{Bytes, capitalised, counted, thousands};
use crate::warning::Warning;

/// The code of the warning that an allocation failed.
const FAILED: [&str; 1] = ["out-of-memory"];

/// Codes of warnings that the allocator which holds the memory is not in the trace.
pub(super) const SILENT_ALLOCATORS: [&str; 2] = ["silent-allocator", "cuda-malloc-async"];

/// A share of its limit from which on a pool is called full.
const FULL_PERCENT: u128 = 95;

/// A traced moment that misses the peak of the process by at most one part in this many explains it well enough.
const NEAR_SHARE: u64 = 20;

/// The answer of a report.
#[derive(Clone, Debug)]
pub struct ReportAnswer {
    /// What the report is about: file, command, how it ended, framework and device.
    pub subject: Vec<String>,
    /// The answer in one or two sentences.
    pub headline: String,
    /// What the peak consists of, the largest part first; the parts add up to the peak that the report explains.
    pub parts: Vec<PeakPart>,
    /// Further sentences: what the driver counts, fragmentation, steps.
    pub explanation: Vec<String>,
    /// The answer in a word.
    pub word: ReportWord,
    /// The pool that it is about: the one with the highest peak.
    pub pool: Option<String>,
    /// Its device.
    pub device: Option<String>,
    /// Its peak.
    pub peak: Option<Bytes>,
    /// Its limit, where somebody set one.
    pub limit: Option<Bytes>,
}

/// A part of the peak.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeakPart {
    /// A role, `rounding` or `before the recording`.
    pub what: &'static str,
    /// Its bytes.
    pub bytes: Bytes,
}

/// The answer of a report in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportWord {
    /// An allocation failed.
    OutOfMemory,
    /// The allocator that holds the memory is not in the trace.
    NotTraced,
    /// The source does not report memory.
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
            subject: Vec::new(),
            headline: String::new(),
            parts: Vec::new(),
            explanation: Vec::new(),
            word: ReportWord::Unknown,
            pool: None,
            device: None,
            peak: None,
            limit: None,
        }
    }

    /// The answer of a report whose pools, findings and warnings are known.
    pub(super) fn of(report: &ReportAnalysis) -> ReportAnswer {
        let main = report.pools.first();
        let first = |codes: &[&str]| {
            let at = first_with(&report.warnings, codes)?;
            report.warnings.get(at).map(sentence)
        };
        let (failed, silent) = (first(&FAILED), first(&SILENT_ALLOCATORS));
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
            None if report.job.is_some() => {
                let by_calls = pool_size::without_pool(report);
                vec![by_calls.unwrap_or_else(|| "This recording has no memory figures.".to_owned())]
            }
            None if report.source.framework == Some(Framework::PyTorch) => {
                vec!["The snapshot is empty: it has no segments and no history.".to_owned()]
            }
            None => vec!["This trace has no memory events.".to_owned()],
        };
        // Over a job first, then on the rank that is explained.
        let over_job = report.ranks.iter().flat_map(|ranks| ranks.sentences.clone());
        let mut sentences = over_job.chain(failed).chain(silent).chain(about);
        ReportAnswer {
            subject: subject::of(report, main),
            headline: sentences.next().unwrap_or_default(),
            parts: main.and_then(|pool| pool.at_peak.as_ref()).map(parts_of_peak).unwrap_or_default(),
            explanation: sentences.collect(),
            word,
            pool: main.map(|pool| pool.name.clone()),
            device: main.map(|pool| pool.device.clone()),
            peak,
            limit,
        }
    }
}

/// The warnings that the headline or the explanation repeats, by their places.
#[must_use]
pub fn warnings_in_answer(warnings: &[Warning]) -> Vec<usize> {
    [&FAILED[..], &SILENT_ALLOCATORS[..]]
        .into_iter()
        .filter_map(|codes| first_with(warnings, codes))
        .collect()
}

fn first_with(warnings: &[Warning], codes: &[&str]) -> Option<usize> {
    warnings.iter().position(|warning| codes.contains(&warning.code))
}

fn is_full(peak: Bytes, limit: Bytes) -> bool {
    u128::from(peak.0) * 100 >= u128::from(limit.0) * FULL_PERCENT
}

/// A warning as a sentence.
fn sentence(warning: &Warning) -> String {
    format!("{}.", capitalised(&warning.text))
}

/// The headline of a pool, then what explains it.
fn about_pool(report: &ReportAnalysis, pool: &PoolAnalysis) -> Vec<String> {
    let place = pool.place();
    let Some(peak) = pool.peak else {
        let program = report.source.program();
        return vec![format!("{program} does not report the memory of {place}.")];
    };
    let mut sentences = Vec::new();
    // The trace of a recording covers its first steps; the counters cover all of it.
    let highest = pool.lifetime_peak.filter(|&highest| highest > peak && report.job.is_some());
    let Some(held) = &pool.at_peak else {
        let highest = highest.unwrap_or(peak);
        sentences.push(format!(
            "Peak memory: {}. No trace shows what held it (`vramline run --trace auto` records one).",
            at_place(report, pool, highest)
        ));
        sentences.extend(pool_size::sentence(report, pool));
        sentences.extend(steps::sentence(report, pool));
        return sentences;
    };
    match (pool.moment, highest) {
        (HeldMoment::Peak, Some(highest)) => sentences.push(beyond_the_trace(report, pool, highest, peak)),
        (HeldMoment::Peak, None) => {
            let when = within(pool.peak_in.as_ref());
            sentences.push(format!("Peak memory: {}{when}.", at_place(report, pool, peak)));
        }
        (HeldMoment::Dump, _) => {
            let count = held.rows.iter().map(|row| row.count).sum::<u64>();
            let count = count.saturating_add(held.rest.map_or(0, |rest| rest.count));
            sentences.push(format!(
                "Memory in use at the moment of the dump: {}, in {}.",
                at_place(report, pool, peak),
                counted(count, "block")
            ));
            sentences.push("The peak is unknown, because the file has no history of it.".to_owned());
        }
        (HeldMoment::Failure, highest) => {
            let when = within(pool.peak_in.as_ref());
            let beyond = highest.map_or(String::new(), |highest| {
                format!(" The peak of the process was {}, {} higher.", highest, highest.saturating_sub(peak))
            });
            let peak = at_place(report, pool, peak);
            sentences.push(format!("Memory in use when an allocation failed{when}: {peak}.{beyond}"));
        }
        (HeldMoment::Program, _) => {
            sentences.push(format!("The compiled program needs {peak} for {place}."));
        }
    }
    sentences.extend(cached_at_dump(pool));
    sentences.extend(pool_size::sentence(report, pool));
    sentences.extend(unnamed(held, peak, pool.moment));
    sentences.extend(steps::sentence(report, pool));
    sentences
}

/// A size with its device, and its share of the limit or of the device.
fn at_place(report: &ReportAnalysis, pool: &PoolAnalysis, bytes: Bytes) -> String {
    let share = match (pool.binding_limit(), device_total(report, pool)) {
        (Some(limit), _) => format!(" ({} of its limit of {limit})", bytes.percent_of(limit)),
        (None, Some(total)) => format!(" ({} of its {total})", bytes.percent_of(total)),
        (None, None) => String::new(),
    };
    format!("{bytes} on {}{share}", pool.place())
}

/// All memory of a pool's device. Host memory that stands in for a device is not the pool's own.
fn device_total(report: &ReportAnalysis, pool: &PoolAnalysis) -> Option<Bytes> {
    if pool.device.starts_with("CPU") || pool.device.starts_with("HOST") {
        return None;
    }
    let mut lines = report.ledger_lines(pool);
    let total = lines.find(|line| line.what.kind() == LineKind::Device).and_then(|line| line.bytes);
    let told = total.and_then(|bytes| u64::try_from(bytes).ok()).map(Bytes);
    told.or_else(|| pool.hardware.as_ref()?.memory)
}

/// A peak of the process that no trace shows to the byte, and what the report explains instead.
fn beyond_the_trace(report: &ReportAnalysis, pool: &PoolAnalysis, highest: Bytes, peak: Bytes) -> String {
    let when = within(pool.rose_in.as_ref());
    let traced = within(pool.peak_in.as_ref());
    let lower = highest.saturating_sub(peak);
    let details = if lower.0 <= peak.0 / NEAR_SHARE {
        format!("The details below are for the highest traced moment{traced}, which is {lower} lower.")
    } else {
        format!(
            "No trace covers that moment (`vramline run --trace all` would). The details below are for the highest traced moment: \
             {peak}{traced}."
        )
    };
    format!("Peak memory: {}{when}. {details}", at_place(report, pool, highest))
}

/// Where in the program a peak was; empty where that says nothing.
fn within(place: Option<&PeakPlace>) -> String {
    let place = place.filter(|place| place.step.is_some() || place.phase != Phase::Other);
    place.map_or(String::new(), |place| format!(", {place}"))
}

/// Everything that the peak consists of, the most first: roles, rounding, and what was allocated before the recording.
fn parts_of_peak(held: &HeldRows) -> Vec<PeakPart> {
    let roles = Role::ALL.into_iter().map(|role| PeakPart { bytes: held.of_role(role), what: role.word() });
    let others = [
        PeakPart { bytes: held.slack, what: "rounding" },
        PeakPart { bytes: held.before_recording, what: "before the recording" },
    ];
    let mut parts: Vec<PeakPart> = roles.chain(others).filter(|part| part.bytes > Bytes::ZERO).collect();
    parts.sort_by_key(|part| std::cmp::Reverse(part.bytes));
    parts
}

/// What a caching allocator kept when the snapshot was taken, beyond the blocks in use.
fn cached_at_dump(pool: &PoolAnalysis) -> Option<String> {
    let caching = pool.caching.as_ref().filter(|_| pool.moment == HeldMoment::Dump)?;
    let (_, end) = caching.moments.iter().find(|(when, _)| *when == CachedWhen::End)?;
    let cached = end.reserved.saturating_sub(end.active);
    let blocks =
        caching.free_blocks.map_or(String::new(), |blocks| format!(" in {}", counted(blocks, "free block")));
    Some(format!(
        "PyTorch had reserved {} from the driver; {cached} of it ({}) was cached{blocks}.",
        end.reserved,
        cached.percent_of(end.reserved)
    ))
}

/// The share of the peak that has no name.
fn unnamed(held: &HeldRows, peak: Bytes, moment: HeldMoment) -> Option<String> {
    let requested = held.named + held.unnamed;
    let is_worth_a_word = held.unnamed.share_of(requested).is_some_and(|share| share >= 0.01);
    let (whole, known) = match moment {
        HeldMoment::Peak => ("the peak", "only size and time of these blocks are known"),
        HeldMoment::Dump | HeldMoment::Failure => {
            ("the memory in use", "only the size of these blocks is known")
        }
        HeldMoment::Program => ("the program", "only the size of these buffers is known"),
    };
    (held.unnamed > Bytes::ZERO && is_worth_a_word).then(|| {
        format!("{} of {whole} ({}) has no name: {known}.", held.unnamed, held.unnamed.percent_of(peak))
    })
}

/// What a replay reproduces, where that is too little to measure fragmentation.
pub(super) fn reproduced(address_matches: u64, allocs: u64) -> String {
    format!(
        "A replay reproduces {} of {} addresses, which is too few to measure fragmentation.",
        thousands(address_matches),
        thousands(allocs)
    )
}
