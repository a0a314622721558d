//! The JSON document of `vramline top`: the memory of a machine right now. The screen shows the same data.
//!
//! Built from [`analysis::top`](crate::analysis::top).

use serde::Serialize;

use crate::analysis::top::{
    BarPart, BarStretch, DeviceUse, DriverAnswer, HostState, HostUse, JobSummary, LiveStep, ProcessUse,
    TopAnalysis, TopWord, VariableRole,
};
use crate::document::{Document, Unknowns};
use crate::event::Phase;
use crate::ledger::{HeldLine, LineKind};
use crate::recording::manifest::Exit;
use crate::recording::running::State;
use crate::snapshot::Role;
use crate::source::driver::DriverError;
use crate::units::{Bytes, Nanos};
use crate::warning::{Unknown, Warning};

/// The whole document.
#[derive(Clone, Debug, Serialize, Document)]
pub struct Top {
    /// `top`.
    pub kind: &'static str,
    /// The machine as a sentence.
    pub headline: String,
    /// The machine as a word, with its figures.
    pub verdict: TopVerdictView,
    /// Unix time of the reading.
    pub time_ns: Nanos,
    /// This machine.
    pub host: String,
    /// The driver.
    pub driver: TopDriver,
    /// Devices, and host memory if it is used.
    pub devices: Vec<TopDevice>,
    /// Recordings that are being written, or were recently.
    pub jobs: Vec<TopJob>,
    /// The hosts of the recordings, one row for each host of a job. What needs attention comes first.
    pub hosts: Vec<TopHost>,
    /// Processes, one row for each device.
    pub processes: Vec<TopProcess>,
    /// Notes for the reader.
    pub warnings: Vec<Warning>,
    /// The reason for each null.
    pub unknowns: Vec<Unknown>,
}

/// The machine as a word, with its figures.
#[derive(Clone, Debug, Serialize, Document)]
pub struct TopVerdictView {
    /// `idle`, `busy` or `no-driver`.
    #[field(title = "verdict")]
    pub word: TopWord,
    /// Number of GPUs.
    pub gpus: usize,
    /// Number of processes on devices.
    pub processes: usize,
    /// Number of recorded jobs that are running.
    pub running_jobs: usize,
}

/// The driver.
#[derive(Clone, Debug, Serialize, Document)]
pub struct TopDriver {
    /// The driver's version.
    #[field(
        title = "driver",
        null = "there is no driver, or it does not report it",
        switch = "vramline doctor"
    )]
    pub version: Option<String>,
    /// Why there is no driver, such as `library-missing`.
    #[field(null = "the driver answers")]
    pub error: Option<&'static str>,
    /// Age of its answer.
    #[field(null = "there is no driver", switch = "vramline doctor")]
    pub age_ns: Option<Nanos>,
}

/// A device.
#[derive(Clone, Debug, Serialize, Document)]
pub struct TopDevice {
    /// `GPU 0`; for a MIG part `GPU 0.1`; `CPU` for host memory, which is shown if a recorded job uses it or if there is no GPU.
    #[field(title = "device")]
    pub name: String,
    /// Its unique id; `CPU` for host memory.
    #[field(null = "the driver does not report it")]
    pub uuid: Option<String>,
    /// The model.
    #[field(null = "host memory has no model, or the device does not answer")]
    pub model: Option<String>,
    /// For a MIG part: the uuid of the whole device.
    #[field(null = "it is a whole device")]
    pub part_of: Option<String>,
    /// Whether host memory stands in for device memory.
    #[field(title = "stand-in")]
    pub is_stand_in: bool,
    /// Its total memory.
    #[field(null = "the device does not answer", switch = "vramline doctor")]
    pub total_bytes: Option<Bytes>,
    /// Free memory; for host memory, what is available without swapping.
    #[field(null = "the device does not answer", switch = "vramline doctor")]
    pub free_bytes: Option<Bytes>,
    /// Why its memory is unknown.
    #[field(null = "the device answers")]
    pub error: Option<&'static str>,
    /// What holds the memory of the device; the parts add up.
    pub parts: Vec<TopPart>,
    /// Number of processes in the driver's list; on the CPU, of recorded processes.
    #[field(null = "the driver does not list the processes of this device", switch = "vramline doctor")]
    pub processes: Option<usize>,
}

