//! One stream on disk: appended to message by message, read up to the last whole one.
//!
//! **Crash behaviour.** Each append encodes its rows as one Arrow message and gives it to the kernel with one `write(2)` on
//! an append-only descriptor. What the kernel has taken survives the death of the process; kill -9 costs at most the
//! message in flight. A message that was written in part (a full disk) is cut off again at once; one that could not be cut
//! off is left out by the reader, and by the next writer, which cuts a torn tail before it appends.
//!
//! **The training job comes first.** Nothing here panics or waits on a lock that a training step could hold. Where one write
//! takes longer than [`SLOW`], the file system is in trouble: from then on a thread writes, the program only queues, and
//! what does not fit the queue is counted as lost.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, channel, sync_channel};
use std::time::{Duration, Instant};

use arrow_array::builder::{Int64Builder, StringBuilder};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_buffer::Buffer;
use arrow_ipc::MetadataVersion;
use arrow_ipc::reader::StreamDecoder;
use arrow_ipc::writer::{IpcWriteOptions, StreamWriter};
use arrow_schema::{ArrowError, DataType, Field, SchemaRef};

use super::schema::{Kind, Stream, VERSION, VERSION_KEY};

/// A write that takes longer than this is not made by the training program again.
const SLOW: Duration = Duration::from_millis(50);
/// Messages that wait for a slow disk, at most.
const QUEUE: usize = 4096;
/// How long the end of a recording waits for a slow disk.
const PATIENCE: Duration = Duration::from_secs(2);
/// Larger streams are not read: they are no recording of ours.
const LARGEST: u64 = 16 << 30;

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
    stream: Stream,
    schema: SchemaRef,
    encoder: StreamWriter<Vec<u8>>,
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
}

