//! Reads the driver, the kernel and the recordings of running jobs repeatedly, for `vramline top` and `vramline exporter`.
//!
//! A separate thread calls the driver. If the driver hangs, its last answer stays, with its age, and everything else continues. A
//! recording is read on from the last position, so an update costs only what is new.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use vramline::analysis::doctor::DeviceLook;
use vramline::analysis::redaction::Redaction;
use vramline::analysis::top::{
    DeviceHistory, DriverSight, LiveJob, MachineSight, SeenProcess, TopAnalysis, top,
};
use vramline::recording::folder::{self, ProcessId};
use vramline::recording::live::Live;
use vramline::recording::manifest::RunManifest;
use vramline::recording::reader::is_recording;
use vramline::recording::rows::Moment;
use vramline::recording::running::{self, State};
use vramline::source::driver::DriverError;
use vramline::source::driver::probe::Probe;
use vramline::source::procfs;
use vramline::units::{Bytes, Nanos};
use vramline::view::top::Top;
use vramline::warning::Warning;

use crate::bug;
use crate::launch::driver;
use crate::variables::RECORD;

/// Longest wait of the first update for the driver.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time between two searches of processes and folders for recordings.
const SEARCH: Duration = Duration::from_secs(2);
/// Pause after a call to the driver, as a multiple of the duration of the call.
const DISTANCE: u32 = 20;
/// Shortest time between two requests for the list of processes.
const SLOW_LANE: Duration = Duration::from_secs(1);
/// Time after which a driver whose devices all fail is opened again. It may have been updated or reset.
const REOPEN: Duration = Duration::from_secs(60);
/// Number of bytes that one update reads from a recording at most.
const MAX_BYTES_PER_LOOK: u64 = 64 << 20;
/// Longest wait for an answer of the driver that was asked for now.
const PATIENCE_ON_DEMAND: Duration = Duration::from_secs(2);
/// Time that an ended job stays on the screen.
const AFTERGLOW: Duration = Duration::from_secs(60);
/// A recording of another machine counts as running if it was written to within this time.
const LATELY: Duration = Duration::from_secs(60);

/// The state of the machine at one time.
#[derive(Clone, Debug)]
pub(crate) struct Look {
    pub(crate) now: Moment,
    pub(crate) document: Top,
    pub(crate) history: DeviceHistory,
}

/// Collects the state of the machine.
pub(crate) struct Lookout {
    /// Recordings given by the user. They are always shown.
    named: Vec<PathBuf>,
    /// Folders that may contain recordings of running jobs.
    folders: Vec<PathBuf>,
    processes: running::Lookout,
    followed: BTreeMap<PathBuf, Followed>,
    /// Recordings in these folders whose job has ended.
    passed: BTreeSet<PathBuf>,
    searched: Option<Instant>,
    commands: BTreeMap<u32, String>,
    driver: Arc<Answers>,
    pace: Pace,
    /// Time that an ended job is kept.
    afterglow: Duration,
    history: DeviceHistory,
    /// Replaces private text.
    redaction: Option<Redaction>,
}

struct Followed {
    live: Live,
    job: LiveJob,
    /// The processes that write it.
    pids: Vec<u32>,
    is_named: bool,
    /// Whether all that was written before has been read.
    is_read: bool,
    ended: Option<Instant>,
    failed: Option<Warning>,
}

/// When the driver is called.
#[derive(Clone, Copy, Debug)]
enum Pace {
    /// All the time, after this pause.
    Every(Duration),
    /// Once for each update. An update waits for it, but not forever.
    OnDemand,
}

/// The newest answer of the driver.
#[derive(Default)]
struct Answers {
    newest: Mutex<Newest>,
    changed: Condvar,
}

#[derive(Default)]
struct Newest {
    answer: Option<(Instant, Result<DriverSight, DriverError>)>,
    /// Whether an update waits for a newer one.
    is_wanted: bool,
}

impl Lookout {
    /// Starts to call the driver, `rate` times a second.
    pub(crate) fn new(paths: &[PathBuf], rate: f64, redaction: Option<Redaction>) -> Lookout {
        let pace = Duration::try_from_secs_f64(1.0 / rate).unwrap_or(SLOW_LANE);
        Lookout::at_pace(paths, Pace::Every(pace), AFTERGLOW, redaction)
    }