/// A part of a device's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Document)]
pub struct TopPart {
    /// `driver reserved`; for recorded processes `in use`, `cached free`, `context and outside` their pools, or `context, cached and outside` if the framework does not report the size of its pool; on the CPU, which has no context, `the program's own` and `cached and the program's own` instead, and `not resident` pages of a pool (negative); `other processes`; `unattributed`: used, but in no list of processes; `free`.
    pub part: BarPart,
    /// Its bytes; they add up to `total_bytes`.
    pub bytes: i64,
}

/// A recording.
#[derive(Clone, Debug, Serialize, Document)]
pub struct TopJob {
    /// Its folder.
    #[field(title = "recording")]
    pub path: String,
    /// Its command; empty for a program that records itself.
    pub command: String,
    /// `running`, `ended`, `gone` (no process writes it, and its end was not recorded), `elsewhere` (its processes are on another machine).
    pub state: State,
    /// Its exit code.
    #[field(title = "code", null = "the job has not ended, a signal ended it, or its end was not recorded")]
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    #[field(title = "signal", null = "no signal ended it")]
    pub exit_signal: Option<i32>,
    /// Its machine.
    #[field(null = "only `vramline run` records it; this program records itself")]
    pub host: Option<String>,
    /// Unix time of its start.
    #[field(null = "only `vramline run` records it; this program records itself")]
    pub began_ns: Option<Nanos>,
    /// Number of its processes that have written data.
    pub processes: usize,
    /// Whether it has a trace, from which `report` shows roles.
    #[field(title = "traced")]
    pub is_traced: bool,
}

/// A host of a job. A rank that was started again counts once, on the host where it is now.
#[derive(Clone, Debug, Serialize, Document)]
pub struct TopHost {
    /// Its index in `jobs`, from zero.
    pub job: usize,
    /// The name of the job.
    #[field(title = "job", null = "neither --job nor the launcher names the job")]
    pub job_name: Option<String>,
    /// Its name.
    #[field(null = "no host has shown these ranks")]
    pub host: Option<String>,
    /// Its ranks, as far as they have written data; of the state `unseen`, the ranks that no host has shown.
    pub ranks: Vec<u64>,
    /// The number of ranks of the job.
    #[field(unit = "number", null = "no launcher variable contains the number of ranks")]
    pub world_size: Option<u64>,
    /// The number of the last completed step of the rank that has the lowest.
    #[field(title = "lowest step", null = "none of its processes has reported a step")]
    pub lowest_step: Option<i64>,
    /// The same of the rank that has the highest.
    #[field(title = "highest step", null = "none of its processes has reported a step")]
    pub highest_step: Option<i64>,
    /// Bytes in use in the pool that has most in use.
    #[field(title = "in use", null = "none of its processes reports it")]
    pub in_use_bytes: Option<Bytes>,
    /// The highest peak of its pools.
    #[field(title = "peak", null = "none of its processes reports it")]
    pub peak_bytes: Option<Bytes>,
    /// The rank that has it.
    #[field(null = "the peak is unknown, or the process does not report a rank")]
    pub peak_rank: Option<u64>,
    /// The least headroom of its pools: the limit of the pool minus its peak; without a limit, the memory of the device minus the peak. What
    /// other programs use of the device is not included.
    #[field(title = "headroom", null = "no peak is known, or neither limits nor devices are known")]
    pub headroom_bytes: Option<Bytes>,
    /// The rank that has it.
    #[field(null = "the headroom is unknown, or the process does not report a rank")]
    pub headroom_rank: Option<u64>,
    /// The age of its newest data, by the clock of the host; while `top` runs, by the time at which the data arrived.
    #[field(
        title = "age",
        null = "no host has shown these ranks, or the clock of the host is ahead of this machine's"
    )]
    pub age_ns: Option<Nanos>,
    /// `unseen` (the launcher announced these ranks, and no host has shown them), `silent` (no news for more than a minute), `gone` (no process
    /// is left, and the end was not recorded), `running`, `elsewhere` (on another machine, and the age of its data is unknown) or `ended`.
    pub state: HostState,
    /// Its exit code; of several runs of the job on the host, that of one that failed.
    #[field(
        title = "code",
        null = "the job has not ended there, a signal ended it, or its end was not recorded"
    )]
    pub exit_code: Option<i32>,
    /// The signal that ended it.
    #[field(title = "signal", null = "no signal ended it")]
    pub exit_signal: Option<i32>,
}

