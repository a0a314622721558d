//! What a machine's memory does right now: the JSON document of `vramline top`, and what its screen is drawn from.
//!
//! [`Job`] is what one running recording has told so far, bounded however long it runs; [`top`] puts it together with one look at the driver.
//! Every device has its ledger, cut down to the parts that a bar shows: they add up to the device's total, because the ledger does.
//! Nothing is asked here, and nothing is drawn.

use std::collections::{BTreeMap, VecDeque};
use std::path::PathBuf;

use serde::Serialize;

use super::doctor::DeviceLook;
use super::ledger::uuid_of;
use crate::ledger::{
    DeviceFigures, Facts, JobProcess, Ledger, OtherProcess, PoolFigures, Teller, Told, What,
};
use crate::recording::folder::ProcessId;
use crate::recording::live::News;
use crate::recording::manifest::{Exit, RunManifest};
use crate::recording::reader::RecordedProcess;
use crate::recording::rows::{Counters, HOST, Mark, Moment, Sample, Subject};
use crate::recording::running::State;
use crate::source::driver::{DriverError, Library};
use crate::source::procfs::HostMemory;
use crate::timeline::{Column, Series};
use crate::trace::recorded;
use crate::units::{Bytes, Nanos};
use crate::warning::{Unknown, Warning};

/// Steps of a process that are remembered.
pub const STEPS: usize = 200;

/// Points of a device's history that are remembered.
const POINTS: usize = 1200;

/// What a recording has told so far.
#[derive(Debug)]
pub struct Job {
    /// Its folder.
    pub path: PathBuf,
    /// Whether it is still being written.
    pub state: State,
    /// The processes that write it, each with all of its numbers, its own here first.
    pub pids: Vec<(u32, Vec<u32>)>,
    /// What could not be read of it.
    pub warnings: Vec<Warning>,
    manifest: Option<RunManifest>,
    processes: BTreeMap<ProcessId, Process>,
    history: BTreeMap<String, VecDeque<(i64, u64)>>,
}

/// What one of its processes has told so far.
#[derive(Debug)]
struct Process {
    /// With the newest steps only.
    recorded: RecordedProcess,
    has_steps: bool,
    is_cut: bool,
    pools: BTreeMap<String, Pool>,
    roles: Vec<RoleView>,
    resident: Option<i64>,
    last: i64,
    exception: Option<String>,
    has_ended: bool,
    is_traced: bool,
}

/// The newest figures of a framework's pool, each as old as it is.
#[derive(Debug, Default)]
struct Pool {
    current: Option<i64>,
    peak: Option<i64>,
    taken: Option<i64>,
    limit: Option<i64>,
    reason: Option<String>,
}

impl Pool {
    fn take(&mut self, read: &Counters) {
        self.current = read.current.or(self.current);
        // A peak that was reset is not the highest of the run.
        self.peak = self.peak.max(read.peak).max(read.current);
        self.taken = read.pool.or(self.taken);
        self.limit = read.limit.or(self.limit);
        self.reason = read.reason.clone().or(self.reason.take());
    }
}

impl Job {
    /// A recording that has told nothing yet.
    #[must_use]
    pub fn new(path: PathBuf) -> Job {
        Job {
            path,
            state: State::Running,
            pids: Vec::new(),
            warnings: Vec::new(),
            manifest: None,
            processes: BTreeMap::new(),
            history: BTreeMap::new(),
        }
    }

    /// What its launcher says.
    #[must_use]
    pub fn manifest(&self) -> Option<&RunManifest> {
        self.manifest.as_ref()
    }

    /// Its processes.
    pub fn ids(&self) -> impl Iterator<Item = &ProcessId> {
        self.processes.keys()
    }

    /// Whether one of them has written a trace of its allocations, which tells roles.
    #[must_use]
    pub fn is_traced(&self) -> bool {
        self.processes.values().any(|process| process.is_traced)
    }

