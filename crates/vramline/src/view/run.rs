//! The parts of a report that mainly recordings have: the job, its steps, phases, epochs, marks and variables.

use serde::Serialize;

use crate::analysis::process::{
    JobFacts, MarkFigures, PoolEpoch, PoolPhase, PoolStep, ProcessIdentity, RoleVariables,
};
use crate::document::Document;
use crate::event::{How, Phase};
use crate::recording::manifest::Exit;
use crate::recording::rows::RecordedMarkKind;
use crate::snapshot::Role;
use crate::units::{Bytes, Nanos};

/// A step, with the figures of one pool.
#[derive(Debug, Serialize, Document)]
pub struct StepView {
    /// The pool of the figures.
    pub pool: String,
    /// The machine.
    pub host: String,
    /// The process.
    #[field(null = "the trace does not contain the process id")]
    pub pid: Option<u64>,
    /// The program's own step number (in Keras: of the last batch), or a count from zero.
    pub step: i64,
    /// Number of batches: several with Keras' `steps_per_execution`.
    pub batches: u64,
    /// The `fit` of Keras that it belongs to, from 1 in each process; epochs and steps count from zero in each.
    #[field(
        null = "the step belongs to no fit: a separate evaluation or prediction, a custom loop, or a trace"
    )]
    pub fit: Option<u64>,
    /// The epoch it belongs to, from zero; traces do not mark epochs.
    #[field(null = "the step belongs to no epoch, or the epoch was not recorded")]
    pub epoch: Option<u64>,
    /// `train`, `validation`, `predict` or `other`; in a trace, `train` where the step has a backward pass or an optimizer.
    pub phase: Phase,
    /// How the step is known: `keras`, `trainer` (Hugging Face's `Trainer`, Lightning), `api` (`rec.step`), `trace` (marked in the trace), or `inferred` from calls and repetition.
    pub how: How,
    /// The name of the called function.
    pub name: String,
    /// Its start; in a trace it lasts until the next step begins.
    pub begin_ns: Nanos,
    /// Peak bytes in use during the step.
    #[field(
        null = "per-step peaks are recorded only for traced steps; the framework's own peak counts from the start of the process",
        switch = "vramline run --step-peaks, or rec.step"
    )]
    pub peak_bytes: Option<Bytes>,
    /// Bytes in use at its end.
    #[field(null = "the framework reported no figure at that moment")]
    pub current_bytes: Option<Bytes>,
}

/// The job of a recording.
#[derive(Debug, Serialize, Document)]
pub struct RunView {
    /// The command; only recordings have `run`.
    pub command: Vec<String>,
    /// `code N` or `signal N`.
    #[field(null = "the job is still running, its launcher was killed, or it had no launcher")]
    pub exit: Option<String>,
    /// The same as a type.
    #[serde(skip)]
    pub ended: Option<Exit>,
    /// How long it ran.
    #[field(null = "the job still runs, its launcher was killed, or it had none")]
    pub lasted_ns: Option<Nanos>,
    /// Its processes.
    pub processes: Vec<ProcessView>,
}

/// A process of a recording.
#[derive(Debug, Serialize, Document)]
pub struct ProcessView {
    /// Host, process id and start time.
    #[field(title = "process")]
    pub id: String,
    /// The machine.
    pub host: String,
    /// The process.
    pub pid: u64,
    /// The process' rank in a distributed job.
    #[field(null = "no launcher variable contains the rank")]
    pub rank: Option<u64>,
    /// Python's version.
    pub python: String,
    /// The frameworks with their versions.
    pub frameworks: Vec<String>,
    /// The backend of Keras.
    #[field(unit = "word", null = "Keras was not used")]
    pub backend: Option<String>,
    /// The process it was forked from.
    #[field(null = "the process was not forked from a recorded one")]
    pub forked_from: Option<String>,
}

/// An epoch, with the figures of one pool.
#[derive(Debug, Serialize, Document)]
pub struct EpochView {
    /// The pool of the figures.
    pub pool: String,
    /// The machine.
    pub host: String,
    /// The process.
    #[field(null = "the trace does not contain the process id")]
    pub pid: Option<u64>,
    /// The `fit` of Keras that it belongs to, from 1 in each process; epochs and steps count from zero in each.
    #[field(null = "the recording does not show the fit of this epoch")]
    pub fit: Option<u64>,
    /// Its number, from zero.
    pub epoch: u64,
    /// Its start.
    pub begin_ns: Nanos,
    /// Peak bytes in use during the epoch, including validation.
    #[field(
        null = "per-step peaks are recorded only for traced steps; the framework's own peak counts from the start of the process",
        switch = "vramline run --step-peaks, or rec.step"
    )]
    pub peak_bytes: Option<Bytes>,
    /// Bytes in use at its end.
    #[field(null = "the framework reported no figure at that moment")]
    pub current_bytes: Option<Bytes>,
}

