//! The binary `MemoryDump` that TensorFlow's pool allocator writes with `TF_BFC_MEMORY_DUMP=prefix`, one file for each
//! failed attempt.
//!
//! It has what the text lacks, the requested size of every chunk, and lacks what the text has: the request that failed, the
//! limit, and where regions begin. One message at a time is in memory, and none is larger than a chunk can be.

use std::io;

use super::input::Input;
use super::wire::{Cursor, Value, decode_varint};
use crate::failure::{Chunk, Dialect, Failure, Failures, Layout, Region, SizeRange, Tag, Witness};
use crate::names::{Name, Names};
use crate::units::Bytes;
use crate::warning::Warnings;

/// The largest message of a dump is a chunk with the name of its op.
const LARGEST: u64 = 1 << 20;

const PIECE: usize = 64 << 10;

/// Reads a dump as the one failure that it is of.
pub(crate) fn read(input: &Input) -> io::Result<Failures> {
    let mut stream = input.stream(PIECE)?;
    let mut dump = Dump::default();
    loop {
        stream.ensure(20)?;
        let Some(field) = head(stream.window()) else { break };
        let length = field.header.saturating_add(usize::try_from(field.length).unwrap_or(usize::MAX));
        if field.length > LARGEST || stream.ensure(length)? < length {
            break;
        }
        let body = stream.window().get(field.header..length).unwrap_or_default();
        if !dump.take(field.number, body) {
            break;
        }
        stream.skip(length as u64)?;
    }
    if stream.ensure(1)? > 0 {
        dump.is_cut = true;
    }
    Ok(dump.finish(stream.position()))
}

/// Where a field of the outermost message begins, and how long it is.
struct Field {
    number: u64,
    header: usize,
    length: u64,
}

/// Only strings and messages stand there. `None` at the end, or where something else does.
fn head(bytes: &[u8]) -> Option<Field> {
    let (tag, first) = decode_varint(bytes).ok()??;
    let (length, second) = decode_varint(bytes.get(first..)?).ok()??;
    (tag & 7 == 2).then_some(Field { number: tag >> 3, header: first + second, length })
}

#[derive(Default)]
struct Dump {
    allocator: Option<String>,
    layout: Layout,
    names: Names,
    in_use: Option<u64>,
    peak: Option<u64>,
    allocs: Option<u64>,
    has_stats: bool,
    is_cut: bool,
    warnings: Warnings,
}

impl Dump {
    fn take(&mut self, number: u64, body: &[u8]) -> bool {
        match number {
            1 => self.allocator = Some(String::from_utf8_lossy(body).into_owned()),
            3 => return self.chunk(body).is_some(),
            5 => return self.stats(body).is_some(),
            _ => {}
        }
        true
    }

    fn chunk(&mut self, body: &[u8]) -> Option<()> {
        let mut fields = Cursor(body);
        let mut chunk = Chunk {
            address: 0,
            size: Bytes::ZERO,
            requested: Some(Bytes::ZERO),
            in_use: false,
            tag: Tag::Lower,
            op: Name::EMPTY,
        };
        while let Some(field) = fields.field().ok()? {
            match field {
                (1, Value::Varint(address)) => chunk.address = address,
                (2, Value::Varint(size)) => chunk.size = Bytes(size),
                (3, Value::Varint(requested)) => chunk.requested = Some(Bytes(requested)),
                (5, Value::Bytes(op)) => chunk.op = self.names.intern(&String::from_utf8_lossy(op)),
                (8, Value::Varint(in_use)) => chunk.in_use = in_use != 0,
                _ => {}
            }
        }
        // A free chunk keeps the requested size of its last owner.
        if !chunk.in_use {
            chunk.requested = None;
        }
        let touches =
            self.layout.regions.last().and_then(|region| region.chunks.last()).is_some_and(|last| {
                let is_next = last.address.checked_add(last.size.0) == Some(chunk.address);
                // Free neighbours of one region would have been merged.
                is_next && (last.in_use || chunk.in_use)
            });
        if !touches {
            self.layout.regions.push(Region::default());
        }
        self.layout.regions.last_mut()?.chunks.push(chunk);
        Some(())
    }

    fn stats(&mut self, body: &[u8]) -> Option<()> {
        self.has_stats = true;
        (self.in_use, self.peak, self.allocs) = (Some(0), Some(0), Some(0));
        let mut fields = Cursor(body);
        while let Some(field) = fields.field().ok()? {
            match field {
                (1, Value::Varint(allocs)) => self.allocs = Some(allocs),
                (2, Value::Varint(in_use)) => self.in_use = Some(in_use),
                (3, Value::Varint(peak)) => self.peak = Some(peak),
                _ => {}
            }
        }
        Some(())
    }

    fn finish(mut self, position: u64) -> Failures {
        let mut failure = Failure::new(Dialect::MemoryDump);
        failure.witnesses.push(Witness::default());
        failure.allocator = self.allocator.filter(|name| !name.is_empty());
        failure.peak_in_use = self.peak.map(|peak| SizeRange::exact(Bytes(peak)));
        failure.allocs = self.allocs;
        let sums = self.layout.sums(Tag::Lower);
        // The statistics are written last: with them the list of chunks is whole.
        let is_whole = self.has_stats && !self.is_cut;
        if is_whole && self.in_use == Some(sums.in_use.0) {
            failure.set_sums(sums);
            failure.layout = Some(self.layout);
        } else if is_whole {
            self.warnings.add(
                "chunks-disagree",
                format!(
                    "the blocks in use in the dump add up to {} bytes, but the dump counts {}",
                    sums.in_use.0,
                    self.in_use.unwrap_or(0)
                ),
                "",
            );
            failure.in_use = self.in_use.map(|bytes| SizeRange::exact(Bytes(bytes)));
        } else {
            self.warnings.add(
                "truncated",
                format!("the dump ends at byte {position}, before its statistics: it is incomplete"),
                "the process was killed while it wrote the dump, or the disk was full",
            );
        }
        Failures { list: vec![failure], names: self.names, warnings: self.warnings, ..Failures::default() }
    }
}