/// A process on a device.
#[derive(Clone, Debug, Serialize, Document)]
pub struct TopProcess {
    /// The process id, from the driver or from its recording; one row for each device.
    pub pid: u32,
    /// The device, as in `devices`; the framework's name for it if it matches no device of this machine; empty if the process uses none yet.
    pub device: String,
    /// Its index in `jobs`, from zero.
    #[field(null = "there is no recording of it here", switch = "vramline run -- CMD")]
    pub job: Option<usize>,
    /// Its rank in a distributed job.
    #[field(null = "it does not report a rank")]
    pub rank: Option<u64>,
    /// Its command line; empty if it is not visible from here.
    pub command: String,
    /// Its framework, with the version.
    #[field(null = "only recorded processes have it", switch = "vramline run -- CMD")]
    pub framework: Option<String>,
    /// Its memory on the device, by the driver; on the CPU, its resident set size.
    #[field(
        null = "the driver does not list the process under a known id, does not report its memory, or the process has ended",
        switch = "vramline doctor"
    )]
    pub held_bytes: Option<Bytes>,
    /// Bytes that its framework's pool reserved.
    #[field(
        null = "only recorded processes have it, if their framework reports it",
        switch = "vramline run -- CMD"
    )]
    pub pool_bytes: Option<Bytes>,
    /// Bytes of the pool that are in use.
    #[field(
        null = "only recorded processes have it, if their framework reports it",
        switch = "vramline run -- CMD"
    )]
    pub in_use_bytes: Option<Bytes>,
    /// Bytes of the pool that are cached.
    #[field(
        null = "only recorded processes have it, if their framework reports it",
        switch = "vramline run -- CMD"
    )]
    pub cached_bytes: Option<Bytes>,
    /// The limit of the pool.
    #[field(
        null = "only recorded processes have it, if their framework reports it",
        switch = "vramline run -- CMD"
    )]
    pub limit_bytes: Option<Bytes>,
    /// Peak bytes in use so far.
    #[field(
        null = "only recorded processes have it, if their framework reports it",
        switch = "vramline run -- CMD"
    )]
    pub peak_bytes: Option<Bytes>,
    /// How much the peak can rise: the pool plus free device memory, or the pool's limit if that is less, minus the peak so far.
    #[field(
        null = "only recorded processes on this machine have it, if their framework reports a peak",
        switch = "vramline run -- CMD"
    )]
    pub headroom_bytes: Option<Bytes>,
    /// The last completed step.
    #[field(
        null = "the process has not reported a step yet, or is not recorded",
        switch = "vramline run -- CMD"
    )]
    pub step: Option<i64>,
    /// Its phase: `train`, `validation`, `predict` or `other`.
    #[field(
        null = "the process has not reported a step yet, or is not recorded",
        switch = "vramline run -- CMD"
    )]
    pub phase: Option<Phase>,
    /// Its epoch, from zero.
    #[field(null = "its step belongs to no epoch")]
    pub epoch: Option<u64>,
    /// Peak bytes in use during the step.
    #[field(null = "per-step peaks are not recorded by default", switch = "vramline run --step-peaks")]
    pub step_peak_bytes: Option<Bytes>,
    /// Its duration.
    #[field(
        title = "duration",
        null = "the process has not reported a step yet, or is not recorded",
        switch = "vramline run -- CMD"
    )]
    pub step_ns: Option<Nanos>,
    /// Time since it last wrote data.
    #[field(null = "the process has ended, runs on another machine, or is not recorded")]
    pub silent_ns: Option<Nanos>,
    /// The exception that ended it.
    #[field(null = "no exception ended it")]
    pub exception: Option<String>,
    /// The variables that the program lists, by role.
    pub roles: Vec<RoleView>,
    /// What its driver calls took outside its pool, largest first; empty without `--driver-trace on`.
    pub outside: Vec<TopHeld>,
    /// The newest steps, oldest first.
    pub steps: Vec<TopStep>,
}

