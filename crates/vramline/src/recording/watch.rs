//! What the driver and the kernel say while a job runs, written down from outside of it.
//!
//! A thread of the parent asks, in two lanes: devices' memory at the pace that was asked for, lists of processes once a second
//! and soon after a device's figures have moved. It keeps its distance from a driver that is slow: whatever a call takes, it is
//! not repeated before a hundred times that. A row is written when its figures have changed; rows go to the disk once a second.
//! Where there is no driver the machine's own memory stands in for a device, at the same pace, and the resident sets of
//! the job's processes for what they hold there; where there is one, these are noted in the slow lane.
//!
//! The job is never waited for and never waits: what fails is a word in a row, and a thread that hangs in the driver is left behind.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use super::folder::{self, Part, ProcessId, RunPlace};
use super::load::facts;
use super::manifest::{Device, DriverRun};
use super::rows::{DriverRow, HOST, Moment, Subject};
use super::schema::DRIVER;
use super::stream::{Appender, Cell};
use crate::source::driver::probe::{Cost, Probe};
use crate::source::driver::{DeviceFacts, DeviceMemory, DeviceProcess, Driver, DriverError};
use crate::source::procfs::{self, HostMemory, Namespace, Seen, Standing};
use crate::units::Bytes;

/// How often lists of processes are read.
const SLOW_LANE: Duration = Duration::from_secs(1);
/// When figures have moved, not before this.
const SOON: Duration = Duration::from_millis(100);
/// A call is not repeated before this many times what it took, twice in a row: a single slow one waited for the driver, which makes
/// a context for the job, and that is when there is something to see.
const DISTANCE: u32 = 100;
/// The machine's free memory moves all the time; less than this is not noted.
const HOST_STEP: u64 = 1 << 20;
/// More rows than this wait for no second.
const MOST_ROWS: usize = 4096;

/// What was found out about the driver.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DriverFacts {
    /// The devices, with their figures when the run began.
    pub devices: Vec<Device>,
    /// The source of the figures, and what reading them has cost so far.
    pub run: DriverRun,
}

/// A thread that watches until it is stopped.
#[derive(Debug)]
pub struct Watch {
    stop: Sender<()>,
    done: Receiver<DriverFacts>,
}

impl Watch {
    /// Watches the job whose first process is `job`, writing the stream of `place`. `open` is called in the thread, because loading a
    /// library takes its time; `begun` too, when the devices are known. `pace` is that of the fast lane; without one,
    /// devices are looked at once. `None` where the system gives no thread.
    pub fn start(
        place: &RunPlace,
        job: u32,
        pace: Option<Duration>,
        open: impl FnOnce() -> Result<Box<dyn Driver>, DriverError> + Send + 'static,
        begun: impl FnOnce(&DriverFacts) + Send + 'static,
    ) -> Option<Watch> {
        let place = place.clone();
        let (stop, stopped) = channel();
        let (end, done) = channel();
        let watch = move || {
            let mut watcher = Watcher::new(place, job, open);
            watcher.begin();
            begun(&watcher.found);
            if let Some(pace) = pace {
                watcher.go_on(pace, &stopped);
            }
            // Nobody may be waiting any more.
            let _ = end.send(watcher.finish());
        };
        std::thread::Builder::new().name("vramline-driver".into()).spawn(watch).ok()?;
        Some(Watch { stop, done })
    }

    /// Ends the watch after a last look. `None` where the thread does not answer within `patience`: it is left behind.
    #[must_use]
    pub fn stop(self, patience: Duration) -> Option<DriverFacts> {
        drop(self.stop);
        self.done.recv_timeout(patience).ok()
    }
}

/// A process on a device, as in its last row.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Noted {
    start: Option<u64>,
    command: Option<String>,
    is_job: Option<bool>,
    work: Option<&'static str>,
    used: Option<Bytes>,
    peak: Option<Bytes>,
}

