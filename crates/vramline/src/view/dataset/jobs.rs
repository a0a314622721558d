//! Rows about jobs: what ran, in which processes, what failed, what was found.

use crate::analysis::dataset::key::SourceKeys;
use crate::analysis::dataset::{DatasetEntry, DatasetProcess};
use crate::analysis::oom::FailureAnalysis;
use crate::document::{Cells, Day, Document};
use crate::event::Framework;
use crate::failure::SizeRange;
use crate::postmortem::Verdict;
use crate::recording::identity::{Launcher, TaskRole};
use crate::source::SourceError;
use crate::units::{Bytes, Nanos};
use crate::view::findings::FindingView;
use crate::warning::Warning;

/// The label with the commit of the program.
const COMMIT: &str = "commit";

/// A recording.
#[derive(Debug, Document, Cells)]
pub(super) struct JobRow {
    /// The recording or file.
    pub(super) source: String,
    /// Its format: `recording`, `xplane`, `torch-snapshot`, `memory-dump`, `oom-log`, `pprof`, `hlo` or `memory-profile`.
    format: &'static str,
    /// The name of the job by `vramline run --job` or its launcher, as it is.
    #[field(null = "neither `vramline run --job` nor a launcher named the job")]
    job_id: Option<String>,
    /// `tensorflow`, `jax` or `pytorch`.
    #[field(null = "the file does not show which framework wrote it")]
    framework: Option<&'static str>,
    /// The command, its words separated by spaces.
    #[field(null = "only recordings of `vramline run` have a command")]
    command: Option<String>,
    /// The script or module that the command runs: what runs of one model have in common.
    #[field(null = "only recordings of `vramline run` have a command")]
    script: Option<String>,
    /// How many times the launcher had restarted the job.
    #[field(null = "no launcher counts restarts")]
    attempt: Option<u64>,
    /// The commit of the program: the label `commit`.
    #[field(null = "the job has no label `commit`")]
    commit: Option<String>,
    /// When it began, in Unix time.
    #[field(null = "the file does not contain its start time")]
    started_ns: Option<Nanos>,
    /// The same as a day in UTC.
    #[field(null = "the file does not contain its start time")]
    started_on: Option<Day>,
    /// How long it ran.
    #[field(null = "the job still runs, its launcher was killed, or it had none")]
    lasted_ns: Option<Nanos>,
    /// The exit code.
    #[field(null = "a signal ended the job, it still runs, or it had no launcher")]
    exit_code: Option<i32>,
    /// The signal that ended it.
    #[field(null = "no signal ended the job")]
    exit_signal: Option<i32>,
    /// The verdict of the report: `out-of-memory`, `not-traced`, `unknown`, `full` or `fits`.
    verdict: &'static str,
    /// The answer of the report in one or two sentences.
    headline: String,
    /// The pool with the highest peak.
    #[field(null = "the memory of no pool is known")]
    pool: Option<String>,
    /// Its device.
    #[field(null = "the memory of no pool is known")]
    device: Option<String>,
    /// Its peak.
    #[field(null = "the memory of no pool is known")]
    peak_bytes: Option<Bytes>,
    /// Its limit.
    #[field(
        null = "the limit is unknown, or it is only the framework's built-in default for a pool in host memory"
    )]
    limit_bytes: Option<Bytes>,
    /// Number of machines that are known.
    hosts: usize,
    /// Number of processes.
    processes: usize,
    /// Number of failed allocations.
    failures: usize,
    /// Number of findings.
    findings: usize,
    /// Number of warnings: what the report could not read or did not know.
    warnings: usize,
    /// The version of NVIDIA's driver.
    #[field(null = "the driver was not queried")]
    driver_version: Option<String>,
    /// The version of Vramline that recorded it.
    #[field(null = "only recordings of `vramline run` contain it")]
    recorded_with: Option<String>,
}

