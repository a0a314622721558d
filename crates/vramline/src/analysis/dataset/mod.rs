//! What a recording or a file adds to a dataset: which job and recording it is, its report, its failed allocations, and the facts that questions
//! across jobs group by.
//!
//! Each source is read on its own, so memory does not grow with their number. Where the rows go is for others to know.

pub mod key;

use std::path::Path;
use std::sync::Arc;

use super::accounts::DeviceHighest;
use super::causes;
use super::process;
use super::reading::{self, OutOfMemory, Reading};
use super::redaction::Redaction;
use super::report::{PoolAnalysis, ReportAnalysis, ReportOptions, report};
use crate::event::Framework;
use crate::ledger::moments::HighestFigures;
use crate::recording::folder::ProcessId;
use crate::recording::identity::RankIdentity;
use crate::recording::reader::{Recorded, RecordedProcess, RunView};
use crate::source::{Progress, SourceError};
use crate::units::{Bytes, Nanos};
use key::{Key, SourceKeys};

/// A source, read for a dataset.
#[derive(Debug)]
pub struct DatasetSource {
    /// Where its rows belong.
    pub keys: SourceKeys,
    /// What was read.
    pub reading: Reading,
    /// The position of the script in the command.
    script: Option<usize>,
}

impl DatasetSource {
    /// Reads a recording, or any other file or folder with memory data, with its failed allocations.
    ///
    /// # Errors
    ///
    /// As [`read`](crate::read).
    pub fn read(path: &Path, progress: &Arc<Progress>) -> Result<DatasetSource, SourceError> {
        let mut reading = reading::read_watched(path, progress)?;
        let is_torch = |host: &reading::Host| host.trace.history.framework == Some(Framework::PyTorch);
        let may_fail = !reading.stills.is_empty() || reading.hosts.iter().any(is_torch);
        if reading.recorded.is_none() && reading.failures.is_none() && may_fail {
            // What tells of no failures is no error here.
            let found = causes::read_failures(&[path.to_owned()], None, progress).ok();
            reading.failures = found.filter(|found| !found.failures.list.is_empty());
        }
        let keys = SourceKeys::of(path, &reading)?;
        let command = reading.recorded.as_ref().and_then(|recorded| recorded.manifest.as_ref());
        let script = command.and_then(|manifest| script_in(&manifest.command));
        Ok(DatasetSource { keys, reading, script })
    }

    /// Replaces private texts.
    pub fn redact(&mut self, redaction: &mut Redaction) {
        self.keys.redact();
        redaction.reading(&mut self.reading);
    }

    /// What the tables say of it, but for failures and allocations.
    #[must_use]
    pub fn entry(&self) -> DatasetEntry {
        let report = report(&self.reading, &ReportOptions::default());
        let recorded = self.reading.recorded.as_ref();
        let manifest = recorded.and_then(|recorded| recorded.manifest.as_ref());
        let told = |host: &str| Some(host.to_owned()).filter(|host| !host.is_empty());
        let processes: Vec<DatasetProcess> = recorded
            .map_or_else(Vec::new, |recorded| recorded.processes.iter().map(DatasetProcess::of).collect());
        let hosts = Hosts::of(&report, &processes, manifest.and_then(|manifest| told(&manifest.host)));
        let identity = manifest.map(|manifest| manifest.identity.clone());
        let identity = identity.or_else(|| processes.first().map(|process| process.identity.clone()));
        let command = report.job.as_ref().map(|job| job.command.as_slice()).unwrap_or_default();
        let driver = manifest.and_then(|manifest| manifest.driver.as_ref());
        let pools: Vec<DatasetPool> = report
            .pools
            .iter()
            .map(|pool| DatasetPool {
                host: hosts.of_process(&pool.host, pool.pid),
                sizes: PoolSizes::of(pool, &report),
            })
            .collect();
        DatasetEntry {
            script: self.script.and_then(|at| command.get(at)).cloned(),
            command: (!command.is_empty()).then(|| command.join(" ")),
            identity: identity.unwrap_or_default(),
            started: started(recorded, &report),
            recorded_with: manifest.map(|manifest| manifest.vramline.clone()),
            driver_version: driver.and_then(|driver| driver.library.driver_version.clone()),
            devices: devices(recorded, &report, &pools, &hosts),
            pools,
            failures: self.reading.failures.as_ref().map_or(0, |read| read.failures.list.len()),
            processes,
            hosts,
            report,
        }
    }

