//! Which recordings are being written on this machine, found through the processes that write them.
//!
//! A process under `vramline run` has a variable that names its recording; one that records itself keeps the files of its recording open. Both stand in
//! `/proc`, of every process that this user may look at; of the others nothing is known. A process in a container may have another idea of where its
//! files are: its own root is tried as well. What a process says of itself is only believed where a recording lies there.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;
use serde::Serialize;

use super::folder::{Part, ProcessId, host_name};
use super::manifest::{Exit, RunManifest};
use super::reader::is_recording;
use crate::source::procfs::{self, Seen};

/// How often a process that has no recording is looked at again: it may open one later. The longer it has none, the rarer.
const AGAIN: Duration = Duration::from_secs(5);
const AGAIN_AT_LAST: Duration = Duration::from_secs(30);

/// A recording that processes of this machine write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunningRecording {
    /// Its folder.
    pub path: PathBuf,
    /// The processes, by their numbers here.
    pub pids: Vec<u32>,
}

/// Looks for recordings again and again, each time at little more than what is new.
#[derive(Debug)]
pub struct Lookout {
    variable: String,
    known: FxHashMap<(u32, u64), Known>,
}

#[derive(Debug)]
struct Known {
    /// A process becomes another program when it starts one, and keeps its number.
    command: String,
    path: Option<PathBuf>,
    since: Instant,
    looked: Instant,
}

impl Known {
    /// Whether another look would hardly tell anything new.
    fn is_fresh(&self, seen: &Seen) -> bool {
        let wait = self.looked.duration_since(self.since).clamp(AGAIN, AGAIN_AT_LAST);
        self.command == seen.command && (self.path.is_some() || self.looked.elapsed() < wait)
    }
}

impl Lookout {
    /// Looks for processes in whose environment `variable` names a recording.
    #[must_use]
    pub fn new(variable: &str) -> Lookout {
        Lookout { variable: variable.to_owned(), known: FxHashMap::default() }
    }

    /// The recordings of these processes, in the order of their paths.
    pub fn look(&mut self, processes: &[Seen]) -> Vec<RunningRecording> {
        let mut known = std::mem::take(&mut self.known);
        let mut found: Vec<RunningRecording> = Vec::new();
        for seen in processes {
            let key = (seen.pid, seen.start);
            let before = known.remove(&key);
            let now = Instant::now();
            let is_same = |known: &&Known| known.command == seen.command;
            let since = before.as_ref().filter(is_same).map_or(now, |known| known.since);
            let entry = before.filter(|known| known.is_fresh(seen)).unwrap_or_else(|| Known {
                command: seen.command.clone(),
                path: self.recording_of(seen.pid),
                since,
                looked: now,
            });
            if let Some(path) = &entry.path {
                match found.iter_mut().find(|found| found.path == *path) {
                    Some(found) => found.pids.push(seen.pid),
                    None => found.push(RunningRecording { path: path.clone(), pids: vec![seen.pid] }),
                }
            }
            self.known.insert(key, entry);
        }
        found.sort_by(|a, b| a.path.cmp(&b.path));
        found
    }

    fn recording_of(&self, pid: u32) -> Option<PathBuf> {
        let told = procfs::variable(pid, &self.variable).map(PathBuf::from);
        told.filter(|path| path.is_absolute()).and_then(|path| seen_here(pid, &path)).or_else(|| opened(pid))
    }
}

/// A folder of a process, as it is to be reached from here.
fn seen_here(pid: u32, path: &Path) -> Option<PathBuf> {
    let inside = || procfs::root(pid).join(path.strip_prefix("/").unwrap_or(path));
    [path.to_owned(), inside()].into_iter().find(|path| is_recording(path))
}

/// The recording whose marks or samples a process holds open.
fn opened(pid: u32) -> Option<PathBuf> {
    let is_ours = |path: &PathBuf| {
        path.file_name().and_then(|name| Part::of_name(name.to_str()?)).is_some_and(|(_, id)| {
            // A program that only reads a recording does not belong to its job.
            id.pid() == pid || procfs::pids_of(pid).contains(&id.pid())
        })
    };
    let path = procfs::open_files(pid).into_iter().find(is_ours)?;
    seen_here(pid, path.parent()?)
}

/// Whether a recording is still being written. Serialises as its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(into = "&'static str")]
pub enum State {
    /// A process writes it.
    Running,
    /// The job has ended so.
    Ended(Exit),
    /// All its processes have ended, and the exit was not recorded.
    Gone,
    /// Its processes are on another machine.
    Elsewhere,
}

written_as!(State ["running", "ended", "gone", "elsewhere"]);

impl State {
    /// One word.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            State::Running => "running",
            State::Ended(_) => "ended",
            State::Gone => "gone",
            State::Elsewhere => "elsewhere",
        }
    }

    /// How the job ended, where that is known.
    #[must_use]
    pub fn exit(self) -> Option<Exit> {
        match self {
            State::Ended(exit) => Some(exit),
            State::Running | State::Gone | State::Elsewhere => None,
        }
    }
}

impl From<State> for &'static str {
    fn from(state: State) -> &'static str {
        state.word()
    }
}

/// Finds out, of a recording with these launchers and processes; `pids` are those that were found to write it.
#[must_use]
pub fn state<'a>(
    manifests: impl IntoIterator<Item = &'a RunManifest>,
    ids: impl IntoIterator<Item = &'a ProcessId>,
    pids: &[u32],
) -> State {
    let (ended, open): (Vec<_>, Vec<_>) = manifests.into_iter().partition(|manifest| manifest.exit.is_some());
    let mut exits = ended.iter().filter_map(|manifest| manifest.exit);
    if open.is_empty()
        && let Some(first) = exits.next()
    {
        // Of a job with several launchers that which failed tells more.
        let failed = exits.find(|exit| *exit != Exit::Code(0));
        return State::Ended(failed.filter(|_| first == Exit::Code(0)).unwrap_or(first));
    }
    if !pids.is_empty() {
        return State::Running;
    }
    let own = ProcessId::new(&host_name(), 0, 0);
    let mut is_here = false;
    for id in ids {
        is_here |= id.host() == own.host();
        if id.host() == own.host() && procfs::process(id.pid()).is_some_and(|seen| seen.start == id.start()) {
            return State::Running;
        }
    }
    // Before the first process of the job has written anything, the launcher is all there is.
    let mut is_elsewhere = false;
    for manifest in open {
        if ProcessId::new(&manifest.host, 0, 0) != own {
            is_elsewhere = true;
            continue;
        }
        is_here = true;
        if procfs::process(manifest.parent_pid).is_some_and(|seen| seen.command.starts_with("vramline")) {
            return State::Running;
        }
    }
    if is_here && !is_elsewhere { State::Gone } else { State::Elsewhere }
}
