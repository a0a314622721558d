//! What BFC's pool and CUDA's asynchronous pool write under TensorFlow and XLA: the failed request, the dump, its statistics.

use super::said::{Line, Reading, Refused, Said, Stat};
use super::sizes::{self, Writer, hex, number, size, size_or_bytes};
use super::text::{after, before, cut, cut_or, find, part_begins, part_if_empty, part_of, text};
use crate::failure::{BINS, Bin, Dialect, Platform, Tag, bin_of};
use crate::units::Bytes;

pub(crate) fn chunk(rest: &[u8], in_use: bool, is_oldest: bool) -> Reading {
    let (rest, is_prefixed) = rest.strip_prefix(b"0x").map_or((rest, false), |rest| (rest, true));
    let Some((address, rest)) = hex(rest) else {
        return if rest.is_empty() { Reading::Part } else { Reading::Foreign };
    };
    let said = |dialect, size, tag, op| Said::Chunk { dialect, address, size: Bytes(size), in_use, tag, op };
    if let Some(rest) = rest.strip_prefix(b"next") {
        let Some((_, rest)) = number(rest) else { return part_if_empty(rest) };
        let Some(rest) = rest.strip_prefix(b"ofsize") else { return part_of(rest, b"ofsize") };
        return match number(rest) {
            Some((size, [])) => Reading::EndsInDigits(said(Dialect::BfcB, size, Tag::Lower, None)),
            Some(_) => Reading::Foreign,
            None => part_if_empty(rest),
        };
    }
    let Some(rest) = rest.strip_prefix(b"ofsize") else {
        return if part_begins(rest, b"ofsize") || part_begins(rest, b"next") {
            Reading::Part
        } else {
            Reading::Foreign
        };
    };
    let Some((size, rest)) = number(rest) else { return part_if_empty(rest) };
    // Windows writes the oldest dialect without 0x.
    if is_prefixed || (is_oldest && rest.is_empty()) {
        let old = is_oldest || rest.is_empty();
        return match rest {
            [] if old => Reading::EndsInDigits(said(Dialect::BfcA, size, Tag::Lower, None)),
            _ => Reading::Foreign,
        };
    }
    const OPTIONS: [&[u8]; 5] = [b"next", b"tag", b"byop", b"allocation_annotation", b"freed_at_count"];
    if !OPTIONS.iter().any(|option| rest.starts_with(option) || option.starts_with(rest)) {
        return Reading::Foreign;
    }
    let Some(at) = rest.windows(4).rposition(|window| window == b"next") else { return Reading::Part };
    let (options, next) = rest.split_at(at);
    match number(next.get(4..).unwrap_or_default()) {
        None => return part_if_empty(next.get(4..).unwrap_or_default()),
        Some((_, rest)) if rest.is_empty() || rest.starts_with(b"freed_at_count") => {}
        Some(_) => return Reading::Foreign,
    }
    let (tag, options, dialect) = match options.strip_prefix(b"tag") {
        Some(tag) if tag.starts_with(b"lower") => (Tag::Lower, tag, Dialect::BfcD),
        Some(tag) if tag.starts_with(b"upper") => (Tag::Upper, tag, Dialect::BfcD),
        Some(tag) if tag.starts_with(b"central_gap") => (Tag::Gap, tag, Dialect::BfcD),
        Some(_) => return Reading::Foreign,
        None => (Tag::Lower, options, Dialect::BfcC),
    };
    let op = after(options, b"allocation_annotation")
        .or_else(|| after(options, b"byop").map(|op| before(op, b"action_count")));
    let op = op.map(text).filter(|op| !op.is_empty());
    // What it ends in is the number of the next chunk, which says nothing.
    Reading::Says(said(dialect, size, tag, op))
}

