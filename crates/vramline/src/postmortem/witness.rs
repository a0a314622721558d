//! A text and a binary dump of one failure, joined: the dump wins, and both are compared chunk by chunk.
//!
//! TensorFlow writes a dump at every failed attempt, up to four for one failure, and its text once, at the last. Dumps of
//! equal content are therefore one failure. A text with a list of chunks finds its dump by that list; an error line, which
//! has none, belongs to the last dump of its pool. A text whose moment is known belongs to the last dump before it.

use crate::failure::{Chunk, Dialect, Failure, Failures, Layout, SizeRange, Witness};
use crate::names::Name;
use crate::units::plural;

/// A failed allocation is tried for ten seconds; a little more passes until the last dump is written.
const RETRY_MICROS: u64 = 12_000_000;

/// Joins failures of the same process. Each dump comes as one failure.
pub fn join(failures: &mut Failures) {
    let (dumps, texts): (Vec<Failure>, Vec<Failure>) = std::mem::take(&mut failures.list)
        .into_iter()
        .partition(|failure| failure.dialect == Dialect::MemoryDump);
    let (mut timed, mut texts): (Vec<Failure>, Vec<Failure>) =
        texts.into_iter().partition(|text| is_bare(text) && text.last_micros().is_some());
    let mut dumps = without_repeats(join_timed(&mut timed, dumps));
    let mut used = Vec::new();
    let found: Vec<Option<(usize, usize)>> = texts.iter().map(|text| closest(text, &dumps)).collect();
    let mut is_taken = vec![false; dumps.len()];
    for (text, its_dump) in texts.iter_mut().zip(&found) {
        let Some((at, different)) = *its_dump else { continue };
        let Some((dump, is_taken)) = dumps.get(at).zip(is_taken.get_mut(at)) else { continue };
        // An unused pool fails again in the same state: such failures share the dumps of that state.
        if *is_taken && different > 0 {
            continue;
        }
        *is_taken = true;
        let sharing =
            found.iter().flatten().filter(|(other, different)| *other == at && *different == 0).count();
        if different > 0 {
            let line = text.witnesses.first().and_then(|witness| witness.line).unwrap_or(0);
            failures.warnings.add(
                "dump-disagrees",
                format!(
                    "the text from line {line} on and the dump {} differ in {}; Vramline uses the dump",
                    shown(dump),
                    plural(different, "block", "blocks")
                ),
                "they may belong to different failures: pass only files of one failure",
            );
        }
        used.extend(moment(dump));
        adopt(text, dump.clone());
        text.attempts = (dump.attempts / sharing.max(1) as u64).max(1);
    }
    let mut taken = is_taken.into_iter();
    dumps.retain(|_| !taken.next().unwrap_or(false));
    join_errors(&mut texts, &mut dumps, &mut used);
    // Drops earlier attempts of a failure that is in the list already.
    dumps.retain(|dump| {
        let attempt = used.iter().find(|(pool, micros)| {
            let is_pool = dump.allocator == *pool;
            is_pool && dump.last_micros().is_some_and(|own| own <= *micros && micros - own <= RETRY_MICROS)
        });
        if let Some((pool, micros)) = attempt {
            let told =
                texts.iter_mut().find(|text| text.allocator == *pool && text.last_micros() == Some(*micros));
            told.into_iter().for_each(|text| text.attempts += dump.attempts);
        }
        attempt.is_none()
    });
    timed.extend(texts);
    timed.extend(dumps);
    failures.list = timed;
}

/// Whether a text tells of the pool by its error line only.
fn is_bare(text: &Failure) -> bool {
    text.layout.is_none() && text.sums.is_none() && text.dialect.is_bfc()
}

/// Texts with a moment: each takes the last dump of its pool before it, with the attempts that led to it. Gives the other dumps.
fn join_timed(texts: &mut [Failure], mut dumps: Vec<Failure>) -> Vec<Failure> {
    dumps.sort_by_key(Failure::last_micros);
    texts.sort_by_key(Failure::last_micros);
    for text in texts {
        let told = text.last_micros();
        let is_its = |dump: &Failure| is_of(text, dump) && dump.last_micros() <= told;
        let Some(at) = dumps.iter().rposition(is_its) else { continue };
        let dump = dumps.remove(at);
        let last = dump.last_micros().unwrap_or_default();
        let is_attempt = |other: &Failure| {
            is_of(text, other)
                && other.last_micros().is_some_and(|own| own <= last && last - own <= RETRY_MICROS)
        };
        let attempts: Vec<Failure> = dumps.extract_if(.., |other| is_attempt(other)).collect();
        adopt(text, dump);
        text.attempts += attempts.iter().map(|attempt| attempt.attempts).sum::<u64>();
    }
    dumps
}

/// Whether a dump may be of a text's failure: a dump with a hole that is large enough is of another one.
fn is_of(text: &Failure, dump: &Failure) -> bool {
    let is_pool = text.allocator.is_none() || dump.allocator == text.allocator;
    let is_full = match (&dump.sums, text.rounded) {
        (Some(sums), Some(rounded)) => sums.largest_usable < rounded.high,
        _ => true,
    };
    is_pool && is_full && dump.sums.is_some()
}

/// Error lines without a list of chunks: the last ones belong to the last dumps of their pool.
fn join_errors(texts: &mut [Failure], dumps: &mut Vec<Failure>, used: &mut Vec<(Option<String>, u64)>) {
    for text in texts.iter_mut().rev() {
        if !is_bare(text) || text.last_micros().is_some() {
            continue;
        }
        let Some(at) = dumps.iter().rposition(|dump| is_of(text, dump)) else { continue };
        let dump = dumps.remove(at);
        used.extend(moment(&dump));
        // Those before it that are of the same ten seconds are its attempts, not another failure's.
        adopt(text, dump);
    }
}

