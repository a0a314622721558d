//! Bytes of a file, forward only, plain or gzip.
//!
//! Readers go through a file once or twice from the front and skip most of it; skipping is a seek in a plain file and
//! costs decompression in a gzip one. Nothing is mapped: a file that shrinks while it is read ends early, it does not
//! kill the process. Memory is one buffer, whatever the file.

use std::fs::File;
use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use flate2::read::MultiGzDecoder;

/// A file is read in pieces of this size when most of it is wanted: what was read is still near the processor when it
/// is decoded.
pub(crate) const LARGE_PIECE: usize = 256 << 10;

/// A file is read in pieces of this size when most of it is skipped.
pub(crate) const SMALL_PIECE: usize = 32 << 10;

/// Real traces shrink ten to thirty times. A file that grows by more than this, and past [`FREE_GROWTH`], is a bomb.
const LARGEST_RATIO: u64 = 200;
const FREE_GROWTH: u64 = 256 << 20;

/// How far reading has come, for whoever waits. Shared with the threads that read.
#[derive(Debug, Default)]
pub struct Progress {
    read: AtomicU64,
    total: AtomicU64,
}

impl Progress {
    /// The share of the files' bytes that was read, from 0 to 1; `None` before anything is known. Most of a file may be
    /// skipped, so that it need not reach 1.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "a share for people")]
    pub fn share(&self) -> Option<f64> {
        let total = self.total.load(Ordering::Relaxed);
        (total > 0).then(|| (self.read.load(Ordering::Relaxed) as f64 / total as f64).min(1.0))
    }
}

/// A file, or bytes in memory, that can be streamed any number of times.
#[derive(Debug)]
pub(crate) struct Input {
    place: Place,
    length: u64,
    gzip: bool,
    progress: Arc<Progress>,
}

#[derive(Clone, Debug)]
enum Place {
    File(PathBuf),
    Memory(Arc<[u8]>),
}

impl Place {
    fn open(&self, progress: &Arc<Progress>) -> io::Result<Bytes> {
        let origin = match self {
            Place::File(path) => BytesIn::File(File::open(path)?),
            Place::Memory(bytes) => BytesIn::Memory(Arc::clone(bytes)),
        };
        Ok(Bytes { origin, progress: Arc::clone(progress) })
    }
}

/// Bytes that can be read from any place.
struct Bytes {
    origin: BytesIn,
    progress: Arc<Progress>,
}

enum BytesIn {
    File(File),
    Memory(Arc<[u8]>),
}

