//! The served path: reads it, and reads it again while a run is recorded.
//!
//! A running job is read again after ten times the duration of the last read, but at most once a second. Lengths and times of files do not
//! show a change, because steps are written into space that the file already has. Nothing is read while no page is open.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use serde_json::{Value, json};
use vramline::analysis::picture::bounds::PAGE_PEAK_ROWS;
use vramline::analysis::picture::tiles::PictureTiles;
use vramline::analysis::report::{ReportOptions, report};
use vramline::recording::folder::{ProcessId, host_name};
use vramline::recording::reader::Recorded;
use vramline::view::page::payload;

use super::patch::patch;
use crate::exit::Failure;
use crate::input::Input;
use crate::printer;

const LEAST_WAIT: Duration = Duration::from_secs(1);
/// Pause between two reads, as a multiple of the duration of a read.
const SHARE: u32 = 9;
/// A job on another host counts as running if its folder changed within this time.
const LATELY: Duration = Duration::from_secs(30);
/// Longest patch that is sent. Beyond that, the page loads everything.
const LONGEST_PATCH: usize = 4 << 20;

/// The state of the served path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Complete; nothing more will be written.
    Whole,
    /// The job is running.
    Going,
    /// The job was running when it was first read, and has ended.
    Ended,
    /// The path no longer exists.
    Gone,
}

impl Standing {
    pub(super) fn word(self) -> &'static str {
        match self {
            Standing::Whole => "whole",
            Standing::Going => "going",
            Standing::Ended => "ended",
            Standing::Gone => "gone",
        }
    }
}

/// One version of the page.
pub(super) struct Shown {
    pub(super) version: u64,
    pub(super) verdict: Vec<String>,
    pub(super) data: String,
    pub(super) tiles: PictureTiles,
    /// The processes that write it, if it is a recording.
    writers: Option<Writers>,
}

pub(super) struct Now {
    pub(super) shown: Arc<Shown>,
    pub(super) standing: Standing,
    /// The patch from the previous version to this one.
    pub(super) patch: Option<Arc<str>>,
    seen: PathState,
    /// A changed state of the files that was seen once. They are read when it stays the same.
    unsettled: Option<PathState>,
    read_at: Instant,
    wait: Duration,
    /// Number of open pages.
    pub(super) watchers: usize,
}

pub(super) struct Subject {
    path: PathBuf,
    /// The path as pages show it.
    pub(super) shown_path: PathBuf,
    now: Mutex<Now>,
    changed: Condvar,
    /// Reads the path, one read at a time.
    input: Mutex<Input>,
}

impl Subject {
    pub(super) fn open(path: &Path, mut input: Input) -> Result<Subject, Failure> {
        let seen = PathState::of(path);
        let began = Instant::now();
        let shown = read(&mut input, path, 1)?;
        let standing = if goes_on(&shown, &seen) { Standing::Going } else { Standing::Whole };
        let now = Now {
            shown: Arc::new(shown),
            standing,
            patch: None,
            seen,
            unsettled: None,
            read_at: Instant::now(),
            wait: wait_after(began),
            watchers: 0,
        };
        Ok(Subject {
            path: path.to_owned(),
            shown_path: input.shown(path),
            now: Mutex::new(now),
            changed: Condvar::new(),
            input: Mutex::new(input.quiet()),
        })
    }

    pub(super) fn now(&self) -> MutexGuard<'_, Now> {
        self.now.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until version or standing changes, or until the time is over.
    pub(super) fn wait(&self, version: u64, standing: Standing, most: Duration) -> MutexGuard<'_, Now> {
        let is_same = |now: &mut Now| now.shown.version == version && now.standing == standing;
        let waited = self.changed.wait_timeout_while(self.now(), most, is_same);
        waited.unwrap_or_else(PoisonError::into_inner).0
    }

    /// Reads again once a second while a page is open.
    pub(super) fn watch(&self) {
        loop {
            std::thread::sleep(LEAST_WAIT);
            if self.now().watchers > 0 {
                self.freshen();
            }
        }
    }

    /// Reads again, if there may be something new and the pause is over.
    pub(super) fn freshen(&self) {
        let Ok(mut input) = self.input.try_lock() else { return };
        let is_there = self.path.exists();
        let (shown, standing, was, is_due) = {
            let mut now = self.now();
            let is_back = is_there && now.standing == Standing::Gone;
            if !is_there && now.standing != Standing::Gone {
                now.standing = Standing::Gone;
                self.changed.notify_all();
            }
            let is_due = now.read_at.elapsed() >= now.wait || is_back;
            (Arc::clone(&now.shown), now.standing, now.seen, is_due && is_there)
        };
        if !is_due {
            return;
        }
        let seen = PathState::of(&self.path);
        if standing != Standing::Going {
            let mut now = self.now();
            let is_settled = now.unsettled == Some(seen);
            // The files may be half copied or half deleted: wait until they stay the same.
            now.unsettled = Some(seen).filter(|_| seen != was || standing == Standing::Gone);
            if now.unsettled.is_none() || !is_settled {
                now.read_at = Instant::now();
                return;
            }
        }
        let began = Instant::now();
        // An error may be temporary, while files are copied or deleted.
        let fresh = read(&mut input, &self.path, shown.version + 1)
            .ok()
            .filter(|fresh| standing != Standing::Going || self.path.exists() && !has_lost(&shown, fresh));
        let changed = fresh.filter(|fresh| fresh.data != shown.data || fresh.verdict != shown.verdict);
        let patch = changed.as_ref().and_then(|fresh| patch_of(&shown, fresh));
        let mut now = self.now();
        (now.read_at, now.wait, now.seen) = (Instant::now(), wait_after(began), seen);
        let latest = changed.map_or(shown, Arc::new);
        let is_going = goes_on(&latest, &seen);
        let after = match standing {
            _ if is_going => Standing::Going,
            Standing::Going | Standing::Ended => Standing::Ended,
            Standing::Whole | Standing::Gone => Standing::Whole,
        };
        if latest.version != now.shown.version || after != now.standing {
            (now.shown, now.patch, now.standing) = (latest, patch, after);
            self.changed.notify_all();
        }
    }
}