    /// Goes on by what came.
    pub fn take(&mut self, news: News<'_>) {
        match news {
            News::Manifest(manifest) => self.manifest = Some(*manifest),
            News::Facts(id, facts) => self.process(id).recorded.facts = facts,
            News::Marks(id, marks) => self.process(id).marks(marks),
            News::Samples(id, samples) => self.process(id).samples(&samples),
            News::Inventories(id, inventories) => {
                if let Some(newest) = inventories.last() {
                    let process = self.process(id);
                    process.roles.clear();
                    for variable in &newest.variables {
                        match process.roles.iter_mut().find(|known| known.role == variable.role) {
                            Some(known) => {
                                known.variables += 1;
                                known.bytes += variable.bytes;
                            }
                            None => process.roles.push(RoleView {
                                role: variable.role.clone(),
                                variables: 1,
                                bytes: variable.bytes,
                            }),
                        }
                    }
                    process.roles.sort_by_key(|role| std::cmp::Reverse(role.bytes));
                }
            }
            News::Trace(id, path) => self.process(id).recorded.trace = Some(path),
            News::Driver(rows) => {
                for row in rows.iter().filter(|row| row.subject == Subject::Device) {
                    let (Some(total), Some(free)) = (row.total, row.free) else { continue };
                    let points = self.history.entry(row.device.clone()).or_default();
                    points.push_back((row.time.monotonic, total.saturating_sub(free).0));
                    if points.len() > POINTS {
                        points.pop_front();
                    }
                }
            }
        }
    }

    fn process(&mut self, id: &ProcessId) -> &mut Process {
        self.processes.entry(id.clone()).or_insert_with(|| Process {
            recorded: RecordedProcess::new(id.clone()),
            has_steps: false,
            is_cut: false,
            pools: BTreeMap::new(),
            roles: Vec::new(),
            resident: None,
            last: i64::MIN,
            exception: None,
            has_ended: false,
            is_traced: false,
        })
    }

    fn command(&self) -> String {
        self.manifest.as_ref().map_or(String::new(), |manifest| manifest.command.join(" "))
    }
}

impl Process {
    fn marks(&mut self, marks: Vec<Mark>) {
        for mark in marks {
            self.last = self.last.max(mark.time.monotonic);
            for read in &mark.counters {
                self.pools.entry(read.device.clone()).or_default().take(read);
            }
            match mark.kind.as_str() {
                "step" => self.has_steps = true,
                "exception" => self.exception = mark.label.clone().or(Some(String::new())),
                "end" => self.has_ended = true,
                "trace" => {
                    self.is_traced |= mark.label.as_deref().is_some_and(|label| label.starts_with("written"));
                }
                _ => {}
            }
            if mark.kind == "step" || (mark.kind == "call" && !self.has_steps) {
                self.recorded.marks.push(mark);
            }
        }
        if self.has_steps {
            self.recorded.marks.retain(|mark| mark.kind == "step");
        }
        if self.recorded.marks.len() > 2 * STEPS {
            let surplus = self.recorded.marks.len() - STEPS - 1;
            self.recorded.marks.drain(..surplus);
            self.is_cut = true;
        }
    }

    fn samples(&mut self, samples: &[Sample]) {
        for sample in samples {
            self.last = self.last.max(sample.time.monotonic);
            self.resident = sample.resident.or(self.resident);
            if let Some(read) = &sample.counters {
                self.pools.entry(read.device.clone()).or_default().take(read);
            }
        }
    }

    /// Its newest steps on a device, oldest first.
    fn steps(&self, device: &str) -> Vec<TopStep> {
        let all = recorded::steps(&self.recorded, None);
        let of_device: Vec<_> =
            all.into_iter().filter(|step| step.device == device || step.device.is_empty()).collect();
        // Of the first that is left, what came before is forgotten, and with it whether its peak is its own.
        let skipped = (of_device.len().saturating_sub(STEPS)).max(usize::from(self.is_cut));
        let view = |step: &recorded::RecordedStep| TopStep {
            step: step.number,
            phase: step.phase.word(),
            epoch: step.epoch,
            end_ns: Nanos(step.end.wall),
            duration_ns: Nanos(step.end.monotonic.saturating_sub(step.begin.monotonic)),
            peak_bytes: step.peak,
            current_bytes: step.current,
        };
        of_device.iter().skip(skipped).map(view).collect()
    }
}

/// One look at the machine.
#[derive(Debug)]
pub struct Sight<'a> {
    /// When.
    pub now: Moment,
    /// The machine's name.
    pub host: String,
    /// Its own memory.
    pub memory: Option<HostMemory>,
    /// What the driver said, or why it says nothing.
    pub driver: Result<DriverSight, DriverError>,
    /// The recordings.
    pub jobs: &'a [Job],
    /// What the kernel knows of processes that matter: a command, and the host memory they hold.
    pub seen: BTreeMap<u32, SeenProcess>,
}

