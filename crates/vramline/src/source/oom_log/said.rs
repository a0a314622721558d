//! What one line says. Knows every shape of line that a framework writes about memory, and nothing of their order.
//!
//! Lines are taken without their blanks: then a line that a terminal broke anywhere reads like one that is whole. A
//! figure counts only where what follows it shows that it is whole.

use super::sizes::{self, Writer, hex, number, size, size_or_bytes};
use crate::failure::{BINS, Bin, DeviceMemory, Dialect, SizeRange, Tag, bin_of};
use crate::units::Bytes;

/// A line, joined from as many pieces as it was broken into.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line<'a> {
    /// As it was written.
    pub(crate) raw: &'a [u8],
    /// Without blanks.
    pub(crate) dense: &'a [u8],
    /// Where in `dense` the message begins, after the logger's prefix.
    pub(crate) message: usize,
    /// Whether its end was seen; else the file ends within it.
    pub(crate) is_ended: bool,
}

/// What came of reading a line.
#[derive(Debug)]
pub(crate) enum Reading {
    /// It is about something else.
    Foreign,
    /// It begins like a line that matters, and is not whole.
    Part,
    /// It says this.
    Says(Said),
    /// It says this, and ends in digits: a line of digits would be its rest.
    EndsInDigits(Said),
    /// It says this, and ends in a name: a line of one word may be its rest.
    EndsInName(Said),
}

/// A line's message.
#[derive(Debug)]
pub(crate) enum Said {
    RanOut {
        allocator: Option<String>,
        requested: Option<SizeRange>,
        rounded: Option<Bytes>,
        end: Tag,
        op: Option<String>,
    },
    /// A failure that the program expected and went on after.
    Harmless,
    DumpFor(String),
    Bin(Bin),
    BinFor,
    Region(Bytes),
    Chunk {
        dialect: Dialect,
        address: u64,
        size: Bytes,
        in_use: bool,
        tag: Tag,
        op: Option<String>,
    },
    Summary,
    SumTotal(SizeRange),
    Pool {
        pool: SizeRange,
        limit: SizeRange,
        available: SizeRange,
    },
    Memory {
        largest: Option<SizeRange>,
        unallocated: SizeRange,
        pool: SizeRange,
        limit: Option<SizeRange>,
    },
    Stats,
    Stat(Stat, SizeRange),
    Occupancy,
    TensorError {
        shape: String,
        dtype: String,
        device: String,
        allocator: Option<String>,
        op: Option<String>,
    },
    /// `[[{{node NAME}}]]`, under an error line.
    Node(String),
    JaxError {
        requested: SizeRange,
        allocator: Option<String>,
        device: Option<String>,
        executable: Option<String>,
    },
    AsyncFailed {
        allocator: Option<String>,
        requested: Bytes,
    },
    AsyncDevice {
        free: Bytes,
        total: Bytes,
    },
    AsyncReserved(Bytes),
    AsyncUsed(Bytes),
    Torch(Box<Torch>),
    PeakBuffers,
    BufferBegins,
    BufferSize(SizeRange),
    BufferOperator(String),
    BufferLabel(String),
    BufferShape(String),
}

/// A figure of the block of statistics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Stat {
    Limit,
    InUse,
    MaxInUse,
    LargestFreeBlock,
    NumAllocs,
    /// One that says nothing about the failure.
    Other,
}

/// PyTorch's sentence.
#[derive(Debug, Default)]
pub(crate) struct Torch {
    pub(crate) tried: Option<SizeRange>,
    pub(crate) device: Option<String>,
    pub(crate) memory: DeviceMemory,
    pub(crate) allowed: Option<SizeRange>,
    pub(crate) allocated: Option<SizeRange>,
    /// Reserved, in the old wording: allocated and not.
    pub(crate) reserved: Option<SizeRange>,
    /// Reserved and not allocated.
    pub(crate) unallocated: Option<SizeRange>,
}