/// Whether a recording has less content than before. Recordings only grow, so it is being deleted.
fn has_lost(old: &Shown, new: &Shown) -> bool {
    let count = |shown: &Shown| {
        let reading = shown.tiles.reading();
        (
            reading.hosts.len() + reading.later.len(),
            reading.recorded.as_ref().map_or(0, |recorded| recorded.processes.len()),
        )
    };
    let ((old_hosts, old_processes), (hosts, processes)) = (count(old), count(new));
    hosts < old_hosts || processes < old_processes
}

fn wait_after(began: Instant) -> Duration {
    LEAST_WAIT.max(began.elapsed() * SHARE)
}

fn read(input: &mut Input, path: &Path, version: u64) -> Result<Shown, Failure> {
    let mut reading = input.read_with_failures(path)?;
    // Before redacting, because the names of hosts are private.
    let writers = reading.recorded.as_ref().map(Writers::of);
    input.redact(&mut reading);
    let options = ReportOptions { top: Some(PAGE_PEAK_ROWS), ..ReportOptions::default() };
    let _line = input.progress("analysing");
    let mut report = report(&reading, &options);
    let verdict = printer::report::verdict_lines(&report.clone().into());
    let data = payload(&reading, &mut report);
    Ok(Shown { version, verdict, data, tiles: PictureTiles::new(reading, report), writers })
}

fn patch_of(old: &Shown, new: &Shown) -> Option<Arc<str>> {
    let of = |shown: &Shown| {
        let data: Option<Value> = serde_json::from_str(&shown.data).ok();
        json!({ "verdict": shown.verdict, "data": data })
    };
    let text = patch(&of(old), &of(new))?.to_string();
    (text.len() <= LONGEST_PATCH).then(|| text.into())
}

/// The processes that write a recording.
struct Writers {
    is_ended: bool,
    /// The host and the process ID of each launcher that has not ended.
    launchers: Vec<(String, u32)>,
    processes: Vec<ProcessId>,
}

impl Writers {
    fn of(recorded: &Recorded) -> Writers {
        let going = recorded.runs().filter_map(|run| run.manifest).filter(|manifest| manifest.exit.is_none());
        Writers {
            is_ended: recorded.has_ended(),
            launchers: going.map(|manifest| (manifest.host.clone(), manifest.parent_pid)).collect(),
            processes: recorded.processes.iter().map(|process| process.id.clone()).collect(),
        }
    }
}

/// Whether the job of a recording is running.
fn goes_on(shown: &Shown, seen: &PathState) -> bool {
    let Some(writers) = shown.writers.as_ref().filter(|writers| !writers.is_ended) else { return false };
    let is_alive = |id: &ProcessId| ProcessId::of_running(id.pid()).is_ok_and(|now| now == *id);
    let here = host_name();
    let own = ProcessId::new(&here, 0, 0);
    let launchers = &writers.launchers;
    let is_elsewhere = launchers.iter().any(|(host, _)| *host != here)
        || writers.processes.iter().any(|id| id.host() != own.host());
    writers.processes.iter().any(is_alive)
        || launchers.iter().any(|(host, pid)| *host == here && is_launcher(*pid))
        || is_elsewhere && seen.age().is_some_and(|age| age < LATELY)
}

/// Whether the process is a launcher. Process IDs are reused, so its name is checked.
fn is_launcher(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "vramline")
}

/// A fingerprint of the files of a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PathState {
    sum: u64,
    newest: Option<SystemTime>,
}

impl PathState {
    /// Combines names, lengths and times of the files, up to a number of files and a depth.
    fn of(path: &Path) -> PathState {
        const MAX_FILES: usize = 4096;
        const DEEPEST: usize = 6;
        let mut seen = PathState { sum: 0, newest: None };
        let mut left = vec![(path.to_owned(), 0)];
        let mut count = 0;
        while let Some((path, depth)) = left.pop() {
            count += 1;
            let Ok(facts) = std::fs::metadata(&path) else { continue };
            let time = facts.modified().ok();
            let mut sum = DefaultHasher::new();
            (&path, facts.len(), time).hash(&mut sum);
            // A sum, because folders list their files in any order.
            seen.sum = seen.sum.wrapping_add(sum.finish());
            seen.newest = seen.newest.max(time);
            if facts.is_dir() && depth < DEEPEST && count < MAX_FILES {
                let below = std::fs::read_dir(&path).into_iter().flatten().flatten();
                left.extend(below.take(MAX_FILES - count).map(|entry| (entry.path(), depth + 1)));
            }
        }
        seen
    }

    fn age(&self) -> Option<Duration> {
        SystemTime::now().duration_since(self.newest?).ok()
    }
}