impl JobRow {
    pub(super) fn of(entry: &DatasetEntry, keys: &SourceKeys) -> JobRow {
        let DatasetEntry { report, .. } = entry;
        let exit = report.job.as_ref().and_then(|job| job.exit);
        JobRow {
            source: report.source.files.first().cloned().unwrap_or_default(),
            format: report.source.format,
            job_id: keys.job_id.clone(),
            framework: report.source.framework.map(Framework::word),
            command: entry.command.clone(),
            script: entry.script.clone(),
            attempt: entry.identity.attempt,
            commit: entry.identity.labels.get(COMMIT).cloned(),
            started_ns: entry.started,
            started_on: entry.started.and_then(Day::of),
            lasted_ns: report.job.as_ref().and_then(|job| job.lasted),
            exit_code: exit.and_then(|exit| exit.code()),
            exit_signal: exit.and_then(|exit| exit.signal()),
            verdict: report.answer.word.word(),
            headline: report.answer.headline.clone(),
            pool: report.answer.pool.clone(),
            device: report.answer.device.clone(),
            peak_bytes: report.answer.peak,
            limit_bytes: report.answer.limit,
            hosts: entry.hosts.count(),
            processes: report.job.as_ref().map_or(0, |job| job.processes.len()),
            failures: entry.failures,
            findings: report.findings.len(),
            warnings: report.warnings.len(),
            driver_version: entry.driver_version.clone(),
            recorded_with: entry.recorded_with.clone(),
        }
    }
}

/// A process.
#[derive(Debug, Document, Cells)]
pub(super) struct ProcessRow {
    /// Host, process id and start time.
    process: String,
    /// The process id.
    pid: u64,
    /// The process' rank in a distributed job.
    #[field(null = "no launcher variable contains the rank")]
    rank: Option<u64>,
    /// Its number among the processes of its machine.
    #[field(null = "the launcher does not report it")]
    local_rank: Option<u64>,
    /// The number of its machine in the job.
    #[field(null = "the launcher does not report it")]
    node_rank: Option<u64>,
    /// Number of processes of the job.
    #[field(null = "the launcher does not report it")]
    world_size: Option<u64>,
    /// How many times the launcher had restarted this part of the job.
    #[field(null = "the launcher does not count restarts")]
    attempt: Option<u64>,
    /// Its task in a cluster of TensorFlow: `chief`, `worker`, `ps` or `evaluator`.
    #[field(null = "TF_CONFIG does not contain it")]
    role: Option<&'static str>,
    /// The source of the rank: `torchrun`, `rank-variables`, `open-mpi`, `pmix`, `slurm`, `jax`, `torch-distributed`, `tf-config` or `kubernetes`.
    #[field(null = "no launcher is known")]
    launcher: Option<&'static str>,
    /// The framework that holds the memory: `tensorflow`, `torch` or `jax`.
    #[field(null = "the process imported no framework")]
    framework: Option<String>,
    /// Its version.
    #[field(null = "the process imported no framework")]
    framework_version: Option<String>,
    /// The backend of Keras.
    #[field(null = "Keras was not used")]
    backend: Option<String>,
    /// The version of Keras.
    #[field(null = "Keras was not used")]
    keras_version: Option<String>,
    /// Python's version.
    python: String,
    /// The process it was forked from.
    #[field(null = "the process was not forked from a recorded one")]
    forked_from: Option<String>,
}

impl From<&DatasetProcess> for ProcessRow {
    fn from(process: &DatasetProcess) -> ProcessRow {
        let (framework, framework_version) = process.framework.clone().unzip();
        ProcessRow {
            process: process.id.clone(),
            pid: process.pid,
            rank: process.rank,
            local_rank: process.identity.local_rank,
            node_rank: process.identity.node_rank,
            world_size: process.identity.world_size,
            attempt: process.identity.attempt,
            role: process.identity.role.map(TaskRole::word),
            launcher: process.identity.launcher.map(Launcher::word),
            framework,
            framework_version,
            backend: process.backend.clone(),
            keras_version: process.keras.clone(),
            python: process.python.clone(),
            forked_from: process.forked_from.clone(),
        }
    }
}

/// A label of a job.
#[derive(Debug, Document, Cells)]
pub(super) struct LabelRow {
    /// Its name.
    name: String,
    /// Its value.
    value: String,
}

impl LabelRow {
    pub(super) fn of((name, value): (&String, &String)) -> LabelRow {
        LabelRow { name: name.clone(), value: value.clone() }
    }
}

/// A finding.
#[derive(Debug, Document, Cells)]
pub(super) struct FindingRow {
    /// The rule, as in docs/reference/findings.md.
    rule: &'static str,
    /// The bytes it concerns.
    bytes: Bytes,
    /// What was found.
    text: String,
    /// What to do about it.
    fix: String,
    /// How to check whether the fix worked.
    verify: String,
}