/// What the driver said.
#[derive(Clone, Debug)]
pub struct DriverSight {
    /// Which driver.
    pub library: Library,
    /// Its devices, with what they hold.
    pub devices: Vec<DeviceLook>,
    /// How old its answer is.
    pub age_ns: Nanos,
}

/// What the kernel says of a process.
#[derive(Clone, Debug, Default)]
pub struct SeenProcess {
    /// Its command line.
    pub command: String,
    /// Host memory that it holds.
    pub resident: Option<Bytes>,
}

/// The whole document.
#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct Top {
    pub kind: &'static str,
    pub time_ns: Nanos,
    pub host: String,
    pub driver: TopDriver,
    pub devices: Vec<TopDevice>,
    pub jobs: Vec<TopJob>,
    pub processes: Vec<TopProcess>,
    pub warnings: Vec<Warning>,
    pub unknowns: Vec<Unknown>,
}

#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct TopDriver {
    pub version: Option<String>,
    pub error: Option<&'static str>,
    pub age_ns: Option<Nanos>,
}

#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct TopDevice {
    pub name: String,
    pub uuid: Option<String>,
    pub model: Option<String>,
    pub part_of: Option<String>,
    pub is_stand_in: bool,
    pub total_bytes: Option<Bytes>,
    pub free_bytes: Option<Bytes>,
    pub error: Option<&'static str>,
    pub parts: Vec<TopPart>,
    pub processes: Option<usize>,
}

/// A stretch of a device's bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct TopPart {
    pub part: &'static str,
    pub bytes: i64,
}

#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct TopJob {
    pub path: String,
    pub command: String,
    pub state: &'static str,
    pub exit_code: Option<i32>,
    pub exit_signal: Option<i32>,
    pub host: Option<String>,
    pub began_ns: Option<Nanos>,
    pub processes: usize,
    pub is_traced: bool,
}

#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct TopProcess {
    pub pid: u32,
    pub device: String,
    pub job: Option<usize>,
    pub rank: Option<u64>,
    pub command: String,
    pub framework: Option<String>,
    pub held_bytes: Option<Bytes>,
    pub pool_bytes: Option<Bytes>,
    pub in_use_bytes: Option<Bytes>,
    pub cached_bytes: Option<Bytes>,
    pub limit_bytes: Option<Bytes>,
    pub peak_bytes: Option<Bytes>,
    pub headroom_bytes: Option<Bytes>,
    pub step: Option<i64>,
    pub phase: Option<&'static str>,
    pub epoch: Option<u64>,
    pub step_peak_bytes: Option<Bytes>,
    pub step_ns: Option<Nanos>,
    pub silent_ns: Option<Nanos>,
    pub exception: Option<String>,
    pub roles: Vec<RoleView>,
    pub steps: Vec<TopStep>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct RoleView {
    pub role: String,
    pub variables: u64,
    pub bytes: Bytes,
}

#[derive(Clone, Debug, Serialize)]
#[expect(missing_docs, reason = "the field table says it")]
pub struct TopStep {
    pub step: i64,
    pub phase: &'static str,
    pub epoch: Option<u64>,
    pub end_ns: Nanos,
    pub duration_ns: Nanos,
    pub peak_bytes: Option<Bytes>,
    pub current_bytes: Option<Bytes>,
}

/// The parts of a bar, in the order they are drawn. Every leaf of a ledger is in one of them.
pub const PARTS: [&str; 9] = [
    "driver reserved",
    "in use",
    "cached free",
    "context and outside",
    "context, cached and outside",
    "not resident",
    "other processes",
    "unattributed",
    "free",
];

fn part_of(what: &What) -> &'static str {
    match what {
        What::Reserved => "driver reserved",
        What::InUse | What::Role(_) | What::Slack | What::Before => "in use",
        What::Cached => "cached free",
        // What a process holds is one line where its pools tell nothing.
        What::Merged | What::Rest | What::Job(_) => "context, cached and outside",
        What::NotResident => "not resident",
        What::Other(..) => "other processes",
        What::Free => "free",
        What::Unattributed | What::Device | What::Processes => "unattributed",
        _ => "context and outside",
    }
}