/// `Allocator (GPU_0_bfc) ran out of memory trying to allocate 1.00GiB (rounded to 1073741824)requested by op Conv2D`.
pub(crate) fn ran_out(line: &Line<'_>, message: &[u8]) -> Reading {
    let Some(rest) = after(message, RAN_OUT) else { return Reading::Foreign };
    let Some((requested, rest)) = size(rest, Writer::Xla) else { return cut(line) };
    let allocator = allocator_of(message);
    if after(rest, b"notafailure").is_some() {
        return Reading::Says(Said::Soft { allocator, requested });
    }
    if rest.starts_with(b".Seelogs") {
        return Reading::Says(Said::SeeLogs(requested));
    }
    let ran_out = |rounded, end, op| Said::RanOut {
        allocator: allocator.clone(),
        requested: Some(requested),
        rounded,
        end,
        op,
    };
    // Until 1.14 the sentence ended here.
    if rest.starts_with(b".Currentallocationsummary") {
        return Reading::Says(ran_out(None, Tag::Lower, None));
    }
    if let Some((_, b".")) = after(rest, b"withfreed_by_count=").and_then(number)
        && line.is_ended
    {
        return Reading::Says(ran_out(None, Tag::Lower, None));
    }
    if allocator.is_some() && (rest.is_empty() || part_begins(rest, b".Currentallocationsummary")) {
        return cut(line);
    }
    if allocator.is_none() && part_begins(rest, b".Seelogs") {
        return cut(line);
    }
    let Some(rest) = rest.strip_prefix(b"(roundedto") else { return cut_or(line, rest, b"(roundedto") };
    let Some((rounded, rest)) = number(rest) else { return part_if_empty(rest) };
    let Some(rest) = rest.strip_prefix(b")") else { return part_if_empty(rest) };
    let end = if rest.starts_with(b"fromtheupperend") { Tag::Upper } else { Tag::Lower };
    // An op's name at the very end of a file may be cut.
    let op = after(rest, b"requestedbyop").filter(|_| line.is_ended).map(text).filter(|op| !op.is_empty());
    let ends_in_name = op.is_some();
    let said = ran_out(Some(Bytes(rounded)), end, op);
    if ends_in_name { Reading::EndsInName(said) } else { Reading::Says(said) }
}

const RAN_OUT: &[u8] = b"outofmemorytryingtoallocate";

fn allocator_of(message: &[u8]) -> Option<String> {
    let rest = after(message, b"Allocator(")?;
    Some(text(rest.get(..find(rest, b")")?)?))
}

/// What a line tells that was cut for good.
pub(crate) fn salvage(message: &[u8]) -> Option<Said> {
    let (requested, rest) = size(after(message, RAN_OUT)?, Writer::Xla)?;
    let Some(allocator) = allocator_of(message) else {
        // Its first word only: people write so too.
        return (message.starts_with(b"Ran") && rest == b".").then_some(Said::SeeLogs(requested));
    };
    if after(rest, b".Thecaller").is_some() {
        return Some(Said::Soft { allocator: Some(allocator), requested });
    }
    let (allocator, end) = (Some(allocator), Tag::Lower);
    Some(Said::RanOut { allocator, requested: Some(requested), rounded: None, end, op: None })
}

/// `failed to allocate 2.95G (3171411968 bytes) from device: CUDA_ERROR_OUT_OF_MEMORY`, and the same of pinned host memory:
/// `failed to alloc 966367744 bytes on host`.
pub(crate) fn driver_refused(line: &Line<'_>, message: &[u8]) -> Reading {
    // XLA since 2025: "Failed to allocate device memory of 32.00GiB (34359738368 bytes): RESOURCE_EXHAUSTED: : CUDA_ERROR_OUT_OF_MEMORY".
    if let Some(rest) = after(message, b"Failedtoallocatedevicememoryof") {
        let read = || {
            let (bytes, rest) = number(rest.get(find(rest, b"(")? + 1..)?)?;
            let rest = rest.strip_prefix(b"bytes):")?;
            refused(line, Bytes(bytes), rest)
        };
        return match read() {
            Some(said) => Reading::Says(said),
            None if rest.len() < 100 => cut(line),
            None => Reading::Foreign,
        };
    }
    let Some(rest) = after(message, b"failedtoalloc") else { return Reading::Foreign };
    if let Some((_, rest)) = number(rest)
        && let Some(rest) = rest.strip_prefix(b"bytesonhost")
    {
        let is_refused = part_begins(rest, b":") || after(rest, b"OUT_OF_MEMORY").is_some();
        return if is_refused { Reading::Says(Said::HostRefused) } else { Reading::Foreign };
    }
    let Some(open) = rest.strip_prefix(b"ate").and_then(|rest| {
        let at = find(rest.get(..20.min(rest.len()))?, b"(")?;
        rest.get(at + 1..)
    }) else {
        return Reading::Foreign;
    };
    let Some((bytes, rest)) = number(open) else { return part_if_empty(open) };
    let Some(rest) = rest.strip_prefix(b"bytes)fromdevice:") else {
        return cut_or(line, rest, b"bytes)fromdevice:");
    };
    if let Some(said) = refused(line, Bytes(bytes), rest) {
        return Reading::Says(said);
    }
    if rest.len() < 80 && !rest.contains(&b'(') { cut(line) } else { Reading::Foreign }
}

