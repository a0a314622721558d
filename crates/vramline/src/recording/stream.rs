//! One stream on disk: appended to message by message, read up to the last whole one.
//!
//! **Crash behaviour.** Each append encodes its rows as one Arrow message and gives it to the kernel: with one `write(2)` on
//! an append-only descriptor, or, in streams of more than a few messages, by stores into room behind the end of the file
//! (module `room`). What the kernel has taken survives the death of the process; kill -9 costs at most the
//! message in flight. A message that was written in part (a full disk) is cut off again at once; one that could not be cut
//! off is left out by the reader, and by the next writer, which cuts a torn tail before it appends. Room that was not
//! filled is zeros, which are the end of an Arrow stream; a stream that is closed has none.
//!
//! **The training job comes first.** Nothing here panics or waits on a lock that a training step could hold. Where one write
//! takes longer than `SLOW`, the file system is in trouble: from then on a thread writes, the program only queues, and
//! what does not fit the queue is counted as lost.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, channel, sync_channel};
use std::time::{Duration, Instant};

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch};
use arrow_buffer::Buffer;
use arrow_ipc::convert::try_fb_to_schema;
use arrow_ipc::reader::read_record_batch;
use arrow_ipc::root_as_message;
use arrow_schema::{ArrowError, DataType, Field, SchemaRef};

use super::message::Pattern;
use super::room::{Refused, Room};
use super::schema::{Stream, VERSION, VERSION_KEY};

/// A write that takes longer than this is not made by the training program again.
const SLOW: Duration = Duration::from_millis(50);
/// Messages that wait for a slow disk, at most.
const QUEUE: usize = 4096;
/// How long the end of a recording waits for a slow disk.
const PATIENCE: Duration = Duration::from_secs(2);
/// A stream that has got so many messages will get more: room is made for them ahead of time.
const FEW: u32 = 8;
/// Larger streams are not read: they are no recording of ours.
const LARGEST: u64 = 16 << 30;

/// A schema of ours has two kilobytes. What is larger is not ours.
pub(super) const LARGEST_HEADER: u64 = 64 << 10;

/// What each message of a stream begins with.
const CONTINUATION: [u8; 4] = [0xFF; 4];
/// What Arrow writes behind the last message of a stream.
const END_OF_STREAM: [u8; 8] = [0xFF, 0xFF, 0xFF, 0xFF, 0, 0, 0, 0];

/// One value of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cell<'a> {
    /// An integer, or null.
    Int(Option<i64>),
    /// Text, or null.
    Text(Option<&'a str>),
}

/// Why a stream could not be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StreamError {
    /// The system refused.
    #[error("'{path}': {error}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: io::Error,
    },
    /// It is no stream of ours.
    #[error("'{path}' is not a stream of a recording: {what}", path = path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// It was written by a later version.
    #[error("'{path}' has version {found}; this program reads up to {VERSION}", path = path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// Rows were lost: the disk was too slow.
    #[error("'{path}': the disk is too slow; {lost} messages were lost", path = path.display())]
    Lost {
        /// The file.
        path: PathBuf,
        /// How many messages.
        lost: u64,
    },
}

/// Appends rows to a stream.
pub struct Appender {
    pattern: Pattern,
    /// Room for a message, used again.
    message: Vec<u8>,
    tail: Tail,
    path: PathBuf,
    lost: Arc<AtomicU64>,
}

impl std::fmt::Debug for Appender {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Appender")
            .field("path", &self.path)
            .field("tail", &self.tail)
            .finish_non_exhaustive()
    }
}

#[derive(Debug)]
enum Tail {
    /// The program writes by itself.
    Direct(Disk),
    /// The disk was slow: a thread writes.
    Queued { messages: Option<SyncSender<Vec<u8>>>, done: Receiver<()> },
}

/// The file, and how much of it is whole.
#[derive(Debug)]
struct Disk {
    file: File,
    whole: u64,
    /// Behind what is whole lies something else: room that was not filled, or a message that was written in part and could not
    /// be cut off.
    is_longer: bool,
    /// Messages before room is made; `None` where the system gives none.
    until_room: Option<u32>,
    room: Option<Room>,
}

impl Disk {
    /// A file of which so much is whole, and nothing lies behind that.
    fn new(file: File, whole: u64) -> Disk {
        Disk { file, whole, is_longer: false, until_room: Some(FEW), room: None }
    }

    /// Puts a message down, whole or not at all.
    fn write(&mut self, message: &[u8]) -> io::Result<()> {
        if self.until_room == Some(0) {
            match self.store(message) {
                Ok(()) => {
                    self.whole += message.len() as u64;
                    return Ok(());
                }
                Err(Refused::Full) => self.until_room = None,
                Err(Refused::Lost) => return Err(io::Error::other("somebody has cut the file")),
            }
        }
        self.until_room = self.until_room.map(|messages| messages - 1);
        self.append(message)
    }