/// Reads a line.
pub(crate) fn read(line: &Line<'_>) -> Reading {
    let message = line.dense.get(line.message..).unwrap_or_default();
    // By far the commonest line of a dump.
    for (word, in_use) in [(&b"InUseat"[..], true), (b"Freeat", false), (b"Chunkat", true)] {
        if let Some(rest) = message.strip_prefix(word).or_else(|| after(message, word)) {
            return chunk(rest, in_use, word == b"Chunkat");
        }
    }
    const READERS: [fn(&Line<'_>, &[u8]) -> Reading; 10] =
        [ran_out, bin, region, summary, pool, tensor_error, node, jax_error, cuda_async, torch];
    for reader in READERS {
        match reader(line, message) {
            Reading::Foreign => {}
            found => return found,
        }
    }
    match buffers(line, message) {
        Reading::Foreign => stat(line, message),
        found => found,
    }
}

/// What can be had of a line that was cut for good.
pub(crate) fn salvage(line: &Line<'_>) -> Option<Said> {
    let message = line.dense.get(line.message..)?;
    if let Some(rest) = after(message, b"outofmemory.Triedtoallocate") {
        let (tried, _) = size(rest, Writer::Torch)?;
        return Some(Said::Torch(Box::new(Torch { tried: Some(tried), ..Torch::default() })));
    }
    let (name, rest) = after(message, b"Allocator(").map(|rest| (before(rest, b")"), rest))?;
    let (requested, _) = size(after(rest, b"outofmemorytryingtoallocate")?, Writer::Xla)?;
    let allocator = Some(text(name));
    Some(Said::RanOut { allocator, requested: Some(requested), rounded: None, end: Tag::Lower, op: None })
}

fn chunk(rest: &[u8], in_use: bool, is_oldest: bool) -> Reading {
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
    if is_prefixed {
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

fn ran_out(line: &Line<'_>, message: &[u8]) -> Reading {
    let Some(rest) = after(message, b"outofmemorytryingtoallocate") else { return Reading::Foreign };
    let Some((requested, rest)) = size(rest, Writer::Xla) else { return cut(line) };
    if after(rest, b"withfreed_by_count=").is_some() && after(rest, b"notafailure").is_some() {
        return Reading::Says(Said::Harmless);
    }
    let allocator = after(message, b"Allocator(").and_then(|rest| {
        let end = rest.iter().position(|&byte| byte == b')')?;
        Some(text(rest.get(..end)?))
    });
    if allocator.is_none() && !rest.starts_with(b"(") {
        // "Ran out of memory trying to allocate 1.0MiB.  See logs for memory state": the dump has said it all.
        return if rest.starts_with(b".Seelogs") { Reading::Says(Said::Harmless) } else { Reading::Foreign };
    }
    if let Some((_, b".")) = after(rest, b"withfreed_by_count=").and_then(number)
        && line.is_ended
    {
        let (requested, end) = (Some(requested), Tag::Lower);
        return Reading::Says(Said::RanOut { allocator, requested, rounded: None, end, op: None });
    }
    let Some(rest) = rest.strip_prefix(b"(roundedto") else { return cut_or(line, rest, b"(roundedto") };
    let Some((rounded, rest)) = number(rest) else { return part_if_empty(rest) };
    let Some(rest) = rest.strip_prefix(b")") else { return part_if_empty(rest) };
    let end = if rest.starts_with(b"fromtheupperend") { Tag::Upper } else { Tag::Lower };
    // An op's name at the very end of a file may be cut.
    let op = after(rest, b"requestedbyop").filter(|_| line.is_ended).map(text).filter(|op| !op.is_empty());
    let ends_in_name = op.is_some();
    let said = Said::RanOut { allocator, requested: Some(requested), rounded: Some(Bytes(rounded)), end, op };
    if ends_in_name { Reading::EndsInName(said) } else { Reading::Says(said) }
}

fn bin(line: &Line<'_>, message: &[u8]) -> Reading {
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

fn region(_: &Line<'_>, message: &[u8]) -> Reading {
    let Some(rest) = after(message, b"Nextregionofsize") else { return Reading::Foreign };
    match number(rest) {
        Some((size, [])) => Reading::EndsInDigits(Said::Region(Bytes(size))),
        Some(_) => Reading::Foreign,
        None => part_if_empty(rest),
    }
}

fn summary(line: &Line<'_>, message: &[u8]) -> Reading {
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

fn pool(line: &Line<'_>, message: &[u8]) -> Reading {
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

fn tensor_error(line: &Line<'_>, message: &[u8]) -> Reading {
    let Some(rest) = after(message, b"OOMwhenallocatingtensorwithshape") else { return Reading::Foreign };
    let read = || {
        let end = rest.iter().position(|&byte| byte == b']')? + 1;
        let (shape, rest) = rest.split_at_checked(end)?;
        let rest = rest.strip_prefix(b"andtype")?;
        let at = find(rest, b"on/").or_else(|| find(rest, b"on"))?;
        let (dtype, rest) = rest.split_at_checked(at)?;
        let rest = rest.get(2..)?;
        let device = before(rest, b"byallocator");
        if device.len() == rest.len() {
            return None;
        }
        // Where the name ends, only the blanks tell.
        let name = last_after(line.raw, b"by allocator ").map(name_of);
        let allocator = name.filter(|(_, at_end)| line.is_ended || !at_end).map(|(name, _)| text(name));
        let op = after(rest, b"[Op:")
            .map(|op| before(op, b"]"))
            .or_else(|| after(rest, b"{{node").map(|op| before(op, b"}}")))
            .map(text);
        Some(Said::TensorError {
            shape: text(shape),
            dtype: text(dtype),
            device: text(device),
            allocator: allocator.filter(|name| !name.is_empty()),
            op: op.filter(|op| !op.is_empty() && !op.starts_with("__wrapped__")),
        })
    };
    match read() {
        Some(said @ Said::TensorError { op: None, .. }) => Reading::EndsInName(said),
        Some(said) => Reading::Says(said),
        None => cut(line),
    }
}

/// The node of a graph that an error line above it is about.
fn node(_: &Line<'_>, message: &[u8]) -> Reading {
    let new = message.strip_prefix(b"[[{{node").map(|rest| (rest, &b"}}"[..]));
    let old = || message.strip_prefix(b"[[node").map(|rest| (rest, &b"(definedat"[..]));
    let Some((rest, end)) = new.or_else(old) else { return Reading::Foreign };
    let name = before(rest, end);
    if name.is_empty() || name.len() == rest.len() {
        return Reading::Foreign;
    }
    Reading::Says(Said::Node(text(name)))
}

fn jax_error(line: &Line<'_>, message: &[u8]) -> Reading {
    let whole = message;
    let rest = after(message, b"Outofmemorywhiletryingtoallocate")
        .or_else(|| after(message, b"Outofmemorytryingtoallocate"))
        .or_else(|| after(message, b"Failedtoallocaterequestfor"));
    let Some(rest) = rest else { return Reading::Foreign };
    let Some((mut requested, rest)) = size(rest, Writer::Xla) else { return cut(line) };
    let mut rest = rest;
    // "1.00GiB (1073741824B) on device ordinal 0"
    if let Some((exact, after)) = rest.strip_prefix(b"(").and_then(|rest| size(rest, Writer::Xla)) {
        requested = requested.and(exact).unwrap_or(requested);
        rest = after;
    }
    let allocator = after(rest, b"withallocator").and_then(|rest| {
        let at = find(rest, b"ondevice")?;
        Some(text(rest.get(..at)?))
    });
    let device = after(rest, b"ondevice").and_then(|rest| {
        let (number, rest) = number(rest.strip_prefix(b"ordinal").unwrap_or(rest))?;
        (!rest.is_empty() || line.is_ended).then(|| number.to_string())
    });
    let executable = after(whole, b"executable_name='").and_then(|rest| {
        let at = find(rest, b"'")?;
        Some(text(rest.get(..at)?)).filter(|name| !name.is_empty())
    });
    Reading::Says(Said::JaxError { requested, allocator, device, executable })
}

fn cuda_async(line: &Line<'_>, message: &[u8]) -> Reading {
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

/// The sentence has grown since 2018; its parts are looked for one by one.
fn torch(line: &Line<'_>, message: &[u8]) -> Reading {
    let Some(rest) = after(message, b"outofmemory.Triedtoallocate") else { return Reading::Foreign };
    let Some((tried, rest)) = size(rest, Writer::Torch) else { return cut(line) };
    let mut torch = Torch { tried: Some(tried), ..Torch::default() };
    if let Some(old) = rest.strip_prefix(b"(GPU") {
        // (GPU 0; 6.00 GiB total capacity; 781.59 MiB already allocated; 3.03 GiB free; 1.24 GiB reserved in total by PyTorch)
        let Some(end) = find(old, b")") else { return cut(line) };
        let mut parts = old.get(..end).unwrap_or_default().split(|&byte| byte == b';');
        torch.device = parts.next().map(text).map(|number| format!("GPU:{number}"));
        for part in parts {
            let Some((told, name)) = size(part, Writer::Torch) else { continue };
            let slot = match name {
                b"totalcapacity" => &mut torch.memory.total,
                b"alreadyallocated" => &mut torch.allocated,
                b"free" => &mut torch.memory.free,
                b"allowed" => &mut torch.allowed,
                b"reservedintotalbyPyTorch" | b"cached" => &mut torch.reserved,
                _ => continue,
            };
            *slot = Some(told);
        }
        return Reading::Says(Said::Torch(Box::new(torch)));
    }
    // Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.65 GiB of which 11.06 MiB is free. ...
    if find(rest, b"reservedbyPyTorchbutunallocated").is_none() {
        let may_go_on = rest.starts_with(b".GPU") || part_begins(rest, b".GPU") || part_begins(rest, b"(GPU");
        let is_whole = !may_go_on;
        return if is_whole { Reading::Says(Said::Torch(Box::new(torch))) } else { cut(line) };
    }
    let told = |rest| size(rest, Writer::Torch);
    if let Some(rest) = after(rest, b"GPU") {
        torch.device = number(rest).map(|(number, _)| format!("GPU:{number}"));
    }
    // Versions around 2.1 write "capacty".
    let capacity = after(rest, b"totalcapacityof").or_else(|| after(rest, b"totalcapactyof")).and_then(told);
    if let Some((total, rest)) = capacity {
        torch.memory.total = Some(total);
        torch.memory.free = rest.strip_prefix(b"ofwhich").and_then(told).map(|(free, _)| free);
    }
    torch.memory.this_process = after(rest, b"thisprocesshas").and_then(told).map(|(told, _)| told);
    let mut others = rest;
    while let Some(rest) = after(others, b"Process") {
        others = rest;
        let used = number(rest).and_then(|(_, rest)| told(rest.strip_prefix(b"has")?));
        if let Some((used, _)) = used {
            let before = torch.memory.others.unwrap_or(SizeRange::exact(Bytes::ZERO));
            torch.memory.others = Some(before.plus(used));
        }
    }
    torch.allowed = find(rest, b"allowed;").and_then(|at| longest_size(rest.get(..at)?));
    torch.allocated = after(rest, b"Oftheallocatedmemory").and_then(told).map(|(told, _)| told);
    torch.unallocated =
        find(rest, b"isreservedbyPyTorchbutunallocated").and_then(|at| longest_size(rest.get(..at)?));
    Reading::Says(Said::Torch(Box::new(torch)))
}

/// The size that a text ends with.
fn longest_size(text: &[u8]) -> Option<SizeRange> {
    let from = text.len().saturating_sub(24);
    (from..text.len())
        .filter(|&at| at == 0 || !matches!(text.get(at - 1), Some(b'0'..=b'9')))
        .filter_map(|at| size(text.get(at..)?, Writer::Torch))
        .find_map(|(told, rest)| rest.is_empty().then_some(told))
}

fn buffers(line: &Line<'_>, message: &[u8]) -> Reading {
    if message == b"Peakbuffers:" || message.ends_with(b"]Peakbuffers:") {
        return Reading::Says(Said::PeakBuffers);
    }
    if let Some(rest) = message.strip_prefix(b"Buffer")
        && let Some((_, b":")) = number(rest)
    {
        return Reading::Says(Said::BufferBegins);
    }
    if !line.is_ended {
        return Reading::Foreign;
    }
    if let Some(rest) = message.strip_prefix(b"Size:") {
        return match size(rest, Writer::Xla) {
            Some((told, [])) => Reading::Says(Said::BufferSize(told)),
            _ => Reading::Foreign,
        };
    }
    type Make = fn(String) -> Said;
    let texts: [(&[u8], Make); 4] = [
        (b"Operator:", Said::BufferOperator),
        (b"XLALabel:", Said::BufferLabel),
        (b"Shape:", Said::BufferShape),
        (b"EntryParameterSubshape:", Said::BufferShape),
    ];
    for (name, said) in texts {
        if let Some(rest) = message.strip_prefix(name) {
            return Reading::Says(said(text(rest)));
        }
    }
    Reading::Foreign
}

fn stat(line: &Line<'_>, message: &[u8]) -> Reading {
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

/// A line that begins as it should and does not go on so: what is missing may come with the next piece.
fn cut(_: &Line<'_>) -> Reading {
    Reading::Part
}

fn cut_or(line: &Line<'_>, rest: &[u8], wanted: &[u8]) -> Reading {
    if part_begins(rest, wanted) { cut(line) } else { Reading::Foreign }
}

fn part_if_empty(rest: &[u8]) -> Reading {
    if rest.is_empty() { Reading::Part } else { Reading::Foreign }
}

fn part_of(rest: &[u8], wanted: &[u8]) -> Reading {
    if part_begins(rest, wanted) { Reading::Part } else { Reading::Foreign }
}

/// Whether a text may still become one that begins with `wanted`.
fn part_begins(rest: &[u8], wanted: &[u8]) -> bool {
    wanted.starts_with(rest)
}

fn find(text: &[u8], word: &[u8]) -> Option<usize> {
    let first = *word.first()?;
    let mut from = 0;
    loop {
        let at = from + text.get(from..)?.iter().position(|&byte| byte == first)?;
        if text.get(at..)?.starts_with(word) {
            return Some(at);
        }
        from = at + 1;
    }
}

fn after<'a>(text: &'a [u8], word: &[u8]) -> Option<&'a [u8]> {
    text.get(find(text, word)? + word.len()..)
}

fn last_after<'a>(text: &'a [u8], word: &[u8]) -> Option<&'a [u8]> {
    let at = text.windows(word.len()).rposition(|window| window == word)?;
    text.get(at + word.len()..)
}

fn before<'a>(text: &'a [u8], word: &[u8]) -> &'a [u8] {
    find(text, word).and_then(|at| text.get(..at)).unwrap_or(text)
}

/// The allocator's name at the front, and whether the line ends with it.
fn name_of(text: &[u8]) -> (&[u8], bool) {
    let length = text.iter().take_while(|byte| byte.is_ascii_alphanumeric() || **byte == b'_').count();
    (text.get(..length).unwrap_or_default(), text.len() == length)
}

/// Names longer than this are not names.
const LONGEST: usize = 4096;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes.get(..LONGEST).unwrap_or(bytes)).into_owned()
}