/// Sums up a ledger's leaves. A line whose parts are not known is a leaf.
fn parts(ledger: &Ledger) -> Vec<TopPart> {
    let mut sums = [0_i64; PARTS.len()];
    for (place, line) in ledger.lines.iter().enumerate() {
        let is_leaf = !ledger.lines.iter().any(|part| part.of == Some(place) && part.bytes.is_some());
        let known = PARTS.iter().position(|part| *part == part_of(&line.what));
        if let (true, Some(bytes), Some(sum)) = (is_leaf, line.bytes, known.and_then(|at| sums.get_mut(at))) {
            *sum = sum.saturating_add(bytes);
        }
    }
    let all = PARTS.into_iter().zip(sums);
    all.filter(|(part, bytes)| *bytes != 0 || *part == "free")
        .map(|(part, bytes)| TopPart { part, bytes })
        .collect()
}

/// A process of a recording on a device of this machine.
struct Here<'a> {
    job: usize,
    process: &'a Process,
    /// The framework's name for the device, and its pool; none before a device was used.
    pool: Option<(&'a str, &'a Pool)>,
    /// The driver's name for the device; [`HOST`] for the CPU.
    uuid: Option<String>,
    /// All numbers that it may have in a driver's list.
    pids: Vec<u32>,
}

impl Here<'_> {
    fn is(&self, pid: u32) -> bool {
        self.pids.contains(&pid)
    }

    fn figures(&self) -> PoolFigures {
        let told = |bytes: Option<i64>| {
            Some(Told { bytes: Bytes(u64::try_from(bytes?).ok()?), by: Teller::Framework })
        };
        let (name, pool) =
            self.pool.map_or((String::new(), None), |(name, pool)| (name.to_owned(), Some(pool)));
        PoolFigures {
            name,
            taken: told(pool.and_then(|pool| pool.taken)),
            in_use: told(pool.and_then(|pool| pool.current)),
            ..PoolFigures::default()
        }
    }
}

/// Puts the document together.
#[must_use]
pub fn top(sight: &Sight<'_>) -> Top {
    let own = ProcessId::new(&sight.host, 0, 0);
    let mut here: Vec<Here<'_>> = Vec::new();
    for (number, job) in sight.jobs.iter().enumerate() {
        for (id, process) in &job.processes {
            let mut pids: Vec<u32> = vec![id.pid()];
            let others = job.pids.iter().filter(|(_, all)| all.contains(&id.pid()));
            pids.extend(others.flat_map(|(pid, all)| all.iter().copied().chain([*pid])));
            // A process of another machine may have any number.
            if id.host() != own.host() && pids.len() == 1 {
                pids.clear();
            }
            let uuid_of = |device: &str| {
                let (kind, number) = device.split_once(':')?;
                if kind == "CPU" {
                    return (id.host() == own.host() || !job.pids.is_empty()).then(|| HOST.to_owned());
                }
                uuid_of(job.manifest.as_ref()?, number.parse().ok()?)
            };
            let pools: Vec<(&str, &Pool)> = process
                .pools
                .iter()
                .filter(|(device, _)| !device.is_empty())
                .map(|(device, pool)| (device.as_str(), pool))
                .collect();
            // A framework tells of its pool on the CPU beside that of a GPU: what matters is the latter.
            let is_told = |pool: &Pool| pool.current.is_some() || pool.taken.is_some();
            let has_gpu = pools.iter().any(|(device, pool)| !device.starts_with("CPU") && is_told(pool));
            let shown: Vec<_> = pools
                .into_iter()
                .filter(|(device, pool)| !has_gpu || !device.starts_with("CPU") || pool.current > Some(0))
                .collect();
            if shown.is_empty() {
                here.push(Here { job: number, process, pool: None, uuid: None, pids: pids.clone() });
            }
            for pool in shown {
                let uuid = uuid_of(pool.0);
                here.push(Here { job: number, process, pool: Some(pool), uuid, pids: pids.clone() });
            }
        }
    }
    let mut document = Top {
        kind: "top",
        time_ns: Nanos(sight.now.wall),
        host: sight.host.clone(),
        driver: TopDriver {
            version: sight.driver.as_ref().ok().and_then(|driver| driver.library.driver_version.clone()),
            error: sight.driver.as_ref().err().map(DriverError::code),
            age_ns: sight.driver.as_ref().ok().map(|driver| driver.age_ns),
        },
        devices: Vec::new(),
        jobs: sight.jobs.iter().map(job_view).collect(),
        processes: Vec::new(),
        warnings: Vec::new(),
        unknowns: Vec::new(),
    };
    if let Ok(driver) = &sight.driver {
        for device in &driver.devices {
            device_rows(sight, device, &here, &mut document);
        }
    }
    host_rows(sight, &here, &mut document);
    // Whoever could not be put on a device of this machine is shown all the same.
    let devices: Vec<String> = document.devices.iter().filter_map(|device| device.uuid.clone()).collect();
    for entry in &here {
        let is_placed = entry.uuid.as_ref().is_some_and(|uuid| devices.contains(uuid));
        if !is_placed {
            let device = entry.pool.map_or(String::new(), |(device, _)| device.to_owned());
            let row = recorded_row(sight, entry, device, None, None);
            document.processes.push(row);
        }
    }
    explain(sight, &mut document);
    document
}