impl From<&FindingView> for FindingRow {
    fn from(found: &FindingView) -> FindingRow {
        FindingRow {
            rule: found.rule,
            bytes: found.bytes,
            text: found.text.clone(),
            fix: found.fix.clone(),
            verify: found.verify.clone(),
        }
    }
}

/// A failed allocation.
#[derive(Debug, Document, Cells)]
pub(super) struct FailureRow {
    /// What happened, as a sentence.
    headline: String,
    /// What happened to the request: `ended-job`, `went-on`, `served-later` or `unknown`.
    outcome: &'static str,
    /// Why it failed: `device`, `fragmented`, `slack`, `exhausted` or `limit`.
    #[field(null = "the input does not decide it")]
    verdict: Option<&'static str>,
    /// The format of the message, as in docs/reference/dialects.md.
    dialect: &'static str,
    /// The pool, as the framework names it.
    #[field(null = "the input does not say")]
    pool: Option<String>,
    /// The device, as the text names it.
    #[field(null = "the input does not say")]
    device: Option<String>,
    /// The op that requested it.
    #[field(null = "the input does not say")]
    op: Option<String>,
    /// The tensor's shape.
    #[field(null = "the input does not say")]
    shape: Option<String>,
    /// The request; of a rounded figure the middle of its bounds.
    #[field(null = "the input does not say")]
    requested_bytes: Option<Bytes>,
    /// The limit of the pool; of a rounded figure the middle of its bounds.
    #[field(null = "the input does not say")]
    limit_bytes: Option<Bytes>,
    /// Bytes in use, including rounding; of a rounded figure the middle of its bounds.
    #[field(null = "the input does not say")]
    in_use_bytes: Option<Bytes>,
    /// Free bytes in blocks that the request may use; of a rounded figure the middle of its bounds.
    #[field(null = "the input does not say")]
    free_bytes: Option<Bytes>,
    /// Bytes that are missing; of a rounded figure the middle of its bounds.
    #[field(null = "the input does not decide it")]
    short_by_bytes: Option<Bytes>,
    /// Memory of other processes; of a rounded figure the middle of its bounds.
    #[field(null = "the input does not contain enough figures")]
    other_processes_bytes: Option<Bytes>,
    /// Total memory of the device, as rounded in the input.
    #[field(null = "the input does not say")]
    device_total_bytes: Option<Bytes>,
    /// Number of attempts: TensorFlow retries for ten seconds.
    attempts: u64,
}

impl From<&FailureAnalysis<'_>> for FailureRow {
    fn from(analysed: &FailureAnalysis<'_>) -> FailureRow {
        let middle = |told: Option<SizeRange>| told.map(SizeRange::middle);
        let FailureAnalysis { failure, conclusion, .. } = analysed;
        FailureRow {
            headline: analysed.headline.clone(),
            outcome: analysed.outcome.word(),
            verdict: conclusion.verdict.map(Verdict::word),
            dialect: failure.dialect.word(),
            pool: failure.allocator.clone(),
            device: failure.device.clone(),
            op: failure.op.clone(),
            shape: failure.shape.clone(),
            requested_bytes: middle(failure.requested.or(conclusion.request)),
            limit_bytes: middle(failure.limit),
            in_use_bytes: middle(failure.in_use),
            free_bytes: middle(conclusion.free),
            short_by_bytes: middle(conclusion.short_by),
            other_processes_bytes: middle(conclusion.others),
            device_total_bytes: middle(failure.memory.total),
            attempts: failure.attempts,
        }
    }
}

/// A source, or a part of one, that could not be read.
#[derive(Debug, Document, Cells)]
pub(super) struct ErrorRow {
    /// The recording or file.
    source: String,
    /// `unreadable`: the dataset has nothing else of this source; `unreadable-part`: it has the rest.
    code: &'static str,
    /// What is wrong.
    text: String,
    /// What to do; may be empty.
    hint: String,
}

impl ErrorRow {
    pub(super) fn of(path: &str, error: &SourceError) -> ErrorRow {
        ErrorRow {
            source: path.to_owned(),
            code: "unreadable",
            text: error.to_string(),
            hint: error.hint().to_owned(),
        }
    }

    pub(super) fn of_part(source: &str, warning: &Warning) -> ErrorRow {
        ErrorRow {
            source: source.to_owned(),
            code: "unreadable-part",
            text: warning.text.clone(),
            hint: warning.hint.clone(),
        }
    }
}
