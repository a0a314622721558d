//! The log of an out-of-memory error, line for line as the real allocator writes it, without the log's prefixes.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::bins::{BINS, bin_of};
use super::chunk::{Chunk, NO_BIN, Tag};
use super::{Bfc, Dialect, End, round_up};
use crate::allocator::slab::Handle;
use crate::units::Bytes;

/// Formats a handle as dumps do.
fn printed(handle: Handle) -> u64 {
    if handle.is_some() { u64::from(handle.0) } else { u64::MAX }
}

/// Formats a size as these logs do: whole bytes, or two decimals (one for KiB), with the rounding of their integer division.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "as the real one computes it")]
pub fn human(bytes: Bytes) -> String {
    let mut value = bytes.0;
    if value < 1024 {
        return format!("{value}B");
    }
    let mut unit = "KMGTPE".chars();
    let mut prefix = unit.next().unwrap_or('K');
    while value >= 1024 * 1024 {
        value /= 1024;
        prefix = unit.next().unwrap_or('E');
    }
    let value = value as f64 / 1024.0;
    if prefix == 'K' { format!("{value:.1}KiB") } else { format!("{value:.2}{prefix}iB") }
}

#[derive(Clone, Copy, Default)]
struct BinSum {
    chunks: u64,
    in_use: u64,
    bytes: u64,
    bytes_in_use: u64,
    requested: u64,
}

impl Bfc {
    /// The whole log of a failed request. One message may have several lines.
    #[must_use]
    pub fn dump(&self, request: Bytes, end: End, op: &str) -> String {
        let rounded = Bytes(round_up(request.0).unwrap_or(request.0));
        let mut out = String::new();
        self.dump_failure(&mut out, request, rounded, end, op);
        let _ = writeln!(out, "BFCAllocator dump for {}", self.name);
        self.dump_bins(&mut out, rounded);
        let total = self.dump_regions(&mut out);
        let _ = writeln!(out, "Sum Total of in-use chunks: {}", human(total));
        self.dump_summary(&mut out, rounded, end);
        self.dump_stats(&mut out);
        let _ = writeln!(out, "{}", self.occupancy());
        out
    }

    fn dump_failure(&self, out: &mut String, request: Bytes, rounded: Bytes, end: End, op: &str) {
        let _ = write!(
            out,
            "Allocator ({}) ran out of memory trying to allocate {} (rounded to {})",
            self.name,
            human(request),
            rounded.0
        );
        if self.options.dialect == Dialect::Tagged {
            let _ = writeln!(
                out,
                " from the {} end requested by op {op}\nIf this is caused by memory fragmentation, the environment \
                 variable 'TF_GPU_ALLOCATOR=cuda_malloc_async' may improve the situation.\nCurrent allocation summary \
                 follows.",
                end.tag().word()
            );
        } else {
            let _ = writeln!(
                out,
                "requested by op {op}\nIf the cause is memory fragmentation maybe the environment variable \
                 'TF_GPU_ALLOCATOR=cuda_malloc_async' will improve the situation. \nCurrent allocation summary \
                 follows.\nCurrent allocation summary follows."
            );
        }
    }

    fn dump_bins(&self, out: &mut String, rounded: Bytes) {
        let mut sums = [BinSum::default(); BINS];
        for chunk in self.all_chunks().filter(|chunk| chunk.tag != Tag::Gap) {
            let Some(sum) = sums.get_mut(usize::from(bin_of(chunk.size))) else { continue };
            sum.chunks += 1;
            sum.bytes = sum.bytes.saturating_add(chunk.size);
            if chunk.in_use() {
                sum.in_use += 1;
                sum.bytes_in_use = sum.bytes_in_use.saturating_add(chunk.size);
                sum.requested = sum.requested.saturating_add(chunk.requested);
            }
        }
        for (bin, sum) in sums.iter().enumerate() {
            let _ = writeln!(
                out,
                "Bin ({}): \tTotal Chunks: {}, Chunks in use: {}. {} allocated for chunks. {} in use in bin. {} \
                 client-requested in use in bin.",
                256_u64 << bin,
                sum.chunks,
                sum.in_use,
                human(Bytes(sum.bytes)),
                human(Bytes(sum.bytes_in_use)),
                human(Bytes(sum.requested))
            );
        }
        let bin = bin_of(rounded.0);
        let label = Bytes(256 << bin);
        let _ = writeln!(out, "Bin for {} was {}, Chunk State: ", human(rounded), human(label));
        for free in self.bins.of(bin) {
            let chunk = self.chunks.at(free.handle);
            let mut line = short(chunk);
            for (word, neighbour) in [("prev", chunk.prev), ("next", chunk.next)] {
                if neighbour.is_some() {
                    let _ = write!(line, ", {word}: {}", short(self.chunks.at(neighbour)));
                }
            }
            let _ = writeln!(out, "{line}");
        }
    }

