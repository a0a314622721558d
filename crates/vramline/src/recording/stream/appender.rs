//! Rows to a stream: by the program itself, or by a thread where the disk is slow.

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, TrySendError, channel, sync_channel};
use std::time::{Duration, Instant};

use arrow_schema::ArrowError;

use super::disk::Disk;
use super::{Cell, StreamError, Table, read};
use crate::recording::message::Pattern;
use crate::recording::schema::Stream;

/// A write that takes longer than this is not made by the training program again.
const SLOW: Duration = Duration::from_millis(50);
/// Messages that wait for a slow disk, at most.
pub(super) const QUEUE: usize = 4096;
/// How long the end of a recording waits for a slow disk.
const PATIENCE: Duration = Duration::from_secs(2);

/// Appends rows to a stream.
pub struct Appender {
    pattern: Pattern,
    /// Room for a message, used again.
    message: Vec<u8>,
    pub(super) tail: Tail,
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
pub(super) enum Tail {
    /// The program writes by itself.
    Direct(Disk),
    /// The disk was slow: a thread writes.
    Queued { messages: Option<SyncSender<Vec<u8>>>, done: Receiver<()> },
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
                what: format!("its columns differ from the columns of {}", stream.name),
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

    pub(super) fn leave_it_to_a_thread(&mut self) {
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
