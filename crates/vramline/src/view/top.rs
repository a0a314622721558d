//! The JSON document of `vramline top`: what a machine's memory does right now, and what its screen is drawn from.
//!
//! [`analysis::top`](crate::analysis::top) concludes it; here it gets its form.

use serde::Serialize;

use crate::analysis::top::{
    BarPart, BarStretch, DeviceUse, DriverAnswer, JobSummary, LiveStep, ProcessUse, TopAnalysis, TopWord,
    VariableRole,
};
use crate::document::{Document, Unknowns};
use crate::event::Phase;
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
    /// The machine in a line.
    pub headline: String,
    /// The machine in a word, with its figures.
    pub verdict: TopVerdictView,
    /// Unix time of the look.
    pub time_ns: Nanos,
    /// This machine.
    pub host: String,
    /// The driver.
    pub driver: TopDriver,
    /// Devices, and the machine's own memory where that is used.
    pub devices: Vec<TopDevice>,
    /// Recordings that are being written, or were lately.
    pub jobs: Vec<TopJob>,
    /// Processes, a row for each device.
    pub processes: Vec<TopProcess>,
    /// What the reader should know.
    pub warnings: Vec<Warning>,
    /// Each null with its reason.
    pub unknowns: Vec<Unknown>,
}

/// The machine in a word, with its figures.
#[derive(Clone, Debug, Serialize, Document)]
pub struct TopVerdictView {
    /// `idle`, `busy` or `no-driver`.
    #[field(title = "verdict")]
    pub word: TopWord,
    /// GPUs.
    pub gpus: usize,
    /// Processes on devices.
    pub processes: usize,
    /// Recorded jobs that run.
    pub running_jobs: usize,
}

/// The driver.
#[derive(Clone, Debug, Serialize, Document)]
pub struct TopDriver {
    /// The driver's version.
    #[field(title = "driver", null = "there is no driver, or it does not say", switch = "vramline doctor")]
    pub version: Option<String>,
    /// Why there is no driver, such as `library-missing`.
    #[field(null = "the driver answers")]
    pub error: Option<&'static str>,
    /// How old its answer is.
    #[field(null = "there is no driver", switch = "vramline doctor")]
    pub age_ns: Option<Nanos>,
}

/// A device.
#[derive(Clone, Debug, Serialize, Document)]
pub struct TopDevice {
    /// `GPU 0`, of a part (MIG) `GPU 0.1`; `CPU` for the machine's own memory, shown where a recorded job uses it or there is no GPU.
    #[field(title = "device")]
    pub name: String,
    /// Its name for ever; `CPU`.
    #[field(null = "the driver does not say")]
    pub uuid: Option<String>,
    /// The model.
    #[field(null = "the machine's own memory has none, or the device does not answer")]
    pub model: Option<String>,
    /// Of a part (MIG): the whole device's uuid.
    #[field(null = "it is a whole device")]
    pub part_of: Option<String>,
    /// The machine's own memory stands in for a device's.
    #[field(title = "stand-in")]
    pub is_stand_in: bool,
    /// Its memory.
    #[field(null = "the device does not answer", switch = "vramline doctor")]
    pub total_bytes: Option<Bytes>,
    /// Not taken; of the machine's own memory what can be had without swapping.
    #[field(null = "the device does not answer", switch = "vramline doctor")]
    pub free_bytes: Option<Bytes>,
    /// Why its memory is not told.
    #[field(null = "it answers")]
    pub error: Option<&'static str>,
    /// What holds the device; the parts add up.
    pub parts: Vec<TopPart>,
    /// Processes in the driver's list; recorded ones on the CPU.
    #[field(null = "the driver does not list the processes of this device", switch = "vramline doctor")]
    pub processes: Option<usize>,
}

/// A stretch of a device's bar.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Document)]
pub struct TopPart {
    /// `driver reserved`; of recorded processes `in use`, `cached free`, `context and outside` their pools, `context, cached and outside` where a framework does not tell how large its pool is; on the CPU, where there is no context, `the program's own` and `cached and the program's own` instead, and `not resident` pages of a pool (negative); `other processes`; `unattributed`: taken, and in no list; `free`.
    pub part: BarPart,
    /// They add up to `total_bytes`.
    pub bytes: i64,
}

/// A recording.
#[derive(Clone, Debug, Serialize, Document)]
pub struct TopJob {
    /// Its folder.
    #[field(title = "recording")]
    pub path: String,
    /// What was run; empty for a program that records itself.
    pub command: String,
    /// `running`, `ended`, `gone` (nobody writes it, and nobody said how it ended), `elsewhere` (its processes are on another machine).
    pub state: State,
    /// How it ended.
    #[field(title = "code", null = "the job has not ended, or a signal ended it, or nobody said how")]
    pub exit_code: Option<i32>,
    /// What ended it.
    #[field(title = "signal", null = "no signal has ended it")]
    pub exit_signal: Option<i32>,
    /// Where it runs.
    #[field(null = "a program that records itself has no launcher that would say")]
    pub host: Option<String>,
    /// Unix time of its beginning.
    #[field(null = "a program that records itself has no launcher that would say")]
    pub began_ns: Option<Nanos>,
    /// Processes that have written something.
    pub processes: usize,
    /// Whether a trace is written, from which `report` tells roles.
    #[field(title = "traced")]
    pub is_traced: bool,
}

