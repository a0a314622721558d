//! A dump of a BFC pool that is being told, line by line: its bins, its regions with their chunks, and its sums.
//!
//! A list of chunks counts only where it is proved whole: its begin and its end were seen, the chunks fill their regions without a
//! gap, and no other line contradicts their sums.

use super::said::{Said, Stat};
use crate::failure::{
    BINS, Bin, Chunk, Dialect, Failure, Layout, Region, SizeRange, Tag, Witness, bin_of, narrow, rounded,
};
use crate::names::{Name, Names};
use crate::units::Bytes;
use crate::warning::Warnings;

/// Chunks are kept up to this many over all failures; of later ones only their sums.
const MOST_CHUNKS: usize = 1 << 20;

/// A dump that is being told.
#[derive(Debug)]
pub(crate) struct Dump {
    pub(crate) failure: Failure,
    bins: [Option<Bin>; BINS],
    regions: Vec<(Bytes, Region)>,
    is_list_begun: bool,
    pub(crate) is_list_ended: bool,
    is_broken: bool,
    is_in_stats: bool,
    /// Where the line of a dump that says nothing else would go on.
    pub(crate) has_dump: bool,
    sum_total: Option<SizeRange>,
    /// Whether its sums are told: what comes before them has ended.
    has_totals: bool,
    /// Whether it is of a pool with one end: those with two write their sums in other words.
    is_classic: bool,
}

impl Dump {
    pub(crate) fn new(witness: Witness) -> Dump {
        let mut failure = Failure::new(Dialect::Bfc);
        failure.witnesses.push(witness);
        Dump {
            failure,
            bins: [None; BINS],
            regions: Vec::new(),
            is_list_begun: false,
            is_list_ended: false,
            is_broken: false,
            is_in_stats: false,
            has_dump: false,
            sum_total: None,
            has_totals: false,
            is_classic: false,
        }
    }

    /// Whether an error line may follow: its list of chunks is told, or was never begun.
    pub(crate) fn is_told(&self) -> bool {
        self.is_list_ended || self.has_totals || !self.has_dump
    }

    /// A line of it.
    pub(crate) fn hear(&mut self, said: &Said, names: &mut Names) {
        let dump = self;
        let failure = &mut dump.failure;
        let is_consistent = match said {
            Said::Bin(bin) => {
                dump.has_dump = true;
                let slot = dump.bins.get_mut(bin.number);
                let is_new = slot.as_ref().is_some_and(|slot| slot.is_none());
                if let Some(slot) = slot {
                    *slot = Some(*bin);
                }
                is_new
            }
            Said::BinFor => {
                dump.has_dump = true;
                dump.is_list_begun = dump.regions.is_empty();
                true
            }
            Said::Region(size) => {
                dump.has_dump = true;
                dump.regions.push((*size, Region::default()));
                true
            }
            Said::Chunk { dialect, address, size, in_use, tag, op } => {
                dump.has_dump = true;
                // Free chunks of the oldest dialect look like those of the next.
                failure.dialect = match (failure.dialect, *dialect) {
                    (Dialect::Bfc, found) => found,
                    (Dialect::BfcA | Dialect::BfcB, found @ (Dialect::BfcA | Dialect::BfcB)) => {
                        found.max(failure.dialect)
                    }
                    (known, _) => known,
                };
                let op = op.as_ref().map_or(Name::EMPTY, |op| names.intern(op));
                let chunk =
                    Chunk { address: *address, size: *size, requested: None, in_use: *in_use, tag: *tag, op };
                match dump.regions.last_mut() {
                    Some((_, region)) => {
                        region.chunks.push(chunk);
                        true
                    }
                    None => false,
                }
            }
            Said::Summary => {
                dump.is_list_ended = true;
                true
            }
            Said::SumTotal(total) => {
                dump.has_totals = true;
                narrow(&mut dump.sum_total, Some(*total))
            }
            Said::Pool { pool, limit, available } => {
                (dump.has_dump, dump.has_totals, dump.is_classic) = (true, true, true);
                narrow(&mut failure.pool, Some(*pool))
                    && narrow(&mut failure.limit, Some(*limit))
                    && narrow(&mut failure.unallocated, Some(*available))
            }
            Said::Memory { largest, unallocated, pool, limit } => {
                narrow(&mut failure.pool, Some(*pool))
                    && narrow(&mut failure.limit, *limit)
                    && narrow(&mut failure.unallocated, Some(*unallocated))
                    && narrow(&mut failure.largest_free, *largest)
            }
            Said::Stats => {
                dump.is_in_stats = true;
                true
            }
            Said::Stat(stat, told) if dump.is_in_stats => match stat {
                Stat::Limit => narrow(&mut failure.limit, Some(*told)),
                Stat::InUse => narrow(&mut failure.in_use, Some(*told)),
                Stat::MaxInUse => narrow(&mut failure.peak_in_use, Some(*told)),
                Stat::NumAllocs => {
                    failure.allocs = told.value().map(|count| count.0);
                    true
                }
                // Nothing wrote it before 2026: it is zero there.
                Stat::LargestFreeBlock | Stat::Other => true,
            },
            Said::Occupancy => {
                dump.is_in_stats = false;
                true
            }
            _ => true,
        };
        // Lines of two dumps in one: none of it can be trusted to be of one pool.
        dump.is_broken |= !is_consistent;
    }