/// Everything that the thread knows.
struct Watcher {
    place: RunPlace,
    probe: Option<Probe>,
    found: DriverFacts,
    appender: Option<Appender>,
    rows: Vec<DriverRow>,
    began: Instant,
    job: Job,
    /// By device of the probe: the last answer of the fast lane.
    memory: Vec<Option<Result<DeviceMemory, DriverError>>>,
    /// By device of the probe: why its list could not be read.
    list_errors: Vec<Option<DriverError>>,
    processes: BTreeMap<(String, u32), Noted>,
    host: Option<HostMemory>,
    host_cost: Cost,
}

impl Watcher {
    fn new(
        place: RunPlace,
        job: u32,
        open: impl FnOnce() -> Result<Box<dyn Driver>, DriverError>,
    ) -> Watcher {
        let mut found = DriverFacts::default();
        found.run.namespace = procfs::namespace();
        let probe = Probe::open(open).map_err(|error| found.run.error = Some(error)).ok();
        let devices = probe.as_ref().map_or(0, |probe| probe.devices().len());
        Watcher {
            place,
            probe,
            found,
            appender: None,
            rows: Vec::new(),
            began: Instant::now(),
            job: Job::new(job),
            memory: vec![None; devices],
            list_errors: vec![None; devices],
            processes: BTreeMap::new(),
            host: None,
            host_cost: Cost::default(),
        }
    }

    /// The first look: devices with their figures, and which sum of them holds.
    fn begin(&mut self) {
        self.look_at_devices();
        self.look_at_processes();
        if let Some(probe) = &self.probe {
            self.found.run.library = probe.library().clone();
            let told = probe.devices().iter().zip(&self.memory);
            self.found.devices = told.map(|(facts, memory)| device(facts, memory.as_ref())).collect();
        }
        self.count();
        self.flush();
    }

    fn go_on(&mut self, pace: Duration, stopped: &Receiver<()>) {
        let now = Instant::now();
        let (mut fast, mut slow, mut flush) = (now + pace, now + SLOW_LANE, now + SLOW_LANE);
        let (mut fast_took, mut slow_took) = (Duration::ZERO, Duration::ZERO);
        loop {
            let wait = fast.min(slow).saturating_duration_since(Instant::now());
            if stopped.recv_timeout(wait) != Err(RecvTimeoutError::Timeout) {
                return;
            }
            let begin = Instant::now();
            if fast <= begin {
                let has_moved = self.look_at_devices();
                let took = begin.elapsed();
                fast = (fast + pace).max(begin + took.min(fast_took) * DISTANCE);
                fast_took = took;
                // A machine that slept, or a pace that cannot be kept, is not made up for.
                fast = fast.max(Instant::now());
                if has_moved && self.probe.is_some() {
                    slow = slow.min(begin + SOON);
                }
            }
            let begin = Instant::now();
            if slow <= begin {
                self.look_at_processes();
                let took = begin.elapsed();
                slow = begin + SLOW_LANE.max(took.min(slow_took) * DISTANCE);
                slow_took = took;
            }
            if flush <= begin || self.rows.len() > MOST_ROWS {
                self.flush();
                flush = begin + SLOW_LANE;
            }
        }
    }

    fn finish(mut self) -> DriverFacts {
        self.look_at_devices();
        self.look_at_processes();
        self.count();
        self.flush();
        if let Some(appender) = &mut self.appender {
            appender.close();
        }
        self.found
    }

    fn count(&mut self) {
        let run = &mut self.found.run;
        run.costs = self.probe.as_ref().map(Probe::costs).unwrap_or_default();
        run.host = self.host_cost;
        run.watched_ns = u64::try_from(self.began.elapsed().as_nanos()).unwrap_or(u64::MAX);
    }

    /// The fast lane. Says whether a device's figures have moved.
    fn look_at_devices(&mut self) -> bool {
        let Some(probe) = &mut self.probe else {
            return self.look_at_host(true);
        };
        let mut has_moved = false;
        for (number, last) in self.memory.iter_mut().enumerate() {
            let answer = probe.memory(number);
            let Some(facts) = probe.devices().get(number) else { continue };
            if last.as_ref() != Some(&answer) {
                self.rows.push(device_row(facts, &answer));
                *last = Some(answer);
                has_moved = true;
            }
        }
        if self.memory.is_empty() {
            self.look_at_host(true);
        }
        has_moved
    }

