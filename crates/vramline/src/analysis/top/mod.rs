//! The memory of a machine right now.
//!
//! [`LiveJob`] holds what one running recording has written so far, in bounded memory; [`top`] combines it with one reading of the driver.
//! Every device has its ledger, reduced to the parts of a bar. Nothing is read or drawn here.

mod bar;
mod device;
mod history;
mod hosts;
mod job;
mod process;
mod sight;

pub use bar::{BarPart, BarStretch};
pub use device::DeviceUse;
pub use history::DeviceHistory;
pub use hosts::{HostFigure, HostState, HostUse};
pub use job::{LiveJob, LiveStep, MAX_STEPS_PER_PROCESS, ProcessFailure, VariableRole};
pub use process::{ProcessFramework, ProcessUse};
pub use sight::{DriverSight, MachineSight, SeenProcess};

use std::collections::BTreeSet;
use std::path::PathBuf;

use process::placed;

use crate::recording::identity::RankIdentity;
use crate::recording::rows::Moment;
use crate::recording::running::State;
use crate::source::driver::DriverError;
use crate::units::Nanos;
use crate::warning::Warning;

/// The age from which on the driver's answers are reported as old.
const OLD_ANSWER_NANOS: i64 = 5_000_000_000;

/// The memory of a machine right now.
#[derive(Clone, Debug)]
pub struct TopAnalysis {
    /// The time.
    pub now: Moment,
    /// The machine's name.
    pub host: String,
    /// The driver, or why it does not answer.
    pub driver: Result<DriverAnswer, DriverError>,
    /// The devices.
    pub devices: Vec<DeviceUse>,
    /// The recordings.
    pub jobs: Vec<JobSummary>,
    /// The hosts of the recordings.
    pub hosts: Vec<HostUse>,
    /// The processes, one for each of their devices.
    pub processes: Vec<ProcessUse>,
    /// Warnings.
    pub warnings: Vec<Warning>,
}

/// The state of the machine as a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopWord {
    /// No recorded job is running, and no process uses a device.
    Idle,
    /// Processes use devices.
    Busy,
    /// No driver answers.
    NoDriver,
}

words!(TopWord { Idle => "idle", Busy => "busy", NoDriver => "no-driver" });

impl TopAnalysis {
    /// Number of GPUs, processes and running recorded jobs.
    #[must_use]
    pub fn count(&self) -> (usize, usize, usize) {
        let gpus = self.devices.iter().filter(|device| !device.is_stand_in).count();
        let running = self.jobs.iter().filter(|job| job.state == State::Running).count();
        let pids: BTreeSet<u32> = self.processes.iter().map(|process| process.pid).collect();
        (gpus, pids.len(), running)
    }

    /// The state of the machine as a word.
    #[must_use]
    pub fn word(&self) -> TopWord {
        match (self.count(), &self.driver) {
            ((_, 0, 0), Err(_)) => TopWord::NoDriver,
            ((_, 0, 0), Ok(_)) => TopWord::Idle,
            _ => TopWord::Busy,
        }
    }

    /// The state of the machine as a sentence.
    #[must_use]
    pub fn headline(&self) -> String {
        let many = |count: usize, one: &str, more: &str| match count {
            0 => format!("no {one}"),
            1 => format!("1 {one}"),
            _ => format!("{count} {more}"),
        };
        let (gpus, processes, running) = self.count();
        format!(
            "{}: {}, {}, {}",
            self.host,
            many(gpus, "GPU", "GPUs"),
            many(processes, "process", "processes"),
            many(running, "recorded job is running", "recorded jobs are running")
        )
    }
}

/// Which driver answered, and when.
#[derive(Clone, Debug)]
pub struct DriverAnswer {
    /// Its version.
    pub version: Option<String>,
    /// The age of its answer.
    pub age: Nanos,
}