    /// The failed allocations, with the traces that may show what led to them; `None` if none failed.
    #[must_use]
    pub fn into_failures(self) -> Option<OutOfMemory> {
        match self.reading.recorded {
            Some(_) => self.reading.into_failures(),
            None => self.reading.failures,
        }
    }
}

/// What a source adds to the tables.
#[derive(Debug)]
pub struct DatasetEntry {
    /// The report.
    pub report: ReportAnalysis,
    /// The command in one line.
    pub command: Option<String>,
    /// The script or module that the command runs.
    pub script: Option<String>,
    /// Which job it is, as its launcher tells.
    pub identity: RankIdentity,
    /// When it began, in Unix time.
    pub started: Option<Nanos>,
    /// The version of Vramline that recorded it.
    pub recorded_with: Option<String>,
    /// The version of the driver.
    pub driver_version: Option<String>,
    /// The devices that it used or could use.
    pub devices: Vec<DatasetDevice>,
    /// Its processes.
    pub processes: Vec<DatasetProcess>,
    /// What a report does not say of each of its pools, in the same order.
    pub pools: Vec<DatasetPool>,
    /// Number of failed allocations.
    pub failures: usize,
    /// The machines.
    pub hosts: Hosts,
}

/// A process of a recording.
#[derive(Clone, Debug)]
pub struct DatasetProcess {
    /// Its name in the recording.
    pub id: String,
    /// The machine.
    pub host: String,
    /// Its number.
    pub pid: u64,
    /// Its rank in a distributed job.
    pub rank: Option<u64>,
    /// Which part of which job it is.
    pub identity: RankIdentity,
    /// The framework that holds the memory, with its version.
    pub framework: Option<(String, String)>,
    /// The version of Keras.
    pub keras: Option<String>,
    /// The framework that Keras works on.
    pub backend: Option<String>,
    /// Python's version.
    pub python: String,
    /// The process it was forked from.
    pub forked_from: Option<String>,
}

impl DatasetProcess {
    fn of(process: &RecordedProcess) -> DatasetProcess {
        let facts = &process.facts;
        let version = |name: &str| facts.frameworks.get(name).cloned();
        DatasetProcess {
            id: process.id.to_string(),
            host: process.id.host().to_owned(),
            pid: u64::from(process.id.pid()),
            rank: facts.rank.or(facts.identity.rank),
            identity: facts.identity.clone(),
            framework: facts.framework().map(|(name, version)| (name.to_owned(), version.to_owned())),
            keras: version("keras").or_else(|| version("tf_keras")),
            backend: facts.backend.clone(),
            python: facts.python.clone(),
            forked_from: facts.forked_from.clone(),
        }
    }
}

/// A device of a source.
#[derive(Clone, Debug)]
pub struct DatasetDevice {
    /// The machine.
    pub host: Key,
    /// The device, as pools name it.
    pub device: String,
    /// The product's name.
    pub name: Option<String>,
    /// All its memory.
    pub total: Option<Bytes>,
    /// The highest figures of the job on it; `None` where nobody asked the driver.
    pub highest: Option<HighestFigures>,
    /// The highest peak of its pools.
    pub pool_peak: Option<Bytes>,
    /// The version of the machine's driver.
    pub driver_version: Option<String>,
}

