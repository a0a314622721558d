//! `vramline run`: runs a job and records it.
//!
//! `launch` records the job; this file completes the recording and prints the report. The job alone decides the exit code.

use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use vramline::Reading;
use vramline::analysis::oom::is_survived;
use vramline::analysis::ranks::RankChoice;
use vramline::recording::folder::{self, Part, ProcessId};
use vramline::units::Bytes;

use crate::answer::Sink;
use crate::commands::{oom, report};
use crate::exit::{Exit, Failure};
use crate::input::Input;
use crate::launch::values::{Allocator, DriverTraceMode, Gpus, LocalFirst, Stop, Switch, Trace, UntilOom};
use crate::launch::{self, JobSpec, Recorded, say};
use crate::output::OutputFile;
use crate::printer::oom::OomDetail;

const HELP: &str = "\
The job keeps its terminal, its standard input and output, and its exit code. It keeps running if
Vramline fails. The report goes to standard error at the end; `vramline report NAME.vram` prints
it again.

Some options set environment variables of TensorFlow, JAX and PyTorch. Vramline refuses options
that conflict with each other, or with a variable that is already set, before the job starts:
    --gpus       CUDA_VISIBLE_DEVICES
    --growth     TF_FORCE_GPU_ALLOW_GROWTH and XLA_PYTHON_CLIENT_PREALLOCATE;
                 PyTorch's pool always grows
    --limit      set inside the process; the CUDA context is not part of the limit;
                 without a GPU: TF_CPU_BFC_MEM_LIMIT_IN_MB
    --allocator  async: TF_GPU_ALLOCATOR, XLA_PYTHON_CLIENT_ALLOCATOR, PYTORCH_CUDA_ALLOC_CONF;
                 platform: JAX only; expandable: PyTorch only

`--trace auto` makes at most 8 traces per process. The first covers 5 steps, later ones 3 steps,
and none is longer than --trace-seconds. All later traces together take at most twice that time.
Trace files take at most 256 MiB. An open trace uses at most a quarter of the free host memory,
and at most 2 GiB. JAX and PyTorch are traced only once.

After its trace, PyTorch's allocator goes on recording where each live block was requested. If an
allocation fails, a snapshot of that moment is written: `vramline oom NAME.vram` says who held the
memory, and what grew since the first steps. `--until-oom auto` drops the call stacks if they would
take more than 1 % of the time; `off` records nothing after the trace.

Several runs write one recording if they have the same --output and belong to the same job: a job of
Slurm or MPI with several tasks, or one with the same --job. A run of the same job that starts later
is recorded as its next attempt. `vramline gather` joins recordings of hosts without a shared folder.

Examples:
    vramline run -- python train.py --epochs 3
    vramline run -o small.vram --limit 8GiB -- python train.py
    vramline run --gpus 1 --growth on -- python -m my.training
    vramline run --trace steps=20 -- torchrun --nproc-per-node 2 train.py
    vramline run --trace off --rate 1 -- ./job.sh       # no trace, one sample per second
    srun vramline run -o /shared/job.vram -- python train.py
    vramline run -o /shared/job.vram --job mine --label team=vision -- python train.py

Exit codes: the exit code of the job; 128+n if signal n ended the job; 127 if the program was not
found; 126 if it could not be started; 2 if options were refused.";