    /// Calls the driver for each update only, so that nothing is done while nobody asks. Keeps ended jobs for `afterglow`.
    pub(crate) fn on_demand(paths: &[PathBuf], afterglow: Duration, redaction: Option<Redaction>) -> Lookout {
        Lookout::at_pace(paths, Pace::OnDemand, afterglow, redaction)
    }

    fn at_pace(paths: &[PathBuf], pace: Pace, afterglow: Duration, redaction: Option<Redaction>) -> Lookout {
        let driver = Arc::new(Answers::default());
        let answers = Arc::clone(&driver);
        // If the driver hangs, the thread is abandoned.
        bug::detach(move || ask(&answers, pace));
        let (named, mut folders): (Vec<PathBuf>, Vec<PathBuf>) =
            paths.iter().cloned().partition(|path| is_recording(path));
        if paths.is_empty() {
            folders.push(PathBuf::from("."));
        }
        Lookout {
            named,
            folders,
            processes: running::Lookout::new(RECORD),
            followed: BTreeMap::new(),
            passed: BTreeSet::new(),
            searched: None,
            commands: BTreeMap::new(),
            driver,
            pace,
            afterglow,
            history: DeviceHistory::default(),
            redaction,
        }
    }

    /// Makes one update. With `is_all`, reads the recordings to their end, however long that takes.
    pub(crate) fn look(&mut self, is_all: bool) -> Look {
        let analysis = self.analysis(is_all);
        Look { now: analysis.now, document: Top::from(&analysis), history: self.history.clone() }
    }

    /// The same as facts.
    pub(crate) fn analysis(&mut self, is_all: bool) -> TopAnalysis {
        if self.searched.is_none_or(|searched| searched.elapsed() >= SEARCH) {
            self.search();
            self.searched = Some(Instant::now());
        }
        let driver = self.asked();
        for followed in self.followed.values_mut() {
            followed.read(is_all);
        }
        let afterglow = self.afterglow;
        let is_in_sight = |followed: &Followed| {
            let is_there = followed.failed.is_none() || followed.live.path().exists();
            followed.is_named || (is_there && followed.ended.is_none_or(|ended| ended.elapsed() < afterglow))
        };
        self.followed.retain(|_, followed| is_in_sight(followed));
        let mut jobs = Vec::new();
        let mut keys = Vec::new();
        for (path, followed) in &mut self.followed {
            jobs.push(std::mem::replace(&mut followed.job, LiveJob::new(PathBuf::new())));
            keys.push(path.clone());
        }
        let now = Moment::now();
        let sight = MachineSight {
            now,
            host: folder::host_name(),
            memory: procfs::host_memory(),
            seen: self.seen(&driver, &jobs),
            driver,
            jobs: &jobs,
        };
        let mut analysis = top(&sight);
        self.history.take(now, &analysis, &jobs);
        if let Some(redaction) = &mut self.redaction {
            redaction.top(&mut analysis);
        }
        for (path, job) in keys.iter().zip(jobs) {
            if let Some(followed) = self.followed.get_mut(path) {
                followed.job = job;
            }
        }
        analysis
    }

