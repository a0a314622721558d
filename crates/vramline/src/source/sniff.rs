//! What a file is, by its first bytes and not by its name.
//!
//! Formats that are not read yet are recognised all the same, so that the answer is "this is a PyTorch snapshot",
//! not "malformed field at byte 0".

use std::io;

use super::input::Input;
use super::wire::{Cursor, Value};

/// How much of the file decides.
const LOOK: usize = 64 << 10;

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// A profiler trace of TensorFlow or JAX.
    XPlane,
    /// Nothing at all.
    Empty,
    /// A Python pickle, as PyTorch's memory snapshots are.
    Pickle,
    /// A zip archive, as PyTorch's checkpoints are.
    Zip,
    /// A pprof profile, as JAX's device memory profiles are.
    Pprof,
    /// A program of XLA's, as `--xla_dump_hlo_as_proto` writes them.
    Hlo,
    /// A dump of TensorFlow's pool allocator.
    MemoryDump,
    /// A TensorBoard event file.
    EventFile,
    /// What xprof or TensorBoard made of the memory events of a trace.
    MemoryProfile,
    /// A trace in Chrome's event format, as profilers write them beside their own.
    ChromeTrace,
    /// The same by PyTorch's profiler.
    TorchTrace,
    /// Other JSON.
    Json,
    /// A profile of Python's functions, as cProfile writes it.
    PythonProfile,
    /// Other text, such as a log.
    Text,
    /// None of these.
    Unknown,
}

pub(crate) fn sniff(input: &Input) -> io::Result<Format> {
    let mut stream = input.stream(LOOK)?;
    stream.ensure(LOOK)?;
    let window = stream.window();
    Ok(of_bytes(window.get(..LOOK).unwrap_or(window)))
}

fn of_bytes(bytes: &[u8]) -> Format {
    match bytes {
        [] => Format::Empty,
        [b'P', b'K', 3, 4, ..] => Format::Zip,
        // Protocols 2 to 5 begin with PROTO and their number.
        [0x80, 2..=5, ..] => Format::Pickle,
        _ if looks_like_old_pickle(bytes) => Format::Pickle,
        _ if looks_like_event_file(bytes) => Format::EventFile,
        _ if looks_like_python_profile(bytes) => Format::PythonProfile,
        // A log that begins with blank lines begins like a message too.
        _ if is_text(bytes) => match bytes.trim_ascii_start() {
            [b'{' | b'[', ..] => of_json(bytes),
            _ => Format::Text,
        },
        _ => match first_message(bytes) {
            First::Plane => Format::XPlane,
            First::ValueType => Format::Pprof,
            First::Module => Format::Hlo,
            First::Name => Format::MemoryDump,
            First::None => Format::Unknown,
        },
    }
}

/// Protocols 0 and 1 begin with their first instruction: a dictionary or a list, stored as number 0, or a function.
fn looks_like_old_pickle(bytes: &[u8]) -> bool {
    const BEGINNINGS: [&[u8]; 12] = [
        b"(dp0\n", b"(dp1\n", b"(lp0\n", b"(lp1\n", b"}q\0", b"]q\0",
        // Without the number, where nobody refers to it.
        b"(dV", b"(dS'", b"(l(d", b"}(X", b"}(U", b"](}",
    ];
    if BEGINNINGS.iter().any(|begin| bytes.starts_with(begin)) {
        return true;
    }
    let Some(named) = bytes.strip_prefix(b"c") else { return false };
    let mut lines = named.split(|&byte| byte == b'\n');
    let is_dotted = |line: Option<&[u8]>| {
        line.is_some_and(|line| {
            !line.is_empty()
                && line.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'.'))
        })
    };
    is_dotted(lines.next())
        && is_dotted(lines.next())
        && matches!(lines.next(), Some([b'(' | b')' | b'p' | b'q' | b'R', ..]))
}

/// Text of any language, terminal colours included, but none of the control characters that messages are full of.
fn is_text(bytes: &[u8]) -> bool {
    let is_utf8 = std::str::from_utf8(bytes).map_or_else(|error| error.error_len().is_none(), |_| true);
    is_utf8 && bytes.iter().all(|byte| *byte >= 0x20 || b"\t\n\r\x0b\x0c\x1b\x08".contains(byte))
}

/// A TensorBoard record: the length of the first event, eight bytes, then a checksum, then an event with a wall time.
fn looks_like_event_file(bytes: &[u8]) -> bool {
    matches!(bytes, [_, 0, 0, 0, 0, 0, 0, 0, _, _, _, _, 0x09, ..])
        && bytes.windows(10).take(64).any(|window| window == b"brain.Even")
}

/// What JSON is, by the keys at its beginning.
fn of_json(bytes: &[u8]) -> Format {
    let has = |key: &[u8]| bytes.windows(key.len()).any(|window| window == key);
    if has(b"\"memoryProfilePerAllocator\"") {
        Format::MemoryProfile
    } else if has(b"\"traceEvents\"") || has(b"\"ph\"") && has(b"\"pid\"") {
        // PyTorch describes the devices first; older versions only name their ops.
        if has(b"\"deviceProperties\"") || has(b"\"aten::") {
            Format::TorchTrace
        } else {
            Format::ChromeTrace
        }
    } else if has(b"\"deviceProperties\"") && has(b"\"schemaVersion\"") {
        Format::TorchTrace
    } else {
        Format::Json
    }
}

/// Python's marshal of a dictionary whose first key is (file, line, function): a tuple of three. Each type may have a flag.
fn looks_like_python_profile(bytes: &[u8]) -> bool {
    let [dict, tuple, rest @ ..] = bytes else { return false };
    dict & 0x7f == b'{'
        && match tuple & 0x7f {
            b')' => rest.starts_with(&[3]),
            b'(' => rest.starts_with(&[3, 0, 0, 0]),
            _ => false,
        }
}