/// Run a job and record its memory use, without changing its code.
#[derive(Debug, Args)]
#[command(after_long_help = HELP, override_usage = "vramline run [OPTIONS] -- CMD [ARGS]...")]
pub(crate) struct RunArgs {
    /// Folder to record into. If it exists, a number is added to the name, unless it is the recording of the same job
    /// [default: SCRIPT-DATE-TIME.vram].
    #[arg(short, long, value_name = "NAME.vram")]
    pub(crate) output: Option<PathBuf>,
    /// Name of the job, if no launcher names it. Runs with the same name and the same --output write one recording.
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) job: Option<String>,
    /// A label that is kept with the recording, such as team=vision. Can be repeated.
    #[arg(long = "label", value_name = "KEY=VALUE", value_parser = label)]
    pub(crate) labels: Vec<(String, String)>,
    /// Write the recording to a local folder first, and copy it when the job has ended: auto does so on FUSE, SMB and 9P.
    #[arg(long, value_name = "auto|on|off", hide_possible_values = true, value_enum, default_value = "auto")]
    pub(crate) local_first: LocalFirst,
    /// Steps to trace, allocation by allocation: auto (the first steps, and a few more when a new phase begins or the peak rises), off,
    /// steps=N, or all.
    #[arg(long, value_name = "auto|off|steps=N|all", default_value_t = JobSpec::default().trace)]
    pub(crate) trace: Trace,
    /// Longest duration of one trace, in seconds from its first step. Ignored by `--trace all`.
    #[arg(long, value_name = "N", default_value_t = JobSpec::default().trace_seconds, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) trace_seconds: u32,
    /// PyTorch: after the trace, keep recording where each live block was requested, so that a later failure can be explained.
    #[arg(long, value_name = "auto|on|off", hide_possible_values = true, value_enum, default_value = JobSpec::default().until_oom.word())]
    pub(crate) until_oom: UntilOom,
    /// Record the peak of every step, by resetting the framework's peak counter at each step. The script sees the reset too.
    #[arg(long)]
    pub(crate) step_peaks: bool,
    /// Number of memory samples per second; 0 turns sampling off.
    #[arg(long, value_name = "HZ", default_value_t = JobSpec::default().rate, value_parser = rate)]
    pub(crate) rate: f64,
    /// GPUs that the job may use: a list such as 0,1, or none.
    #[arg(long, value_name = "LIST|none")]
    pub(crate) gpus: Option<Gpus>,
    /// Whether memory pools grow as needed (on), or take nearly all memory at first use (off).
    #[arg(long, value_enum)]
    pub(crate) growth: Option<Switch>,
    /// Largest size of a memory pool, such as 8GiB or 800MiB.
    #[arg(long, value_name = "SIZE")]
    pub(crate) limit: Option<Bytes>,
    /// How the framework gets memory from the driver.
    #[arg(long, value_enum)]
    pub(crate) allocator: Option<Allocator>,
    /// Record the calls of NVIDIA's driver that change GPU memory, with the library that made each: contexts, code, streams,
    /// allocations, pools. A library is preloaded into the job for that. auto is off in this version.
    #[arg(long, value_enum, default_value = "auto")]
    pub(crate) driver_trace: DriverTraceMode,
    /// End the job with exit code 0 as soon as its trace ends. The rest of the job does not run.
    #[arg(long)]
    pub(crate) stop: bool,
    /// Without a GPU: do not switch on TensorFlow's pool allocator for the CPU. Much less is recorded then.
    #[arg(long)]
    pub(crate) no_stand_in: bool,
    /// Do not print the report at the end.
    #[arg(long)]
    pub(crate) no_report: bool,
    /// Also write the report to this file, as JSON.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Command to run, with its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD", value_hint = clap::ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// Parses a label.
fn label(text: &str) -> Result<(String, String), String> {
    let (key, value) =
        text.split_once('=').filter(|(key, _)| !key.trim().is_empty()).ok_or("expected KEY=VALUE")?;
    Ok((key.trim().to_owned(), value.trim().to_owned()))
}

/// Parses a number of samples per second.
fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (0.0..=1000.0).contains(rate));
    rate.ok_or_else(|| "expected a number of samples per second, from 0 (off) to 1000".to_owned())
}