/// The steps of one phase, with the figures of one pool.
#[derive(Debug, Serialize, Document)]
pub struct PhaseView {
    /// The pool of the figures.
    pub pool: String,
    /// The machine.
    pub host: String,
    /// The process.
    #[field(null = "the trace does not contain the process id")]
    pub pid: Option<u64>,
    /// The `fit` of Keras that the steps belong to, from 1 in each process; epochs and steps count from zero in each.
    #[field(null = "the steps belong to no fit: separate evaluations or predictions, or a custom loop")]
    pub fit: Option<u64>,
    /// As in steps.
    pub phase: Phase,
    /// As in steps.
    pub how: How,
    /// Number of steps of this phase in that fit; outside fits, in the whole run.
    pub steps: u64,
    /// Number of batches of these steps.
    pub batches: u64,
    /// Peak of the first step (warm-up).
    #[field(
        title = "first step",
        null = "no such step has a known peak",
        switch = "vramline run --step-peaks, or rec.step"
    )]
    pub first_peak_bytes: Option<Bytes>,
    /// Highest known peak of the later steps (steady state).
    #[field(
        title = "later steps",
        null = "no such step has a known peak",
        switch = "vramline run --step-peaks, or rec.step"
    )]
    pub later_peak_bytes: Option<Bytes>,
    /// Number of later steps with a known peak.
    #[field(title = "known")]
    pub later_peaks_known: u64,
    /// Bytes in use at the end of the last step.
    #[field(title = "at the end", null = "the framework reported no figure at that moment")]
    pub current_bytes: Option<Bytes>,
}

/// A mark that is neither a step nor an epoch.
#[derive(Debug, Serialize, Document)]
pub struct MarkView {
    /// The machine.
    pub host: String,
    /// The process.
    #[field(null = "the trace does not contain the process id")]
    pub pid: Option<u64>,
    /// `mark`, `phase`, `trace`, `retrace` (a compiled function was retraced for other shapes), `setting`, `exception` or `end`.
    #[field(unit = "word")]
    pub kind: RecordedMarkKind,
    /// The program's label, or what happened.
    pub label: String,
    /// The step it happened in.
    #[field(null = "it belongs to no step")]
    pub step: Option<i64>,
    /// Its time.
    #[field(title = "at")]
    pub time_ns: Nanos,
    /// The device of the figures; empty if there are none.
    pub device: String,
    /// Bytes in use at that time.
    #[field(null = "the framework reported no figure at that moment")]
    pub current_bytes: Option<Bytes>,
    /// The framework's peak at that time.
    #[field(null = "the framework reported no figure at that moment")]
    pub peak_bytes: Option<Bytes>,
}

/// The variables of one role.
#[derive(Debug, Serialize, Document)]
pub struct InventoryView {
    /// The machine.
    pub host: String,
    /// The process.
    #[field(null = "the trace does not contain the process id")]
    pub pid: Option<u64>,
    /// The role, as reported by the program: `parameters`, `optimizer`, or `unknown` for other variables.
    #[field(unit = "word")]
    pub role: Role,
    /// Number of variables.
    pub variables: u64,
    /// Bytes of their values.
    pub bytes: Bytes,
    /// Bytes of those that were found in the traced pools by address.
    #[field(
        null = "no trace shows the pools, or the framework does not report the addresses of variables",
        switch = "vramline run --trace auto"
    )]
    pub in_pool_bytes: Option<Bytes>,
}

impl From<PoolStep> for StepView {
    fn from(step: PoolStep) -> StepView {
        StepView {
            pool: step.pool,
            host: step.host,
            pid: step.pid,
            step: step.number,
            batches: step.batches,
            fit: step.fit,
            epoch: step.epoch,
            phase: step.phase,
            how: step.how,
            name: step.name,
            begin_ns: step.begin,
            peak_bytes: step.peak,
            current_bytes: step.current,
        }
    }
}

impl From<JobFacts> for RunView {
    fn from(job: JobFacts) -> RunView {
        RunView {
            command: job.command,
            exit: job.exit.map(|exit| match exit {
                Exit::Code(code) => format!("code {code}"),
                Exit::Signal(signal) => format!("signal {signal}"),
            }),
            lasted_ns: job.lasted,
            ended: job.exit,
            processes: job.processes.into_iter().map(ProcessView::from).collect(),
        }
    }
}

impl From<ProcessIdentity> for ProcessView {
    fn from(process: ProcessIdentity) -> ProcessView {
        let framework = |(name, version): (String, String)| format!("{name} {version}");
        ProcessView {
            id: process.id,
            host: process.host,
            pid: process.pid,
            rank: process.rank,
            python: process.python,
            frameworks: process.frameworks.into_iter().map(framework).collect(),
            backend: process.backend,
            forked_from: process.forked_from,
        }
    }
}

impl From<PoolEpoch> for EpochView {
    fn from(epoch: PoolEpoch) -> EpochView {
        EpochView {
            pool: epoch.pool,
            host: epoch.host,
            pid: epoch.pid,
            fit: epoch.fit,
            epoch: epoch.epoch,
            begin_ns: epoch.begin,
            peak_bytes: epoch.peak,
            current_bytes: epoch.current,
        }
    }
}

impl From<PoolPhase> for PhaseView {
    fn from(phase: PoolPhase) -> PhaseView {
        PhaseView {
            pool: phase.pool,
            host: phase.host,
            pid: phase.pid,
            fit: phase.fit,
            phase: phase.phase,
            how: phase.how,
            steps: phase.steps,
            batches: phase.batches,
            first_peak_bytes: phase.first_peak,
            later_peak_bytes: phase.later_peak,
            later_peaks_known: phase.later_peaks_known,
            current_bytes: phase.current,
        }
    }
}

impl From<MarkFigures> for MarkView {
    fn from(mark: MarkFigures) -> MarkView {
        MarkView {
            host: mark.host,
            pid: mark.pid,
            kind: mark.kind,
            label: mark.label,
            step: mark.step,
            time_ns: mark.time,
            device: mark.device,
            current_bytes: mark.current,
            peak_bytes: mark.peak,
        }
    }
}

impl From<RoleVariables> for InventoryView {
    fn from(role: RoleVariables) -> InventoryView {
        InventoryView {
            host: role.host,
            pid: role.pid,
            role: role.role,
            variables: role.variables,
            bytes: role.bytes,
            in_pool_bytes: role.in_pool,
        }
    }
}
