//! The messages that a stream consists of, and what is sound in them.

use std::collections::HashMap;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::reader::read_record_batch;
use arrow_ipc::root_as_message;
use arrow_schema::{DataType, Field, SchemaRef};

/// A schema of ours has two kilobytes. What is larger is not ours.
pub(in super::super) const LARGEST_HEADER: u64 = 64 << 10;

/// What each message of a stream begins with.
const CONTINUATION: [u8; 4] = [0xFF; 4];

/// One message of a stream: a mark, the length of the metadata, the metadata, a body whose length stands in there.
pub(in super::super) enum Frame {
    Message {
        metadata: Range<usize>,
        body: Range<usize>,
        end: usize,
    },
    /// The writer said that nothing follows.
    End,
    /// Nothing stands here yet.
    Room,
    /// It is not all there, or is no message.
    Torn,
}

impl Frame {
    pub(super) fn at(bytes: &[u8], at: usize) -> Frame {
        Frame::whole_at(bytes, at).unwrap_or(Frame::Torn)
    }

    fn whole_at(bytes: &[u8], at: usize) -> Option<Frame> {
        let begin = at.checked_add(8)?;
        let (mark, length) = bytes.get(at..begin)?.split_at_checked(4)?;
        let length = usize::try_from(u32::from_le_bytes(length.try_into().ok()?)).ok()?;
        if mark != CONTINUATION {
            return (mark == [0; 4] && length == 0).then_some(Frame::Room);
        }
        if length == 0 {
            return Some(Frame::End);
        }
        let metadata = begin..begin.checked_add(length)?;
        let message = root_as_message(bytes.get(metadata.clone())?).ok()?;
        let body = metadata.end..metadata.end.checked_add(usize::try_from(message.bodyLength()).ok()?)?;
        let end = body.end;
        (end <= bytes.len()).then_some(Frame::Message { metadata, body, end })
    }
}

/// The schema, which is the first message, and where it ends; `None` where it is not all there, an error where this is no stream.
pub(in super::super) fn header(bytes: &[u8]) -> Result<Option<(SchemaRef, usize)>, String> {
    let foreign = || "it is not an Arrow stream".to_owned();
    let length = bytes.get(4..8).and_then(|length| length.try_into().ok()).map(u32::from_le_bytes);
    let is_mark = bytes.iter().zip(CONTINUATION).all(|(found, expected)| *found == expected);
    let is_small = length.is_none_or(|length| length > 0 && u64::from(length) < LARGEST_HEADER - 8);
    if !is_mark || !is_small {
        return Err(foreign());
    }
    let is_all_there = length
        .and_then(|length| usize::try_from(length).ok())
        .is_some_and(|length| bytes.len() >= length + 8);
    if !is_all_there {
        return Ok(None);
    }
    let Frame::Message { metadata, end, .. } = Frame::at(bytes, 0) else { return Err(foreign()) };
    let parsed = contained(|| {
        let message = root_as_message(bytes.get(metadata)?).ok()?;
        try_fb_to_schema(message.header_as_schema()?).ok()
    });
    parsed.map(|schema| Some((Arc::new(schema), end))).ok_or_else(foreign)
}

/// The rows of a message; `None` where it holds none or is damaged.
pub(super) fn batch(
    bytes: &Buffer,
    metadata: Range<usize>,
    body: Range<usize>,
    schema: &SchemaRef,
) -> Option<RecordBatch> {
    contained(|| {
        let message = root_as_message(bytes.get(metadata)?).ok()?;
        let rows = message.header_as_record_batch()?;
        if !is_sound(rows, body.len(), schema) {
            return None;
        }
        let body = bytes.slice_with_length(body.start, body.len());
        read_record_batch(&body, rows, Arc::clone(schema), &HashMap::new(), None, &message.version()).ok()
    })
}

/// Whether everything that the description of rows points to lies within their body. Arrow's reader takes that for granted.
fn is_sound(rows: arrow_ipc::RecordBatch<'_>, body: usize, schema: &SchemaRef) -> bool {
    let (Some(nodes), Some(buffers)) = (rows.nodes(), rows.buffers()) else { return false };
    let size = |number: i64| usize::try_from(number).ok();
    let end = |buffer: &arrow_ipc::Buffer| size(buffer.offset())?.checked_add(size(buffer.length())?);
    let are_within = buffers.iter().all(|buffer| end(buffer).is_some_and(|end| end <= body));
    let count = rows.length();
    // Each row has at least a number or an offset in each column.
    let are_paid_for = size(count).is_some_and(|count| count <= body / 4);
    if !are_within || !are_paid_for || rows.compression().is_some() {
        return false;
    }
    let (mut nodes, mut buffers) = (nodes.iter(), buffers.iter());
    let is_column = |field: &Arc<Field>| {
        let (Some(node), Some(nulls), Some(values)) = (nodes.next(), buffers.next(), buffers.next()) else {
            return false;
        };
        // Text has its offsets first, one more than there are rows, then its bytes.
        let is_text = *field.data_type() == DataType::Utf8;
        let (width, least) = if is_text { (4, count + 1) } else { (8, count) };
        node.length() == count
            && (0..=count).contains(&node.null_count())
            && (node.null_count() == 0 || nulls.length() >= (count + 7) / 8)
            && values.length() % width == 0
            && values.length() / width >= least
            && (!is_text || buffers.next().is_some())
    };
    schema.fields().iter().all(is_column)
}

/// Damaged bytes can lead a decoder astray; whatever happens there stays there.
fn contained<T>(decode: impl FnOnce() -> Option<T>) -> Option<T> {
    catch_unwind(AssertUnwindSafe(decode)).unwrap_or_default()
}
