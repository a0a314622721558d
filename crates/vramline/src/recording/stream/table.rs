//! The rows of a stream, read up to its last whole message.

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch};
use arrow_buffer::Buffer;
use arrow_schema::{DataType, Field, SchemaRef};

use super::StreamError;
use super::frame::{Frame, LARGEST_HEADER, batch, header};
use crate::recording::folder::open_plain;
use crate::recording::message::VERSION_KEY;
use crate::recording::schema::VERSION;

/// Larger streams are not read: they are no recording of ours.
const LARGEST: u64 = 16 << 30;

/// What Arrow writes behind the last message of a stream.
const END_OF_STREAM: [u8; 8] = [0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0];

/// The rows of a stream that are whole.
#[derive(Debug, Default)]
pub struct Table {
    batches: Vec<RecordBatch>,
    /// `None` where not even the header is whole.
    pub(super) schema: Option<SchemaRef>,
    /// Bytes of the file up to the end of the last whole message.
    pub whole_bytes: u64,
    /// Bytes behind that.
    pub torn_bytes: u64,
}

impl Table {
    /// How many rows there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }

    /// Whether there is no row.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// A table of these columns, still without rows.
    pub(in super::super) fn of(schema: &SchemaRef) -> Table {
        Table { schema: Some(Arc::clone(schema)), ..Table::default() }
    }

    /// Takes the rows of every whole message from `at` on, which moves behind them; what stands there says why it ends.
    pub(in super::super) fn fill(&mut self, bytes: &Buffer, at: &mut usize) -> Frame {
        let Some(schema) = self.schema.clone() else { return Frame::Torn };
        loop {
            match Frame::at(bytes, *at) {
                Frame::Message { metadata, body, end } => {
                    let Some(batch) = batch(bytes, metadata, body, &schema) else { return Frame::Torn };
                    self.batches.push(batch);
                    *at = end;
                }
                stop => return stop,
            }
        }
    }

    /// The columns that the stream has: name, and whether it is text.
    #[must_use]
    pub fn columns(&self) -> Vec<(String, bool)> {
        let named = |field: &Arc<Field>| (field.name().clone(), *field.data_type() == DataType::Utf8);
        self.schema.iter().flat_map(|schema| schema.fields().iter().map(named)).collect()
    }

    /// Whether the stream has a column; one that was written before the column was added has not.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.schema.as_ref().is_some_and(|schema| schema.column_with_name(name).is_some())
    }

    /// A column of integers; nulls where the stream has no such column.
    #[must_use]
    pub fn ints(&self, name: &str) -> Vec<Option<i64>> {
        let mut all = Vec::with_capacity(self.len());
        for batch in &self.batches {
            match batch.column_by_name(name).and_then(|column| column.as_primitive_opt::<Int64Type>()) {
                Some(column) => all.extend(column.iter()),
                None => all.extend(std::iter::repeat_n(None, batch.num_rows())),
            }
        }
        all
    }

    /// A column of text; nulls where the stream has no such column.
    #[must_use]
    pub fn texts(&self, name: &str) -> Vec<Option<&str>> {
        let mut all = Vec::with_capacity(self.len());
        for batch in &self.batches {
            match batch.column_by_name(name).and_then(|column| column.as_string_opt::<i32>()) {
                Some(column) => {
                    all.extend((0..column.len()).map(|at| column.is_valid(at).then(|| column.value(at))));
                }
                None => all.extend(std::iter::repeat_n(None, batch.num_rows())),
            }
        }
        all
    }
}

/// Reads a stream up to its last whole message.
pub fn read(path: &Path) -> Result<Table, StreamError> {
    let failed = |error: io::Error| StreamError::Io { path: path.to_owned(), error };
    let file = open_plain(path).map_err(failed)?;
    // The first bytes show the format, so that a large file of another format is not read.
    let mut bytes = Vec::new();
    (&file).take(LARGEST_HEADER).read_to_end(&mut bytes).map_err(failed)?;
    if header(&bytes).is_ok_and(|header| header.is_some()) {
        file.take(LARGEST).read_to_end(&mut bytes).map_err(failed)?;
    }
    read_bytes(bytes, path)
}

/// Reads a stream that lies in memory. `path` is for the errors.
pub fn read_bytes(bytes: Vec<u8>, path: &Path) -> Result<Table, StreamError> {
    let total = bytes.len() as u64;
    let foreign = |what: String| StreamError::Foreign { path: path.to_owned(), what };
    let Some((schema, mut at)) = header(&bytes).map_err(foreign)? else {
        // A file whose header is torn holds nothing yet, and is ours as far as one can tell.
        return Ok(Table { torn_bytes: total, ..Table::default() });
    };
    check(&schema, path)?;
    let bytes = Buffer::from_vec(bytes);
    let mut table = Table::of(&schema);
    let stop = table.fill(&bytes, &mut at);
    let end = match stop {
        // Another program wrote it anew and said where it ends; nothing is torn.
        Frame::End if bytes.len() - at == END_OF_STREAM.len() => at,
        // The first word of a message in a room is stored last: without it, what was stored is torn, and zeros are just room.
        Frame::Room => bytes.iter().rposition(|&byte| byte != 0).map_or(at, |last| at.max(last + 1)),
        _ => bytes.len(),
    };
    table.whole_bytes = at as u64;
    table.torn_bytes = (end - at) as u64;
    Ok(table)
}

/// Whether a stream with these columns is one of ours, of a version that is known here.
pub(in super::super) fn check(schema: &SchemaRef, path: &Path) -> Result<(), StreamError> {
    let foreign = |what: &str| StreamError::Foreign { path: path.to_owned(), what: what.to_owned() };
    let version = schema.metadata().get(VERSION_KEY).and_then(|version| version.parse::<u32>().ok());
    match version {
        Some(found) if found > VERSION => return Err(StreamError::Newer { path: path.to_owned(), found }),
        Some(_) => {}
        None => return Err(foreign("its schema has no version of Vramline")),
    }
    // Rows of these cost bytes. Arrow has types that cost none, and would let a small file claim any number of rows.
    let is_ours = |field: &Arc<Field>| matches!(field.data_type(), DataType::Int64 | DataType::Utf8);
    if schema.fields().is_empty() || !schema.fields().iter().all(is_ours) {
        return Err(foreign("it has no columns, or columns that are neither integers nor text"));
    }
    Ok(())
}
