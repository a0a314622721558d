//! The folder of a dataset: which partition lies where, and how one is replaced so that a reader finds all of it or nothing.
//!
//! ```text
//! vramline-dataset.json                                 the version of the tables
//! job=J/recording=R/host=H/TABLE.parquet                the rows of a recording on a host
//! job=_schema/recording=_schema/host=_schema/...        each table without rows
//! .writing/                                             partitions that are being written
//! ```
//!
//! A recording is written below `.writing` and then renamed, which replaces an earlier export of it in one step. Exports that run at the same
//! time need no lock for that. Each holds a lock on its own folder below `.writing`: what has no owner any more is removed by the next export.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;
use rustix::fs::{CWD, FlockOperation, RenameFlags, flock, renameat_with};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use vramline::analysis::dataset::key::{Key, SourceKeys};
use vramline::recording::folder::host_name;
use vramline::view::dataset::SCHEMA;

use crate::exit::Failure;

/// The file that makes a folder a dataset.
pub(crate) const MARKER: &str = "vramline-dataset.json";

/// The folder of what is not complete. A name that begins with a dot is no partition.
const WRITING: &str = ".writing";

/// The `kind` of the marker.
const KIND: &str = "vramline-dataset";

/// A rename is tried again if another export was faster. Nobody is faster so often.
const MAX_RENAMES: u32 = 1000;

/// What the marker says.
#[derive(Debug, Serialize, Deserialize)]
struct Marker {
    kind: String,
    schema: u64,
    /// The version of Vramline that made the dataset.
    vramline: String,
}

/// A dataset that rows are added to.
#[derive(Debug)]
pub(crate) struct DatasetFolder {
    root: PathBuf,
    work: WorkFolder,
    /// Where each recording was when this export began. A recording moves if its job gets another name, as by `--redact`.
    known: HashMap<String, Vec<PathBuf>>,
}

impl DatasetFolder {
    /// Opens a dataset, or creates one in a new or empty folder.
    pub(crate) fn open(root: &Path) -> Result<DatasetFolder, Failure> {
        let cannot = || format!("cannot write '{}'", root.display());
        fs::create_dir_all(root).with_context(cannot)?;
        let is_new = !check(root)?;
        let work = WorkFolder::create(&root.join(WRITING)).with_context(cannot)?;
        if is_new {
            let marker = Marker {
                kind: KIND.to_owned(),
                schema: u64::from(SCHEMA),
                vramline: env!("CARGO_PKG_VERSION").to_owned(),
            };
            let text = serde_json::to_vec(&marker).with_context(cannot)?;
            let part = work.path.join(MARKER);
            fs::write(&part, text)
                .and_then(|()| fs::rename(&part, root.join(MARKER)))
                .with_context(cannot)?;
        }
        let known = recordings(root).with_context(cannot)?;
        Ok(DatasetFolder { root: root.to_owned(), work, known })
    }

    /// Whether the partition with the empty tables is there.
    pub(crate) fn has_schema(&self) -> bool {
        self.known.contains_key(Key::schema().as_str())
    }

    /// A new folder for the rows of a recording.
    pub(crate) fn part(&self) -> io::Result<PathBuf> {
        static NUMBER: AtomicU64 = AtomicU64::new(0);
        let path = self.work.path.join(NUMBER.fetch_add(1, Ordering::Relaxed).to_string());
        fs::create_dir(&path)?;
        Ok(path)
    }

    /// Puts the complete rows of a recording in their place, instead of any earlier ones.
    pub(crate) fn commit(&self, part: &Path, keys: &SourceKeys) -> io::Result<()> {
        let place = self.root.join(format!("job={}", keys.job)).join(format!("recording={}", keys.recording));
        replace(part, &place)?;
        self.remove_all(keys.recording.as_str(), Some(&place))?;
        // After an exchange the earlier rows are here.
        remove(part)
    }

    /// Removes the row that says that a path could not be read, now that it can.
    pub(crate) fn forget_error(&self, path: &Path) -> io::Result<()> {
        self.remove_all(SourceKeys::of_unreadable(path).recording.as_str(), None)
    }