pub(crate) fn run(args: &RunArgs) -> Result<Exit, Failure> {
    let spec = JobSpec {
        command: args.command.clone(),
        output: args.output.clone(),
        job: args.job.clone(),
        labels: args.labels.iter().cloned().collect(),
        local_first: args.local_first,
        trace: args.trace,
        trace_seconds: args.trace_seconds,
        until_oom: args.until_oom,
        step_peaks: args.step_peaks,
        rate: args.rate,
        gpus: args.gpus.clone(),
        growth: args.growth,
        limit: args.limit,
        allocator: args.allocator,
        driver_trace: args.driver_trace,
        stop: args.stop.then_some(Stop::AfterTrace),
        stand_in: !args.no_stand_in,
        ..JobSpec::default()
    };
    record(&spec, !args.no_report, args.json.as_deref())
}

/// Runs a job and records it. Prints the report, writes it as JSON, both or neither.
pub(crate) fn record(spec: &JobSpec<'_>, is_printed: bool, json: Option<&Path>) -> Result<Exit, Failure> {
    let Recorded { place, manifest, is_booted, end, .. } = launch::record(spec)?;
    let Some(place) = place else { return Ok(Exit::Job(end)) };
    let path = place.folder.clone();
    let shown = path.display();
    if let Err(error) = manifest.write_at(&place) {
        say(format_args!("cannot write to '{shown}': {error}"));
        if !path.is_dir() {
            // The folder was deleted while the job ran: there is nothing to report.
            return Ok(Exit::Job(end));
        }
    }
    let parts = folder::parts(&path).unwrap_or_default();
    // Each of many runs would print the report on all of them, before the last has ended.
    let is_shared = parts.iter().any(|(part, _)| *part == Part::Run);
    let here = ProcessId::new(&manifest.host, 0, 0);
    let is_own = |id: &ProcessId| !is_shared || id.host() == here.host();
    let is_attached = parts.iter().any(|(part, id)| *part == Part::Process && is_own(id));
    let is_printed = is_printed && !is_shared;
    if is_attached && (is_printed || json.is_some()) {
        if let Some(reading) = tried(|| Input::new(false).with_ranks(RankChoice::default()).read(&path)) {
            report_on(reading, is_printed, json);
        }
    } else if is_booted && !is_attached {
        say(
            "no Python process was recorded. Either the job is not Python, its Python is older than 3.10 or runs with -I, -E or -S, \
             or it does not use TensorFlow, JAX or PyTorch",
        );
    }
    match (&manifest.identity.job, is_shared) {
        (Some(job), true) => say(format_args!(
            "recording of job '{job}': {shown} (`vramline report {shown}` when its other runs have ended)"
        )),
        _ => say(format_args!("recording: {shown}")),
    }
    Ok(Exit::Job(end))
}

/// Reports on a recording. An error is printed as one line.
fn report_on(reading: Reading, is_printed: bool, json: Option<&Path>) {
    if let Some(file) = json {
        tried(|| {
            let mut out = OutputFile::create(file)?;
            report::answer(
                &reading,
                &report::Shown { is_json: true, ..report::Shown::default() },
                &mut Sink::file(&mut out),
            )?;
            Ok(out.finish()?)
        });
    }
    if is_printed {
        tried(|| report::answer(&reading, &report::Shown::default(), &mut Sink::stderr()));
        tried(|| match reading.into_failures() {
            Some(failures) if !is_survived(&failures) => {
                oom::answer(&failures, OomDetail::FirstScreen, false, &mut Sink::stderr())
            }
            // If the job continued after every failure, the report has a note about it.
            _ => Ok(()),
        });
    }
}

fn tried<T>(part: impl FnOnce() -> Result<T, Failure>) -> Option<T> {
    // The exit code of the job stays: a panic here has been reported and only costs the report.
    match catch_unwind(AssertUnwindSafe(part)) {
        Ok(Ok(done)) => Some(done),
        Ok(Err(failure)) => {
            say(format_args!("cannot write the report: {}", failure.text()));
            None
        }
        Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_a_number_of_samples() {
        for text in ["", "-1", "nan", "inf", "1001", "fast"] {
            assert!(rate(text).is_err(), "{text}");
        }
        assert_eq!(rate("0.5"), Ok(0.5));
    }
}
