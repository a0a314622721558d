//! What one process writes into a recording.
//!
//! Every process has files of its own, named by host, process and start time, so that nobody waits for anybody. A forked
//! child must not use its parent's recorder: it makes its own.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::folder::{Part, ProcessId};
use super::peaks::PeakWatch;
use super::rows::{Inventory, Mark, Moment, OwnerRow, Sample};
use super::schema::{INVENTORY, MARKS, OWNERS, SAMPLES, Stream};
use super::stream::{Appender, Cell, StreamError};

/// The streams of this process. Each is made with its first row.
#[derive(Debug)]
pub struct ProcessRecorder {
    folder: PathBuf,
    id: ProcessId,
    marks: Lazy,
    samples: Lazy,
    inventory: Lazy,
    owners: Lazy,
    number: AtomicI64,
    peaks: Mutex<PeakWatch>,
}

#[derive(Debug)]
struct Lazy {
    stream: Stream,
    part: Part,
    appender: Mutex<Option<Appender>>,
}

impl Lazy {
    fn new(stream: Stream, part: Part) -> Lazy {
        Lazy { stream, part, appender: Mutex::new(None) }
    }
}

impl ProcessRecorder {
    /// A recorder into `folder` for the process called `id`.
    #[must_use]
    pub fn new(folder: &Path, id: &ProcessId) -> ProcessRecorder {
        ProcessRecorder {
            folder: folder.to_owned(),
            id: id.clone(),
            marks: Lazy::new(MARKS, Part::Marks),
            samples: Lazy::new(SAMPLES, Part::Samples),
            inventory: Lazy::new(INVENTORY, Part::Inventory),
            owners: Lazy::new(OWNERS, Part::Owners),
            // The time tells marks of one process apart even where a second recorder goes on with its files.
            number: AtomicI64::new(Moment::now().monotonic),
            peaks: Mutex::default(),
        }
    }

    /// The folder of the recording.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// Writes a mark down; it is on its way to the disk when this returns. True where a peak has risen since
    /// [`ProcessRecorder::watch_peaks`], once.
    pub fn mark(&self, mark: &Mark) -> Result<bool, StreamError> {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        self.append(&self.marks, &mark.rows(number))?;
        Ok(self.peaks().take(&mark.counters))
    }

    /// Has later marks tell when a peak rises by more than a twentieth over the highest so far.
    pub fn watch_peaks(&self) {
        self.peaks().arm();
    }

    fn peaks(&self) -> MutexGuard<'_, PeakWatch> {
        self.peaks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes samples down.
    pub fn samples(&self, samples: &[Sample]) -> Result<(), StreamError> {
        self.append(&self.samples, &samples.iter().map(Sample::row).collect::<Vec<_>>())
    }

    /// Writes an inventory down.
    pub fn inventory(&self, inventory: &Inventory) -> Result<(), StreamError> {
        let number = self.number.fetch_add(1, Ordering::Relaxed);
        self.append(&self.inventory, &inventory.rows(number))
    }

    /// Writes down whose ops are.
    pub fn owners(&self, owners: &[OwnerRow]) -> Result<(), StreamError> {
        self.append(&self.owners, &owners.iter().map(OwnerRow::row).collect::<Vec<_>>())
    }

    /// Waits, not for long, until everything is on disk.
    pub fn close(&self) {
        for lazy in [&self.marks, &self.samples, &self.inventory, &self.owners] {
            if let Ok(mut appender) = lazy.appender.lock()
                && let Some(appender) = appender.as_mut()
            {
                appender.close();
            }
        }
    }

    fn append<const N: usize>(&self, lazy: &Lazy, rows: &[[Cell<'_>; N]]) -> Result<(), StreamError> {
        let path = || self.folder.join(lazy.part.name(&self.id));
        let mut appender = lazy.appender.lock().unwrap_or_else(PoisonError::into_inner);
        let appender = match appender.as_mut() {
            Some(appender) => appender,
            None => appender.insert(Appender::open(&path(), lazy.stream)?),
        };
        appender.append(&rows.iter().map(<[Cell<'_>; N]>::as_slice).collect::<Vec<_>>())
    }
}