fn job_view(job: &Job) -> TopJob {
    let exit = match job.state {
        State::Ended(exit) => Some(exit),
        _ => None,
    };
    TopJob {
        path: job.path.display().to_string(),
        command: job.command(),
        state: job.state.word(),
        exit_code: exit.and_then(|exit| if let Exit::Code(code) = exit { Some(code) } else { None }),
        exit_signal: exit.and_then(|exit| if let Exit::Signal(signal) = exit { Some(signal) } else { None }),
        host: job.manifest.as_ref().map(|manifest| manifest.host.clone()),
        began_ns: job.manifest.as_ref().map(|manifest| manifest.clocks.begin.realtime_ns),
        processes: job.processes.len(),
        is_traced: job.is_traced(),
    }
}

/// A device of the driver, and who is on it.
fn device_rows(sight: &Sight<'_>, device: &DeviceLook, here: &[Here<'_>], document: &mut Top) {
    let facts = &device.facts;
    let name = match &facts.part {
        Some(part) => format!("GPU {}.{}", facts.index, part.index),
        None => format!("GPU {}", facts.index),
    };
    let memory = device.memory.as_ref().ok();
    let free = memory.map(|memory| memory.free);
    let mut books = Facts {
        device: name.clone(),
        memory: memory.map(|memory| DeviceFigures {
            total: memory.total,
            reserved: memory.in_processes().map(|_| memory.reserved),
            free: memory.free,
        }),
        ..Facts::default()
    };
    let ours: Vec<&Here<'_>> = here.iter().filter(|entry| entry.uuid.as_ref() == Some(&facts.uuid)).collect();
    let listed = device.processes.as_deref().unwrap_or_default();
    let mut taken = vec![false; ours.len()];
    for process in listed {
        // A process of a recording that has not told of a device yet is on this one all the same.
        let is_here = device.seen_here.contains(&process.pid);
        let is_it = |entry: &Here<'_>| entry.is(process.pid) && (is_here || entry.pids.len() > 1);
        let matched = ours.iter().position(|entry| is_it(entry));
        match matched.and_then(|at| Some((ours.get(at)?, taken.get_mut(at)?))) {
            Some((entry, is_taken)) => {
                *is_taken = true;
                let pool = entry.figures();
                // Where the driver does not say what it holds, it is at least its pool.
                let held = process.used.or(pool.taken.or(pool.in_use).map(|told| told.bytes));
                books.job.push(JobProcess {
                    pid: process.pid,
                    held,
                    pools: vec![pool],
                    ..JobProcess::default()
                });
                document.processes.push(recorded_row(sight, entry, name.clone(), process.used, free));
            }
            None => {
                let seen = sight.seen.get(&process.pid);
                let command = seen.map_or(String::new(), |seen| seen.command.clone());
                books.others.push(OtherProcess { pid: process.pid, name: String::new(), held: process.used });
                let job = here.iter().find(|entry| is_it(entry)).map(|entry| entry.job);
                document.processes.push(TopProcess {
                    pid: process.pid,
                    device: name.clone(),
                    job,
                    command,
                    held_bytes: process.used,
                    ..TopProcess::bare()
                });
            }
        }
    }
    for (entry, _) in ours.iter().zip(taken).filter(|(_, is_taken)| !is_taken) {
        document.processes.push(recorded_row(sight, entry, name.clone(), None, free));
    }
    document.devices.push(TopDevice {
        name,
        uuid: Some(facts.uuid.clone()),
        model: facts.name.clone(),
        part_of: facts.part.as_ref().map(|part| part.of.clone()),
        is_stand_in: false,
        total_bytes: memory.map(|memory| memory.total),
        free_bytes: free,
        error: device.memory.as_ref().err().map(DriverError::code),
        parts: memory.map_or(Vec::new(), |_| parts(&Ledger::of(&books))),
        processes: device.processes.as_ref().ok().map(Vec::len),
    });
}