    fn asked(&self) -> Result<DriverSight, DriverError> {
        let mut newest = self.driver.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let mut patience = PATIENCE;
        if matches!(self.pace, Pace::OnDemand) {
            newest.is_wanted = true;
            self.driver.changed.notify_all();
            if newest.answer.is_some() {
                patience = PATIENCE_ON_DEMAND;
            }
        }
        let (newest, _) = self
            .driver
            .changed
            .wait_timeout_while(newest, patience, |newest| newest.is_wanted || newest.answer.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        match &newest.answer {
            None => Err(DriverError::Failed {
                detail: "it does not answer; look for Xid errors in the kernel log (dmesg)".to_owned(),
            }),
            Some((_, Err(error))) => Err(error.clone()),
            Some((at, Ok(sight))) => {
                let age = i64::try_from(at.elapsed().as_nanos()).unwrap_or(i64::MAX);
                Ok(DriverSight { age_ns: Nanos(age), ..sight.clone() })
            }
        }
    }

    /// Searches for new recordings, and for the processes that write the known ones.
    fn search(&mut self) {
        let all = procfs::processes();
        if !matches!(self.pace, Pace::OnDemand) {
            self.commands = all.iter().map(|seen| (seen.pid, seen.command.clone())).collect();
        }
        let found = self.processes.look(&all);
        for followed in self.followed.values_mut() {
            followed.pids.clear();
        }
        for found in found {
            if let Some(followed) = self.follow(&found.path, false) {
                followed.pids = found.pids;
            }
        }
        for path in self.named.clone() {
            self.follow(&path, true);
        }
        for folder in self.folders.clone() {
            let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten();
            let is_ours = |path: &PathBuf| path.to_string_lossy().ends_with(folder::SUFFIX);
            for path in entries.map(|entry| entry.path()).filter(is_ours) {
                if !self.passed.contains(&path) && is_recording(&path) {
                    // A job may begin and end between two updates on demand.
                    let is_recent =
                        matches!(self.pace, Pace::OnDemand) && has_ended_within(&path, self.afterglow);
                    if is_recent || is_written(&path) {
                        self.follow(&path, false);
                    } else {
                        self.passed.insert(path);
                    }
                }
            }
        }
    }

    fn follow(&mut self, path: &Path, is_named: bool) -> Option<&mut Followed> {
        // Several paths can lead to the same folder.
        let path = path.canonicalize().ok()?;
        let new = || Followed {
            live: Live::new(&path),
            job: LiveJob::new(path.clone()),
            pids: Vec::new(),
            is_named: false,
            is_read: false,
            ended: None,
            failed: None,
        };
        let followed = self.followed.entry(path.clone()).or_insert_with(new);
        followed.is_named |= is_named;
        Some(followed)
    }

    /// What the kernel reports about the shown processes; for figures on demand, nothing about those that are not recorded.
    fn seen(
        &self,
        driver: &Result<DriverSight, DriverError>,
        jobs: &[LiveJob],
    ) -> BTreeMap<u32, SeenProcess> {
        let is_lean = matches!(self.pace, Pace::OnDemand);
        let devices = driver.iter().filter(|_| !is_lean).flat_map(|driver| &driver.devices);
        let listed = devices.flat_map(|device| device.seen_here.iter().copied());
        let command = |pid: u32| {
            if is_lean {
                return String::new();
            }
            let words = procfs::command_line(pid);
            if words.is_empty() {
                self.commands.get(&pid).cloned().unwrap_or_default()
            } else {
                words.join(" ")
            }
        };
        let mut seen: BTreeMap<u32, SeenProcess> = BTreeMap::new();
        for pid in listed {
            seen.entry(pid).or_insert_with(|| SeenProcess { command: command(pid), resident: None });
        }
        for pid in jobs.iter().flat_map(|job| job.pids.iter().map(|(pid, _)| *pid)) {
            let resident = procfs::resident(pid).filter(|resident| *resident > Bytes::ZERO);
            seen.insert(pid, SeenProcess { command: command(pid), resident });
        }
        seen
    }
}

impl Followed {
    fn read(&mut self, is_all: bool) {
        self.job.reads_at = self.is_read.then(|| Moment::now().monotonic);
        while self.failed.is_none() {
            let job = &mut self.job;
            match self.live.look(MAX_BYTES_PER_LOOK, &mut |news| job.take(news)) {
                Ok(true) if is_all => {}
                Ok(has_more) => {
                    self.is_read |= !has_more;
                    break;
                }
                Err(error) => {
                    let hint = error.hint().to_owned();
                    self.failed = Some(Warning { code: "unreadable", text: error.to_string(), hint });
                }
            }
        }
        self.job.warnings = self.live.warnings.as_slice().iter().chain(&self.failed).cloned().collect();
        let own = ProcessId::new(&folder::host_name(), 0, 0);
        let ids: Vec<ProcessId> = self.job.ids().cloned().collect();
        let is_there = |id: &&ProcessId| {
            id.host() == own.host() && procfs::process(id.pid()).is_some_and(|seen| seen.start == id.start())
        };
        let mut pids: Vec<u32> = ids.iter().filter(is_there).map(ProcessId::pid).collect();
        pids.extend(self.pids.iter().copied().filter(|&pid| procfs::process(pid).is_some()));
        pids.sort_unstable();
        pids.dedup();
        self.job.state = running::state(self.job.manifests(), &ids, &pids);
        self.job.pids = pids.into_iter().map(|pid| (pid, procfs::pids_of(pid))).collect();
        match self.job.state {
            State::Running | State::Elsewhere => self.ended = None,
            State::Ended(_) | State::Gone => {
                self.ended.get_or_insert_with(Instant::now);
            }
        }
    }
}

/// Whether the job of a recording is running.
fn is_written(path: &Path) -> bool {
    let manifests = RunManifest::read_all(path);
    let parts = folder::parts(path).unwrap_or_default();
    let ids: Vec<&ProcessId> = parts.iter().map(|(_, id)| id).collect();
    match running::state(&manifests, ids, &[]) {
        State::Running => true,
        State::Elsewhere => parts.iter().any(|(part, id)| {
            let written = std::fs::metadata(path.join(part.name(id))).and_then(|found| found.modified());
            written.is_ok_and(|time| SystemTime::now().duration_since(time).is_ok_and(|age| age < LATELY))
        }),
        State::Ended(_) | State::Gone => false,
    }
}

/// Whether the job of a recording has ended, and not long ago.
fn has_ended_within(path: &Path, time: Duration) -> bool {
    let manifest = RunManifest::read(path).ok();
    let end = manifest.and_then(|manifest| Some(manifest.clocks.end?.realtime_ns));
    end.is_some_and(|end| {
        Moment::now().wall.saturating_sub(end.0) < i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
    })
}

/// Calls the driver forever.
fn ask(answers: &Answers, pace: Pace) {
    let tell = |answer: Result<DriverSight, DriverError>| {
        let mut newest = answers.newest.lock().unwrap_or_else(PoisonError::into_inner);
        (newest.answer, newest.is_wanted) = (Some((Instant::now(), answer)), false);
        answers.changed.notify_all();
    };
    let rest = |took: Duration| match pace {
        Pace::Every(pause) => std::thread::sleep(pause.max(took * DISTANCE)),
        Pace::OnDemand => {
            let newest = answers.newest.lock().unwrap_or_else(PoisonError::into_inner);
            drop(answers.changed.wait_while(newest, |newest| !newest.is_wanted));
        }
    };
    loop {
        match Probe::open(driver::open) {
            Ok(mut probe) => follow_driver(&mut probe, pace, &tell, &rest),
            Err(error) => {
                tell(Err(error));
                // `top` has said so, and is short-lived.
                if matches!(pace, Pace::Every(_)) {
                    return;
                }
                rest(Duration::ZERO);
            }
        }
    }
}

/// Calls an open driver, until it should be opened again because none of its devices answers any more.
fn follow_driver(
    probe: &mut Probe,
    pace: Pace,
    tell: &impl Fn(Result<DriverSight, DriverError>),
    rest: &impl Fn(Duration),
) {
    let opened = Instant::now();
    let facts = probe.devices().to_vec();
    let mut lists: Vec<Result<Vec<_>, DriverError>> = Vec::new();
    let mut next_list = Instant::now();
    loop {
        let begin = Instant::now();
        let memory: Vec<_> = (0..facts.len()).map(|at| probe.memory(at)).collect();
        let took = begin.elapsed();
        if next_list <= begin {
            let begin = Instant::now();
            lists = (0..facts.len()).map(|at| probe.processes(at)).collect();
            let pause = if let Pace::Every(pause) = pace { pause } else { Duration::ZERO };
            next_list = begin + SLOW_LANE.max(begin.elapsed() * DISTANCE).max(pause);
        }
        let look = |((facts, memory), processes): ((&_, _), &Result<Vec<_>, DriverError>)| {
            let pids = processes
                .iter()
                .flatten()
                .map(|process: &vramline::source::driver::DeviceProcess| process.pid);
            let seen_here = pids.filter(|&pid| procfs::process(pid).is_some()).collect();
            DeviceLook { facts: Clone::clone(facts), memory, processes: processes.clone(), seen_here }
        };
        let is_lost = !memory.is_empty() && memory.iter().all(Result::is_err);
        let devices = facts.iter().zip(memory).zip(&lists).map(look).collect();
        tell(Ok(DriverSight { library: probe.library().clone(), devices, age_ns: Nanos(0) }));
        rest(took);
        if is_lost && matches!(pace, Pace::OnDemand) && opened.elapsed() > REOPEN {
            return;
        }
    }
}
