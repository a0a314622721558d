//! Errors in words that nobody listed: a line that reports an error, names a device and says that memory ran out.
//!
//! It is read after everybody else: there are more programs than names of them. What merely talks of such errors is left out.

use super::prose;
use super::said::{Line, Reading, Said, Sentence};
use super::text::find;
use crate::failure::{Dialect, Platform};

/// How memory is said to have run out, in small letters without blanks. Names with underscores count in capital letters only: in small
/// ones they are names of functions.
const WORDS: [&[u8]; 4] =
    [b"outofmemory", b"outofdevicememory", b"insufficientmemory(", b"notenoughgpumemory"];
const NAMES: [&[u8]; 2] = [b"OUT_OF_MEMORY", b"OUT_OF_DEVICE_MEMORY"];

/// Words of a device, and whose it is.
const DEVICES: [(&[u8], Platform); 20] = [
    (b"rocm", Platform::Hip),
    (b"hiperror", Platform::Hip),
    (b"hipmalloc", Platform::Hip),
    (b"iogpu", Platform::Metal),
    (b"metal", Platform::Metal),
    (b"mtlcommand", Platform::Metal),
    (b"ioafcode", Platform::Metal),
    (b"sycl", Platform::Xpu),
    (b"xpu", Platform::Xpu),
    (b"npu", Platform::Npu),
    (b"tpu", Platform::Tpu),
    (b"vulkan", Platform::Other),
    (b"vk::", Platform::Other),
    (b"opencl", Platform::Other),
    (b"dml", Platform::Other),
    (b"cuda", Platform::Cuda),
    (b".cu:", Platform::Cuda),
    (b"gpu", Platform::Other),
    (b"vram", Platform::Other),
    (b"device", Platform::Other),
];

const ERRORS: [&[u8]; 9] =
    [b"error", b"exception", b"fail", b"fatal", b"[e]", b"panic", b"abort", b"unable", b"couldnot"];

/// The host's memory, which other programs speak of in the same words.
const HOST: [&[u8]; 5] = [b"heap", b"hostmemory", b"systemmemory", b"cpumemory", b"pinned"];

/// A longer line is a text.
const LONGEST: usize = 2000;

/// A failure in words that are not known.
pub(crate) fn sentence(line: &Line<'_>, message: &[u8]) -> Reading {
    let says_memory = find(message, b"emory").is_some() || find(message, b"EMORY").is_some();
    if !says_memory || message.len() > LONGEST {
        return Reading::Foreign;
    }
    let small = message.to_ascii_lowercase();
    let has = |words: &[&[u8]]| words.iter().any(|word| find(&small, word).is_some());
    let Some((_, platform)) = DEVICES.iter().find(|(word, _)| find(&small, word).is_some()) else {
        return Reading::Foreign;
    };
    if !has(&ERRORS) || has(&HOST) {
        return Reading::Foreign;
    }
    let named = NAMES.iter().flat_map(|name| places(message, name).map(|at| (at, name.len(), true)));
    let spoken = WORDS.iter().flat_map(|words| places(&small, words).map(|at| (at, words.len(), false)));
    for (at, length, is_name) in named.chain(spoken) {
        let behind = message.get(at + length..).unwrap_or_default();
        // PyTorch's names and sentences are read elsewhere; the rest of one may come with the next piece.
        if behind.starts_with(b"Error") || behind.starts_with(TRIED) || prose::is_about(line, at, length) {
            continue;
        }
        // A name is part of a longer one. Spoken words stand where somebody reports them.
        let is_name = is_name || is_joined(line, at, length);
        if is_name || prose::is_reported(line, at, length) {
            let said = Sentence { platform: Some(*platform), ..Sentence::new(Dialect::Library) }.said();
            return if TRIED.starts_with(behind) { Reading::Part } else { Reading::Says(said) };
        }
    }
    Reading::Foreign
}

const TRIED: &[u8] = b".Triedtoallocate";

/// What a line tells that was cut for good.
pub(crate) fn salvage(line: &Line<'_>, message: &[u8]) -> Option<Said> {
    // With a sign behind it the sentence is whole.
    let ended = [line.dense, b"!"].concat();
    let raw = [line.raw, b"!"].concat();
    let ended = Line { raw: &raw, dense: &ended, message: line.message, is_ended: true };
    match sentence(&ended, &[message, b"!"].concat()) {
        Reading::Says(said) => Some(said),
        _ => None,
    }
}

/// Where words stand in a text; of many, the first few.
fn places<'a>(text: &'a [u8], words: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    text.windows(words.len())
        .enumerate()
        .filter(move |(_, window)| *window == words)
        .map(|(at, _)| at)
        .take(4)
}

/// Whether words are written as one: `OutOfMemory`.
fn is_joined(line: &Line<'_>, at: usize, length: usize) -> bool {
    let words = line.dense.get(line.message + at..line.message + at + length).unwrap_or_default();
    words.first().is_some_and(u8::is_ascii_uppercase) && find(line.raw, words).is_some()
}