/// A recording.
#[derive(Clone, Debug)]
pub struct JobSummary {
    /// Its folder.
    pub path: PathBuf,
    /// Its command; empty for a program that records itself.
    pub command: String,
    /// Whether it is still being written.
    pub state: State,
    /// Which job it is a part of, as its launcher or one of its processes tells it.
    pub identity: RankIdentity,
    /// Its machine.
    pub host: Option<String>,
    /// Its start, in Unix time.
    pub began: Option<Nanos>,
    /// Its end, in Unix time, where that is recorded.
    pub ended: Option<Nanos>,
    /// Number of its processes that have written data.
    pub processes: usize,
    /// Whether it has a trace, which shows roles.
    pub is_traced: bool,
    /// Whether nothing of it was unreadable.
    pub is_complete: bool,
}

impl From<&LiveJob> for JobSummary {
    fn from(job: &LiveJob) -> JobSummary {
        JobSummary {
            path: job.path.clone(),
            command: job.command(),
            state: job.state,
            identity: job.identity(),
            host: job.manifest.as_ref().map(|manifest| manifest.host.clone()),
            began: job.manifest.as_ref().map(|manifest| manifest.clocks.begin.realtime_ns),
            ended: job.manifest.as_ref().and_then(|manifest| Some(manifest.clocks.end?.realtime_ns)),
            processes: job.processes.len(),
            is_traced: job.is_traced(),
            is_complete: job.warnings.is_empty(),
        }
    }
}

/// Combines the driver's reading and the recordings.
#[must_use]
pub fn top(sight: &MachineSight<'_>) -> TopAnalysis {
    let placed = placed(sight);
    let (mut devices, mut processes) = (Vec::new(), Vec::new());
    for look in sight.driver.iter().flat_map(|driver| &driver.devices) {
        let (device, on_it) = device::of_driver(sight, look, &placed);
        devices.push(device);
        processes.extend(on_it);
    }
    if let Some((host, on_it)) = device::of_host(sight, &placed, !devices.is_empty()) {
        devices.push(host);
        processes.extend(on_it);
    }
    // Processes that match no device of this machine are shown too.
    for entry in &placed {
        if !devices.iter().any(|device| entry.uuid.as_ref() == Some(&device.uuid)) {
            let device = entry.pool.map_or(String::new(), |(device, _)| device.to_owned());
            processes.push(entry.on_device(sight, device, None, None));
        }
    }
    let answer = |driver: &DriverSight| DriverAnswer {
        version: driver.library.driver_version.clone(),
        age: driver.age_ns,
    };
    TopAnalysis {
        now: sight.now,
        host: sight.host.clone(),
        driver: sight.driver.as_ref().map(answer).map_err(Clone::clone),
        devices,
        jobs: sight.jobs.iter().map(JobSummary::from).collect(),
        hosts: hosts::hosts(sight.jobs, sight.now, &sight.host),
        processes,
        warnings: warnings(sight),
    }
}

/// Warnings of the driver and of the recordings.
fn warnings(sight: &MachineSight<'_>) -> Vec<Warning> {
    let warn = |code, text: String, hint: &str| Warning { code, text, hint: hint.to_owned() };
    let mut all = Vec::new();
    match &sight.driver {
        Err(error) => all.push(warn(
            error.code(),
            format!("Vramline cannot show GPUs: {error}"),
            if error.hint().is_empty() { "see `vramline doctor`" } else { error.hint() },
        )),
        Ok(driver) if driver.devices.is_empty() => all.push(warn(
            "no-device",
            "the driver answers but lists no device".to_owned(),
            "start the container with --gpus all",
        )),
        Ok(_) => {}
    }
    let age = sight.driver.as_ref().ok().map(|driver| driver.age_ns);
    if let Some(age) = age.filter(|age| age.0 > OLD_ANSWER_NANOS) {
        let text = format!("the driver has not answered for {age}, so its figures are that old");
        all.push(warn("driver-silent", text, "look for Xid errors in the kernel log (dmesg)"));
    }
    for device in sight.driver.iter().flat_map(|driver| &driver.devices) {
        for error in device.memory.as_ref().err().into_iter().chain(device.processes.as_ref().err()) {
            let text = format!("GPU {}: {error}", device.facts.index);
            all.push(warn(error.code(), text, error.hint()));
        }
    }
    all.dedup();
    all.extend(sight.jobs.iter().flat_map(|job| job.warnings.iter().cloned()));
    all
}
