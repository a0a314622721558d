//! The post-mortem: for each failed allocation its verdict, what keeps holes apart, who holds the pool, and what would have helped.

use std::fmt::Write;

use rustc_hash::FxHashMap;

use super::causes;
use super::moments::{HeldAtFailure, HeldSource};
use super::reading::OutOfMemory;
use super::replayed::{self, RemedyKind};
use crate::advise::Finding;
use crate::failure::{Failure, Layout, Region, SizeRange};
use crate::names::Names;
use crate::postmortem::advice::{self, Advice};
use crate::postmortem::bridge::{self, Bridge};
use crate::postmortem::headline;
use crate::postmortem::need::LeastNeed;
use crate::postmortem::outcome::FailureOutcome;
use crate::postmortem::{self, Conclusion, Proof, Verdict};
use crate::units::{Bytes, counted};
use crate::warning::Warning;

/// The most sizes of which a pool's holders are listed.
const MAX_HOLDERS: usize = 20;

/// Signs of the longest row of a picture.
pub const MAP_WIDTH: usize = 64;

/// Everything that a post-mortem says.
#[derive(Debug)]
pub struct OomAnalysis<'a> {
    /// What was read.
    pub read: &'a OutOfMemory,
    /// The failures: those that ended their process first, then in the order of the text.
    pub failures: Vec<FailureAnalysis<'a>>,
    /// Failures that are alike, by their places.
    pub groups: Vec<Vec<usize>>,
}

/// A failure, explained.
#[derive(Debug)]
pub struct FailureAnalysis<'a> {
    /// As it was told.
    pub failure: &'a Failure,
    /// Which of those that were read.
    at: usize,
    /// The process of the recording, by its place.
    pub process: Option<usize>,
    /// What became of the request.
    pub outcome: FailureOutcome,
    /// Why it failed.
    pub conclusion: Conclusion,
    /// What proves that its limit is the user's own.
    pub proof: Option<&'a Proof>,
    /// What keeps the holes of a fragmented pool apart.
    pub bridge: Option<Bridge>,
    /// The regions of the pool.
    pub regions: Vec<RegionPicture>,
    /// Chunks in use by size and name, the most bytes first.
    pub holders: Vec<Holder>,
    /// What the program needs at least, where a recording tells.
    pub need: Option<&'a LeastNeed>,
    /// Who held the memory then, where a recording shows it.
    pub held: Option<&'a HeldAtFailure>,
    /// What memory grew by until the failure, where a recording shows it.
    pub growth: Option<&'a Finding>,
    /// What would help.
    pub advice: Vec<Advice>,
    /// What happened, in a sentence.
    pub headline: String,
}

/// A region of a pool, and its picture in signs.
#[derive(Clone, Debug)]
pub struct RegionPicture {
    /// Where it begins.
    pub address: u64,
    /// Its bytes.
    pub size: Bytes,
    /// Of these, in use.
    pub in_use: Bytes,
    /// Of these, free.
    pub free: Bytes,
    /// The largest free chunk.
    pub largest_free: Bytes,
    /// How many chunks.
    pub chunks: usize,
    /// `#` in use, `x` slack, `.` free, `:` where a sign's bytes are more than half free but not all.
    pub map: String,
}

/// Chunks in use of one size and name.
#[derive(Clone, Debug)]
pub struct Holder {
    /// All of their bytes.
    pub bytes: Bytes,
    /// How many.
    pub count: u64,
    /// The size of each.
    pub chunk: Bytes,
    /// The requested bytes.
    pub requested: Option<Bytes>,
    /// The op.
    pub op: String,
}

/// Makes the post-mortem of what was read.
#[must_use]
pub fn oom(read: &OutOfMemory) -> OomAnalysis<'_> {
    let proofs = read.proofs.iter().map(Option::as_ref).chain(std::iter::repeat(None));
    let told = read.failures.list.iter().zip(proofs).enumerate();
    let mut failures: Vec<FailureAnalysis<'_>> =
        told.map(|(at, (failure, proof))| FailureAnalysis::of(read, at, failure, proof)).collect();
    failures.sort_by_key(|each| each.outcome);
    let conclusions: Vec<Conclusion> = failures.iter().map(|each| each.conclusion.clone()).collect();
    let list: Vec<&Failure> = failures.iter().map(|each| each.failure).collect();
    let groups = postmortem::groups(&list, &conclusions);
    advise_by_replay(read, &mut failures);
    OomAnalysis { read, failures, groups }
}

