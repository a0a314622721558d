//! A recording that is still being written, followed: each look gives what came since the last one.
//!
//! Nothing is collected here: news go to whoever looks, piece by piece. Reading never disturbs the job; files are opened for reading only, and
//! nothing is locked. [`reader`](super::reader) is for recordings that are read once and whole.

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::driver_calls::DriverCalls;
use super::folder::{DRIVER, Part, ProcessId, RUN, parts};
use super::follow::Follower;
use super::load::{facts, name_of};
use super::manifest::{ManifestError, RunManifest};
use super::reader::{ProcessFacts, ReadError};
use super::rows::{DriverRow, Inventory, Mark, Sample};
use super::schema::VERSION;
use super::stream::{StreamError, Table};
use crate::warning::Warnings;

/// What came since the last look.
#[derive(Debug)]
#[non_exhaustive]
pub enum News<'a> {
    /// What the launcher says: at first, when the driver has answered, and when the job has ended.
    Manifest(Box<RunManifest>),
    /// What a process says of itself.
    Facts(&'a ProcessId, Box<ProcessFacts>),
    /// What it did.
    Marks(&'a ProcessId, Vec<Mark>),
    /// Its counters in the background.
    Samples(&'a ProcessId, Vec<Sample>),
    /// Its variables.
    Inventories(&'a ProcessId, Vec<Inventory>),
    /// The folder of its profiler is there.
    Trace(&'a ProcessId, PathBuf),
    /// Its calls of the driver, all of them so far.
    DriverCalls(&'a ProcessId, DriverCalls),
    /// What the driver and the kernel said.
    Driver(Vec<DriverRow>),
}

/// A file of driver calls is read whole each time it has grown; a larger one is not, and what is known of it stays.
const MOST_CALLS: u64 = 8 << 20;

/// A recording that is followed.
#[derive(Debug)]
pub struct Live {
    path: PathBuf,
    /// What `run.json` and the files of facts were when they were read.
    stamps: BTreeMap<PathBuf, Stamp>,
    streams: BTreeMap<(Part, ProcessId), Follower>,
    driver: Follower,
    /// Files that could not be read, each reported once.
    failed: BTreeSet<PathBuf>,
    /// What could not be read.
    pub warnings: Warnings,
}

/// Tells whether a file that is written whole has been written anew: inode, length, time.
type Stamp = (u64, u64, i64, i64);

impl Live {
    /// Follows the recording in a folder from its beginning.
    #[must_use]
    pub fn new(path: &Path) -> Live {
        Live {
            path: path.to_owned(),
            stamps: BTreeMap::new(),
            streams: BTreeMap::new(),
            driver: Follower::new(path.join(DRIVER)),
            failed: BTreeSet::new(),
            warnings: Warnings::default(),
        }
    }

    /// The folder.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Tells what came since the last look, reading about `most` bytes of streams. Says whether more is there already.
    pub fn look(&mut self, most: u64, tell: &mut dyn FnMut(News<'_>)) -> Result<bool, ReadError> {
        let newer = |path: &Path, what: String| ReadError::Newer { path: path.to_owned(), what };
        let run = self.path.join(RUN);
        if self.has_changed(&run) {
            match RunManifest::read(&self.path) {
                Ok(manifest) => tell(News::Manifest(Box::new(manifest))),
                Err(error @ ManifestError::Newer { .. }) => return Err(newer(&self.path, error.to_string())),
                Err(error) => self.fail(&run, "unreadable-manifest", &error.to_string(), error.hint()),
            }
        }
        let found = parts(&self.path).map_err(|error| ReadError::Io { path: self.path.clone(), error })?;
        let mut left = most;
        for (part, id) in found {
            let file = self.path.join(part.name(&id));
            match part {
                Part::Process if self.has_changed(&file) => match facts(&file) {
                    Ok(facts) if facts.schema > VERSION => {
                        let what = format!("'{}' has schema {}", name_of(&file), facts.schema);
                        return Err(newer(&self.path, what));
                    }
                    Ok(facts) => tell(News::Facts(&id, Box::new(facts))),
                    Err(error) => {
                        let text = format!("cannot read '{}': {error}", name_of(&file));
                        self.fail(&file, "unreadable-facts", &text, "");
                    }
                },
                Part::Trace if self.stamps.insert(file.clone(), Stamp::default()).is_none() => {
                    tell(News::Trace(&id, file));
                }
                Part::DriverCalls => {
                    let is_small = std::fs::metadata(&file).is_ok_and(|found| found.len() <= MOST_CALLS);
                    if is_small && self.has_changed(&file) {
                        match DriverCalls::read(&file, id.clone()) {
                            Ok(calls) => tell(News::DriverCalls(&id, calls)),
                            Err(error) => {
                                let text = format!("cannot read '{}': {error}", name_of(&file));
                                self.fail(&file, "unreadable-stream", &text, "");
                            }
                        }
                    }
                }
                // Nobody who follows a run asks for it.
                Part::Process | Part::Trace | Part::Owners => {}
                Part::Marks | Part::Samples | Part::Inventory => {
                    let key = (part, id.clone());
                    let mut stream = self.streams.remove(&key).unwrap_or_else(|| Follower::new(file));
                    let read = self.follow(&mut stream, &mut left, &mut |table| {
                        tell(match part {
                            Part::Marks => News::Marks(&id, Mark::all(table)),
                            Part::Samples => News::Samples(&id, Sample::all(table)),
                            _ => News::Inventories(&id, Inventory::all(table)),
                        });
                    });
                    self.streams.insert(key, stream);
                    read?;
                }
            }
        }
        let mut driver = std::mem::replace(&mut self.driver, Follower::new(PathBuf::new()));
        let read =
            self.follow(&mut driver, &mut left, &mut |table| tell(News::Driver(DriverRow::all(table))));
        self.driver = driver;
        read?;
        Ok(left == 0)
    }

    fn follow(
        &mut self,
        stream: &mut Follower,
        left: &mut u64,
        take: &mut dyn FnMut(&Table),
    ) -> Result<(), ReadError> {
        if self.failed.contains(stream.path()) {
            return Ok(());
        }
        while *left > 0 {
            let before = stream.read_bytes();
            match stream.more() {
                Ok(Some(table)) => take(&table),
                Ok(None) => break,
                Err(error @ StreamError::Newer { .. }) => {
                    return Err(ReadError::Newer { path: self.path.clone(), what: error.to_string() });
                }
                Err(error) => {
                    self.fail(stream.path(), "unreadable-stream", &error.to_string(), "");
                    break;
                }
            }
            *left = left.saturating_sub(stream.read_bytes().saturating_sub(before).max(1));
        }
        Ok(())
    }

    /// Whether a file is there and was not read as it is now.
    fn has_changed(&mut self, path: &Path) -> bool {
        let Ok(found) = std::fs::metadata(path) else { return false };
        let stamp = (found.ino(), found.len(), found.mtime(), found.mtime_nsec());
        self.stamps.insert(path.to_owned(), stamp) != Some(stamp)
    }

    fn fail(&mut self, path: &Path, code: &'static str, text: &str, hint: &str) {
        if self.failed.insert(path.to_owned()) {
            self.warnings.add(code, text, hint);
        }
    }
}