    /// Stores a message in the room behind the file, or in new room behind that.
    fn store(&mut self, message: &[u8]) -> Result<(), Refused> {
        if let Some(room) = &mut self.room {
            match room.put(message) {
                Err(Refused::Full) => self.room = None,
                done => return done,
            }
        }
        let room = Room::behind(&self.file, self.whole);
        self.is_longer = self.file.metadata().is_ok_and(|found| found.len() > self.whole);
        self.room.insert(room.map_err(|_| Refused::Full)?).put(message)
    }

    fn append(&mut self, message: &[u8]) -> io::Result<()> {
        self.cut()?;
        let mut rest = message;
        while !rest.is_empty() {
            match self.file.write(rest) {
                Ok(0) => return self.undo(io::ErrorKind::WriteZero.into()),
                Ok(written) => rest = rest.get(written..).unwrap_or_default(),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return self.undo(error),
            }
        }
        self.whole += message.len() as u64;
        Ok(())
    }

    /// Cuts off what lies behind what is whole: what follows it would not be found again.
    fn cut(&mut self) -> io::Result<()> {
        self.room = None;
        if self.is_longer {
            self.file.set_len(self.whole)?;
            self.is_longer = false;
        }
        Ok(())
    }

    fn undo(&mut self, error: io::Error) -> io::Result<()> {
        // Where even this fails, the reader leaves the torn tail out.
        self.is_longer = self.file.set_len(self.whole).is_err();
        Err(error)
    }
}

impl Appender {
    /// Opens a stream for appending and makes it where it is not there.
    pub fn open(path: &Path, stream: Stream) -> Result<Appender, StreamError> {
        let failed = |error: io::Error| StreamError::Io { path: path.to_owned(), error };
        let foreign =
            |error: ArrowError| StreamError::Foreign { path: path.to_owned(), what: error.to_string() };
        let file = OpenOptions::new().append(true).read(true).create(true).open(path).map_err(failed)?;
        let schema = stream.arrow();
        let (pattern, header) = Pattern::new(stream).map_err(foreign)?;
        let length = file.metadata().map_err(failed)?.len();
        let found = if length == 0 { Table::default() } else { read(path)? };
        if found.schema.is_some_and(|found| found.fields() != schema.fields()) {
            return Err(StreamError::Foreign {
                path: path.to_owned(),
                what: format!("its columns are not those of {}", stream.name),
            });
        }
        let whole = found.whole_bytes;
        if whole < length {
            file.set_len(whole).map_err(failed)?;
        }
        let mut disk = Disk::new(file, whole);
        if whole == 0 {
            disk.write(&header).map_err(failed)?;
        }
        let tail = Tail::Direct(disk);
        Ok(Appender { pattern, message: Vec::new(), tail, path: path.to_owned(), lost: Arc::default() })
    }

