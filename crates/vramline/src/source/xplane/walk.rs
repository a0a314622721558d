//! Walks the fields of a message in a stream without holding the message.
//!
//! Planes and lines are far larger than memory should be; their fields are visited one header at a time, and what is
//! not wanted is skipped. Where the file ends inside a message the walk says so, apart from where it is malformed.

use std::io;

use crate::source::input::Stream;
use crate::source::wire::{Malformed, decode_varint};

/// Names longer than this are cut; no framework writes one.
const LONGEST_TEXT: u64 = 1 << 16;

/// The value of a field, or the length of one that follows in the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    Varint(u64),
    Length(u64),
    /// A fixed-width value, already skipped: no message walked here has one that matters.
    Fixed,
}

/// What comes next in a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    Field(u64, Head),
    /// The message ends.
    End,
    /// The file ends before the message does.
    Cut,
    /// These bytes are no field.
    Malformed,
}

/// The next field of the message that ends at `end`.
pub(crate) fn next(stream: &mut Stream, end: u64) -> io::Result<Next> {
    if stream.position() >= end {
        return Ok(Next::End);
    }
    if stream.ensure(20)? == 0 {
        return Ok(Next::Cut);
    }
    let (tag, tag_length) = match decode_varint(stream.window()) {
        Ok(Some(decoded)) => decoded,
        Ok(None) => return Ok(Next::Cut),
        Err(Malformed) => return Ok(Next::Malformed),
    };
    let number = tag >> 3;
    if number == 0 {
        return Ok(Next::Malformed);
    }
    let rest = stream.window().get(tag_length..).unwrap_or_default();
    let (head, length) = match tag & 7 {
        0 | 2 => match decode_varint(rest) {
            Ok(Some((value, length))) if tag & 7 == 0 => (Head::Varint(value), length as u64),
            Ok(Some((value, length))) => (Head::Length(value), length as u64),
            Ok(None) => return Ok(Next::Cut),
            Err(Malformed) => return Ok(Next::Malformed),
        },
        1 => (Head::Fixed, 8),
        5 => (Head::Fixed, 4),
        _ => return Ok(Next::Malformed),
    };
    stream.skip((tag_length as u64).saturating_add(length))?;
    let body = if let Head::Length(length) = head { length } else { 0 };
    if stream.position().checked_add(body).is_none_or(|after| after > end) {
        return Ok(Next::Malformed);
    }
    Ok(Next::Field(number, head))
}

/// The bytes of a field of `length`, all of them or, where it is longer than any name, its beginning.
pub(crate) fn text(stream: &mut Stream, length: u64) -> io::Result<Vec<u8>> {
    let wanted = usize::try_from(length.min(LONGEST_TEXT)).unwrap_or(0);
    let held = stream.ensure(wanted)?.min(wanted);
    let text = stream.window().get(..held).unwrap_or_default().to_vec();
    stream.skip(length)?;
    Ok(text)
}