enum First {
    Plane,
    ValueType,
    Module,
    Name,
    None,
}

/// Four of the formats begin with a message or a string in field 1: what is in it tells them apart.
fn first_message(bytes: &[u8]) -> First {
    // A file may begin with errors, warnings or a host name before the first plane.
    let mut cursor = Cursor(bytes);
    loop {
        let Some((&tag, _)) = cursor.0.split_first() else { return First::None };
        let mut ahead = cursor;
        match (tag, ahead.field()) {
            // Plain text begins with bytes that are tags too: ask for a real string.
            (0x12 | 0x1a | 0x22, Ok(Some((_, Value::Bytes(text))))) if is_name(text) => cursor = ahead,
            (0x0a, _) => {
                let mut inner = Cursor(cursor.0.get(1..).unwrap_or_default());
                let Ok(length) = inner.varint() else { return First::None };
                let is_whole = length <= inner.0.len() as u64;
                let body = if is_whole { inner.take(length).unwrap_or_default() } else { inner.0 };
                return what_is(body, is_whole);
            }
            _ => return First::None,
        }
    }
}

fn what_is(body: &[u8], is_whole: bool) -> First {
    if is_whole && body.len() > 2 && is_name(body) {
        return First::Name;
    }
    // A module begins with its name and that of its entry computation; a plane with a number.
    let mut fields = Cursor(body);
    if let (Ok(Some((1, Value::Bytes(module)))), Ok(Some((2, Value::Bytes(entry))))) =
        (fields.field(), fields.field())
        && !module.is_empty()
        && !entry.is_empty()
        && is_name(module)
        && is_name(entry)
    {
        return First::Module;
    }
    let mut fields = Cursor(body);
    let mut seen = 0;
    loop {
        let here = fields;
        match fields.field() {
            Ok(Some((1, Value::Varint(_)))) => {}
            Ok(Some((2, Value::Varint(_)))) if is_whole => return First::ValueType,
            Ok(Some((2, Value::Bytes(name)))) if name.iter().all(|byte| (0x20..0x7f).contains(byte)) => {
                return First::Plane;
            }
            Ok(Some((3..=6, Value::Bytes(_)))) => {}
            // A plane that is larger than the window, whose name may come later: its first line reaches out of it.
            Err(_) if !is_whole && matches!(here.0, [0x1a | 0x22 | 0x2a | 0x32, ..]) => return First::Plane,
            Ok(None) if is_whole && seen > 0 => return First::Plane,
            _ => return First::None,
        }
        seen += 1;
    }
}

fn is_name(text: &[u8]) -> bool {
    text.iter().all(|byte| (0x20..0x7f).contains(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_by_their_first_bytes() {
        assert_eq!(of_bytes(b""), Format::Empty);
        assert_eq!(of_bytes(b"\x80\x02}q\x00"), Format::Pickle);
        assert_eq!(of_bytes(b"(dp0\nVsegments\np1\n"), Format::Pickle);
        assert_eq!(of_bytes(b"}q\x00(X\x08\x00\x00\x00segments"), Format::Pickle);
        assert_eq!(of_bytes(b"cos\nsystem\n(S'id'\ntR."), Format::Pickle);
        assert_eq!(of_bytes(b"config.yaml\nloaded\nready\n"), Format::Text);
        assert_eq!(of_bytes(b"PK\x03\x04rest"), Format::Zip);
        assert_eq!(of_bytes(b"{\"traceEvents\": []}"), Format::ChromeTrace);
        assert_eq!(of_bytes(b"[{\"ph\": \"X\", \"pid\": 1}]"), Format::ChromeTrace);
        assert_eq!(of_bytes(b"[{\"name\": \"aten::mm\", \"ph\": \"X\", \"pid\": 1}]"), Format::TorchTrace);
        assert_eq!(
            of_bytes(b"{\"schemaVersion\": 1, \"deviceProperties\": [], \"traceEvents\": []}"),
            Format::TorchTrace
        );
        assert_eq!(of_bytes(b"{\"memoryProfilePerAllocator\":{}}"), Format::MemoryProfile);
        assert_eq!(of_bytes(b"{\"learning_rate\": 0.1}"), Format::Json);
        assert_eq!(of_bytes(b"{\xa9\x03\xda\x01~\xe9\0\0\0\0\xda\x04exec"), Format::PythonProfile);
        assert_eq!(of_bytes(b"\xfb\xa9\x03\xda\x01~"), Format::PythonProfile);
        assert_eq!(of_bytes(b"{(\x03\0\0\0s\x01\0\0\0~"), Format::PythonProfile);
        assert_eq!(of_bytes(b"2026-11-15 I tensorflow/core"), Format::Text);
        assert_eq!(of_bytes(b"\n\nblank lines, then a log\n"), Format::Text);
        assert_eq!(of_bytes(b"\x0a\x09GPU_0_bfc\x12\x02\x08\x01"), Format::MemoryDump);
        assert_eq!(of_bytes(b"\x0a\x04\x08\x01\x10\x02\x0a\x04\x08\x03\x10\x04"), Format::Pprof);
        assert_eq!(of_bytes(b"\x0a\x0e\x0a\x05jit_f\x12\x01m\x1a\x02\x0a\x00"), Format::Hlo);
        assert_eq!(of_bytes(b"\x0a\x0d\x08\x01\x12\x09/host:CPU"), Format::XPlane);
        assert_eq!(of_bytes(b"\x22\x02vm\x0a\x0d\x08\x01\x12\x09/host:CPU"), Format::XPlane);
        assert_eq!(of_bytes(b"\xff\xd8\xff\xe0\x00\x10JFIF"), Format::Unknown);
    }
}
