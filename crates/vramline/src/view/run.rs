//! The parts of a report that mostly a recording has: the job, its steps, phases, epochs, marks and variables.

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
    /// The pool that the figures are of.
    pub pool: String,
    /// The machine.
    pub host: String,
    /// The process.
    #[field(null = "the trace does not tell the process")]
    pub pid: Option<u64>,
    /// The program's own number (of the last batch, in Keras), or counted from zero.
    pub step: i64,
    /// Batches it ran: several with Keras' `steps_per_execution`.
    pub batches: u64,
    /// The `fit` of Keras that it belongs to, from 1 in each process; epochs and steps count from zero in each.
    #[field(
        null = "the step is of no fit: an evaluation or prediction by itself, a loop of the program's own, or a trace"
    )]
    pub fit: Option<u64>,
    /// The epoch it belongs to, from zero; traces do not mark epochs.
    #[field(null = "the step belongs to no epoch, or nobody told")]
    pub epoch: Option<u64>,
    /// `train`, `validation`, `predict` or `other`; in a trace, `train` where the step has a backward pass or an optimizer.
    pub phase: Phase,
    /// Who told: `keras`, `api` (`rec.step`), `trace` (the trace marks it), or `inferred` from calls and what repeats.
    pub how: How,
    /// What is called.
    pub name: String,
    /// When it begins; in a trace it lasts until the next begins.
    pub begin_ns: Nanos,
    /// The most in use during the step.
    #[field(
        null = "the framework's peak counts from the start of the process, and was not reset when this began",
        switch = "vramline run --step-peaks, or rec.step"
    )]
    pub peak_bytes: Option<Bytes>,
    /// In use at its end.
    #[field(null = "the framework told no figure at that moment")]
    pub current_bytes: Option<Bytes>,
}

/// The job of a recording.
#[derive(Debug, Serialize, Document)]
pub struct RunView {
    /// The command; `run` is there for recordings only.
    pub command: Vec<String>,
    /// `code N` or `signal N`.
    #[field(null = "the job still runs, its launcher was killed, or it had none")]
    pub exit: Option<String>,
    /// The same as a type, for those who draw it.
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
    /// Host, process number and start time.
    #[field(title = "process")]
    pub id: String,
    /// The machine.
    pub host: String,
    /// The process.
    pub pid: u64,
    /// The process' rank in a distributed job.
    #[field(null = "no variable of a launcher told the process' rank")]
    pub rank: Option<u64>,
    /// Python's version.
    pub python: String,
    /// Each with its version.
    pub frameworks: Vec<String>,
    /// The framework that Keras works on.
    #[field(unit = "word", null = "Keras was not used")]
    pub backend: Option<String>,
    /// The process it was forked from.
    #[field(null = "the process was not forked from a recorded one")]
    pub forked_from: Option<String>,
}

/// An epoch, with the figures of one pool.
#[derive(Debug, Serialize, Document)]
pub struct EpochView {
    /// The pool that the figures are of.
    pub pool: String,
    /// The machine.
    pub host: String,
    /// The process.
    #[field(null = "the trace does not tell the process")]
    pub pid: Option<u64>,
    /// The `fit` of Keras that it belongs to, from 1 in each process; epochs and steps count from zero in each.
    #[field(null = "the recording does not show the fit of this epoch")]
    pub fit: Option<u64>,
    /// From zero.
    pub epoch: u64,
    /// When it begins.
    pub begin_ns: Nanos,
    /// The most in use during the epoch, validation included.
    #[field(
        null = "the framework's peak counts from the start of the process, and was not reset when this began",
        switch = "vramline run --step-peaks, or rec.step"
    )]
    pub peak_bytes: Option<Bytes>,
    /// In use at its end.
    #[field(null = "the framework told no figure at that moment")]
    pub current_bytes: Option<Bytes>,
}

/// The steps of one phase, with the figures of one pool.
#[derive(Debug, Serialize, Document)]
pub struct PhaseView {
    /// The pool that the figures are of.
    pub pool: String,
    /// The machine.
    pub host: String,
    /// The process.
    #[field(null = "the trace does not tell the process")]
    pub pid: Option<u64>,
    /// The `fit` of Keras that the steps belong to, from 1 in each process; epochs and steps count from zero in each.
    #[field(
        null = "the steps are of no fit: evaluations or predictions by themselves, or a loop of the program's own"
    )]
    pub fit: Option<u64>,
    /// As in steps.
    pub phase: Phase,
    /// As in steps.
    pub how: How,
    /// Steps of this phase in that fit; outside of fits, in the whole run.
    pub steps: u64,
    /// Batches of these steps.
    pub batches: u64,
    /// Peak of the first step: warm-up.
    #[field(
        title = "first step",
        null = "no such step has a peak of its own that is known",
        switch = "vramline run --step-peaks, or rec.step"
    )]
    pub first_peak_bytes: Option<Bytes>,
    /// Highest known peak of the others: steady state.
    #[field(
        title = "later steps",
        null = "no such step has a peak of its own that is known",
        switch = "vramline run --step-peaks, or rec.step"
    )]
    pub later_peak_bytes: Option<Bytes>,
    /// How many of the others have a known peak.
    #[field(title = "known")]
    pub later_peaks_known: u64,
    /// In use when the last of them ended.
    #[field(title = "at the end", null = "the framework told no figure at that moment")]
    pub current_bytes: Option<Bytes>,
}

/// A mark that is neither a step nor an epoch.
#[derive(Debug, Serialize, Document)]
pub struct MarkView {
    /// The machine.
    pub host: String,
    /// The process.
    #[field(null = "the trace does not tell the process")]
    pub pid: Option<u64>,
    /// `mark`, `phase`, `trace`, `retrace` (a compiled function was traced again for other shapes), `setting`, `exception` or `end`.
    #[field(unit = "word")]
    pub kind: RecordedMarkKind,
    /// As the program named it, or what happened.
    pub label: String,
    /// The step it happened in.
    #[field(null = "it is of no step")]
    pub step: Option<i64>,
    /// When.
    #[field(title = "at")]
    pub time_ns: Nanos,
    /// The device the figures are of; empty where there are none.
    pub device: String,
    /// In use then.
    #[field(null = "the framework told no figure at that moment")]
    pub current_bytes: Option<Bytes>,
    /// The framework's peak at that moment.
    #[field(null = "the framework told no figure at that moment")]
    pub peak_bytes: Option<Bytes>,
}

/// The variables of one role.
#[derive(Debug, Serialize, Document)]
pub struct InventoryView {
    /// The machine.
    pub host: String,
    /// The process.
    #[field(null = "the trace does not tell the process")]
    pub pid: Option<u64>,
    /// As the program says: `parameters`, `optimizer`, or `unknown` for other variables.
    #[field(unit = "word")]
    pub role: Role,
    /// How many.
    pub variables: u64,
    /// Of their values.
    pub bytes: Bytes,
    /// Of these, found in the traced pools by address.
    #[field(
        null = "no trace shows the pools, or the framework does not tell where the variables lie",
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