impl<'a> FailureAnalysis<'a> {
    fn of(
        read: &'a OutOfMemory,
        at: usize,
        failure: &'a Failure,
        proof: Option<&'a Proof>,
    ) -> FailureAnalysis<'a> {
        let outcome = read.outcome(at);
        let conclusion = postmortem::conclude(failure, proof);
        let is_fragmented = conclusion.verdict == Some(Verdict::Fragmented);
        let layout = failure.layout.as_ref();
        let bridge = layout
            .zip(conclusion.request)
            .filter(|_| is_fragmented)
            .and_then(|(layout, request)| bridge::bridge(layout, request.high, failure.end));
        // A request that was served needs nothing.
        let is_served = outcome == FailureOutcome::ServedLater;
        let need = read.need(at).filter(|_| !outcome.is_survived());
        let told = postmortem::Told { failure, conclusion: &conclusion, proof, need };
        let mut advice = if is_served { Vec::new() } else { advice::advice(&told, bridge.as_ref()) };
        // Where memory grows, less of it at this moment only delays the failure.
        let is_own = conclusion.verdict != Some(Verdict::Device);
        let held = read.held.get(at).and_then(Option::as_ref);
        let led = is_own && !outcome.is_survived();
        // What a snapshot at the failure shows says more than the counters of the steps before it; another trace does not.
        let growth = causes::growth(read).filter(|_| led);
        let is_shown = held.is_some_and(|held| held.shown_by == HeldSource::Failure) || growth.is_none();
        let grown =
            held.filter(|_| led && is_shown).and_then(|held| held.growth.as_ref().zip(held.advice.as_ref()));
        let growth = growth.filter(|_| grown.is_none());
        let mut headline = headline::headline(&told, outcome);
        if let Some((sentence, what_to_do)) = grown {
            advice.insert(0, Advice { text: what_to_do.clone(), raises_limit: false, bytes: None });
            let _ = write!(headline, " {sentence}");
        }
        if let Some(finding) = growth {
            let bytes = Some(finding.bytes);
            advice.insert(0, Advice { text: finding.fix.clone(), raises_limit: false, bytes });
            let _ = write!(headline, " {}", finding.text);
        }
        FailureAnalysis {
            headline,
            advice,
            need,
            held,
            growth,
            at,
            process: read.of_process.get(at).copied().flatten(),
            outcome,
            regions: layout.map(regions).unwrap_or_default(),
            holders: layout.map(|layout| holders(layout, &read.failures.names)).unwrap_or_default(),
            failure,
            conclusion,
            proof,
            bridge,
        }
    }
}

/// The answer of a post-mortem in a word: the verdict on its first failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OomWord {
    /// No allocation fails.
    None,
    /// Why it failed cannot be told.
    Unknown,
    /// Some did, and the job went on.
    WentOn,
    /// None does, and a signal ended the job.
    Killed,
    /// As in [`Verdict`].
    Verdict(Verdict),
}

written_as!(OomWord ["none", "unknown", "went-on", "killed", "device", "fragmented", "slack", "exhausted", "limit"]);

impl OomWord {
    /// The word for it.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            OomWord::None => "none",
            OomWord::Unknown => "unknown",
            OomWord::WentOn => "went-on",
            OomWord::Killed => "killed",
            OomWord::Verdict(verdict) => verdict.word(),
        }
    }
}

impl serde::Serialize for OomWord {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

impl OomAnalysis<'_> {
    /// The answer in a sentence.
    #[must_use]
    pub fn headline(&self) -> String {
        match (self.failures.first(), self.failures.len()) {
            (None, _) if self.killed().is_some() => self.killed().map(killed).unwrap_or_default(),
            (None, _) => match headline::without_harm(&self.read.failures.soft) {
                Some(what) => format!("Memory was short, but no failure was fatal: {what}."),
                None => "No out-of-memory error found.".to_owned(),
            },
            (Some(first), _) if first.outcome.is_survived() => {
                let survived: Vec<(FailureOutcome, &Failure)> =
                    self.failures.iter().map(|each| (each.outcome, each.failure)).collect();
                format!("The job went on: {}.", gone_on(&survived))
            }
            (Some(first), 1) => first.headline.clone(),
            (Some(first), count) => format!("Failure 1 of {count}: {}", first.headline),
        }
    }

    /// The answer in a word.
    #[must_use]
    pub fn word(&self) -> OomWord {
        match self.failures.first() {
            None if self.killed().is_some() => OomWord::Killed,
            None => OomWord::None,
            Some(first) if first.outcome.is_survived() => OomWord::WentOn,
            Some(first) => first.conclusion.verdict.map_or(OomWord::Unknown, OomWord::Verdict),
        }
    }
}

impl OomAnalysis<'_> {
    /// The process that a signal ended, with the most memory; `None` if an allocation failed.
    #[must_use]
    pub fn killed(&self) -> Option<&HeldAtFailure> {
        let killed = self.read.killed.iter().filter(|_| self.failures.is_empty());
        killed.max_by_key(|held| held.last_in_use.max(Some(held.in_use)))
    }
}