/// What a driver's answer says of a request: CUDA's and HIP's names, and the number that HIP had for it at first.
fn refused(line: &Line<'_>, bytes: Bytes, answer: &[u8]) -> Option<Said> {
    const ANSWERS: [(&[u8], Option<Platform>); 5] = [
        (b"HIP_ERROR_OutOfMemory", Some(Platform::Hip)),
        (b"hipErrorOutOfMemory", Some(Platform::Hip)),
        (b"hipError_t(1002)", Some(Platform::Hip)),
        (b"OUT_OF_MEMORY", None),
        (b"OutOfMemory", None),
    ];
    let (_, platform) = ANSWERS.iter().find(|(words, _)| find(answer, words).is_some())?;
    Some(Said::DriverRefused(Refused { bytes, platform: *platform, is_info: is_info(line) }))
}

/// Whether a logger's prefix says that a line is for information: `2020-01-02 03:04:05.678901: I some/file.cc:12] `.
fn is_info(line: &Line<'_>) -> bool {
    let prefix = line.dense.get(..line.message).unwrap_or_default();
    prefix.windows(3).any(|signs| matches!(signs, [b'0'..=b'9', b':', b'I']))
}

pub(crate) fn bin(line: &Line<'_>, message: &[u8]) -> Reading {
    if let Some(rest) = after(message, b"BFCAllocatordumpfor") {
        // A name at the very end of a file may be cut.
        return if line.is_ended { Reading::Says(Said::DumpFor(text(rest))) } else { Reading::Part };
    }
    if let Some(rest) = message.strip_prefix(b"Binfor") {
        return if after(rest, b"ChunkState:").is_some() {
            Reading::Says(Said::BinFor)
        } else {
            Reading::Part
        };
    }
    let Some(rest) = message.strip_prefix(b"Bin(").or_else(|| after(message, b"]Bin(")) else {
        return Reading::Foreign;
    };
    let read = || {
        let (label, rest) = number(rest)?;
        let (chunks, rest) = number(rest.strip_prefix(b"):TotalChunks:")?)?;
        let (chunks_in_use, rest) = number(rest.strip_prefix(b",Chunksinuse:")?)?;
        let rest = rest.strip_prefix(b".").unwrap_or(rest);
        let (_, rest) = size_or_bytes(rest, Writer::Xla)?;
        let rest = rest.strip_prefix(b"allocatedforchunks.")?;
        // In 2017 the sum of all requests stood between.
        let rest = match size_or_bytes(rest, Writer::Xla)? {
            (_, after) if after.starts_with(b"client-requestedforchunks.") => {
                after.strip_prefix(b"client-requestedforchunks.")?
            }
            _ => rest,
        };
        let (in_use, rest) = size_or_bytes(rest, Writer::Xla)?;
        let rest = rest.strip_prefix(b"inuseinbin.")?;
        let (requested, rest) = size_or_bytes(rest, Writer::Xla)?;
        rest.strip_prefix(b"client-requestedinuseinbin")?;
        let number = bin_of(Bytes(label));
        let is_bin = number < BINS && label == 256 << number;
        is_bin.then_some(Bin { number, chunks, chunks_in_use, in_use, requested })
    };
    match read() {
        Some(bin) => Reading::Says(Said::Bin(bin)),
        None if after(rest, b"client-requestedinuseinbin").is_some() => Reading::Foreign,
        None => Reading::Part,
    }
}

pub(crate) fn region(_: &Line<'_>, message: &[u8]) -> Reading {
    let Some(rest) = after(message, b"Nextregionofsize") else { return Reading::Foreign };
    match number(rest) {
        Some((size, [])) => Reading::EndsInDigits(Said::Region(Bytes(size))),
        Some(_) => Reading::Foreign,
        None => part_if_empty(rest),
    }
}

pub(crate) fn summary(line: &Line<'_>, message: &[u8]) -> Reading {
    if after(message, b"Summaryofin-useChunksbysize").is_some() {
        return Reading::Says(Said::Summary);
    }
    if let Some(rest) = after(message, b"SumTotalofin-usechunks:") {
        return match size(rest, Writer::Xla) {
            Some((total, _)) => Reading::Says(Said::SumTotal(total)),
            None => cut(line),
        };
    }
    let is_occupancy = message.len() >= 50 && message.iter().all(|byte| b"*x_".contains(byte));
    if is_occupancy { Reading::Says(Said::Occupancy) } else { Reading::Foreign }
}