impl Disk {
    /// Writes a message whole or not at all.
    fn write(&mut self, message: &[u8]) -> io::Result<()> {
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

    fn undo(&mut self, error: io::Error) -> io::Result<()> {
        // Where even this fails, the reader leaves the torn tail out.
        let _ = self.file.set_len(self.whole);
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
        let options = IpcWriteOptions::try_new(8, false, MetadataVersion::V5).map_err(foreign)?;
        let mut encoder =
            StreamWriter::try_new_with_options(Vec::new(), &schema, options).map_err(foreign)?;
        let header = std::mem::take(encoder.get_mut());
        let length = file.metadata().map_err(failed)?.len();
        let whole = if length == 0 { 0 } else { read(path)?.whole_bytes };
        if whole < length {
            file.set_len(whole).map_err(failed)?;
        }
        let mut disk = Disk { file, whole };
        if whole == 0 {
            disk.write(&header).map_err(failed)?;
        }
        let tail = Tail::Direct(disk);
        Ok(Appender { stream, schema, encoder, tail, path: path.to_owned(), lost: Arc::default() })
    }

    /// Appends rows as one message. Cells stand in the order of the stream's columns.
    pub fn append(&mut self, rows: &[&[Cell<'_>]]) -> Result<(), StreamError> {
        let batch = encode(&self.stream, &self.schema, rows).and_then(|batch| self.encoder.write(&batch));
        let message = std::mem::take(self.encoder.get_mut());
        batch.map_err(|error| StreamError::Foreign { path: self.path.clone(), what: error.to_string() })?;
        match &mut self.tail {
            Tail::Direct(disk) => {
                let begin = Instant::now();
                let result = disk.write(&message);
                if begin.elapsed() > SLOW {
                    self.leave_it_to_a_thread();
                }
                result.map_err(|error| StreamError::Io { path: self.path.clone(), error })
            }
            Tail::Queued { messages, .. } => match messages.as_ref().map(|queue| queue.try_send(message)) {
                Some(Ok(())) => Ok(()),
                Some(Err(TrySendError::Full(_) | TrySendError::Disconnected(_))) | None => {
                    let lost = self.lost.fetch_add(1, Ordering::Relaxed) + 1;
                    Err(StreamError::Lost { path: self.path.clone(), lost })
                }
            },
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
            drop(end);
        };
        // Without a thread the queue is closed, and what comes is counted as lost.
        let _ = std::thread::Builder::new().name("vramline-disk".into()).spawn(writer);
    }

    /// Waits, not for long, until everything queued is on disk.
    pub fn close(&mut self) {
        if let Tail::Queued { messages, done } = &mut self.tail {
            drop(messages.take());
            // The thread drops its end when it has written everything.
            let _: Result<(), RecvTimeoutError> = done.recv_timeout(PATIENCE);
        }
    }
}

impl Drop for Appender {
    fn drop(&mut self) {
        self.close();
    }
}

fn encode(stream: &Stream, schema: &SchemaRef, rows: &[&[Cell<'_>]]) -> Result<RecordBatch, ArrowError> {
    let column = |(at, column): (usize, &super::schema::Column)| -> ArrayRef {
        match column.kind {
            Kind::Int => {
                let mut values = Int64Builder::with_capacity(rows.len());
                for row in rows {
                    values.append_option(match row.get(at) {
                        Some(Cell::Int(value)) => *value,
                        _ => None,
                    });
                }
                Arc::new(values.finish())
            }
            Kind::Text => {
                let mut values = StringBuilder::with_capacity(rows.len(), 16 * rows.len());
                for row in rows {
                    values.append_option(match row.get(at) {
                        Some(Cell::Text(value)) => *value,
                        _ => None,
                    });
                }
                Arc::new(values.finish())
            }
        }
    };
    let columns = stream.columns.iter().enumerate().map(column).collect();
    RecordBatch::try_new(Arc::clone(schema), columns)
}

/// The rows of a stream that are whole.
#[derive(Debug, Default)]
pub struct Table {
    batches: Vec<RecordBatch>,
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

    /// The columns that the stream has: name, and whether it is text.
    #[must_use]
    pub fn columns(&self) -> Vec<(String, bool)> {
        let fields = self.batches.first().map(RecordBatch::schema);
        let named = |field: &Arc<Field>| (field.name().clone(), *field.data_type() == DataType::Utf8);
        fields.map_or(Vec::new(), |schema| schema.fields().iter().map(named).collect())
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
                    all.extend((0..column.len()).map(|at| column.is_valid(at).then(|| column.value(at))))
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
    let file = File::open(path).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(LARGEST).read_to_end(&mut bytes).map_err(failed)?;
    // Damaged bytes can lead the decoder astray; whatever happens there stays there.
    let decoded = catch_unwind(AssertUnwindSafe(|| decode(bytes)));
    let (table, schema) = decoded.unwrap_or_default();
    let Some(schema) = schema else {
        // A file whose header is torn holds nothing yet, and is ours as far as one can tell.
        if table.torn_bytes < 4096 {
            return Ok(table);
        }
        return Err(StreamError::Foreign { path: path.to_owned(), what: "it is no Arrow stream".to_owned() });
    };
    let version = schema.metadata().get(VERSION_KEY).and_then(|version| version.parse::<u32>().ok());
    match version {
        Some(found) if found > VERSION => Err(StreamError::Newer { path: path.to_owned(), found }),
        Some(_) => Ok(table),
        None => Err(StreamError::Foreign {
            path: path.to_owned(),
            what: "its schema has no version of ours".to_owned(),
        }),
    }
}

fn decode(mut bytes: Vec<u8>) -> (Table, Option<SchemaRef>) {
    let total = bytes.len();
    let header = header_bytes(&bytes);
    if header == Some(total) {
        // The decoder looks at a message only when something follows it.
        bytes.extend(END_OF_STREAM);
    }
    let length = bytes.len();
    let mut rest = Buffer::from_vec(bytes);
    let mut decoder = StreamDecoder::new();
    let mut table = Table { torn_bytes: total as u64, ..Table::default() };
    let mut whole = 0;
    while let Ok(Some(batch)) = decoder.decode(&mut rest) {
        whole = length - rest.len();
        table.batches.push(batch);
    }
    let schema = decoder.schema();
    if let (0, Some(_), Some(header)) = (whole, &schema, header) {
        whole = header;
    }
    table.whole_bytes = whole as u64;
    table.torn_bytes = total.saturating_sub(whole) as u64;
    (table, schema)
}

/// The length of the first message, which is the schema and has no body, if all of it is there.
fn header_bytes(bytes: &[u8]) -> Option<usize> {
    let length = bytes.get(4..8).and_then(|length| length.try_into().ok()).map(u32::from_le_bytes)?;
    let end = usize::try_from(length).ok()?.checked_add(8)?;
    (end <= bytes.len()).then_some(end)
}