/// Memory outside the pool of a process, by its driver calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Document)]
pub struct TopHeld {
    /// What it is, as in `ledger[].line` of a report.
    #[field(unit = "text")]
    pub line: LineKind,
    /// The library, the number of streams or allocations, and the line of Python.
    pub detail: String,
    /// Its bytes. For the context NVML counts a few MiB less.
    pub bytes: i64,
}

/// The variables of one role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Document)]
pub struct RoleView {
    /// The role of the variables: `parameters`, `optimizer` or `unknown`.
    #[field(unit = "word")]
    pub role: Role,
    /// Number of variables.
    pub variables: u64,
    /// Their bytes.
    pub bytes: Bytes,
}

/// A step.
#[derive(Clone, Debug, Serialize, Document)]
pub struct TopStep {
    /// Its number.
    pub step: i64,
    /// As above.
    pub phase: Phase,
    /// As above.
    #[field(null = "the step belongs to no epoch")]
    pub epoch: Option<u64>,
    /// Unix time of its end.
    #[field(title = "at")]
    pub end_ns: Nanos,
    /// Its duration.
    #[field(title = "duration")]
    pub duration_ns: Nanos,
    /// Peak bytes in use during the step.
    #[field(null = "per-step peaks are not recorded by default", switch = "vramline run --step-peaks")]
    pub peak_bytes: Option<Bytes>,
    /// Bytes in use at its end.
    #[field(title = "in use", null = "the framework does not report it")]
    pub current_bytes: Option<Bytes>,
}

impl From<&TopAnalysis> for Top {
    fn from(analysis: &TopAnalysis) -> Top {
        let (gpus, processes, running_jobs) = analysis.count();
        let mut document = Top {
            kind: "top",
            headline: analysis.headline(),
            verdict: TopVerdictView { word: analysis.word(), gpus, processes, running_jobs },
            time_ns: Nanos(analysis.now.wall),
            host: analysis.host.clone(),
            driver: TopDriver::from(&analysis.driver),
            devices: analysis.devices.iter().map(TopDevice::from).collect(),
            jobs: analysis.jobs.iter().map(TopJob::from).collect(),
            hosts: analysis.hosts.iter().map(TopHost::from).collect(),
            processes: analysis.processes.iter().map(TopProcess::from).collect(),
            warnings: analysis.warnings.clone(),
            unknowns: Vec::new(),
        };
        document.unknowns = Unknowns::of(&document);
        document
    }
}

impl From<&Result<DriverAnswer, DriverError>> for TopDriver {
    fn from(driver: &Result<DriverAnswer, DriverError>) -> TopDriver {
        let answer = driver.as_ref().ok();
        TopDriver {
            version: answer.and_then(|answer| answer.version.clone()),
            error: driver.as_ref().err().map(DriverError::code),
            age_ns: answer.map(|answer| answer.age),
        }
    }
}