/// A process on a device.
#[derive(Clone, Debug, Serialize, Document)]
pub struct TopProcess {
    /// The process, as the driver or its recording numbers it; one row for each device.
    pub pid: u32,
    /// As in `devices`; a framework's own name where no device of this machine is known to be meant; empty where none is used yet.
    pub device: String,
    /// Its place in `jobs`, from zero.
    #[field(null = "no recording of it is to be seen here", switch = "vramline run -- CMD")]
    pub job: Option<usize>,
    /// Its rank in a distributed job.
    #[field(null = "it is not part of a larger job, as far as it says")]
    pub rank: Option<u64>,
    /// Its command line; empty where it is not to be seen from here.
    pub command: String,
    /// With its version.
    #[field(null = "only recorded processes say it", switch = "vramline run -- CMD")]
    pub framework: Option<String>,
    /// What it holds of the device, as the driver says; on the CPU its resident set.
    #[field(
        null = "the driver does not list it under a number that is known here, does not tell what it holds, or it has ended",
        switch = "vramline doctor"
    )]
    pub held_bytes: Option<Bytes>,
    /// What its framework's pool has taken from the device.
    #[field(
        null = "only recorded processes tell, where their framework does",
        switch = "vramline run -- CMD"
    )]
    pub pool_bytes: Option<Bytes>,
    /// Of the pool, in use.
    #[field(
        null = "only recorded processes tell, where their framework does",
        switch = "vramline run -- CMD"
    )]
    pub in_use_bytes: Option<Bytes>,
    /// Of the pool, not in use.
    #[field(
        null = "only recorded processes tell, where their framework does",
        switch = "vramline run -- CMD"
    )]
    pub cached_bytes: Option<Bytes>,
    /// The most that the pool may take.
    #[field(
        null = "only recorded processes tell, where their framework does",
        switch = "vramline run -- CMD"
    )]
    pub limit_bytes: Option<Bytes>,
    /// The most that was in use so far.
    #[field(
        null = "only recorded processes tell, where their framework does",
        switch = "vramline run -- CMD"
    )]
    pub peak_bytes: Option<Bytes>,
    /// By how much the peak could rise: the pool and what is free on the device, or the pool's limit where that is less, less the peak so far.
    #[field(
        null = "only recorded processes that run here have any, where their framework tells a peak",
        switch = "vramline run -- CMD"
    )]
    pub headroom_bytes: Option<Bytes>,
    /// The last step that has ended.
    #[field(null = "it has not announced one yet, or is not recorded", switch = "vramline run -- CMD")]
    pub step: Option<i64>,
    /// What it did: `train`, `validation`, `predict` or `other`.
    #[field(null = "it has not announced one yet, or is not recorded", switch = "vramline run -- CMD")]
    pub phase: Option<Phase>,
    /// Its epoch, from zero.
    #[field(null = "its step belongs to none")]
    pub epoch: Option<u64>,
    /// The most in use during it.
    #[field(
        null = "a step's own peak is known where the framework's peak is reset when it begins",
        switch = "vramline run --step-peaks"
    )]
    pub step_peak_bytes: Option<Bytes>,
    /// How long it took.
    #[field(
        title = "took",
        null = "it has not announced one yet, or is not recorded",
        switch = "vramline run -- CMD"
    )]
    pub step_ns: Option<Nanos>,
    /// Since it last told anything.
    #[field(null = "it does not run, runs elsewhere, or is not recorded")]
    pub silent_ns: Option<Nanos>,
    /// The exception that ended it.
    #[field(null = "none has ended it")]
    pub exception: Option<String>,
    /// The variables that the program lists, by role.
    pub roles: Vec<RoleView>,
    /// The newest steps, oldest first.
    pub steps: Vec<TopStep>,
}

/// The variables of one role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Document)]
pub struct RoleView {
    /// Of the variables that the program lists: `parameters`, `optimizer` or `unknown`.
    #[field(unit = "word")]
    pub role: Role,
    /// How many.
    pub variables: u64,
    /// Their bytes.
    pub bytes: Bytes,
}

/// A step.
#[derive(Clone, Debug, Serialize, Document)]
pub struct TopStep {
    /// The newest steps, oldest first: its number.
    pub step: i64,
    /// As above.
    pub phase: Phase,
    /// As above.
    #[field(null = "the step belongs to none")]
    pub epoch: Option<u64>,
    /// Unix time of its end.
    #[field(title = "at")]
    pub end_ns: Nanos,
    /// How long it took.
    #[field(title = "took")]
    pub duration_ns: Nanos,
    /// The most in use during it.
    #[field(
        null = "a step's own peak is known where the framework's peak is reset when it begins",
        switch = "vramline run --step-peaks"
    )]
    pub peak_bytes: Option<Bytes>,
    /// In use at its end.
    #[field(title = "in use", null = "the framework does not tell")]
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
            steps: process.steps.iter().map(TopStep::from).collect(),
        }
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