    fn dump_regions(&self, out: &mut String) -> Bytes {
        let mut sizes: BTreeMap<u64, u64> = BTreeMap::new();
        for region in &self.regions {
            let _ = writeln!(out, "Next region of size {}", region.size);
            for handle in self.chunks_of(region) {
                let chunk = self.chunks.at(handle);
                if chunk.in_use() {
                    *sizes.entry(chunk.size).or_default() += 1;
                }
                let word = if chunk.in_use() { "InUse" } else { "Free " };
                let _ = write!(out, "{word} at {:x} of size {}", chunk.ptr, chunk.size);
                if self.options.dialect == Dialect::Tagged {
                    let _ = write!(out, " tag {}", chunk.tag.word());
                }
                let _ = write!(out, " next {}", printed(chunk.next));
                if self.options.timed {
                    let _ = write!(out, " freed_at_count {}", chunk.freed_at);
                }
                out.push('\n');
            }
        }
        let _ = writeln!(out, "     Summary of in-use Chunks by size: ");
        let mut total = Bytes::ZERO;
        for (size, count) in sizes {
            let bytes = Bytes(size.saturating_mul(count));
            total += bytes;
            let _ = writeln!(out, "{count} Chunks of size {size} totalling {}", human(bytes));
        }
        total
    }

    fn dump_summary(&self, out: &mut String, rounded: Bytes, end: End) {
        let stats = &self.stats;
        let left = stats.limit.saturating_sub(stats.pool);
        let next = Bytes(self.region_size);
        let sizes = [stats.pool, stats.limit, left, next];
        let [pool, limit, available, region] = match self.options.dialect {
            Dialect::RegionBytes | Dialect::PoolBytes => sizes.map(|bytes| bytes.0.to_string()),
            Dialect::PoolSize | Dialect::Tagged => sizes.map(human),
        };
        let words = match self.options.dialect {
            Dialect::RegionBytes => ("total_region_allocated_bytes_", "bytes"),
            Dialect::PoolBytes => ("Total bytes in pool", "bytes"),
            Dialect::PoolSize => ("Total size in pool", "size"),
            Dialect::Tagged => return self.dump_tagged_summary(out, rounded, end),
        };
        let _ = writeln!(
            out,
            "{}: {pool} memory_limit_: {limit} available {}: {available} curr_region_allocation_bytes_: {region}",
            words.0, words.1
        );
    }

    fn dump_tagged_summary(&self, out: &mut String, rounded: Bytes, end: End) {
        let stats = &self.stats;
        let word = end.tag().word();
        let gap = if self.gap.is_some() { self.chunks.at(self.gap).size } else { 0 };
        let same_end = self.bins.largest_of(end.tag(), &self.chunks);
        let _ = writeln!(
            out,
            "Allocator memory summary: rounded request {}, total free in pool {}, largest free chunk usable by {word} \
             end {}, unallocated bytes {}, pool size {}, pool limit {}",
            human(rounded),
            human(stats.free()),
            human(Bytes(same_end.max(gap))),
            human(stats.limit.saturating_sub(stats.pool)),
            human(stats.pool),
            human(stats.limit)
        );
        if self.gap.is_some() {
            let _ = writeln!(
                out,
                "Spatial partitioning summary for {word} end: central gap {}, largest same-end binned free chunk {}, \
                 largest binned free chunk from any end {}. The central gap is shared by lower/upper allocations and \
                 is not inserted into a bin.",
                human(Bytes(gap)),
                human(Bytes(same_end)),
                human(Bytes(self.bins.largest()))
            );
        }
        let growth = if self.options.growth {
            "(growth enabled)."
        } else {
            "(growth disabled; fixed-size pool; not an attempted allocation)."
        };
        let next = human(Bytes(self.region_size));
        let _ = writeln!(out, "Allocator region growth hint: next region allocation target {next} {growth}");
    }