/// The machine's own memory, where it stands in for a device's or is all there is.
fn host_rows(sight: &Sight<'_>, here: &[Here<'_>], document: &mut Top) {
    let ours: Vec<&Here<'_>> = here.iter().filter(|entry| entry.uuid.as_deref() == Some(HOST)).collect();
    if ours.is_empty() && !document.devices.is_empty() {
        return;
    }
    let free = sight.memory.map(|memory| memory.available);
    let mut books = Facts {
        device: HOST.to_owned(),
        memory: sight.memory.map(|memory| DeviceFigures {
            total: memory.total,
            reserved: None,
            free: memory.available,
        }),
        is_stand_in: true,
        ..Facts::default()
    };
    for entry in &ours {
        let seen = entry.pids.iter().find_map(|pid| sight.seen.get(pid));
        // What the kernel says now; of a process that has ended, nothing is held any more.
        let held = seen.and_then(|seen| seen.resident);
        if held.is_some() {
            let pid = entry.process.recorded.id.pid();
            let pools = vec![entry.figures()];
            books.job.push(JobProcess { pid, held, pools, ..JobProcess::default() });
        }
        document.processes.push(recorded_row(sight, entry, HOST.to_owned(), held, free));
    }
    document.devices.push(TopDevice {
        name: HOST.to_owned(),
        uuid: Some(HOST.to_owned()),
        model: None,
        part_of: None,
        is_stand_in: true,
        total_bytes: sight.memory.map(|memory| memory.total),
        free_bytes: free,
        error: None,
        parts: sight.memory.map_or(Vec::new(), |_| parts(&Ledger::of(&books))),
        processes: Some(ours.len()),
    });
}

/// A process of a recording on a device; `free` is what the device has left.
fn recorded_row(
    sight: &Sight<'_>,
    entry: &Here<'_>,
    device: String,
    held: Option<Bytes>,
    free: Option<Bytes>,
) -> TopProcess {
    let job = sight.jobs.get(entry.job);
    let (process, pool) = (entry.process, entry.pool.map(|(_, pool)| pool));
    let bytes = |value: Option<i64>| value.and_then(|value| u64::try_from(value).ok()).map(Bytes);
    let (in_use, taken) =
        (bytes(pool.and_then(|pool| pool.current)), bytes(pool.and_then(|pool| pool.taken)));
    let (limit, peak) = (bytes(pool.and_then(|pool| pool.limit)), bytes(pool.and_then(|pool| pool.peak)));
    // What the pool has, and what the device would still give it; no more than it may take.
    let given = taken.or(in_use).zip(free).map(|(has, free)| has + free);
    let reach = match (given, limit) {
        (Some(given), Some(limit)) => Some(given.min(limit)),
        (given, limit) => given.or(limit),
    };
    let name = entry.pool.map_or("", |(device, _)| device);
    let steps = process.steps(name);
    let newest = steps.last();
    let is_here = job.is_some_and(|job| job.state == State::Running);
    let is_running = is_here || job.is_some_and(|job| job.state == State::Elsewhere);
    let seen = entry.pids.iter().find_map(|pid| sight.seen.get(pid)).map(|seen| seen.command.clone());
    let command = seen.filter(|command| !command.is_empty()).or_else(|| job.map(Job::command));
    TopProcess {
        pid: process.recorded.id.pid(),
        device,
        job: Some(entry.job),
        rank: process.recorded.facts.rank,
        command: command.unwrap_or_default(),
        framework: process
            .recorded
            .facts
            .framework()
            .map(|(name, version)| format!("{name} {version}").trim_end().to_owned()),
        held_bytes: held,
        pool_bytes: taken,
        in_use_bytes: in_use,
        cached_bytes: taken.zip(in_use).and_then(|(taken, in_use)| taken.0.checked_sub(in_use.0)).map(Bytes),
        limit_bytes: limit,
        peak_bytes: peak,
        headroom_bytes: reach
            .zip(peak)
            .filter(|_| is_running)
            .map(|(reach, peak)| reach.saturating_sub(peak)),
        step: newest.map(|step| step.step),
        phase: newest.map(|step| step.phase),
        epoch: newest.and_then(|step| step.epoch),
        step_peak_bytes: newest.and_then(|step| step.peak_bytes),
        step_ns: newest.map(|step| step.duration_ns),
        silent_ns: (is_running && process.last > i64::MIN && !entry.pids.is_empty())
            .then(|| Nanos(sight.now.monotonic.saturating_sub(process.last).max(0))),
        exception: process.exception.clone(),
        roles: process.roles.clone(),
        steps,
    }
}

