//! Rows as one Arrow message, made from a pattern.
//!
//! A step waits for its mark, so a mark must be made quickly, and from code and memory that lie cold: a training step has run
//! in between. All messages of a stream have the same metadata but for a few numbers. Arrow's own writer makes the pattern
//! once; after that a message is the pattern, those numbers, and the columns behind it.

use std::collections::HashMap;
use std::sync::Arc;

use arrow_array::{ArrayRef, Int64Array, RecordBatch, StringArray};
use arrow_ipc::writer::{IpcWriteOptions, StreamWriter};
use arrow_ipc::{Message, MetadataVersion, root_as_message};
use arrow_schema::{ArrowError, DataType, Field, Schema, SchemaRef};

use super::schema::{Kind, Stream, VERSION};
use super::stream::Cell;

/// The key of a schema's metadata that holds the version.
pub(super) const VERSION_KEY: &str = "vramline.version";
const STREAM_KEY: &str = "vramline.stream";

/// What every buffer of a message begins at a multiple of.
const ALIGNMENT: usize = 8;
/// The mark of a message, and the length of its metadata.
const PREFIX: usize = 8;
/// A node or a buffer of the metadata: two numbers.
const PAIR: usize = 16;

impl Stream {
    /// The stream's columns as Arrow knows them.
    pub(super) fn arrow(&self) -> SchemaRef {
        let fields: Vec<Field> = self
            .columns
            .iter()
            .map(|column| {
                let kind = match column.kind {
                    Kind::Int => DataType::Int64,
                    Kind::Text => DataType::Utf8,
                };
                Field::new(column.name, kind, true)
            })
            .collect();
        let facts = [(VERSION_KEY, VERSION.to_string()), (STREAM_KEY, self.name.to_owned())];
        let metadata: HashMap<String, String> =
            facts.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        Arc::new(Schema::new(fields).with_metadata(metadata))
    }
}

/// How the messages of a stream look.
#[derive(Debug)]
pub(crate) struct Pattern {
    stream: Stream,
    /// Everything before the columns.
    head: Vec<u8>,
    // Where in the head the numbers stand.
    rows_at: usize,
    body_at: usize,
    nodes_at: usize,
    buffers_at: usize,
}

impl Pattern {
    /// The pattern of a stream's messages, and the header that its file begins with.
    pub(crate) fn new(stream: Stream) -> Result<(Pattern, Vec<u8>), ArrowError> {
        let schema = stream.arrow();
        let options = IpcWriteOptions::try_new(ALIGNMENT, false, MetadataVersion::V5)?;
        let mut writer = StreamWriter::try_new_with_options(Vec::new(), &schema, options)?;
        let header = std::mem::take(writer.get_mut());
        writer.write(&sample(&stream, &schema)?)?;
        let message = std::mem::take(writer.get_mut());
        let pattern = Pattern::of(stream, &message);
        Ok((pattern.ok_or_else(|| ArrowError::IpcError("a message without its numbers".to_owned()))?, header))
    }

    fn of(stream: Stream, message: &[u8]) -> Option<Pattern> {
        let length = message.get(4..PREFIX)?.try_into().ok().map(u32::from_le_bytes)?;
        let head = message.get(..PREFIX.checked_add(usize::try_from(length).ok()?)?)?;
        let metadata = head.get(PREFIX..)?;
        let root = root_as_message(metadata).ok()?;
        let batch = root.header_as_record_batch()?;
        let place = |bytes: &[u8]| (bytes.as_ptr() as usize).checked_sub(head.as_ptr() as usize);
        let field = |loc: usize, offset: u16| (offset > 0).then(|| PREFIX + loc + usize::from(offset));
        Some(Pattern {
            rows_at: field(batch._tab.loc(), batch._tab.vtable().get(arrow_ipc::RecordBatch::VT_LENGTH))?,
            body_at: field(root._tab.loc(), root._tab.vtable().get(Message::VT_BODYLENGTH))?,
            nodes_at: place(batch.nodes()?.bytes())?,
            buffers_at: place(batch.buffers()?.bytes())?,
            head: head.to_vec(),
            stream,
        })
    }

