//! TensorFlow's error lines.

use super::said::{Line, Reading, Said, TensorError};
use super::text::{after, before, cut, find, last_after, name_of, part_begins, text};

/// A kernel's words, and those of an op that only makes a tensor.
const TENSOR: [&[u8]; 2] = [b"OOMwhenallocatingtensorwithshape", b"OOMwhenallocatingtensorofshape"];

fn tensor(message: &[u8]) -> Option<&[u8]> {
    TENSOR.iter().find_map(|words| after(message, words))
}

/// `OOM when allocating tensor with shape[2,3] and type float on DEVICE by allocator NAME`.
pub(crate) fn tensor_error(line: &Line<'_>, message: &[u8]) -> Reading {
    let Some(rest) = tensor(message) else { return Reading::Foreign };
    let Some((shape, rest)) = shape_of(rest) else { return cut(line) };
    // Somebody's `[batch, ...]` is no shape.
    if !shape.iter().all(|byte| byte.is_ascii_digit() || b"[],".contains(byte)) {
        return Reading::Foreign;
    }
    if part_begins(rest, b"andtype") {
        return cut(line);
    }
    let Some(rest) = rest.strip_prefix(b"andtype") else {
        // Until 2017 the shape was all.
        return Reading::Says(Said::TensorError(shape_alone(shape)));
    };
    // An op that only makes a tensor says no more.
    if find(message, TENSOR[1]).is_some() && !rest.is_empty() && rest.iter().all(u8::is_ascii_alphanumeric) {
        let dtype = line.is_ended.then(|| text(rest));
        return Reading::Says(Said::TensorError(TensorError { dtype, ..shape_alone(shape) }));
    }
    let read = || {
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
        Some(TensorError {
            shape: text(shape),
            dtype: Some(text(dtype)),
            device: Some(text(device)),
            allocator: allocator.filter(|name| !name.is_empty()),
            op: op.filter(|op| !op.is_empty() && !op.starts_with("__wrapped__")),
        })
    };
    match read() {
        Some(error) if error.op.is_none() => Reading::EndsInName(Said::TensorError(error)),
        Some(error) => Reading::Says(Said::TensorError(error)),
        None => cut(line),
    }
}

/// What an error line tells that was cut for good.
pub(crate) fn salvage(message: &[u8]) -> Option<Said> {
    let (shape, _) = shape_of(tensor(message)?)?;
    Some(Said::TensorError(shape_alone(shape)))
}

fn shape_of(rest: &[u8]) -> Option<(&[u8], &[u8])> {
    rest.split_at_checked(rest.iter().position(|&byte| byte == b']')? + 1)
}

fn shape_alone(shape: &[u8]) -> TensorError {
    TensorError { shape: text(shape), dtype: None, device: None, allocator: None, op: None }
}

/// `failed to allocate memory [Op:Sigmoid]`.
pub(crate) fn op_failed(line: &Line<'_>, message: &[u8]) -> Reading {
    let Some(rest) = after(message, b"failedtoallocatememory") else { return Reading::Foreign };
    let Some(op) = rest.strip_prefix(b"[Op:") else {
        return if part_begins(rest, b"[Op:") { cut(line) } else { Reading::Foreign };
    };
    match find(op, b"]").and_then(|end| op.get(..end)) {
        Some(op) => Reading::Says(Said::OpFailed(text(op))),
        None => cut(line),
    }
}

/// The node of a graph that an error line above it is about.
pub(crate) fn node(_: &Line<'_>, message: &[u8]) -> Reading {
    const SHAPES: [(&[u8], &[u8]); 3] =
        [(b"[[{{node", b"}}"), (b"[[node", b"(definedat"), (b"[[Node:", b"=")];
    let Some((rest, end)) =
        SHAPES.iter().find_map(|(begin, end)| message.strip_prefix(*begin).map(|rest| (rest, *end)))
    else {
        return Reading::Foreign;
    };
    let name = before(rest, end);
    if name.is_empty() || name.len() == rest.len() {
        return Reading::Foreign;
    }
    Reading::Says(Said::Node(text(name)))
}