impl TopProcess {
    /// A process of which the driver alone tells.
    fn bare() -> TopProcess {
        TopProcess {
            pid: 0,
            device: String::new(),
            job: None,
            rank: None,
            command: String::new(),
            framework: None,
            held_bytes: None,
            pool_bytes: None,
            in_use_bytes: None,
            cached_bytes: None,
            limit_bytes: None,
            peak_bytes: None,
            headroom_bytes: None,
            step: None,
            phase: None,
            epoch: None,
            step_peak_bytes: None,
            step_ns: None,
            silent_ns: None,
            exception: None,
            roles: Vec::new(),
            steps: Vec::new(),
        }
    }
}

/// Warnings, and a reason for every kind of null.
fn explain(sight: &Sight<'_>, document: &mut Top) {
    let warn = |code, text: String, hint: &str| Warning { code, text, hint: hint.to_owned() };
    match &sight.driver {
        Err(error) => document.warnings.push(warn(
            error.code(),
            format!("no GPU can be shown: {error}"),
            if error.hint().is_empty() { "see `vramline doctor`" } else { error.hint() },
        )),
        Ok(driver) if driver.devices.is_empty() => document.warnings.push(warn(
            "no-device",
            "the driver answers, and shows no device".to_owned(),
            "in a container, start it with --gpus all",
        )),
        Ok(_) => {}
    }
    if let Some(age) = document.driver.age_ns.filter(|age| age.0 > 5_000_000_000) {
        let text = format!("the driver has not answered for {age}: its figures are that old");
        document.warnings.push(warn("driver-silent", text, "look for Xid in the kernel's log (dmesg)"));
    }
    for device in sight.driver.iter().flat_map(|driver| &driver.devices) {
        for error in device.memory.as_ref().err().into_iter().chain(device.processes.as_ref().err()) {
            let text = format!("GPU {}: {error}", device.facts.index);
            document.warnings.push(warn(error.code(), text, error.hint()));
        }
    }
    document.warnings.dedup();
    document.warnings.extend(sight.jobs.iter().flat_map(|job| job.warnings.iter().cloned()));
    document.unknowns = reasons(document);
}