impl DatasetDevice {
    fn new(host: &Key, device: &str, name: Option<String>, total: Option<Bytes>) -> DatasetDevice {
        DatasetDevice {
            host: host.clone(),
            device: device.to_owned(),
            name,
            total,
            highest: None,
            pool_peak: None,
            driver_version: None,
        }
    }
}

/// A pool of the report: where it belongs, and its size.
#[derive(Clone, Debug)]
pub struct DatasetPool {
    /// The machine.
    pub host: Key,
    /// What it took from the driver.
    pub sizes: PoolSizes,
}

/// What a pool took from the driver.
#[derive(Clone, Copy, Debug, Default)]
pub struct PoolSizes {
    /// The most that it reserved.
    pub reserved: Option<Bytes>,
    /// How that is known: `snapshot`, `replay` or `counter`.
    pub by: Option<&'static str>,
}

impl PoolSizes {
    fn of(pool: &PoolAnalysis, report: &ReportAnalysis) -> PoolSizes {
        // A replay covers the first trace only, and is the pool's size only if it follows the trace to the end.
        let replay = pool.replay.as_ref().filter(|_| pool.window.is_none_or(|window| window == 1));
        let replayed =
            replay.filter(|replay| replay.address_matches == replay.allocs).map(|replay| replay.pool);
        let snapshot = pool.caching.as_ref().map(|caching| caching.reserved_peak);
        let is_alone = report
            .pools
            .iter()
            .filter(|other| (&other.host, &other.device) == (&pool.host, &pool.device))
            .count()
            == 1;
        let counter = report.highest_of(pool).and_then(|highest| highest.taken).filter(|_| is_alone);
        let all = [(snapshot, "snapshot"), (replayed, "replay"), (counter, "counter")];
        // A trace of the first steps does not know what later ones took.
        let highest = all.into_iter().filter(|(bytes, _)| bytes.is_some()).max_by_key(|(bytes, _)| *bytes);
        let (reserved, by) = highest.map_or((None, None), |(bytes, by)| (bytes, Some(by)));
        // Less than the peak of the process would be the size at another time.
        match reserved.filter(|reserved| pool.highest().is_none_or(|peak| peak <= *reserved)) {
            Some(reserved) => PoolSizes { reserved: Some(reserved), by },
            None => PoolSizes::default(),
        }
    }
}

/// The machines of a source. The name of a machine is taken from its processes where that is possible, because profilers have names of their own.
#[derive(Debug, Default)]
pub struct Hosts {
    launcher: Option<String>,
    processes: Vec<(String, u64)>,
}

impl Hosts {
    fn of(report: &ReportAnalysis, processes: &[DatasetProcess], launcher: Option<String>) -> Hosts {
        let processes: Vec<(String, u64)> =
            processes.iter().map(|process| (process.host.clone(), process.pid)).collect();
        let traced = report.pools.first().map(|pool| pool.host.clone()).filter(|host| !host.is_empty());
        let launcher = launcher.or_else(|| processes.first().map(|(host, _)| host.clone())).or(traced);
        Hosts { launcher, processes }
    }

    /// Where the job was started.
    #[must_use]
    pub fn launcher(&self) -> Key {
        Key::host(self.launcher.as_deref())
    }

    /// A machine by its own name. Processes have it from the names of files, which not every name fits.
    #[must_use]
    pub fn of_machine(&self, host: Option<&str>) -> Key {
        host.map_or_else(|| self.launcher(), |host| Key::host(Some(ProcessId::new(host, 0, 0).host())))
    }

    /// The machine of a figure that names its host and process.
    #[must_use]
    pub fn of_process(&self, host: &str, pid: Option<u64>) -> Key {
        if self.processes.iter().any(|(known, _)| known == host) {
            return Key::host(Some(host));
        }
        let mut same = self.processes.iter().filter(|(_, known)| Some(*known) == pid);
        match (same.next(), same.next()) {
            (Some((known, _)), None) => Key::host(Some(known)),
            _ if host.is_empty() => self.launcher(),
            _ => Key::host(Some(host)),
        }
    }