    /// The slow lane.
    fn look_at_processes(&mut self) {
        let (job, place) = (&mut self.job, &self.place);
        let _: Result<(), ()> = self.host_cost.count(|| {
            job.refresh(place);
            Ok(())
        });
        self.look_at_host(self.memory.is_empty());
        let Some(mut probe) = self.probe.take() else { return };
        for number in 0..self.memory.len() {
            let Some(facts) = probe.devices().get(number).cloned() else { continue };
            match probe.processes(number) {
                Ok(listed) => self.note_list(&mut probe, number, &facts, &listed),
                Err(error) => self.note_no_list(number, &facts, error),
            }
        }
        self.probe = Some(probe);
    }

    fn note_list(&mut self, probe: &mut Probe, number: usize, facts: &DeviceFacts, listed: &[DeviceProcess]) {
        if let Some(known) = self.list_errors.get_mut(number) {
            *known = None;
        }
        let pids: Vec<u32> = listed.iter().map(|process| process.pid).collect();
        let standing = self.job.standing(&pids);
        // What was found once stays known: the last look is made when the job has gone.
        if !matches!(standing, Standing::Empty) && !self.found.run.standing.is_some_and(is_told) {
            self.found.run.standing = Some(standing);
        }
        let is_foreign = standing == Standing::OfAnotherNamespace;
        for process in listed {
            let (seen, is_job) = self.job.place(process.pid, is_foreign, &self.found.run.namespace);
            let peak = (facts.is_accounting == Some(true) && is_job != Some(false))
                .then(|| probe.accounted_peak(number, process.pid).ok())
                .flatten();
            let noted = Noted {
                start: seen.as_ref().map(|seen| seen.start),
                command: seen.map(|seen| seen.command),
                is_job,
                work: Some(process.work.word()),
                used: process.used,
                peak,
            };
            self.note(&facts.uuid, process.pid, noted);
        }
        self.note_gone(&facts.uuid, &pids.into_iter().collect());
    }

    /// A list that cannot be read is a row of its own, once.
    fn note_no_list(&mut self, number: usize, facts: &DeviceFacts, error: DriverError) {
        let Some(known) = self.list_errors.get_mut(number) else { return };
        if known.as_ref() == Some(&error) {
            return;
        }
        self.rows.push(DriverRow {
            time: Moment::now(),
            subject: Subject::Process,
            device: facts.uuid.clone(),
            reason: Some(error.code().to_owned()),
            ..DriverRow::default()
        });
        *known = Some(error);
    }

    /// The machine's memory, and what the job's processes hold of it. Says whether anything was noted.
    fn look_at_host(&mut self, is_device: bool) -> bool {
        let before = self.rows.len();
        let job: Vec<Seen> = self.job.members.values().cloned().collect();
        let read = self.host_cost.count(|| {
            let host = procfs::host_memory().ok_or(())?;
            let residents: Vec<_> = job.iter().map(|seen| procfs::resident(seen.pid)).collect();
            Ok::<_, ()>((host, residents))
        });
        let Ok((host, residents)) = read else { return false };
        let mut there = BTreeSet::new();
        for (seen, used) in job.into_iter().zip(residents).filter(|(_, used)| used.is_some()) {
            there.insert(seen.pid);
            let noted = Noted {
                start: Some(seen.start),
                command: Some(seen.command),
                is_job: Some(true),
                work: None,
                used,
                peak: None,
            };
            self.note(HOST, seen.pid, noted);
        }
        self.note_gone(HOST, &there);
        let has_moved = self.host.is_none_or(|last| {
            last.total != host.total || last.available.0.abs_diff(host.available.0) >= HOST_STEP
        });
        // Beside a change of the job's processes the machine's figures are those of the same moment.
        if has_moved || (is_device && self.rows.len() > before && self.host != Some(host)) {
            self.host = Some(host);
            self.rows.push(DriverRow {
                time: Moment::now(),
                subject: Subject::Device,
                device: HOST.to_owned(),
                total: Some(host.total),
                free: Some(host.available),
                ..DriverRow::default()
            });
        }
        self.rows.len() > before
    }