/// A reason for every null of the document: one for all elements of a list.
fn reasons(document: &Top) -> Vec<Unknown> {
    let (devices, jobs, rows) = (&document.devices, &document.jobs, &document.processes);
    let device = |is_null: fn(&TopDevice) -> bool| devices.iter().any(is_null);
    let job = |is_null: fn(&TopJob) -> bool| jobs.iter().any(is_null);
    let row = |is_null: fn(&TopProcess) -> bool| rows.iter().any(is_null);
    let step = |is_null: fn(&TopStep) -> bool| rows.iter().flat_map(|row| &row.steps).any(is_null);
    let (doctor, run) = (Some("vramline doctor"), Some("vramline run -- CMD"));
    let step_peaks = Some("vramline run --step-peaks");
    let itself = "a program that records itself has no launcher that would say";
    let recorded = "only recorded processes tell, where their framework does";
    let no_step = "it has not announced one yet, or is not recorded";
    let own_peak = "a step's own peak is known where the framework's peak is reset when it begins";
    let all = [
        (
            document.driver.version.is_none(),
            "driver.version",
            "there is no driver, or it does not say",
            doctor,
        ),
        (document.driver.error.is_none(), "driver.error", "the driver answers", None),
        (document.driver.age_ns.is_none(), "driver.age_ns", "there is no driver", doctor),
        (device(|of| of.uuid.is_none()), "devices[].uuid", "the driver does not say", None),
        (
            device(|of| of.model.is_none()),
            "devices[].model",
            "the machine's own memory has none, or the device does not answer",
            None,
        ),
        (device(|of| of.part_of.is_none()), "devices[].part_of", "it is a whole device", None),
        (
            device(|of| of.total_bytes.is_none()),
            "devices[].total_bytes",
            "the device does not answer",
            doctor,
        ),
        (device(|of| of.free_bytes.is_none()), "devices[].free_bytes", "the device does not answer", doctor),
        (device(|of| of.error.is_none()), "devices[].error", "it answers", None),
        (
            device(|of| of.processes.is_none()),
            "devices[].processes",
            "the driver does not list the processes of this device",
            doctor,
        ),
        (
            job(|of| of.exit_code.is_none()),
            "jobs[].exit_code",
            "the job has not ended, or a signal ended it, or nobody said how",
            None,
        ),
        (job(|of| of.exit_signal.is_none()), "jobs[].exit_signal", "no signal has ended it", None),
        (job(|of| of.host.is_none()), "jobs[].host", itself, None),
        (job(|of| of.began_ns.is_none()), "jobs[].began_ns", itself, None),
        (row(|of| of.job.is_none()), "processes[].job", "no recording of it is to be seen here", run),
        (
            row(|of| of.rank.is_none()),
            "processes[].rank",
            "it is not part of a larger job, as far as it says",
            None,
        ),
        (row(|of| of.framework.is_none()), "processes[].framework", "only recorded processes say it", run),
        (
            row(|of| of.held_bytes.is_none()),
            "processes[].held_bytes",
            "the driver does not list it under a number that is known here, does not tell what it holds, or it has ended",
            doctor,
        ),
        (row(|of| of.pool_bytes.is_none()), "processes[].pool_bytes", recorded, run),
        (row(|of| of.in_use_bytes.is_none()), "processes[].in_use_bytes", recorded, run),
        (row(|of| of.cached_bytes.is_none()), "processes[].cached_bytes", recorded, run),
        (row(|of| of.limit_bytes.is_none()), "processes[].limit_bytes", recorded, run),
        (row(|of| of.peak_bytes.is_none()), "processes[].peak_bytes", recorded, run),
        (
            row(|of| of.headroom_bytes.is_none()),
            "processes[].headroom_bytes",
            "only recorded processes that run here have any, where their framework tells a peak",
            run,
        ),
        (row(|of| of.step.is_none()), "processes[].step", no_step, run),
        (row(|of| of.phase.is_none()), "processes[].phase", no_step, run),
        (row(|of| of.epoch.is_none()), "processes[].epoch", "its step belongs to none", None),
        (row(|of| of.step_peak_bytes.is_none()), "processes[].step_peak_bytes", own_peak, step_peaks),
        (row(|of| of.step_ns.is_none()), "processes[].step_ns", no_step, run),
        (
            row(|of| of.silent_ns.is_none()),
            "processes[].silent_ns",
            "it does not run, runs elsewhere, or is not recorded",
            None,
        ),
        (row(|of| of.exception.is_none()), "processes[].exception", "none has ended it", None),
        (step(|of| of.epoch.is_none()), "processes[].steps[].epoch", "the step belongs to none", None),
        (step(|of| of.peak_bytes.is_none()), "processes[].steps[].peak_bytes", own_peak, step_peaks),
        (
            step(|of| of.current_bytes.is_none()),
            "processes[].steps[].current_bytes",
            "the framework does not tell",
            None,
        ),
    ];
    let unknown = |(_, path, reason, switch): (bool, &str, &str, Option<&str>)| Unknown {
        path: path.to_owned(),
        reason: reason.to_owned(),
        switch: switch.map(str::to_owned),
    };
    all.into_iter().filter(|(is_null, ..)| *is_null).map(unknown).collect()
}

/// What devices held over the last minutes.
#[derive(Clone, Debug, Default)]
pub struct History(BTreeMap<String, VecDeque<(i64, u64)>>);

impl History {
    /// Goes on by one look. What recordings know of the time before is taken in.
    pub fn take(&mut self, now: Moment, document: &Top, jobs: &[Job]) {
        for device in &document.devices {
            let (Some(uuid), Some(total), Some(free)) = (&device.uuid, device.total_bytes, device.free_bytes)
            else {
                continue;
            };
            let points = self.0.entry(uuid.clone()).or_insert_with(|| {
                let known =
                    jobs.iter().filter_map(|job| job.history.get(uuid)).max_by_key(|points| points.len());
                // Of another machine, or from before a restart, times may lie ahead.
                known.into_iter().flatten().copied().filter(|(time, _)| *time < now.monotonic).collect()
            });
            points.push_back((now.monotonic, total.saturating_sub(free).0));
            while points.len() > POINTS {
                points.pop_front();
            }
        }
    }

    /// The most that a device held in each of `width` stretches of the time before `now`.
    #[must_use]
    pub fn columns(&self, uuid: &str, now: Moment, length: Nanos, width: usize) -> Vec<Column> {
        let points = self.0.get(uuid).into_iter().flatten().copied();
        Series::new(points)
            .window(now.monotonic.saturating_sub(length.0)..now.monotonic.saturating_add(1), width)
    }
}
