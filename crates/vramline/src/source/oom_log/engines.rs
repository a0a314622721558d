//! Failures that engines for models and older frameworks tell, with what they asked for: llama.cpp's ggml, TensorRT, DirectML, Theano, ND4J,
//! MindSpore, tinygrad and PyTorch's Metal buffers; and NumPy, whose memory is the host's.

use super::library::{bare, exact_after, grouped, says, size_after};
use super::said::{Line, Reading, Sentence};
use super::sizes::{Writer, number, size};
use super::text::{Words, after, find};
use crate::failure::{Platform, SizeRange};
use crate::units::Bytes;

/// A failure of an engine.
pub(crate) fn sentence(_: &Line<'_>, message: &Words<'_>) -> Reading {
    type Reader = fn(&Words<'_>) -> Option<Sentence>;
    const READERS: [Reader; 8] = [ggml, tensorrt, directml, theano, nd4j, mindspore, others, numpy];
    READERS.iter().find_map(|reader| reader(message)).map_or(Reading::Foreign, says)
}

/// `allocating 9866.00 MiB on device 1: cudaMalloc failed: out of memory`, `failed to allocate CUDA1 buffer of size 10345253120`,
/// `ggml_vulkan: Device memory allocation of size 369827840 failed.`
fn ggml(message: &Words<'_>) -> Option<Sentence> {
    let mut sentence = bare("ggml", Platform::Cuda);
    if let Some(at) = find(message, b"Mallocfailed:outofmemory")
        && let Some(rest) = message.get(..at).and_then(|head| after(head, b":allocating"))
        && let Some((requested, behind)) = size(rest, Writer::Torch)
    {
        sentence.requested = Some(requested);
        sentence.device = behind.strip_prefix(b"ondevice").and_then(number).map(|(n, _)| format!("GPU:{n}"));
        return Some(sentence);
    }
    if let Some(rest) = after(message, b"Devicememoryallocationofsize")
        && let Some((bytes, behind)) = grouped(rest)
        && behind.starts_with(b"failed")
    {
        sentence.requested = Some(SizeRange::exact(bytes));
        sentence.platform = Some(Platform::Other);
        return Some(sentence);
    }
    // "failed to allocate Vulkan0 buffer of size N", "unable to allocate ROCm0 buffer".
    for words in [&b"failedtoallocate"[..], b"unabletoallocate"] {
        let Some(rest) = after(message, words) else { continue };
        let Some(platform) = backend(rest) else { continue };
        sentence.platform = Some(platform);
        sentence.requested = exact_after(rest, b"bufferofsize");
        return Some(sentence);
    }
    if let Some(requested) = size_after(message, b"failedtoallocatebuffer,size=") {
        sentence.requested = Some(requested);
        sentence.platform = Some(Platform::Metal);
        return Some(sentence);
    }
    let (bytes, rest) = grouped(after(message, b"can'tallocate")?)?;
    sentence.requested = Some(SizeRange::exact(bytes));
    sentence.platform = Some(Platform::Xpu);
    rest.starts_with(b"Bytesofmemoryondevice").then_some(sentence)
}

/// The device of `CUDA1 buffer`.
fn backend(text: &[u8]) -> Option<Platform> {
    const BACKENDS: [(&[u8], Platform); 6] = [
        (b"CUDA", Platform::Cuda),
        (b"ROCm", Platform::Hip),
        (b"Vulkan", Platform::Other),
        (b"SYCL", Platform::Xpu),
        (b"Metal", Platform::Metal),
        (b"CANN", Platform::Npu),
    ];
    BACKENDS.iter().find_map(|(name, platform)| {
        let rest = text.strip_prefix(*name)?;
        let rest = number(rest).map_or(rest, |(_, rest)| rest);
        rest.starts_with(b"buffer").then_some(*platform)
    })
}

/// `Requested amount of GPU memory (4294967296 bytes) could not be allocated`, `OutOfMemory (Requested size was 9766240256 bytes.)`.
fn tensorrt(message: &Words<'_>) -> Option<Sentence> {
    let mut sentence = bare("TensorRT", Platform::Cuda);
    let requested = exact_after(message, b"RequestedamountofGPUmemory(")
        .filter(|_| find(message, b"couldnotbeallocated").is_some())
        .or_else(|| exact_after(message, b"OutOfMemory(Requestedsizewas"));
    if requested.is_some() {
        sentence.requested = requested;
        return Some(sentence);
    }
    find(message, b"ErrorCode2:OutOfMemory").is_some().then_some(sentence)
}

/// `Could not allocate tensor with 377487360 bytes. There is not enough GPU video memory available!`
fn directml(message: &Words<'_>) -> Option<Sentence> {
    let mut sentence = bare("DirectML", Platform::Other);
    if find(message, b"DMLallocatoroutofmemory!").is_some()
        || find(message, b"8007000ENotenoughmemoryresources").is_some()
    {
        return Some(sentence);
    }
    let (bytes, rest) = grouped(after(message, b"Couldnotallocatetensorwith")?)?;
    sentence.requested = Some(SizeRange::exact(bytes));
    rest.starts_with(b"bytes.ThereisnotenoughGPU").then_some(sentence)
}

/// `Error allocating 71323200 bytes of device memory (out of memory). Driver report 10526720 bytes free and 4294770688 bytes total`.
fn theano(message: &Words<'_>) -> Option<Sentence> {
    let (bytes, rest) = grouped(after(message, b"Errorallocating")?)?;
    let rest = rest.strip_prefix(b"bytesofdevicememory(")?;
    let mut sentence = bare("Theano", Platform::Cuda);
    sentence.requested = Some(SizeRange::exact(bytes));
    sentence.memory.free = exact_after(rest, b"Driverreport");
    sentence.memory.total = sentence.memory.free.and_then(|_| exact_after(rest, b"bytesfreeand"));
    Some(sentence)
}

/// `Failed to allocate 400000000 bytes from DEVICE memory`, `Can't allocate [DEVICE] memory: 268435456`.
fn nd4j(message: &Words<'_>) -> Option<Sentence> {
    let requested = exact_after(message, b"allocate[DEVICE]memory:").or_else(|| {
        let (bytes, rest) = grouped(skip(after(message, b"Failedtoallocate")?, b'['))?;
        let rest = skip(skip(rest, b']').strip_prefix(b"bytesfrom")?, b'[');
        rest.starts_with(b"DEVICE").then_some(SizeRange::exact(bytes))
    })?;
    Some(Sentence { requested: Some(requested), ..bare("ND4J", Platform::Cuda) })
}

fn skip(text: &[u8], sign: u8) -> &[u8] {
    text.strip_prefix(&[sign]).unwrap_or(text)
}

/// `Device(id:0) memory isn't enough and alloc failed, kernel name: ..., alloc size: 134217728B.`
fn mindspore(message: &Words<'_>) -> Option<Sentence> {
    let mut sentence = bare("MindSpore", Platform::Other);
    if let Some(rest) = after(message, b"memoryisn'tenoughandallocfailed") {
        sentence.requested = exact_after(rest, b"allocsize:");
        return Some(sentence);
    }
    let rest = after(message, b"Memorynotenough:currentfreememorysize[")?;
    let (free, behind) = grouped(rest)?;
    sentence.requested = exact_after(behind, b"requiredsize[");
    sentence.left = Some(SizeRange::exact(free));
    sentence.requested.is_some().then_some(sentence)
}

/// Three more: PaddlePaddle before 1.0, tinygrad, PyTorch on Metal.
fn others(message: &Words<'_>) -> Option<Sentence> {
    if let Some(rest) = after(message, b"enforceallocating<=availablefailed,") {
        let (asked, rest) = grouped(rest)?;
        let (free, _) = grouped(rest.strip_prefix(b">")?)?;
        let mut sentence = bare("PaddlePaddle", Platform::Cuda);
        sentence.requested = Some(SizeRange::exact(asked));
        sentence.memory.free = Some(SizeRange::exact(free));
        sentence.left = sentence.memory.free;
        return Some(sentence);
    }
    if let Some(rest) = after(message, b"MemoryError:Allocationof")
        && find(rest, b"failedon").is_some()
    {
        // Its units are powers of ten.
        return Some(bare("tinygrad", Platform::Other));
    }
    let requested = size_after(message, b"RuntimeError:Invalidbuffersize:")?;
    Some(Sentence { requested: Some(requested), ..bare("Metal", Platform::Metal) })
}

/// `Unable to allocate 745. GiB for an array with shape (100000, 1000000) and data type float64`: the host's memory.
fn numpy(message: &Words<'_>) -> Option<Sentence> {
    let rest = after(message, b"Unabletoallocate")?;
    let until = find(rest, b"arraywithshape(").filter(|at| *at < 24)?;
    let told = rest.get(..until)?;
    let mut sentence = bare("NumPy", Platform::Host);
    // "745. GiB" has no digit behind its point.
    sentence.requested =
        size(told, Writer::Torch).map(|(told, _)| told).filter(|told| told.high > Bytes::ZERO);
    Some(sentence)
}