/// Dumps of equal content are attempts of one failure.
fn without_repeats(mut dumps: Vec<Failure>) -> Vec<Failure> {
    dumps.sort_by(|a, b| (&a.allocator, a.last_micros()).cmp(&(&b.allocator, b.last_micros())));
    let mut kept: Vec<Failure> = Vec::new();
    for dump in dumps {
        let is_same = |last: &Failure| {
            last.allocator == dump.allocator && last.layout.is_some() && same(&last.layout, &dump.layout)
        };
        // Several threads may wait at once: their attempts take turns.
        let recent = kept.iter_mut().rev().take(16).find(|last| is_same(last));
        match recent {
            Some(last) => {
                last.attempts += 1;
                last.witnesses.extend(dump.witnesses);
            }
            None => kept.push(dump),
        }
    }
    kept
}

fn same(one: &Option<Layout>, other: &Option<Layout>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => one.chunks().eq(other.chunks()),
        _ => false,
    }
}

/// Dumps that are compared chunk by chunk where none is equal to the text.
const COMPARED: usize = 64;

/// The dump that tells of the same pool in the same state, or nearly, and in how many chunks it differs.
fn closest(text: &Failure, dumps: &[Failure]) -> Option<(usize, usize)> {
    let layout = text.layout.as_ref()?;
    let of_pool = || {
        let dumps = dumps.iter().enumerate();
        dumps.filter(|(_, dump)| dump.allocator == text.allocator && dump.layout.is_some())
    };
    let facts = |chunk: &Chunk| (chunk.address, chunk.size, chunk.in_use);
    let is_equal = |dump: &Failure| {
        let chunks = dump.layout.iter().flat_map(Layout::chunks);
        chunks.map(facts).eq(layout.chunks().map(facts))
    };
    if let Some((at, _)) = of_pool().find(|(_, dump)| is_equal(dump)) {
        return Some((at, 0));
    }
    let compared = of_pool().take(COMPARED).map(|(at, dump)| (at, differences(text, dump)));
    let (at, different) = compared.min_by_key(|(_, different)| *different)?;
    (different * 2 <= layout.chunks().count()).then_some((at, different))
}

/// Chunks of either that the other does not have.
fn differences(text: &Failure, dump: &Failure) -> usize {
    let list = |failure: &Failure| -> Vec<(u64, u64, bool)> {
        let chunks = failure.layout.iter().flat_map(Layout::chunks);
        let mut list: Vec<_> = chunks.map(|chunk| (chunk.address, chunk.size.0, chunk.in_use)).collect();
        list.sort_unstable();
        list
    };
    let (one, other) = (list(text), list(dump));
    let missing = |from: &[(u64, u64, bool)], of: &[(u64, u64, bool)]| {
        of.iter().filter(|chunk| from.binary_search(chunk).is_err()).count()
    };
    missing(&one, &other).max(missing(&other, &one))
}

/// Gives a text what its dump knows better.
fn adopt(text: &mut Failure, dump: Failure) {
    let Some(mut layout) = dump.layout else { return };
    if let Some(told) = &text.layout {
        let mut known: Vec<&Chunk> = told.chunks().collect();
        known.sort_unstable_by_key(|chunk| chunk.address);
        for chunk in layout.regions.iter_mut().flat_map(|region| &mut region.chunks) {
            let at = known.binary_search_by_key(&chunk.address, |known| known.address);
            if let Some(known) = at.ok().and_then(|at| known.get(at)) {
                chunk.tag = known.tag;
                if chunk.op == Name::EMPTY {
                    chunk.op = known.op;
                }
            }
        }
        // The text says where regions begin.
        let begins: Vec<u64> =
            told.regions.iter().filter_map(|region| Some(region.chunks.first()?.address)).collect();
        let mut regions: Vec<crate::failure::Region> = Vec::new();
        for region in layout.regions {
            let mut is_first = true;
            for chunk in region.chunks {
                if is_first || begins.contains(&chunk.address) {
                    regions.push(crate::failure::Region::default());
                }
                is_first = false;
                if let Some(last) = regions.last_mut() {
                    last.chunks.push(chunk);
                }
            }
        }
        layout = Layout { regions, has_borders: true };
    }
    text.set_sums(layout.sums(text.end));
    text.layout = Some(layout);
    text.allocator = text.allocator.take().or(dump.allocator);
    text.peak_in_use = dump.peak_in_use.or(text.peak_in_use);
    text.allocs = dump.allocs.or(text.allocs);
    text.attempts = dump.attempts;
    text.witnesses.extend(dump.witnesses);
    set_limit(text, text.limit);
}

/// Takes a limit that is known from elsewhere, where the failure's own words do not contradict it; says whether they do.
pub(crate) fn set_limit(failure: &mut Failure, limit: Option<SizeRange>) -> bool {
    let is_consistent = crate::failure::narrow(&mut failure.limit, limit);
    if let (Some(limit), Some(pool)) = (failure.limit, failure.pool) {
        crate::failure::narrow(&mut failure.unallocated, Some(limit.minus(pool)));
    }
    is_consistent
}

fn moment(dump: &Failure) -> Option<(Option<String>, u64)> {
    Some((dump.allocator.clone(), dump.last_micros()?))
}

fn shown(dump: &Failure) -> String {
    let last: Option<&Witness> = dump.witnesses.last();
    last.map_or_else(String::new, |witness| format!("'{}'", witness.path.display()))
}