impl From<&DeviceUse> for TopDevice {
    fn from(device: &DeviceUse) -> TopDevice {
        TopDevice {
            name: device.name.clone(),
            uuid: Some(device.uuid.clone()),
            model: device.model.clone(),
            part_of: device.part_of.clone(),
            is_stand_in: device.is_stand_in,
            total_bytes: device.total,
            free_bytes: device.free,
            error: device.error.as_ref().map(DriverError::code),
            parts: device.bar.iter().map(TopPart::from).collect(),
            processes: device.processes,
        }
    }
}

impl From<&BarStretch> for TopPart {
    fn from(stretch: &BarStretch) -> TopPart {
        TopPart { part: stretch.part, bytes: stretch.bytes }
    }
}

impl From<&JobSummary> for TopJob {
    fn from(job: &JobSummary) -> TopJob {
        TopJob {
            path: job.path.display().to_string(),
            command: job.command.clone(),
            state: job.state,
            exit_code: job.state.exit().and_then(Exit::code),
            exit_signal: job.state.exit().and_then(Exit::signal),
            host: job.host.clone(),
            began_ns: job.began,
            processes: job.processes,
            is_traced: job.is_traced,
        }
    }
}

impl From<&HostUse> for TopHost {
    fn from(host: &HostUse) -> TopHost {
        TopHost {
            job: host.job,
            job_name: host.job_name.clone(),
            host: host.host.clone(),
            ranks: host.ranks.iter().copied().collect(),
            world_size: host.world_size,
            lowest_step: host.steps.map(|(lowest, _)| lowest),
            highest_step: host.steps.map(|(_, highest)| highest),
            in_use_bytes: host.in_use,
            peak_bytes: host.peak.map(|peak| peak.bytes),
            peak_rank: host.peak.and_then(|peak| peak.rank),
            headroom_bytes: host.headroom.map(|headroom| headroom.bytes),
            headroom_rank: host.headroom.and_then(|headroom| headroom.rank),
            age_ns: host.age,
            state: host.state,
            exit_code: host.exit.and_then(Exit::code),
            exit_signal: host.exit.and_then(Exit::signal),
        }
    }
}

impl From<&ProcessUse> for TopProcess {
    fn from(process: &ProcessUse) -> TopProcess {
        let newest = process.newest_step();
        TopProcess {
            pid: process.pid,
            device: process.device.clone(),
            job: process.job,
            rank: process.rank,
            command: process.command.clone(),
            framework: process
                .framework
                .as_ref()
                .map(|of| format!("{} {}", of.name, of.version).trim_end().to_owned()),
            held_bytes: process.held,
            pool_bytes: process.taken,
            in_use_bytes: process.in_use,
            cached_bytes: process.cached,
            limit_bytes: process.limit,
            peak_bytes: process.peak,
            headroom_bytes: process.headroom,
            step: newest.map(|step| step.number),
            phase: newest.map(|step| step.phase),
            epoch: newest.and_then(|step| step.epoch),
            step_peak_bytes: newest.and_then(|step| step.peak),
            step_ns: newest.map(|step| step.duration),
            silent_ns: process.silent,
            exception: process.exception.clone(),
            roles: process.roles.iter().map(RoleView::from).collect(),
            outside: process.outside.iter().map(TopHeld::from).collect(),
            steps: process.steps.iter().map(TopStep::from).collect(),
        }
    }
}

impl From<&HeldLine> for TopHeld {
    fn from(line: &HeldLine) -> TopHeld {
        TopHeld { line: line.kind, detail: line.detail(), bytes: line.bytes }
    }
}

impl From<&VariableRole> for RoleView {
    fn from(of: &VariableRole) -> RoleView {
        RoleView { role: of.role, variables: of.variables, bytes: of.bytes }
    }
}

impl From<&LiveStep> for TopStep {
    fn from(step: &LiveStep) -> TopStep {
        TopStep {
            step: step.number,
            phase: step.phase,
            epoch: step.epoch,
            end_ns: step.end,
            duration_ns: step.duration,
            peak_bytes: step.peak,
            current_bytes: step.current,
        }
    }
}
