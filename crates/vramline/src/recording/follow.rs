//! A stream that somebody else appends to, read on from where it was left: what was read once is not read again.
//!
//! The file is opened for reading only, and closed again each time. Rows come in pieces of bounded size, so that a first look at a long stream does not
//! hold all of it. A message that is not whole yet is left for the next time; one that never will be keeps its place, and
//! costs a small read.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use arrow_buffer::Buffer;
use arrow_schema::SchemaRef;

use super::folder::open_plain;
use super::stream::{Frame, LARGEST_HEADER, StreamError, Table, check, header};

/// What is read at once. A message is a few hundred bytes; a longer one makes the piece longer.
const PIECE: u64 = LARGEST_HEADER;

/// Larger messages are not waited for: they are none of ours.
const LARGEST_MESSAGE: u64 = 256 << 20;

/// Reads a stream as it grows.
#[derive(Debug)]
pub struct Follower {
    path: PathBuf,
    schema: Option<SchemaRef>,
    /// Everything before is read.
    at: u64,
}

impl Follower {
    /// Follows a stream from its beginning. The file need not be there yet.
    #[must_use]
    pub fn new(path: PathBuf) -> Follower {
        Follower { path, schema: None, at: 0 }
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Bytes of the file that are read.
    #[must_use]
    pub fn read_bytes(&self) -> u64 {
        self.at
    }

    /// Some of the rows that came since; `None` where there is no whole one for now.
    pub fn more(&mut self) -> Result<Option<Table>, StreamError> {
        let read = match open_plain(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => Err(error),
            Ok(file) => file.metadata().map(|found| (file, found.len())),
        };
        let (file, length) = read.map_err(|error| self.failed(error))?;
        // Whoever cuts it below what was whole begins anew.
        if length < self.at {
            (self.schema, self.at) = (None, 0);
        }
        let mut piece = PIECE;
        loop {
            let bytes = bytes_at(&file, self.at, piece.min(length.saturating_sub(self.at)));
            let bytes = bytes.map_err(|error| self.failed(error))?;
            let is_all = self.at + bytes.len() as u64 >= length;
            let Some(schema) = self.schema.clone() else {
                let foreign = |what: String| StreamError::Foreign { path: self.path.clone(), what };
                let Some((schema, end)) = header(&bytes).map_err(foreign)? else { return Ok(None) };
                check(&schema, &self.path)?;
                (self.schema, self.at) = (Some(schema), end as u64);
                continue;
            };
            let (mut table, mut end) = (Table::of(&schema), 0);
            let stop = table.fill(&Buffer::from_vec(bytes), &mut end);
            if end > 0 {
                self.at += end as u64;
                table.whole_bytes = self.at;
                return Ok(Some(table));
            }
            // The first message may just be longer than the piece.
            if !matches!(stop, Frame::Torn) || is_all || piece >= LARGEST_MESSAGE {
                return Ok(None);
            }
            piece = piece.saturating_mul(4);
        }
    }

    fn failed(&self, error: io::Error) -> StreamError {
        StreamError::Io { path: self.path.clone(), error }
    }
}

/// So many bytes from there on; fewer where the file has got shorter meanwhile.
fn bytes_at(file: &File, at: u64, length: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
    let mut filled = 0;
    while let Some(rest) = bytes.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, at + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}