    fn note(&mut self, device: &str, pid: u32, noted: Noted) {
        let key = (device.to_owned(), pid);
        if self.processes.get(&key) == Some(&noted) {
            return;
        }
        self.rows.push(DriverRow {
            time: Moment::now(),
            subject: Subject::Process,
            device: device.to_owned(),
            pid: Some(pid),
            start: noted.start,
            command: noted.command.clone(),
            is_job: noted.is_job,
            work: noted.work.map(str::to_owned),
            used: noted.used,
            peak: noted.peak,
            reason: noted.used.is_none().then(|| DriverError::NotSupported.code().to_owned()),
            ..DriverRow::default()
        });
        self.processes.insert(key, noted);
    }

    fn note_gone(&mut self, device: &str, there: &BTreeSet<u32>) {
        let is_gone = |(on, pid): &(String, u32)| on == device && !there.contains(pid);
        let gone: Vec<(String, u32)> = self.processes.keys().filter(|key| is_gone(key)).cloned().collect();
        for key in gone {
            let Some(noted) = self.processes.remove(&key) else { continue };
            self.rows.push(DriverRow {
                time: Moment::now(),
                subject: Subject::Gone,
                device: key.0,
                pid: Some(key.1),
                start: noted.start,
                command: noted.command,
                is_job: noted.is_job,
                ..DriverRow::default()
            });
        }
    }

    fn flush(&mut self) {
        let rows = std::mem::take(&mut self.rows);
        if rows.is_empty() {
            return;
        }
        if self.appender.is_none() {
            self.appender = Appender::open(&self.place.driver(), DRIVER).ok();
        }
        let cells: Vec<_> = rows.iter().map(DriverRow::row).collect();
        let cells: Vec<&[Cell<'_>]> = cells.iter().map(<[Cell<'_>; _]>::as_slice).collect();
        let written = self.appender.as_mut().is_some_and(|appender| appender.append(&cells).is_ok());
        if !written {
            self.found.run.lost_rows += rows.len() as u64;
        }
    }
}

/// Whether reading a list has shown which namespace its process ids belong to.
fn is_told(standing: Standing) -> bool {
    matches!(standing, Standing::ByOwnNumber | Standing::ByOtherNumber)
}

fn device(facts: &DeviceFacts, memory: Option<&Result<DeviceMemory, DriverError>>) -> Device {
    let told = memory.and_then(|memory| memory.as_ref().ok());
    Device {
        name: facts.name.clone(),
        uuid: Some(facts.uuid.clone()),
        index: Some(facts.index),
        capability: facts.capability,
        pci_bus_id: facts.pci_bus_id.clone(),
        is_divided: facts.is_divided,
        part: facts.part.clone(),
        is_accounting: facts.is_accounting,
        total_bytes: told.map(|memory| memory.total),
        reserved_bytes: told.map(|memory| memory.reserved),
        identity: told.map(DeviceMemory::identity),
        error: memory.and_then(|memory| memory.as_ref().err().cloned()),
    }
}

fn device_row(facts: &DeviceFacts, answer: &Result<DeviceMemory, DriverError>) -> DriverRow {
    let told = answer.as_ref().ok();
    DriverRow {
        time: Moment::now(),
        subject: Subject::Device,
        device: facts.uuid.clone(),
        total: told.map(|memory| memory.total),
        reserved: told.map(|memory| memory.reserved),
        free: told.map(|memory| memory.free),
        used: told.map(|memory| memory.used),
        reason: answer.as_ref().err().map(|error| error.code().to_owned()),
        ..DriverRow::default()
    }
}

/// The processes of the job: its first one, whatever came from it, and whoever writes into the recording.
struct Job {
    first: u32,
    /// The name of this launcher.
    own: Option<String>,
    /// By number. Those whose parent has ended stay.
    members: BTreeMap<u32, Seen>,
    /// Those that have ended; a driver may list them a little longer.
    former: BTreeMap<u32, Seen>,
    /// Their numbers in other namespaces.
    others: BTreeMap<u32, Vec<u32>>,
    /// Numbers of lists that were to be seen here once.
    seen_here: BTreeSet<u32>,
    /// Whether another launcher started the process of these files, as its file said.
    is_of_another: BTreeMap<ProcessId, bool>,
}

