//! `--to dataset`: recordings as tables of Parquet for SQL across jobs (`docs/reference/dataset.md`).
//!
//! Sources are read one after another on each core and forgotten when their rows are written. A source that cannot be read costs a row in
//! the table of errors.

mod folder;
mod partition;

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use vramline::analysis::dataset::DatasetSource;
use vramline::analysis::dataset::key::{Key, SourceKeys};
use vramline::analysis::redaction::Redaction;
use vramline::recording::reader::is_recording;
use vramline::source::SourceError;
use vramline::view::dataset::{write, write_error};

use crate::bug;
use crate::exit::Failure;
use crate::progress::ProgressLine;
use folder::DatasetFolder;
use partition::{Partition, TableForms};

/// More threads than this would only hold more recordings in memory.
const MAX_THREADS: usize = 8;

/// What is exported, and how.
pub(crate) struct DatasetExport {
    /// Whether the table of allocations is written.
    pub(crate) has_allocations: bool,
    /// Whether private texts are replaced.
    pub(crate) is_redacted: bool,
}

/// What an export did.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Exported {
    /// Sources whose rows were written.
    pub(crate) written: usize,
    /// Sources that could not be read.
    pub(crate) unreadable: usize,
}

/// Writes the rows of every source into the dataset in a folder.
pub(crate) fn export(paths: &[PathBuf], root: &Path, options: &DatasetExport) -> Result<Exported, Failure> {
    let folder = DatasetFolder::open(root)?;
    let forms = TableForms::new()?;
    let cannot = || format!("cannot write '{}'", root.display());
    if !folder.has_schema() {
        let part = folder.part().with_context(cannot)?;
        let mut rows = Partition::new(&part, &forms);
        rows.add_empty_tables();
        rows.finish().with_context(cannot)?;
        let keys = SourceKeys { job: Key::schema(), recording: Key::schema(), job_id: None };
        folder.commit(&part, &keys).with_context(cannot)?;
    }
    let work = Work {
        paths,
        folder,
        forms,
        has_allocations: options.has_allocations,
        redaction: options.is_redacted.then(|| Mutex::new(Redaction::across_sources())),
        next: AtomicUsize::new(0),
        exported: Mutex::default(),
    };
    let done = Arc::new(AtomicUsize::new(0));
    let (shown, count) = (Arc::clone(&done), paths.len());
    let line =
        ProgressLine::start(move |_| format!("exporting: {} of {count}", shown.load(Ordering::Relaxed)));
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    // Placeholders are numbered in the order in which texts are met.
    let threads = if options.is_redacted { 1 } else { cores.min(MAX_THREADS).min(count) };
    let ended = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(|| work.run(&done))).collect();
        workers.into_iter().map(|worker| worker.join().unwrap_or(Err(Failure::Bug))).collect::<Vec<_>>()
    });
    drop(line);
    ended.into_iter().collect::<Result<Vec<()>, Failure>>().map_err(|failure| failure.context(cannot()))?;
    Ok(work.exported.into_inner().unwrap_or_else(PoisonError::into_inner))
}

/// The sources that are left, shared by the threads.
struct Work<'a> {
    paths: &'a [PathBuf],
    folder: DatasetFolder,
    forms: TableForms,
    has_allocations: bool,
    redaction: Option<Mutex<Redaction>>,
    next: AtomicUsize,
    exported: Mutex<Exported>,
}

impl Work<'_> {
    fn run(&self, done: &AtomicUsize) -> Result<(), Failure> {
        while let Some(path) = self.paths.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            // The others stop as well: what cannot be written here cannot be written there.
            self.source(path).inspect_err(|_| self.next.store(self.paths.len(), Ordering::Relaxed))?;
            done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(())
    }

    fn source(&self, path: &Path) -> Result<(), Failure> {
        bug::stumble("read");
        let read = DatasetSource::read(path, &Arc::default());
        let mut exported = Exported::default();
        let part = self.folder.part()?;
        let mut rows = Partition::new(&part, &self.forms);
        let keys = match read {
            Ok(mut source) => {
                if let Some(redaction) = &self.redaction {
                    source.redact(&mut redaction.lock().unwrap_or_else(PoisonError::into_inner));
                }
                let keys = source.keys.clone();
                write(source, self.has_allocations, &mut rows)?;
                exported.written = 1;
                keys
            }
            Err(error) => {
                let (shown, error) = self.shown(path, error);
                write_error(&shown, &error, &mut rows)?;
                exported.unreadable = 1;
                SourceKeys::of_unreadable(path)
            }
        };
        rows.finish()?;
        self.folder.commit(&part, &keys)?;
        if exported.written == 1 {
            self.folder.forget_error(path)?;
        }
        let mut all = self.exported.lock().unwrap_or_else(PoisonError::into_inner);
        all.written += exported.written;
        all.unreadable += exported.unreadable;
        Ok(())
    }

    fn shown(&self, path: &Path, error: SourceError) -> (String, SourceError) {
        match &self.redaction {
            None => (path.display().to_string(), error),
            Some(redaction) => {
                let mut redaction = redaction.lock().unwrap_or_else(PoisonError::into_inner);
                (redaction.path(path).display().to_string(), redaction.source_error(error))
            }
        }
    }
}

/// The sources that paths stand for: a folder that holds recordings stands for these.
pub(crate) fn sources(paths: &[PathBuf]) -> Result<Vec<PathBuf>, Failure> {
    let mut sources = Vec::new();
    for path in paths {
        if !path.is_dir() || is_recording(path) {
            sources.push(path.clone());
            continue;
        }
        let entries = std::fs::read_dir(path).with_context(|| format!("cannot read '{}'", path.display()))?;
        let mut found: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
        // A recording that lost its files is still meant as one.
        found.retain(|path| path.extension().is_some_and(|ending| ending == "vram") || is_recording(path));
        found.sort();
        if found.is_empty() {
            sources.push(path.clone());
        }
        sources.extend(found);
    }
    Ok(sources)
}
