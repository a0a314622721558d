//! PyTorch's sentences: of its own pool on CUDA, ROCm, XPU and others, of CUDA's asynchronous pool, and of Apple's Metal.

use super::said::{Line, Reading, Said, Sentence};
use super::sizes::{Writer, number, size};
use super::text::{after, cut, find, part_begins, text};
use super::{library, prose};
use crate::failure::{Dialect, Platform, SizeRange};
use crate::units::Bytes;

/// A limit beyond this is none: PyTorch writes the largest number that it knows.
const NO_LIMIT: Bytes = Bytes(1 << 50);

/// `CUDA out of memory. Tried to allocate`. The sentence has grown since 2018; its parts are looked for one by one.
pub(crate) fn sentence(line: &Line<'_>, message: &[u8]) -> Reading {
    let Some((platform, rest)) = begin(line, message) else {
        return match head_alone(line, message) {
            // The rest may come with the next piece.
            Some((_, rest)) if part_begins(rest, b".Triedtoallocate") => cut(line),
            Some((platform, _)) => Reading::Says(alone(platform).said()),
            None => metal(line, message),
        };
    };
    let Some((_, behind)) = size(rest, Writer::Torch) else {
        if rest.starts_with(b"morethan1EB") {
            return Reading::Says(alone(platform).said());
        }
        let is_cut = rest.is_empty() || rest.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'.');
        return if is_cut { cut(line) } else { Reading::Foreign };
    };
    let is_whole = if let Some(old) = bracket(behind) {
        find(old, b")").is_some()
    } else {
        !may_go_on(behind) || find(behind, b"reservedbyPyTorchbutunallocated").is_some()
    };
    if !is_whole {
        return cut(line);
    }
    let mut sentence = figures(platform, rest);
    sentence.is_survived = library::goes_on(message);
    Reading::Says(sentence.said())
}

/// What a sentence tells that was cut for good.
pub(crate) fn salvage(line: &Line<'_>, message: &[u8]) -> Option<Said> {
    if let Some((platform, rest)) = begin(line, message) {
        let mut sentence = figures(platform, rest);
        sentence.is_survived = library::goes_on(message);
        return Some(sentence.said());
    }
    if let Some((platform, _)) = head_alone(line, message) {
        return Some(alone(platform).said());
    }
    let rest = after(message, ASYNCHRONOUS).or_else(|| after(message, ON_DEVICE))?;
    Some(asynchronous_figures(message, rest).said())
}

/// A failure of which nothing else is told.
fn alone(platform: Option<Platform>) -> Sentence {
    Sentence { platform, ..Sentence::new(Dialect::PyTorch) }
}

/// What follows `Tried to allocate`, and who says it.
fn begin<'a>(line: &Line<'_>, message: &'a [u8]) -> Option<(Option<Platform>, &'a [u8])> {
    const TRIED: &[u8] = b"Triedtoallocate";
    let at = find(message, TRIED)?;
    let words = b"CUDAoutofmemory.".len();
    if at >= words && prose::is_literal(line, at - words, words) {
        return None;
    }
    let (head, rest) = (message.get(..at)?, message.get(at + TRIED.len()..)?);
    if let Some(head) = head.strip_suffix(b"outofmemory.") {
        return Some((platform_before(head), rest));
    }
    if head.ends_with(b"OutOfMemoryError:") {
        return Some((None, rest));
    }
    if head.ends_with(b"sizelargerthan4GB!") {
        return Some((Some(Platform::Xpu), rest));
    }
    // The sentence without its head: somebody cut it, or a logger put the head on a line of its own.
    let (_, behind) = size(rest, Writer::Torch)?;
    let goes_on = |rest| device_kind(rest).is_some();
    let is_sentence =
        head.is_empty() && (bracket(behind).is_some() || behind.strip_prefix(b".").is_some_and(goes_on));
    is_sentence.then_some((None, rest))
}

/// `CUDA out of memory`, and what follows it: nothing more may come. The name of the error alone says as much.
fn head_alone<'a>(line: &Line<'_>, message: &'a [u8]) -> Option<(Option<Platform>, &'a [u8])> {
    const NAMES: [&[u8]; 2] = [b"torch.cuda.OutOfMemoryError", b"torch.OutOfMemoryError"];
    if NAMES.contains(&message) && line.is_ended {
        return Some((None, b"."));
    }
    const SAYS: [&[u8]; 4] =
        [b"Error:CUDAoutofmemory", b"Error:HIPoutofmemory", b"Error:XPUoutofmemory", b"Error:NPUoutofmemory"];
    let (at, words) = SAYS.iter().find_map(|words| Some((find(message, words)?, words)))?;
    if prose::is_about(line, at, words.len()) {
        return None;
    }
    let (head, rest) = message.split_at_checked(at + words.len())?;
    Some((platform_before(head.strip_suffix(b"outofmemory")?), rest))
}

