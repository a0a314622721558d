//! XLA's error lines and its list of buffers, under JAX and TensorFlow, and what it says on TPUs.

use super::said::{Line, Reading, Said, Sentence};
use super::sizes::{Writer, number, size};
use super::text::{after, cut, find, text};
use crate::failure::{Dialect, Platform, ProgramNeed, SizeRange};
use crate::units::Bytes;

/// `Out of memory while trying to allocate 81721667800 bytes.`, in the words of seven years.
pub(crate) fn jax_error(line: &Line<'_>, message: &[u8]) -> Reading {
    const WORDS: [&[u8]; 4] = [
        b"Outofmemorywhiletryingtoallocate",
        b"Outofmemorytryingtoallocate",
        b"Outofmemoryallocating",
        b"Failedtoallocaterequestfor",
    ];
    let constant = || {
        let rest = after(message, b"RESOURCE_EXHAUSTED:Failedtoallocate")?;
        find(rest, b"bytesfornewconstant").map(|_| rest)
    };
    let Some(rest) = WORDS.iter().find_map(|word| after(message, word)).or_else(constant) else {
        return Reading::Foreign;
    };
    let Some((mut requested, rest)) = size(rest, Writer::Xla) else {
        let is_cut = rest.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'.');
        return if is_cut { cut(line) } else { Reading::Foreign };
    };
    // CuPy says so too.
    if rest.starts_with(b"(allocatedsofar:") {
        return Reading::Foreign;
    }
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
    let executable = after(message, b"executable_name='").and_then(|rest| {
        let at = find(rest, b"'")?;
        Some(text(rest.get(..at)?)).filter(|name| !name.is_empty())
    });
    Reading::Says(Said::JaxError { requested, allocator, device, executable })
}

/// `Can't reduce memory use below 56.51GiB (60680469578 bytes) by rematerialization; only reduced to 84.31GiB (90522791134 bytes)`: the
/// first is the budget, the second what the program needs all the same.
///
/// `The byte size of input/output arguments (150022979588) exceeds the base limit (112583507968)`: the same of its arguments alone.
pub(crate) fn program(line: &Line<'_>, message: &[u8]) -> Reading {
    if let Some(rest) = after(message, b"input/outputarguments(") {
        let read = || {
            let (needed, rest) = number(rest)?;
            let (budget, _) = number(rest.strip_prefix(b")exceedsthebaselimit(")?)?;
            let exact = |bytes| SizeRange::exact(Bytes(bytes));
            Some(ProgramNeed { needed: exact(needed), budget: exact(budget) })
        };
        return read().map_or(Reading::Foreign, |need| Reading::Says(Said::Program(need)));
    }
    let Some(rest) = after(message, b"treducememoryusebelow") else { return Reading::Foreign };
    let told = |rest| {
        let (rounded, behind) = size(rest, Writer::Xla)?;
        let exact = behind.strip_prefix(b"(").and_then(|rest| size(rest, Writer::Xla));
        Some(exact.map_or(rounded, |(exact, _)| rounded.and(exact).unwrap_or(rounded)))
    };
    let read = || {
        let budget = told(rest)?;
        let needed = told(after(rest, b"onlyreducedto")?)?;
        after(rest, b"originally")?;
        Some(ProgramNeed { needed, budget })
    };
    read().map_or_else(|| cut(line), |need| Reading::Says(Said::Program(need)))
}

/// A program that needs more than the device has.
fn fill(sentence: &mut Sentence, needed: SizeRange, budget: SizeRange) {
    (sentence.requested, sentence.limit) = (Some(needed), Some(budget));
    sentence.program = Some(ProgramNeed { needed, budget });
}

/// What TPUs say: at compiling, at loading a program and at allocating.
pub(crate) fn tpu(line: &Line<'_>, message: &[u8]) -> Reading {
    let short = |rest| size(rest, Writer::Short).map(|(told, _)| told);
    let sentence = || Sentence { platform: Some(Platform::Tpu), ..Sentence::new(Dialect::Tpu) };
    if let Some(rest) = after(message, b"outofmemoryinmemoryspacehbm") {
        let mut sentence = sentence();
        let told = after(rest, b"Used").and_then(|rest| {
            let (used, rest) = size(rest, Writer::Short)?;
            let (of, _) = size(rest.strip_prefix(b"of")?, Writer::Short)?;
            Some((used, of))
        });
        let Some((used, of)) = told else {
            return if rest.len() < 40 { cut(line) } else { Reading::Says(sentence.said()) };
        };
        fill(&mut sentence, used, of);
        return Reading::Says(sentence.said());
    }
    // Two kinds of cores, one memory.
    if let Some(rest) = after(message, b"TPUTensorCoreHbmusage:") {
        let mut sentence = sentence();
        let read = || {
            let of_core = |name: &[u8]| short(after(rest, name)?);
            let needed = short(rest)?.plus(of_core(b"SparseCoreHbmusage")?);
            Some((needed, of_core(b"exceedingavailablebytes:")?))
        };
        let Some((needed, of)) = read() else { return cut(line) };
        fill(&mut sentence, needed, of);
        return Reading::Says(sentence.said());
    }
    // At compiling, where its own estimate is beyond the device.
    if let Some(rest) = after(message, b"enoughdevicememory.Requires") {
        let mut sentence = sentence();
        let Some((needed, of)) = short(rest).zip(after(rest, b",has").and_then(short)) else {
            return cut(line);
        };
        fill(&mut sentence, needed, of);
        return Reading::Says(sentence.said());
    }
    const ASKS: [&[u8]; 2] = [b"Attemptingtoallocate", b"Attemptingtoreserve"];
    let Some(rest) = ASKS.iter().find_map(|word| after(message, word)) else { return Reading::Foreign };
    if find(message, b"[metal::malloc]").is_some() {
        return Reading::Foreign;
    }
    let Some(asked) = short(rest) else {
        let is_cut = rest.is_empty() || rest.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.');
        return if is_cut { cut(line) } else { Reading::Foreign };
    };
    let Some(there) = after(rest, b"Thatwasnotpossible.Thereare") else {
        // Nobody else asks so.
        return if rest.len() < 80 { cut(line) } else { Reading::Foreign };
    };
    let mut sentence = sentence();
    sentence.requested = Some(asked);
    let Some((free, behind)) = size(there, Writer::Short) else { return cut(line) };
    if !behind.starts_with(b"free") {
        return cut(line);
    }
    let size_before = |word: &[u8]| {
        let until = behind.get(..find(behind, word)?)?;
        let at = until.iter().rposition(|byte| !(byte.is_ascii_alphanumeric() || *byte == b'.'))?;
        short(until.get(at + 1..)?.strip_prefix(b"and").unwrap_or(until.get(at + 1..)?))
    };
    sentence.memory.free = Some(free);
    // What lies in one piece: told where it is less.
    sentence.largest = size_before(b"reservable")
        .or_else(|| short(after(behind, b"largestcontiguousregionoffreememoryis")?));
    sentence.cached = Some(free);
    sentence.left = Some(SizeRange::exact(Bytes::ZERO));
    sentence.device = after(message, b";(").and_then(|rest| {
        let name = rest.get(..find(rest, b")")?)?;
        (name.len() <= 40).then(|| text(name))
    });
    Reading::Says(sentence.said())
}

pub(crate) fn buffers(line: &Line<'_>, message: &[u8]) -> Reading {
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