    /// Removes a recording from every job but the one that is given.
    fn remove_all(&self, recording: &str, but: Option<&PathBuf>) -> io::Result<()> {
        for old in self.known.get(recording).into_iter().flatten().filter(|old| Some(*old) != but) {
            let aside = self.part()?;
            match fs::rename(old, &aside) {
                Ok(()) => {
                    remove(&aside)?;
                    // The last recording of a job. Another export may add one at this moment.
                    let _ = old.parent().map(fs::remove_dir);
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => remove(&aside)?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Whether a folder is a dataset of this version; `false` if it is empty.
fn check(root: &Path) -> Result<bool, Failure> {
    let shown = root.display();
    let text = match fs::read(root.join(MARKER)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let entries = fs::read_dir(root).with_context(|| format!("cannot read '{shown}'"))?;
            let is_empty = entries.flatten().all(|entry| entry.file_name() == WRITING);
            // Another export may have created the dataset just now.
            return if is_empty || root.join(MARKER).exists() {
                Ok(false)
            } else {
                Err(Failure::error(
                    format!("'{shown}' is not empty, and it is not a dataset: it has no {MARKER}"),
                    "give a new or an empty folder, as in: vramline export runs/*.vram --to dataset fleet",
                ))
            };
        }
        Err(error) => {
            return Err(anyhow::Error::from(error).context(format!("cannot read '{shown}/{MARKER}'")).into());
        }
    };
    let foreign = || {
        Failure::error(
            format!("'{shown}/{MARKER}' is not the marker of a dataset"),
            "give a new or an empty folder",
        )
    };
    let marker: Marker = serde_json::from_slice(&text).map_err(|_| foreign())?;
    match marker {
        Marker { kind, .. } if kind != KIND => Err(foreign()),
        Marker { schema, vramline, .. } if schema > u64::from(SCHEMA) => Err(Failure::error(
            format!(
                "'{shown}' was written by Vramline {vramline} with schema {schema}, but this version knows schemas up to {SCHEMA}"
            ),
            "update vramline, or export into another folder",
        )),
        _ => Ok(true),
    }
}

/// Every recording of a dataset, with its folders.
fn recordings(root: &Path) -> io::Result<HashMap<String, Vec<PathBuf>>> {
    let mut known: HashMap<String, Vec<PathBuf>> = HashMap::new();
    for job in fs::read_dir(root)? {
        let job = job?;
        if !job.file_name().to_string_lossy().starts_with("job=") {
            continue;
        }
        let found = match fs::read_dir(job.path()) {
            Ok(found) => found,
            // Another export moved its last recording.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        for recording in found {
            let recording = recording?;
            if let Some(key) = recording.file_name().to_string_lossy().strip_prefix("recording=") {
                known.entry(key.to_owned()).or_default().push(recording.path());
            }
        }
    }
    Ok(known)
}

/// Renames a folder to its place. If there is one already, the two are exchanged, or on file systems that cannot do that, the old one is
/// moved away first.
fn replace(part: &Path, place: &Path) -> io::Result<()> {
    let parent = place.parent().unwrap_or(place);
    for _ in 0..MAX_RENAMES {
        let renamed = |flags| renameat_with(CWD, part, CWD, place, flags);
        let ended = match renamed(RenameFlags::NOREPLACE) {
            Err(Errno::EXIST) => renamed(RenameFlags::EXCHANGE),
            ended => ended,
        };
        match ended {
            Ok(()) => return Ok(()),
            Err(Errno::NOENT) => fs::create_dir_all(parent)?,
            Err(Errno::EXIST) => {}
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => match replace_in_steps(part, place) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => fs::create_dir_all(parent)?,
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {}
                ended => return ended,
            },
            Err(error) => return Err(error.into()),
        }
    }
    Err(io::Error::other("other exports replace the same recording all the time"))
}

/// The same in two renames. Between them the recording is missing.
fn replace_in_steps(part: &Path, place: &Path) -> io::Result<()> {
    let aside = part.with_extension("old");
    match fs::rename(place, &aside) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
    }
    fs::rename(part, place)?;
    remove(&aside)
}

fn remove(folder: &Path) -> io::Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// The folder of one export below `.writing`, and the lock that says that its owner lives.
#[derive(Debug)]
struct WorkFolder {
    path: PathBuf,
    lock: PathBuf,
    _locked: File,
}

impl WorkFolder {
    fn create(writing: &Path) -> io::Result<WorkFolder> {
        fs::create_dir_all(writing)?;
        clean(writing)?;
        for number in 0..MAX_RENAMES {
            let name = format!("{}-{}-{number}", Key::of(&host_name()), std::process::id());
            let (path, lock) = (writing.join(&name), writing.join(format!("{name}.lock")));
            let locked = match OpenOptions::new().write(true).create_new(true).open(&lock) {
                Ok(locked) => locked,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(error),
            };
            // Another export that cleans up between the two calls has the lock, or has removed the file. On a file system without locks
            // leftovers stay, which does no harm.
            let is_taken = flock(&locked, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK);
            if is_taken || !lock.exists() {
                continue;
            }
            fs::create_dir(&path)?;
            return Ok(WorkFolder { path, lock, _locked: locked });
        }
        Err(io::Error::other(format!("'{}' is full of unfinished exports", writing.display())))
    }
}

impl Drop for WorkFolder {
    fn drop(&mut self) {
        // What cannot be removed is left to the next export.
        let _ = remove(&self.path);
        let _ = fs::remove_file(&self.lock);
    }
}

/// Removes what killed exports left: their locks are free.
fn clean(writing: &Path) -> io::Result<()> {
    for entry in fs::read_dir(writing)? {
        let lock = entry?.path();
        if lock.extension().is_none_or(|ending| ending != "lock") {
            continue;
        }
        let Ok(file) = OpenOptions::new().write(true).open(&lock) else { continue };
        if flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            remove(&lock.with_extension(""))?;
            // Another export may clean up as well.
            let _ = fs::remove_file(&lock);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn part(folder: &DatasetFolder, text: &str) -> PathBuf {
        let part = folder.part().unwrap();
        fs::create_dir(part.join("host=h")).unwrap();
        fs::write(part.join("host=h/jobs.parquet"), text).unwrap();
        part
    }

    fn keys(job: &str) -> SourceKeys {
        SourceKeys { job: Key::of(job), recording: Key::of("r"), job_id: None }
    }

    #[test]
    fn a_recording_is_in_one_place() {
        let scratch = tempfile::tempdir().unwrap();
        let read = |job: &str| {
            fs::read_to_string(scratch.path().join(format!("job={job}/recording=r/host=h/jobs.parquet")))
        };
        for (job, text) in [("a", "first"), ("a", "second"), ("b", "moved")] {
            let folder = DatasetFolder::open(scratch.path()).unwrap();
            folder.commit(&part(&folder, text), &keys(job)).unwrap();
            assert_eq!(read(job).unwrap(), text);
        }
        assert!(!scratch.path().join("job=a").exists());
        assert_eq!(fs::read_dir(scratch.path().join(WRITING)).unwrap().count(), 0);
    }

    #[test]
    fn without_an_exchange_it_takes_two_renames() {
        let scratch = tempfile::tempdir().unwrap();
        let (part, place) = (scratch.path().join("part"), scratch.path().join("place"));
        for text in ["first", "second"] {
            fs::create_dir(&part).unwrap();
            fs::write(part.join("file"), text).unwrap();
            replace_in_steps(&part, &place).unwrap();
            assert_eq!(fs::read_to_string(place.join("file")).unwrap(), text);
        }
        assert_eq!(fs::read_dir(scratch.path()).unwrap().count(), 1);
    }

    #[test]
    fn only_what_has_no_owner_is_removed() {
        let scratch = tempfile::tempdir().unwrap();
        let alive = DatasetFolder::open(scratch.path()).unwrap();
        let half = part(&alive, "half");
        let dead = scratch.path().join(WRITING).join("elsewhere-1-0");
        fs::create_dir_all(dead.join("0/host=h")).unwrap();
        File::create(dead.with_extension("lock")).unwrap();
        drop(DatasetFolder::open(scratch.path()).unwrap());
        assert!(
            half.join("host=h/jobs.parquet").exists()
                && !dead.exists()
                && !dead.with_extension("lock").exists()
        );
    }

    #[test]
    fn other_folders_are_refused() {
        let scratch = tempfile::tempdir().unwrap();
        let told = |name: &str, text: &str| {
            fs::write(scratch.path().join(name), text).unwrap();
            DatasetFolder::open(scratch.path()).unwrap_err().text()
        };
        assert!(told("notes.txt", "mine").contains("it is not a dataset"));
        assert!(told(MARKER, "{").contains("is not the marker"));
        assert!(told(MARKER, r#"{"kind":"other","schema":1,"vramline":"9"}"#).contains("is not the marker"));
        let newer = told(MARKER, r#"{"kind":"vramline-dataset","schema":99,"vramline":"9.0"}"#);
        assert!(newer.contains("schema 99"), "{newer}");
    }
}