/// What stands in `(GPU 0; ...)`, behind the name of the kind of device.
fn bracket(text: &[u8]) -> Option<&[u8]> {
    device_kind(text.strip_prefix(b"(")?)
}

/// What follows the name of a kind of device.
fn device_kind(text: &[u8]) -> Option<&[u8]> {
    const KINDS: [&[u8]; 4] = [b"GPU", b"NPU", b"MLU", b"XPU"];
    KINDS.iter().find_map(|kind| text.strip_prefix(*kind))
}

/// Whether a sentence goes on, or may: `. GPU 0 has a total capacity of`.
fn may_go_on(behind: &[u8]) -> bool {
    match behind.strip_prefix(b".") {
        Some(rest) => rest.len() < 3 || device_kind(rest).is_some(),
        None => behind.is_empty() || behind == b"(" || behind.len() < 4 && behind.starts_with(b"("),
    }
}

/// The platform whose name a text ends with.
fn platform_before(text: &[u8]) -> Option<Platform> {
    const NAMES: [(&[u8], Platform); 7] = [
        (b"CUDA", Platform::Cuda),
        (b"HIP", Platform::Hip),
        (b"XPU", Platform::Xpu),
        (b"NPU", Platform::Npu),
        (b"MLU", Platform::Mlu),
        (b"MUSA", Platform::Musa),
        (b"PrivateUse1", Platform::Other),
    ];
    NAMES.iter().find(|(name, _)| text.ends_with(name)).map(|(_, platform)| *platform)
}

/// The figures of a sentence, from what follows `Tried to allocate`.
fn figures(platform: Option<Platform>, rest: &[u8]) -> Sentence {
    let told = |rest| size(rest, Writer::Torch);
    let mut sentence = Sentence { platform, ..Sentence::new(Dialect::PyTorch) };
    let Some((tried, rest)) = told(rest) else { return sentence };
    sentence.tried = Some(tried);
    if let Some(old) = bracket(rest) {
        old_figures(&mut sentence, old);
        return sentence;
    }
    if let Some(rest) = rest.strip_prefix(b".").and_then(device_kind) {
        sentence.device = number(rest).map(|(number, _)| format!("GPU:{number}"));
    }
    // Versions around 2.1 write "capacty".
    let capacity = after(rest, b"totalcapacityof").or_else(|| after(rest, b"totalcapactyof")).and_then(told);
    if let Some((total, rest)) = capacity {
        sentence.memory.total = Some(total);
        sentence.memory.free = rest.strip_prefix(b"ofwhich").and_then(told).map(|(free, _)| free);
    }
    // Where the driver cannot tell, it is the largest number there is.
    sentence.memory.this_process = after(rest, b"thisprocesshas")
        .and_then(told)
        .map(|(told, _)| told)
        .filter(|told| told.low < NO_LIMIT);
    let mut others = rest;
    while let Some(rest) = after(others, b"Process") {
        others = rest;
        let used = number(rest).and_then(|(_, rest)| told(rest.strip_prefix(b"has")?));
        if let Some((used, _)) = used {
            let before = sentence.memory.others.unwrap_or(SizeRange::exact(Bytes::ZERO));
            sentence.memory.others = Some(before.plus(used));
        }
    }
    // In a container a process does not know its own number among those of the driver: the list holds itself.
    sentence.memory.others = sentence.memory.others.filter(|_| sentence.memory.this_process.is_some());
    set_allowed(&mut sentence, find(rest, b"allowed;").and_then(|at| size_at_end(rest.get(..at)?)));
    sentence.allocated = after(rest, b"Oftheallocatedmemory").and_then(told).map(|(told, _)| told);
    sentence.cached =
        find(rest, b"isreservedbyPyTorchbutunallocated").and_then(|at| size_at_end(rest.get(..at)?));
    sentence
}