    /// The block of statistics, which ends with an empty line.
    fn dump_stats(&self, out: &mut String) {
        let stats = &self.stats;
        let is_tagged = self.options.dialect == Dialect::Tagged;
        let shown = |bytes: Bytes| match self.options.dialect {
            Dialect::RegionBytes | Dialect::PoolBytes => bytes.0.to_string(),
            Dialect::PoolSize | Dialect::Tagged => human(bytes),
        };
        // Only the newest version reports the largest block.
        let largest = if is_tagged { self.largest_free() } else { Bytes::ZERO };
        let _ = writeln!(out, "Stats: ");
        let mut line = |label: &str, value: String| {
            let _ = writeln!(out, "{label:<18}{value:>20}");
        };
        line("Limit:", shown(stats.limit));
        line("InUse:", shown(stats.in_use));
        line("MaxInUse:", shown(stats.peak_in_use));
        line("NumAllocs:", stats.allocs.to_string());
        line("MaxAllocSize:", shown(stats.largest_alloc));
        line("Reserved:", shown(Bytes::ZERO));
        line("PeakReserved:", shown(Bytes::ZERO));
        if is_tagged {
            // Its label is four columns wider than the others.
            line("PeakAllocated:        ", shown(stats.peak_in_use));
        }
        line("LargestFreeBlock:", shown(largest));
        out.push('\n');
    }

    /// A map of all regions in a hundred characters: `*` requested, `x` rounding, `_` free.
    fn occupancy(&self) -> String {
        const CELLS: u128 = 100;
        let total: u128 = self.regions.iter().map(|region| u128::from(region.size)).sum();
        if total == 0 {
            return "<allocator contains no memory>".to_owned();
        }
        let mut cells = vec!['_'; 100];
        let mut paint = |from: u128, length: u64, with: char| {
            let Some(last) = length.checked_sub(1) else { return };
            let cell = |at: u128| usize::try_from(at * CELLS / total).unwrap_or(usize::MAX);
            let (first, last) = (cell(from), cell(from + u128::from(last)));
            cells.iter_mut().take(last.saturating_add(1)).skip(first).for_each(|cell| *cell = with);
        };
        let mut offset: u128 = 0;
        for region in &self.regions {
            for handle in self.chunks_of(region) {
                let chunk = self.chunks.at(handle);
                if !chunk.in_use() {
                    continue;
                }
                let start = offset + u128::from(chunk.ptr.saturating_sub(region.base));
                let slack = chunk.size.saturating_sub(chunk.requested);
                paint(start + u128::from(chunk.requested), slack, 'x');
                paint(start, chunk.requested, '*');
            }
            offset += u128::from(region.size);
        }
        cells.into_iter().collect()
    }

    fn all_chunks(&self) -> impl Iterator<Item = &Chunk> {
        let handles = self.regions.iter().flat_map(|region| self.chunks_of(region));
        handles.map(|handle: Handle| self.chunks.at(handle))
    }
}

fn short(chunk: &Chunk) -> String {
    let bin = if chunk.bin == NO_BIN { "-1".to_owned() } else { chunk.bin.to_string() };
    format!(
        "  Size: {} | Requested Size: {} | in_use: {} | bin_num: {bin}",
        human(Bytes(chunk.size)),
        human(Bytes(chunk.requested)),
        u8::from(chunk.in_use())
    )
}