    /// The failure that a dump describes, combined from all its lines.
    pub(crate) fn concluded(self, warnings: &mut Warnings, kept_chunks: &mut usize) -> Failure {
        let Dump { mut failure, bins, regions, is_list_begun, is_list_ended, .. } = self;
        let Dump { is_broken, sum_total, is_classic, .. } = self;
        let told: Vec<Bin> = bins.iter().flatten().copied().collect();
        if is_broken {
            // Two dumps in one: only what the first line says is of one failure.
            let line = failure.witnesses.first().and_then(|witness| witness.line).unwrap_or(0);
            warnings.add(
                "mixed-dump",
                format!(
                    "the dump from line {line} on contains lines of another dump, or lines that contradict each other"
                ),
                "",
            );
            failure.limit = None;
            failure.pool = None;
            failure.unallocated = None;
            failure.in_use = None;
            failure.largest_free = None;
            failure.peak_in_use = None;
            failure.allocs = None;
            return failure;
        }
        narrow(&mut failure.in_use, sum_total);
        let in_all_bins = (told.len() == BINS).then(|| told.iter().map(|bin| bin.chunks).sum::<u64>());
        let has_begin = is_list_begun || in_all_bins.is_some();
        if has_begin && is_list_ended && regions.iter().all(|(size, region)| fills(*size, region)) {
            let regions = regions.into_iter().map(|(_, region)| region).collect();
            let layout = Layout { regions, has_borders: true };
            let sums = layout.sums(failure.end);
            let counted = layout.chunks().filter(|chunk| chunk.tag != Tag::Gap).count() as u64;
            let fits = |told: Option<SizeRange>, exact: Bytes| {
                told.is_none_or(|told| told.and(SizeRange::exact(exact)).is_some())
            };
            let is_proved = in_all_bins.is_none_or(|count| count == counted)
                && bins_agree(&told, &layout)
                && fits(failure.pool, sums.pool)
                && fits(failure.in_use, sums.in_use);
            if is_proved {
                failure.set_sums(sums);
                *kept_chunks += layout.chunks().count();
                if *kept_chunks <= MOST_CHUNKS {
                    failure.layout = Some(layout);
                }
            } else {
                let line = failure.witnesses.first().and_then(|witness| witness.line).unwrap_or(0);
                warnings.add(
                    "chunks-disagree",
                    format!("the block list of the dump from line {line} on does not add up to the totals in its other lines"),
                    "lines are missing or belong to another dump; Vramline does not use its sums",
                );
            }
        }
        if let Some(sums) = &failure.sums {
            // Each bin's own sum is known to the byte: only what was asked for is rounded.
            let of_bin = |bin: &Bin| {
                let exact = sums.in_use_of_bin.get(bin.number).copied().unwrap_or_default();
                SizeRange { low: bin.requested.low, high: bin.requested.high.min(exact) }
            };
            if told.len() == BINS {
                failure.requested_in_use =
                    Some(told.iter().map(of_bin).fold(SizeRange::exact(Bytes::ZERO), SizeRange::plus));
            }
        } else if told.len() == BINS {
            let sum = |of: fn(&Bin) -> SizeRange| {
                told.iter().map(of).fold(SizeRange::exact(Bytes::ZERO), SizeRange::plus)
            };
            narrow(&mut failure.in_use, Some(sum(|bin| bin.in_use)));
            failure.requested_in_use = Some(sum(|bin| bin.requested));
        }
        failure.bins = told;
        if let (Some(pool), Some(unallocated)) = (failure.pool, failure.unallocated) {
            narrow(&mut failure.limit, Some(pool.plus(unallocated)));
        }
        if let (Some(pool), Some(limit)) = (failure.pool, failure.limit) {
            narrow(&mut failure.unallocated, Some(limit.minus(pool)));
        }
        // Until 1.14 the sentence tells what was asked for only.
        if failure.rounded.is_none()
            && let Some(requested) = failure.requested
        {
            let (low, high) = (rounded(requested.low), rounded(requested.high));
            failure.rounded = Some(SizeRange { low, high });
        }
        // Without tags every free chunk can be used.
        if failure.free.is_none()
            && (is_classic || matches!(failure.dialect, Dialect::BfcA | Dialect::BfcB | Dialect::BfcC))
            && let (Some(pool), Some(in_use)) = (failure.pool, failure.in_use)
        {
            failure.free = Some(pool.minus(in_use));
        }
        failure
    }
}

/// Whether chunks fill a region from its begin to its end.
fn fills(size: Bytes, region: &Region) -> bool {
    let mut next = region.chunks.first().map(|chunk| chunk.address);
    let touches = region.chunks.iter().all(|chunk| {
        let fits = next == Some(chunk.address);
        next = chunk.address.checked_add(chunk.size.0);
        fits
    });
    touches && region.size() == size
}

/// Whether the bins count what the chunks are.
fn bins_agree(bins: &[Bin], layout: &Layout) -> bool {
    let mut counts = [(0u64, 0u64); BINS];
    for chunk in layout.chunks().filter(|chunk| chunk.tag != Tag::Gap) {
        if let Some((all, in_use)) = counts.get_mut(bin_of(chunk.size)) {
            *all += 1;
            *in_use += u64::from(chunk.in_use);
        }
    }
    bins.iter().all(|bin| counts.get(bin.number) == Some(&(bin.chunks, bin.chunks_in_use)))
}