    /// Appends rows as one message. Cells stand in the order of the stream's columns.
    pub fn append(&mut self, rows: &[&[Cell<'_>]]) -> Result<(), StreamError> {
        if rows.is_empty() {
            return Ok(());
        }
        self.pattern.fill(rows, &mut self.message);
        match &mut self.tail {
            Tail::Direct(disk) => {
                let begin = Instant::now();
                let result = disk.write(&self.message);
                if begin.elapsed() > SLOW {
                    self.leave_it_to_a_thread();
                }
                result.map_err(|error| StreamError::Io { path: self.path.clone(), error })
            }
            Tail::Queued { messages, .. } => {
                match messages.as_ref().map(|queue| queue.try_send(self.message.clone())) {
                    Some(Ok(())) => Ok(()),
                    Some(Err(TrySendError::Full(_) | TrySendError::Disconnected(_))) | None => {
                        let lost = self.lost.fetch_add(1, Ordering::Relaxed) + 1;
                        Err(StreamError::Lost { path: self.path.clone(), lost })
                    }
                }
            }
        }
    }

    fn leave_it_to_a_thread(&mut self) {
        let (messages, queue) = sync_channel::<Vec<u8>>(QUEUE);
        let (end, done) = channel::<()>();
        let Tail::Direct(disk) =
            std::mem::replace(&mut self.tail, Tail::Queued { messages: Some(messages), done })
        else {
            return;
        };
        let lost = Arc::clone(&self.lost);
        let writer = move || {
            let mut disk = disk;
            for message in queue {
                if disk.write(&message).is_err() {
                    lost.fetch_add(1, Ordering::Relaxed);
                }
            }
            let _ = disk.cut();
            drop(end);
        };
        // Without a thread the queue is closed, and what comes is counted as lost.
        let _ = std::thread::Builder::new().name("vramline-disk".into()).spawn(writer);
    }

    /// Waits, not for long, until everything queued is on disk, and gives back room that was not filled.
    pub fn close(&mut self) {
        match &mut self.tail {
            // What cannot be cut off are zeros, which are no harm.
            Tail::Direct(disk) => drop(disk.cut()),
            Tail::Queued { messages, done } => {
                drop(messages.take());
                // The thread drops its end when it has written everything.
                let _: Result<(), RecvTimeoutError> = done.recv_timeout(PATIENCE);
            }
        }
    }
}

impl Drop for Appender {
    fn drop(&mut self) {
        self.close();
    }
}

/// The rows of a stream that are whole.
#[derive(Debug, Default)]
pub struct Table {
    batches: Vec<RecordBatch>,
    /// `None` where not even the header is whole.
    schema: Option<SchemaRef>,
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
    pub(super) fn of(schema: &SchemaRef) -> Table {
        Table { schema: Some(Arc::clone(schema)), ..Table::default() }
    }

    /// Takes the rows of every whole message from `at` on, which moves behind them; what stands there says why it ends.
    pub(super) fn fill(&mut self, bytes: &Buffer, at: &mut usize) -> Frame {
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
    // The beginning tells what it is: a large file of something else is not read.
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
pub(super) fn check(schema: &SchemaRef, path: &Path) -> Result<(), StreamError> {
    let foreign = |what: &str| StreamError::Foreign { path: path.to_owned(), what: what.to_owned() };
    let version = schema.metadata().get(VERSION_KEY).and_then(|version| version.parse::<u32>().ok());
    match version {
        Some(found) if found > VERSION => return Err(StreamError::Newer { path: path.to_owned(), found }),
        Some(_) => {}
        None => return Err(foreign("its schema has no version of ours")),
    }
    // Rows of these cost bytes. Arrow has types that cost none, and would let a small file claim any number of rows.
    let is_ours = |field: &Arc<Field>| matches!(field.data_type(), DataType::Int64 | DataType::Utf8);
    if schema.fields().is_empty() || !schema.fields().iter().all(is_ours) {
        return Err(foreign("it has columns that are neither integers nor text, or none"));
    }
    Ok(())
}

/// Opens a file that ends. A pipe or device in its place could keep a reader for ever.
pub(crate) fn open_plain(path: &Path) -> io::Result<File> {
    if !std::fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is not a plain file"));
    }
    File::open(path)
}

/// One message of a stream: a mark, the length of the metadata, the metadata, a body whose length stands in there.
pub(super) enum Frame {
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
    fn at(bytes: &[u8], at: usize) -> Frame {
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
pub(super) fn header(bytes: &[u8]) -> Result<Option<(SchemaRef, usize)>, String> {
    let foreign = || "it is no Arrow stream".to_owned();
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
fn batch(
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

#[cfg(test)]
mod tests {
    use super::super::schema::SAMPLES;
    use super::*;

    fn row(number: i64) -> [Cell<'static>; 1] {
        [Cell::Int(Some(number))]
    }

    fn numbers(table: &Table) -> Vec<i64> {
        table.ints("time_ns").into_iter().flatten().collect()
    }

    /// An appender whose disk is this file.
    fn onto(path: &Path, file: File) -> Appender {
        let mut appender = Appender::open(path, SAMPLES).unwrap();
        appender.tail = Tail::Direct(Disk::new(file, 0));
        appender
    }

    #[test]
    fn what_a_thread_writes_is_whole_and_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("samples");
        let mut appender = Appender::open(&path, SAMPLES).unwrap();
        appender.append(&[&row(0)]).unwrap();
        appender.leave_it_to_a_thread();
        for number in 1..1_000 {
            appender.append(&[&row(number)]).unwrap();
        }
        appender.close();
        let table = read(&path).unwrap();
        assert_eq!(numbers(&table), (0..1_000).collect::<Vec<_>>());
        assert_eq!(table.torn_bytes, 0);
        // A closed one says that it takes no more.
        assert!(matches!(appender.append(&[&row(0)]), Err(StreamError::Lost { lost: 1, .. })));
    }

    /// A stream of many messages lies in room that was made for them; one that was never closed reads the same.
    #[test]
    fn room_that_is_not_filled_is_no_part_of_a_stream() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("samples");
        let mut appender = Appender::open(&path, SAMPLES).unwrap();
        // More than fit one room.
        let all: Vec<i64> = (0..3_000).collect();
        for &number in &all {
            appender.append(&[&row(number)]).unwrap();
        }
        let killed = std::fs::read(&path).unwrap();
        appender.close();
        let closed = std::fs::read(&path).unwrap();
        for bytes in [&killed, &closed] {
            let table = read_bytes(bytes.clone(), &path).unwrap();
            assert_eq!((numbers(&table), table.torn_bytes), (all.clone(), 0));
            assert_eq!(table.whole_bytes, closed.len() as u64);
        }
        assert!(killed.starts_with(&closed) && killed.iter().skip(closed.len()).all(|&byte| byte == 0));
        // It goes on behind what is whole, whatever follows it.
        std::fs::write(&path, &killed).unwrap();
        let mut appender = Appender::open(&path, SAMPLES).unwrap();
        appender.append(&[&row(3_000)]).unwrap();
        drop(appender);
        let table = read(&path).unwrap();
        assert_eq!((numbers(&table), table.torn_bytes), ((0..=3_000).collect(), 0));
    }

    /// Killed while it stored a message: all but the first word may be there.
    #[test]
    fn a_message_without_its_first_word_is_torn() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("samples");
        let mut appender = Appender::open(&path, SAMPLES).unwrap();
        appender.append(&[&row(1)]).unwrap();
        let whole = std::fs::metadata(&path).unwrap().len();
        appender.append(&[&row(2)]).unwrap();
        drop(appender);
        let mut bytes = std::fs::read(&path).unwrap();
        let begin = usize::try_from(whole).unwrap();
        bytes[begin..begin + 8].fill(0);
        let last = bytes.iter().rposition(|&byte| byte != 0).unwrap() as u64;
        bytes.resize(bytes.len() + 5_000, 0);
        let table = read_bytes(bytes, &path).unwrap();
        assert_eq!(
            (numbers(&table), table.whole_bytes, table.torn_bytes),
            (vec![1], whole, last + 1 - whole)
        );
    }

    #[test]
    fn a_stream_that_somebody_cuts_costs_the_stream_only() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("samples");
        let mut appender = Appender::open(&path, SAMPLES).unwrap();
        for number in 0..100 {
            appender.append(&[&row(number)]).unwrap();
        }
        OpenOptions::new().write(true).open(&path).unwrap().set_len(0).unwrap();
        for number in 0..100 {
            // An error, or written; where there is no room it is the latter.
            let _ = appender.append(&[&row(number)]);
        }
        appender.close();
    }

    /// A pipe that nobody reads is a disk that never answers: the program goes on, and is told what was lost.
    #[test]
    fn a_disk_that_does_not_answer_blocks_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("samples");
        let (mut reader, writer) = io::pipe().unwrap();
        let mut appender = onto(&path, File::from(std::os::fd::OwnedFd::from(writer)));
        appender.leave_it_to_a_thread();
        let mut taken = Vec::new();
        let mut lost = 0;
        while lost < 10 {
            let number = i64::try_from(taken.len()).unwrap() + lost;
            match appender.append(&[&row(number)]) {
                Ok(()) => taken.push(number),
                Err(StreamError::Lost { lost: so_far, .. }) => {
                    lost += 1;
                    assert_eq!(so_far, lost.cast_unsigned());
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert!(taken.len() >= QUEUE);
        // The disk answers again: what was queued arrives whole.
        let drain = std::thread::spawn(move || {
            let mut bytes = Vec::new();
            reader.read_to_end(&mut bytes).unwrap();
            bytes
        });
        drop(appender);
        let mut bytes = std::fs::read(&path).unwrap();
        bytes.extend(drain.join().unwrap());
        let table = read_bytes(bytes, &path).unwrap();
        assert_eq!(numbers(&table), taken);
        assert_eq!(table.torn_bytes, 0);
    }

    /// Where a torn message cannot be cut off, nothing is written behind it: it would not be found again.
    #[test]
    fn nothing_follows_a_tear() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("samples");
        // Takes nothing, and cannot be cut.
        let full = OpenOptions::new().write(true).open("/dev/full").unwrap();
        let mut appender = onto(&path, full);
        for _ in 0..2 {
            assert!(matches!(appender.append(&[&row(0)]), Err(StreamError::Io { .. })));
            let Tail::Direct(disk) = &appender.tail else { continue };
            assert!(disk.is_longer);
        }
        // The file can be cut again: it goes on behind what was whole.
        drop(Appender::open(&path, SAMPLES).unwrap());
        let whole = std::fs::metadata(&path).unwrap().len();
        let mut file = OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"torn").unwrap();
        appender.tail = Tail::Direct(Disk { is_longer: true, ..Disk::new(file, whole) });
        appender.append(&[&row(7)]).unwrap();
        let table = read(&path).unwrap();
        assert_eq!((numbers(&table), table.torn_bytes), (vec![7], 0));
    }
}