impl Bytes {
    fn read_at(&self, room: &mut [u8], from: u64) -> io::Result<usize> {
        let read = match &self.origin {
            BytesIn::File(file) => read_file_at(file, room, from)?,
            BytesIn::Memory(bytes) => {
                let mut rest =
                    usize::try_from(from).ok().and_then(|from| bytes.get(from..)).unwrap_or_default();
                rest.read(room)?
            }
        };
        self.progress.read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// Reads at a place. Where others read is of no matter, and where the file stands is not relied on.
#[cfg(unix)]
fn read_file_at(file: &File, room: &mut [u8], from: u64) -> io::Result<usize> {
    std::os::unix::fs::FileExt::read_at(file, room, from)
}

/// The same on Windows.
#[cfg(windows)]
fn read_file_at(file: &File, room: &mut [u8], from: u64) -> io::Result<usize> {
    std::os::windows::fs::FileExt::seek_read(file, room, from)
}

/// Bytes from the front.
struct Forward {
    bytes: Bytes,
    position: u64,
}

impl Read for Forward {
    fn read(&mut self, room: &mut [u8]) -> io::Result<usize> {
        let read = self.bytes.read_at(room, self.position)?;
        self.position = self.position.saturating_add(read as u64);
        Ok(read)
    }
}

impl Input {
    pub(crate) fn open(path: &Path, progress: &Arc<Progress>) -> io::Result<Input> {
        let length = std::fs::metadata(path)?.len();
        progress.total.fetch_add(length, Ordering::Relaxed);
        Input::new(Place::File(path.to_owned()), length, progress)
    }

    pub(crate) fn of_memory(bytes: &[u8]) -> io::Result<Input> {
        Input::new(Place::Memory(bytes.into()), bytes.len() as u64, &Arc::default())
    }

    fn new(place: Place, length: u64, progress: &Arc<Progress>) -> io::Result<Input> {
        let mut magic = [0u8; 2];
        let gzip = place.open(progress)?.read_at(&mut magic, 0)? == 2 && magic == [0x1f, 0x8b];
        Ok(Input { place, length, gzip, progress: Arc::clone(progress) })
    }

    /// The size before any unpacking.
    pub(crate) fn length(&self) -> u64 {
        self.length
    }

    /// Whether a stream can go to any place at no cost; else only forward, by reading.
    pub(crate) fn is_seekable(&self) -> bool {
        !self.gzip
    }

    /// A new stream from the first byte, read in pieces of `piece` bytes.
    pub(crate) fn stream(&self, piece: usize) -> io::Result<Stream> {
        let bytes = self.place.open(&self.progress)?;
        let origin = if self.gzip {
            let most = self.length.saturating_mul(LARGEST_RATIO).max(FREE_GROWTH);
            let forward = io::BufReader::with_capacity(1 << 16, Forward { bytes, position: 0 });
            Origin::Gzip { decoder: Box::new(MultiGzDecoder::new(forward)), most }
        } else {
            Origin::Plain { bytes, length: self.length }
        };
        Ok(Stream { origin, piece, buffer: Vec::new(), start: 0, end: 0, position: 0, ended: false })
    }

    /// All of it, for formats that are small by nature. More than `most` is an error.
    pub(crate) fn whole(&self, most: usize) -> io::Result<Vec<u8>> {
        let mut stream = self.stream(LARGE_PIECE)?;
        let mut whole = Vec::new();
        while stream.ensure(1)? > 0 {
            let window = stream.window();
            if whole.len() + window.len() > most {
                let text = format!("it is larger than {} MiB, the largest size of such a file", most >> 20);
                return Err(io::Error::new(io::ErrorKind::InvalidData, text));
            }
            whole.extend_from_slice(window);
            let read = window.len() as u64;
            stream.skip(read)?;
        }
        Ok(whole)
    }
}

enum Origin {
    Plain { bytes: Bytes, length: u64 },
    Gzip { decoder: Box<MultiGzDecoder<io::BufReader<Forward>>>, most: u64 },
}

/// A position in a file and a window of the bytes from there on.
pub(crate) struct Stream {
    origin: Origin,
    piece: usize,
    /// Fully written, and used from `start` to `end`; what follows is room for more.
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Where the window begins in the (decompressed) file.
    position: u64,
    ended: bool,
}

impl Stream {
    /// How far the stream has come.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// The bytes at hand from the current position on.
    #[inline]
    pub(crate) fn window(&self) -> &[u8] {
        self.buffer.get(self.start..self.end).unwrap_or_default()
    }

    /// Makes the window at least `wanted` long, unless the file ends before.
    pub(crate) fn ensure(&mut self, wanted: usize) -> io::Result<usize> {
        while self.window().len() < wanted && !self.ended {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
            let length = self.piece.max(wanted);
            if self.buffer.len() < length {
                self.buffer.resize(length, 0);
            }
            let from = self.position.saturating_add(self.end as u64);
            let room = self.buffer.get_mut(self.end..).unwrap_or_default();
            let read = match &mut self.origin {
                Origin::Plain { bytes, .. } => bytes.read_at(room, from),
                Origin::Gzip { most, .. } if from > *most => return Err(too_large(*most)),
                Origin::Gzip { decoder, .. } => decoder.read(room),
            };
            match read {
                Ok(0) => self.ended = true,
                Ok(read) => self.end = self.end.saturating_add(read),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // A gzip file that was cut ends here; what precedes the cut is good.
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => self.ended = true,
                Err(error) => return Err(error),
            }
        }
        Ok(self.window().len())
    }

    /// Goes to a place in the file: any place where the input is seekable, else one that is ahead.
    pub(crate) fn go_to(&mut self, position: u64) -> io::Result<()> {
        if position < self.position && matches!(self.origin, Origin::Plain { .. }) {
            (self.start, self.end, self.position, self.ended) = (0, 0, position, false);
        }
        self.skip(position.saturating_sub(self.position))?;
        Ok(())
    }

    /// Hands out the next `count` bytes of the window with the buffer they are in, and goes on with `spare`. Only
    /// what is behind them is copied.
    pub(crate) fn take(&mut self, count: usize, mut spare: Vec<u8>) -> (Vec<u8>, Range<usize>) {
        let taken = self.start..self.start.saturating_add(count).min(self.end);
        let left = self.buffer.get(taken.end..self.end).unwrap_or_default();
        if spare.len() < left.len() {
            spare.resize(self.piece.max(left.len()), 0);
        }
        if let Some(room) = spare.get_mut(..left.len()) {
            room.copy_from_slice(left);
        }
        self.position = self.position.saturating_add(taken.len() as u64);
        (self.start, self.end) = (0, left.len());
        (std::mem::replace(&mut self.buffer, spare), taken)
    }

    /// Moves on by `count` bytes, or to the end of the file; says by how many it moved.
    pub(crate) fn skip(&mut self, count: u64) -> io::Result<u64> {
        let mut moved = self.skip_window(count);
        if let Origin::Plain { length, .. } = self.origin {
            let left = count.saturating_sub(moved).min(length.saturating_sub(self.position));
            self.position = self.position.saturating_add(left);
            self.ended = false;
            return Ok(moved.saturating_add(left));
        }
        while moved < count && self.ensure(1)? > 0 {
            moved = moved.saturating_add(self.skip_window(count.saturating_sub(moved)));
        }
        Ok(moved)
    }

    fn skip_window(&mut self, count: u64) -> u64 {
        let step = usize::try_from(count).unwrap_or(usize::MAX).min(self.window().len());
        self.start = self.start.saturating_add(step);
        self.position = self.position.saturating_add(step as u64);
        step as u64
    }
}

fn too_large(most: u64) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        format!(
            "it unpacks to more than {LARGEST_RATIO} times its size (over {most} bytes), which looks like an attack; if you trust it, \
             unpack it with gunzip first"
        ),
    )
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn file(bytes: &[u8]) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(bytes).unwrap();
        file
    }

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    #[test]
    fn plain_and_gzip_give_the_same_bytes() {
        let bytes: Vec<u8> = (0..5_000_000u32).map(|i| (i ^ (i >> 7)) as u8).collect();
        for stored in [bytes.clone(), gzip(&bytes)] {
            let file = file(&stored);
            let mut stream = Input::open(file.path(), &Arc::default()).unwrap().stream(LARGE_PIECE).unwrap();
            assert_eq!(stream.ensure(3).unwrap().min(3), 3);
            assert_eq!(stream.window()[..3], bytes[..3]);
            assert_eq!(stream.skip(4_000_001).unwrap(), 4_000_001);
            stream.ensure(10).unwrap();
            assert_eq!(stream.window()[..10], bytes[4_000_001..4_000_011]);
            let (buffer, taken) = stream.take(7, Vec::new());
            assert_eq!(buffer[taken], bytes[4_000_001..4_000_008]);
            assert_eq!(stream.window()[..3], bytes[4_000_008..4_000_011]);
            assert_eq!(stream.skip(u64::MAX).unwrap(), 999_992);
            assert_eq!(stream.ensure(1).unwrap(), 0);
        }
    }

    #[test]
    fn a_bomb_is_refused_and_a_cut_is_an_end() {
        let packed = gzip(&vec![0u8; 300 << 20]);
        let bomb = file(&packed);
        let mut stream = Input::open(bomb.path(), &Arc::default()).unwrap().stream(LARGE_PIECE).unwrap();
        let error = stream.skip(u64::MAX).unwrap_err().to_string();
        assert!(error.contains("gunzip"), "{error}");

        let noise: Vec<u8> = (0..100_000u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
        let packed = gzip(&noise);
        let cut = file(&packed[..packed.len() / 2]);
        let mut stream = Input::open(cut.path(), &Arc::default()).unwrap().stream(LARGE_PIECE).unwrap();
        let got = stream.skip(u64::MAX).unwrap();
        assert!(got > 10_000 && got < 100_000, "{got}");
    }
}