/// A process that a signal ended, in a sentence.
fn killed(held: &HeldAtFailure) -> String {
    let signal = held.signal.unwrap_or_default();
    let by = match signal {
        9 => "signal 9 (SIGKILL) ended the job: the kernel, a scheduler or a person sent it".to_owned(),
        15 => "signal 15 (SIGTERM) ended the job: a scheduler or a person sent it".to_owned(),
        other => format!("signal {other} ended the job"),
    };
    let device = &held.device;
    let last =
        held.last_in_use.map_or(String::new(), |bytes| format!(" {bytes} were in use on {device} at last."));
    let growth = held.growth.as_ref().map_or(String::new(), |growth| format!(" {growth}"));
    format!("No allocation failed; {by}.{last}{growth}")
}

/// What a replay adds, where there is a trace: for the first failure of each that it knows.
fn advise_by_replay(read: &OutOfMemory, analysed: &mut [FailureAnalysis<'_>]) {
    for host in &read.hosts {
        let is_mine = |at: usize| read.of_process.get(at).copied().flatten() == host.process;
        // What nobody missed needs no advice.
        let mine = analysed.iter_mut().filter(|each| is_mine(each.at) && !each.outcome.is_survived());
        let found = mine.into_iter().find_map(|each| {
            let by = each.proof.map(|proof| proof.by.as_str());
            let by = by.filter(|_| each.conclusion.verdict == Some(Verdict::Limit));
            Some((replayed::advice(&host.trace, each.failure, host.version.as_deref(), by)?, each))
        });
        let Some(((kind, advice), analysed)) = found else { continue };
        // It knows the order of requests; the arithmetic beside it only the bytes. What led to the failure comes before both.
        let has_moment = analysed.held.is_some_and(|held| held.growth.is_some());
        let first = usize::from(analysed.growth.is_some() || has_moment);
        match kind {
            RemedyKind::Setting => analysed.advice.insert(first, advice),
            RemedyKind::Limit => {
                analysed.advice.retain(|known| !known.raises_limit);
                analysed.advice.insert(first.min(analysed.advice.len()), advice);
            }
            RemedyKind::None => analysed.advice.push(advice),
        }
    }
}

/// Whether the job went on after every failure that was read: then they are no more than a note.
#[must_use]
pub fn is_survived(read: &OutOfMemory) -> bool {
    (0..read.failures.list.len()).all(|at| read.outcome(at).is_survived())
}

/// The failures in one sentence, for the report on a recording: the one that ended the job, else that it went on.
pub(super) fn in_short(read: &OutOfMemory) -> Option<Warning> {
    let list = &read.failures.list;
    let (at, failure) = list.iter().enumerate().min_by_key(|(at, _)| read.outcome(*at))?;
    if read.outcome(at).is_survived() {
        let survived: Vec<(FailureOutcome, &Failure)> =
            list.iter().enumerate().map(|(at, failure)| (read.outcome(at), failure)).collect();
        return Some(Warning {
            code: "refused-at-first",
            text: format!("the job went on: {}", gone_on(&survived)),
            hint: "run `vramline oom` with the same path to see each of them".to_owned(),
        });
    }
    let conclusion = postmortem::conclude(failure, read.proofs.get(at).and_then(Option::as_ref));
    let size = conclusion.request.map_or(String::new(), |told| format!(" of {}", advice::shown(told)));
    let size = format!("an allocation{size}");
    let op = failure.op.as_deref().map_or(String::new(), |op| format!(" for {op}"));
    let pool = failure.allocator.as_deref().map_or(String::new(), |name| format!(" in {name}"));
    let short = conclusion.short_by.filter(|told| told.high > Bytes::ZERO);
    let short = short.map_or(String::new(), advice::short_by);
    let why = conclusion.verdict.map_or("cause unknown".to_owned(), |verdict| verdict.title().to_owned());
    let more = match list.len() {
        1 => String::new(),
        count => format!("; {}", counted(count - 1, "more failure")),
    };
    Some(Warning {
        code: "out-of-memory",
        text: format!("out of memory ({why}): {size}{op}{pool} failed{short}{more}"),
        hint: "run `vramline oom` with the same path for the cause and what to do".to_owned(),
    })
}

/// Requests that failed in a job that went on: how many, of which sizes, in which pools.
fn gone_on(failures: &[(FailureOutcome, &Failure)]) -> String {
    /// Sizes that are listed.
    const LISTED: usize = 3;
    let mut parts = Vec::new();
    let kinds = [
        (FailureOutcome::WentOn, "failed"),
        (FailureOutcome::ServedLater, "failed at first and succeeded later"),
    ];
    for (outcome, what) in kinds {
        let of_kind = failures.iter().filter(|(each, _)| *each == outcome).map(|(_, failure)| *failure);
        let mut sizes: Vec<SizeRange> =
            of_kind.clone().filter_map(|failure| failure.requested.or(failure.rounded)).collect();
        sizes.sort_by_key(|told| std::cmp::Reverse(told.high));
        let mut pools: Vec<&str> =
            of_kind.clone().filter_map(|failure| failure.allocator.as_deref()).collect();
        pools.sort_unstable();
        pools.dedup();
        let count = of_kind.count();
        if count == 0 {
            continue;
        }
        let requests = counted(count, "allocation");
        let mut of: Vec<String> = sizes.iter().take(LISTED).map(|told| advice::shown(*told)).collect();
        if sizes.len() > LISTED {
            of.push(format!("{} more", sizes.len() - LISTED));
        }
        let of = match sizes.len() {
            0 => String::new(),
            known if known == count => format!(" ({})", of.join(", ")),
            known => format!(" ({}; {} of unknown size)", of.join(", "), count - known),
        };
        let place = if pools.is_empty() { String::new() } else { format!(" in {}", pools.join(", ")) };
        parts.push(format!("{requests}{of}{place} {what}"));
    }
    parts.join("; ")
}

/// Chunks in use by size and name, the most bytes first.
fn holders(layout: &Layout, names: &Names) -> Vec<Holder> {
    let mut groups = FxHashMap::default();
    for chunk in layout.chunks().filter(|chunk| chunk.in_use) {
        *groups.entry((chunk.size, chunk.requested, chunk.op)).or_insert(0u64) += 1;
    }
    let mut holders: Vec<Holder> = groups
        .into_iter()
        .map(|((size, requested, op), count)| Holder {
            bytes: Bytes(size.0.saturating_mul(count)),
            count,
            chunk: size,
            requested,
            op: names.get(op).to_owned(),
        })
        .collect();
    holders
        .sort_by(|a, b| (b.bytes, b.chunk, b.requested, &a.op).cmp(&(a.bytes, a.chunk, a.requested, &b.op)));
    holders.truncate(MAX_HOLDERS);
    holders
}

/// One row for each region: `#` in use, `x` slack, `.` free, `:` where a sign's bytes are more than half free but not all.
fn regions(layout: &Layout) -> Vec<RegionPicture> {
    let largest = layout.regions.iter().map(|region| region.size().0).max().unwrap_or(0);
    layout
        .regions
        .iter()
        .map(|region| {
            let size = region.size();
            let chunks = |in_use: bool| region.chunks.iter().filter(move |chunk| chunk.in_use == in_use);
            RegionPicture {
                address: region.chunks.first().map_or(0, |chunk| chunk.address),
                size,
                in_use: chunks(true).map(|chunk| chunk.size).sum(),
                free: chunks(false).map(|chunk| chunk.size).sum(),
                largest_free: chunks(false).map(|chunk| chunk.size).max().unwrap_or_default(),
                chunks: region.chunks.len(),
                map: map(region, largest),
            }
        })
        .collect()
}

fn map(region: &Region, largest: u64) -> String {
    let size = region.size().0;
    if size == 0 || largest == 0 {
        return String::new();
    }
    let width =
        (u128::from(size) * MAP_WIDTH as u128).div_ceil(u128::from(largest)).clamp(1, MAP_WIDTH as u128);
    // Bytes of each sign: in use and asked for, slack, free.
    let mut cells = vec![[0u128; 3]; usize::try_from(width).unwrap_or(1)];
    let mut paint = |from: u128, length: u128, kind: usize| {
        let end = from + length;
        // Positions are counted in 1/size of a sign, so that all borders are whole numbers.
        let (mut at, size) = (from * width, u128::from(size));
        while at < end * width {
            let cell = at / size;
            let until = ((cell + 1) * size).min(end * width);
            let slot = usize::try_from(cell).ok().and_then(|cell| cells.get_mut(cell));
            if let Some(slot) = slot.and_then(|cell| cell.get_mut(kind)) {
                *slot += until - at;
            }
            at = until;
        }
    };
    let mut offset = 0u128;
    for chunk in &region.chunks {
        let size = u128::from(chunk.size.0);
        if chunk.in_use {
            let asked = chunk.requested.map_or(size, |asked| u128::from(asked.0).min(size));
            paint(offset, asked, 0);
            paint(offset + asked, size - asked, 1);
        } else {
            paint(offset, size, 2);
        }
        offset += size;
    }
    let sign = |&[used, slack, free]: &[u128; 3]| {
        let whole = used + slack + free;
        if free == whole {
            '.'
        } else if free * 2 >= whole {
            ':'
        } else if slack * 2 >= whole {
            'x'
        } else {
            '#'
        }
    };
    cells.iter().map(sign).collect()
}