pub(crate) fn pool(line: &Line<'_>, message: &[u8]) -> Reading {
    const OLD: [(&[u8], &[u8]); 3] = [
        (b"total_region_allocated_bytes_:", b"availablebytes:"),
        (b"Totalbytesinpool:", b"availablebytes:"),
        (b"Totalsizeinpool:", b"availablesize:"),
    ];
    for (first, third) in OLD {
        let Some(rest) = after(message, first) else { continue };
        let read = || {
            let (pool, rest) = size_or_bytes(rest, Writer::Xla)?;
            let (limit, rest) = size_or_bytes(rest.strip_prefix(b"memory_limit_:")?, Writer::Xla)?;
            let (available, rest) = size_or_bytes(rest.strip_prefix(third)?, Writer::Xla)?;
            rest.strip_prefix(b"curr_region_allocation_bytes_:")?;
            Some(Said::Pool { pool, limit, available })
        };
        return read().map_or_else(|| cut(line), Reading::Says);
    }
    let Some(rest) = after(message, b"Allocatormemorysummary:roundedrequest") else {
        return Reading::Foreign;
    };
    let read = || {
        let of = |name: &[u8]| size(after(rest, name)?, Writer::Xla).map(|(told, _)| told);
        let largest = of(b"usablebylowerend").or_else(|| of(b"usablebyupperend"));
        Some(Said::Memory {
            largest,
            unallocated: of(b",unallocatedbytes")?,
            pool: of(b",poolsize")?,
            limit: of(b",poollimit"),
        })
    };
    read().map_or_else(|| cut(line), Reading::Says)
}

pub(crate) fn cuda_async(line: &Line<'_>, message: &[u8]) -> Reading {
    if let Some(at) = find(message, b"cuMemAllocAsyncfailedtoallocate") {
        let (name, rest) = message.split_at(at);
        let rest = rest.get(b"cuMemAllocAsyncfailedtoallocate".len()..).unwrap_or_default();
        let Some((requested, rest)) = number(rest) else { return part_if_empty(rest) };
        if rest.is_empty() {
            return cut(line);
        }
        // The name is the last word before; with another prefix it cannot be told where it begins.
        let name =
            name.rsplit(|byte| !(byte.is_ascii_alphanumeric() || *byte == b'_')).next().unwrap_or_default();
        let allocator = find(name, b"gpu_async_").and_then(|at| name.get(at..)).map(text);
        return Reading::Says(Said::AsyncFailed { allocator, requested: Bytes(requested) });
    }
    if let Some(rest) = after(message, b"Freememory/Totalmemory:") {
        let read = || {
            let (free, rest) = number(rest)?;
            let (total, rest) = number(rest.strip_prefix(b"/")?)?;
            rest.is_empty().then_some(Said::AsyncDevice { free: Bytes(free), total: Bytes(total) })
        };
        return read().map_or_else(|| cut(line), Reading::EndsInDigits);
    }
    type Make = fn(Bytes) -> Said;
    let attributes: [(&[u8], Make); 2] = [
        (b"CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:", Said::AsyncReserved),
        (b"CU_MEMPOOL_ATTR_USED_MEM_CURRENT:", Said::AsyncUsed),
    ];
    for (name, said) in attributes {
        if let Some(rest) = after(message, name) {
            return match number(rest) {
                Some((bytes, [])) => Reading::EndsInDigits(said(Bytes(bytes))),
                _ => part_if_empty(rest),
            };
        }
    }
    Reading::Foreign
}

pub(crate) fn stat(line: &Line<'_>, message: &[u8]) -> Reading {
    if message == b"Stats:" || message.ends_with(b"]Stats:") {
        return Reading::Says(Said::Stats);
    }
    const STATS: [(&[u8], Stat); 9] = [
        (b"Limit:", Stat::Limit),
        (b"InUse:", Stat::InUse),
        (b"MaxInUse:", Stat::MaxInUse),
        (b"LargestFreeBlock:", Stat::LargestFreeBlock),
        (b"NumAllocs:", Stat::NumAllocs),
        (b"MaxAllocSize:", Stat::Other),
        (b"Reserved:", Stat::Other),
        (b"PeakReserved:", Stat::Other),
        (b"PeakAllocated:", Stat::Other),
    ];
    // A multi-line message may have its first figure on the line of its heading.
    let message = message.strip_prefix(b"Stats:").unwrap_or(message);
    for (name, stat) in STATS {
        if let Some(rest) = message.strip_prefix(name) {
            return match sizes::size_or_bytes(rest, Writer::Xla) {
                Some((told, [])) if line.is_ended => Reading::Says(Said::Stat(stat, told)),
                _ => Reading::Foreign,
            };
        }
    }
    Reading::Foreign
}