    /// Writes rows to `out`, which is emptied first. Cells stand in the order of the stream's columns.
    pub(crate) fn fill(&self, rows: &[&[Cell<'_>]], out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&self.head);
        set(out, self.rows_at, rows.len());
        let is_null =
            |cell: Option<Cell<'_>>| !matches!(cell, Some(Cell::Int(Some(_)) | Cell::Text(Some(_))));
        let mut node = self.nodes_at;
        let mut buffer = self.buffers_at;
        for (number, column) in self.stream.columns.iter().enumerate() {
            let cells = || rows.iter().map(|row| row.get(number).copied());
            let nulls = cells().filter(|&cell| is_null(cell)).count();
            set(out, node, rows.len());
            set(out, node + 8, nulls);
            node += PAIR;
            // A column without a value holds zeros only, and a step has several such columns.
            let is_zeros = nulls == rows.len();
            let begin = out.len();
            out.resize(begin + rows.len().div_ceil(8), 0);
            if !is_zeros {
                for (row, cell) in cells().enumerate() {
                    if let (false, Some(bits)) = (is_null(cell), out.get_mut(begin + row / 8)) {
                        *bits |= 1 << (row % 8);
                    }
                }
            }
            let mut begin = self.end_buffer(out, &mut buffer, begin);
            match column.kind {
                Kind::Int if is_zeros => out.resize(begin + rows.len() * size_of::<i64>(), 0),
                Kind::Int => {
                    for cell in cells() {
                        let value = if let Some(Cell::Int(Some(value))) = cell { value } else { 0 };
                        out.extend_from_slice(&value.to_le_bytes());
                    }
                }
                Kind::Text if is_zeros => {
                    out.resize(begin + (rows.len() + 1) * size_of::<i32>(), 0);
                    begin = self.end_buffer(out, &mut buffer, begin);
                }
                Kind::Text => {
                    let text = |cell| if let Some(Cell::Text(Some(text))) = cell { text } else { "" };
                    let mut end = 0_i32;
                    out.extend_from_slice(&end.to_le_bytes());
                    for cell in cells() {
                        end = end.saturating_add(i32::try_from(text(cell).len()).unwrap_or(i32::MAX));
                        out.extend_from_slice(&end.to_le_bytes());
                    }
                    begin = self.end_buffer(out, &mut buffer, begin);
                    cells().for_each(|cell| out.extend_from_slice(text(cell).as_bytes()));
                }
            }
            self.end_buffer(out, &mut buffer, begin);
        }
        let body = out.len() - self.head.len();
        set(out, self.body_at, body);
    }

    /// Notes in the metadata at `place` where a buffer lies that began at `begin`. Gives where the next one begins.
    fn end_buffer(&self, out: &mut Vec<u8>, place: &mut usize, begin: usize) -> usize {
        let length = out.len() - begin;
        set(out, *place, begin - self.head.len());
        set(out, *place + 8, length);
        *place += PAIR;
        out.resize(out.len().next_multiple_of(ALIGNMENT), 0);
        out.len()
    }
}

fn set(out: &mut [u8], at: usize, value: usize) {
    if let Some(place) = out.get_mut(at..at + 8) {
        place.copy_from_slice(&(value as u64).to_le_bytes());
    }
}

/// One row without a null, so that every number of the metadata is there.
fn sample(stream: &Stream, schema: &SchemaRef) -> Result<RecordBatch, ArrowError> {
    let column = |column: &super::schema::Column| -> ArrayRef {
        match column.kind {
            Kind::Int => Arc::new(Int64Array::from(vec![1])),
            Kind::Text => Arc::new(StringArray::from(vec!["x"])),
        }
    };
    RecordBatch::try_new(Arc::clone(schema), stream.columns.iter().map(column).collect())
}
