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

mod appender;
mod disk;
mod frame;
mod table;
#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;

use super::schema::VERSION;

pub use appender::Appender;
pub(super) use frame::{Frame, LARGEST_HEADER, header};
pub(super) use table::check;
pub use table::{Table, read, read_bytes};

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
    #[error("'{path}' has version {found}, but this version of Vramline reads up to {VERSION}", path = path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// Rows were lost: the disk was too slow.
    #[error("'{path}': the disk is too slow, {lost} messages are lost", path = path.display())]
    Lost {
        /// The file.
        path: PathBuf,
        /// How many messages.
        lost: u64,
    },
}