impl Job {
    fn new(first: u32) -> Job {
        let members = procfs::process(first).map(|seen| (first, seen)).into_iter().collect();
        let own = ProcessId::of_running(std::process::id()).ok().map(|id| id.to_string());
        Job {
            first,
            own,
            members,
            former: BTreeMap::new(),
            others: BTreeMap::new(),
            seen_here: BTreeSet::new(),
            is_of_another: BTreeMap::new(),
        }
    }

    fn refresh(&mut self, place: &RunPlace) {
        let all = procfs::processes();
        let now: BTreeMap<u32, Seen> = all.iter().map(|seen| (seen.pid, seen.clone())).collect();
        // A number that was given to somebody else since is not ours.
        let former = &mut self.former;
        self.members.retain(|pid, member| {
            let is_there = now.get(pid).is_some_and(|seen| seen.start == member.start);
            if !is_there {
                former.insert(*pid, member.clone());
            }
            is_there
        });
        let own_host = ProcessId::new(&folder::host_name(), 0, 0);
        for (part, id) in folder::parts(&place.folder).unwrap_or_default() {
            let seen = now.get(&id.pid()).filter(|seen| {
                part == Part::Process && seen.start == id.start() && id.host() == own_host.host()
            });
            if let Some(seen) = seen
                && !self.is_of_another_launcher(&place.folder, &id)
            {
                self.members.insert(seen.pid, seen.clone());
            }
        }
        let roots: Vec<u32> = self.members.keys().copied().collect();
        let below = procfs::below(&roots, all);
        self.members.extend(below.into_iter().map(|seen| (seen.pid, seen)));
        let members = &self.members;
        self.others.retain(|pid, _| members.contains_key(pid));
        for &pid in members.keys() {
            self.others.entry(pid).or_insert_with(|| procfs::pids_of(pid));
        }
    }

    /// Whether a process that writes into the recording belongs to another launcher on this machine.
    fn is_of_another_launcher(&mut self, folder: &Path, id: &ProcessId) -> bool {
        let (own, known) = (&self.own, &mut self.is_of_another);
        *known.entry(id.clone()).or_insert_with(|| {
            let told = facts(&folder.join(Part::Process.name(id))).ok().and_then(|facts| facts.identity.run);
            told.zip(own.as_ref()).is_some_and(|(told, own)| told != *own)
        })
    }

    fn standing(&mut self, listed: &[u32]) -> Standing {
        for &pid in listed {
            if procfs::process(pid).is_some() {
                self.seen_here.insert(pid);
            }
        }
        let mut ours: Vec<(u32, Vec<u32>)> =
            self.others.iter().map(|(pid, all)| (*pid, all.clone())).collect();
        if ours.is_empty() {
            ours.push((self.first, Vec::new()));
        }
        procfs::standing(listed, &ours, |pid| self.seen_here.contains(&pid))
    }

    /// Who the process of this number in a driver's list is, and whether it belongs to the job.
    fn place(&self, pid: u32, is_foreign: bool, namespace: &Namespace) -> (Option<Seen>, Option<bool>) {
        if is_foreign && namespace.is_outermost != Some(true) {
            return (None, None);
        }
        if let Some(member) = self.members.get(&pid) {
            return (Some(member.clone()), Some(true));
        }
        if let Some(seen) = procfs::process(pid) {
            return (Some(seen), Some(false));
        }
        let mut others = self.others.iter().filter(|(_, all)| all.contains(&pid));
        if let Some((own, _)) = others.next() {
            return (self.members.get(own).cloned(), Some(true));
        }
        if let Some(member) = self.former.get(&pid) {
            return (Some(member.clone()), Some(true));
        }
        // Of one that has just ended, the machine's own namespace would have known.
        let is_known = namespace.is_outermost == Some(true) || self.seen_here.contains(&pid);
        (None, is_known.then_some(false))
    }
}