    /// How many machines there are.
    #[must_use]
    pub fn count(&self) -> usize {
        let all: std::collections::BTreeSet<&str> =
            self.processes.iter().map(|(host, _)| host.as_str()).collect();
        all.len().max(usize::from(self.launcher.is_some()))
    }
}

/// The position of the script or module that a command runs; `None` where no word looks like one.
fn script_in(command: &[String]) -> Option<usize> {
    let module =
        command.iter().position(|word| word == "-m").map(|at| at + 1).filter(|at| *at < command.len());
    let script = command.iter().position(|word| word.ends_with(".py"));
    // `python -m torch.distributed.run train.py` has both, and the module is not the program of the user.
    script.or(module).or_else(|| (!command.is_empty()).then_some(0))
}

fn started(recorded: Option<&Recorded>, report: &ReportAnalysis) -> Option<Nanos> {
    let manifest = recorded.and_then(|recorded| recorded.manifest.as_ref());
    let marks = recorded.into_iter().flat_map(|recorded| &recorded.processes);
    let first = marks.filter_map(|process| process.marks.first()).map(|mark| Nanos(mark.time.wall)).min();
    manifest.map(|manifest| manifest.clocks.begin.realtime_ns).or(first).or(report.source.wall_clock_zero)
}

/// The devices of each machine: those that its runs could use, and those that its pools or figures name.
fn devices(
    recorded: Option<&Recorded>,
    report: &ReportAnalysis,
    pools: &[DatasetPool],
    hosts: &Hosts,
) -> Vec<DatasetDevice> {
    let mut devices: Vec<DatasetDevice> = Vec::new();
    for (number, run) in recorded.iter().flat_map(|recorded| recorded.runs().enumerate()) {
        let host = hosts.of_machine(recorded.and_then(|recorded| recorded.host_of_run(number)));
        for device in run.manifest.map(process::devices).unwrap_or_default() {
            add(&mut devices, DatasetDevice::new(&host, &device.device, device.name, device.total));
        }
    }
    let used = report.pools.iter().zip(pools).map(|(pool, place)| (place.host.clone(), pool.device.as_str()));
    let told =
        report.highest.iter().map(|each| (hosts.of_machine(each.host.as_deref()), each.device.as_str()));
    for (host, device) in used.chain(told).filter(|(_, device)| !device.is_empty()) {
        let mut of_device = report.pools.iter().filter(|pool| pool.device == device);
        let hardware = of_device.find_map(|pool| pool.hardware.as_ref());
        let total = hardware.and_then(|hardware| hardware.memory);
        add(&mut devices, DatasetDevice::new(&host, device, None, total));
    }
    for device in &mut devices {
        let mine = report.pools.iter().zip(pools);
        let mine = mine.filter(|(pool, place)| pool.device == device.device && place.host == device.host);
        device.pool_peak = mine.filter_map(|(pool, _)| pool.highest()).max();
        let is_it = |each: &&DeviceHighest| {
            each.device == device.device && hosts.of_machine(each.host.as_deref()) == device.host
        };
        device.highest = report.highest.iter().find(is_it).map(|each| each.figures.clone());
        let of_host = |(number, run): (usize, RunView<'_>)| {
            let host = hosts.of_machine(recorded?.host_of_run(number));
            let driver = run.manifest?.driver.as_ref().filter(|_| host == device.host)?;
            driver.library.driver_version.clone()
        };
        let mut runs = recorded.iter().flat_map(|recorded| recorded.runs().enumerate());
        device.driver_version = runs.find_map(of_host);
    }
    devices
}

/// Adds a device unless it is there.
fn add(devices: &mut Vec<DatasetDevice>, device: DatasetDevice) {
    if !devices.iter().any(|known| known.device == device.device && known.host == device.host) {
        devices.push(device);
    }
}