/// `0; 6.00 GiB total capacity; 781.59 MiB already allocated; 3.03 GiB free; 1.24 GiB reserved in total by PyTorch)`.
fn old_figures(sentence: &mut Sentence, old: &[u8]) {
    let is_whole = find(old, b")");
    let mut parts = old.get(..is_whole.unwrap_or(old.len())).unwrap_or_default().split(|&byte| byte == b';');
    sentence.device = parts.next().map(text).map(|number| format!("GPU:{number}"));
    for part in parts {
        let Some((told, name)) = size(part, Writer::Torch) else { continue };
        let slot = match name {
            b"totalcapacity" => &mut sentence.memory.total,
            b"alreadyallocated" => &mut sentence.allocated,
            b"free" => &mut sentence.memory.free,
            b"reservedintotalbyPyTorch" => &mut sentence.reserved,
            // Until 1.3: what is reserved and not allocated.
            b"cached" => &mut sentence.cached,
            b"allowed" => {
                set_allowed(sentence, Some(told));
                continue;
            }
            _ => continue,
        };
        *slot = Some(told);
    }
}

fn set_allowed(sentence: &mut Sentence, allowed: Option<SizeRange>) {
    sentence.limit = allowed.filter(|allowed| allowed.low < NO_LIMIT);
    sentence.is_limit_set = sentence.limit.is_some();
}

/// The size that a text ends with.
fn size_at_end(text: &[u8]) -> Option<SizeRange> {
    let from = text.len().saturating_sub(24);
    (from..text.len())
        .filter(|&at| at == 0 || !matches!(text.get(at - 1), Some(b'0'..=b'9')))
        .filter_map(|at| size(text.get(at..)?, Writer::Torch))
        .find_map(|(told, rest)| rest.is_empty().then_some(told))
}

/// `Allocation on device 0 would exceed allowed memory. (out of memory)`, and five lines of figures.
const ASYNCHRONOUS: &[u8] = b"wouldexceedallowedmemory.";
const ON_DEVICE: &[u8] = b"OutOfMemoryError:Allocationondevice";

pub(crate) fn asynchronous(line: &Line<'_>, message: &[u8]) -> Reading {
    let Some(rest) = after(message, ASYNCHRONOUS) else {
        return if find(message, ON_DEVICE).is_some() { cut(line) } else { Reading::Foreign };
    };
    // Its last line.
    let is_whole = after(rest, b"memoryfraction):").is_some_and(|last| size(last, Writer::Torch).is_some());
    if is_whole { Reading::Says(asynchronous_figures(message, rest).said()) } else { cut(line) }
}

fn asynchronous_figures(message: &[u8], rest: &[u8]) -> Sentence {
    let told = |name: &[u8]| size(after(rest, name)?, Writer::Torch).map(|(told, _)| told);
    let mut sentence =
        Sentence { platform: Some(Platform::Cuda), ..Sentence::new(Dialect::TorchAsynchronous) };
    sentence.device = after(message, b"Allocationondevice").and_then(number).map(|(n, _)| format!("GPU:{n}"));
    sentence.requested = told(b"Requested:");
    sentence.tried = sentence.requested;
    sentence.allocated = told(b"Currentlyallocated:");
    sentence.memory.total = told(b"Devicelimit:");
    sentence.memory.free = told(b"Free(accordingtoCUDA):");
    set_allowed(&mut sentence, told(b"memoryfraction):"));
    sentence
}

/// `MPS backend out of memory (MPS allocated: 16.32 GB, other allocations: 1.42 GB, max allowed: 18.13 GB). Tried to allocate 563.62 MB on private pool.`
fn metal(line: &Line<'_>, message: &[u8]) -> Reading {
    let Some(rest) = after(message, b"MPSbackendoutofmemory") else { return Reading::Foreign };
    let told = |name: &[u8]| size(after(rest, name)?, Writer::Torch).map(|(told, _)| told);
    let Some(tried) = told(b"Triedtoallocate") else {
        return if rest.starts_with(b"(") || rest.is_empty() { cut(line) } else { Reading::Foreign };
    };
    let mut sentence = Sentence { platform: Some(Platform::Metal), ..Sentence::new(Dialect::PyTorch) };
    sentence.tried = Some(tried);
    sentence.allocated = told(b"MPSallocated:");
    sentence.memory.others = told(b"otherallocations:");
    // PyTorch's own watermark: a share of what Metal recommends.
    sentence.limit = told(b"maxallowed:");
    sentence.left = match (sentence.limit, sentence.allocated) {
        (Some(limit), Some(allocated)) => {
            Some(limit.minus(allocated.plus(sentence.memory.others.unwrap_or(SizeRange::exact(Bytes::ZERO)))))
        }
        _ => None,
    };
    sentence.memory.others = None;
    sentence.cached = Some(SizeRange::exact(Bytes::ZERO));
    Reading::Says(sentence.said())
}
