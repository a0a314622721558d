//! `vramline run`: a job under a recording.
//!
//! `launch` records it; here the folder is completed and reported on. Nothing here decides the exit code.

use std::ffi::OsString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use clap::Args;
use vramline::Reading;
use vramline::analysis::oom::is_survived;
use vramline::recording::folder::{self, Part};
use vramline::units::Bytes;

use crate::answer::Sink;
use crate::commands::{oom, report};
use crate::exit::{Exit, Failure};
use crate::input::Input;
use crate::launch::values::{Allocator, Gpus, Switch, Trace};
use crate::launch::{self, JobSpec, Recorded, say};
use crate::output::OutputFile;
use crate::printer::oom::OomDetail;

const HELP: &str = "\
The job keeps its terminal, its input and output and its exit code, and goes on whatever happens
to vramline. The report goes to standard error at the end; `vramline report NAME.vram` shows it
again.

Settings reach TensorFlow, JAX and PyTorch alike. Those that contradict each other, or a variable
that is set to something else, are refused before the job starts:
    --gpus       CUDA_VISIBLE_DEVICES
    --growth     TF_FORCE_GPU_ALLOW_GROWTH, XLA_PYTHON_CLIENT_PREALLOCATE;
                 PyTorch's pool always grows
    --limit      applied inside the process; the CUDA context comes on top;
                 without a GPU TF_CPU_BFC_MEM_LIMIT_IN_MB
    --allocator  async: TF_GPU_ALLOCATOR, XLA_PYTHON_CLIENT_ALLOCATOR, PYTORCH_CUDA_ALLOC_CONF;
                 platform: JAX only; expandable: PyTorch only

Budget of --trace auto, for each process: 8 traces, of 5 steps (the first) or 3 steps and
--trace-seconds each; all but the first together twice that time; 256 MiB of files;
a quarter of the free memory, at most 2 GiB, while one is open. Only TensorFlow is traced
more than once.

Examples:
    vramline run -- python train.py --epochs 3
    vramline run -o small.vram --limit 8GiB -- python train.py
    vramline run --gpus 1 --growth on -- python -m my.training
    vramline run --trace steps=20 -- torchrun --nproc-per-node 2 train.py
    vramline run --trace off --rate 1 -- ./job.sh        only counters, once a second

Exit codes: the job's own; 128+n where signal n ended it; 127 not found; 126 not executable;
2 refused settings.";

/// Run a job and record how it uses memory, without a change to its code.
#[derive(Debug, Args)]
#[command(after_long_help = HELP, override_usage = "vramline run [OPTIONS] -- CMD [ARGS]...")]
pub(crate) struct RunArgs {
    /// The folder to record into; a name that is taken gets a number [default: SCRIPT-DATE-TIME.vram].
    #[arg(short, long, value_name = "NAME.vram")]
    pub(crate) output: Option<PathBuf>,
    /// Trace allocations: the first steps, and a few more where a phase is new or the peak rises (auto), not at all (off), N steps
    /// (steps=N), or all.
    #[arg(long, value_name = "auto|off|steps=N|all", default_value_t = JobSpec::default().trace)]
    pub(crate) trace: Trace,
    /// End each trace so many seconds after its first step in any case; `all` goes on to the end.
    #[arg(long, value_name = "N", default_value_t = JobSpec::default().trace_seconds, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) trace_seconds: u32,
    /// Reset the framework's peak at each step, so that each step has its own. The script sees that too.
    #[arg(long)]
    pub(crate) step_peaks: bool,
    /// Read the counters so many times a second; 0 is never.
    #[arg(long, value_name = "HZ", default_value_t = JobSpec::default().rate, value_parser = rate)]
    pub(crate) rate: f64,
    /// Let the job see only these GPUs, such as 0,1, or none.
    #[arg(long, value_name = "LIST|none")]
    pub(crate) gpus: Option<Gpus>,
    /// Let pools grow as needed (on), or take nearly all memory at first use (off).
    #[arg(long, value_enum)]
    pub(crate) growth: Option<Switch>,
    /// Let pools hold at most this, such as 8GiB or 800MiB.
    #[arg(long, value_name = "SIZE")]
    pub(crate) limit: Option<Bytes>,
    /// Choose how frameworks get memory from the driver.
    #[arg(long, value_enum)]
    pub(crate) allocator: Option<Allocator>,
    /// End the job, with code 0, when its trace is over: nothing that comes after those steps is run.
    #[arg(long)]
    pub(crate) stop: bool,
    /// Without a GPU, leave TensorFlow's CPU allocator as it is, which tells little.
    #[arg(long)]
    pub(crate) no_stand_in: bool,
    /// Print no report at the end.
    #[arg(long)]
    pub(crate) no_report: bool,
    /// Also write the report to this file, as one JSON document.
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// The job: a command and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD", value_hint = clap::ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// Samples a second.
fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (0.0..=1000.0).contains(rate));
    rate.ok_or_else(|| "expected samples a second, from 0 (off) to 1000".to_owned())
}

pub(crate) fn run(args: &RunArgs) -> Result<Exit, Failure> {
    let spec = JobSpec {
        command: args.command.clone(),
        output: args.output.clone(),
        trace: args.trace,
        trace_seconds: args.trace_seconds,
        step_peaks: args.step_peaks,
        rate: args.rate,
        gpus: args.gpus.clone(),
        growth: args.growth,
        limit: args.limit,
        allocator: args.allocator,
        stops: args.stop,
        stand_in: !args.no_stand_in,
        ..JobSpec::default()
    };
    record(&spec, !args.no_report, args.json.as_deref())
}

/// Runs a job, and reports on it: to people, into a file, both or neither.
pub(crate) fn record(spec: &JobSpec<'_>, is_told: bool, json: Option<&Path>) -> Result<Exit, Failure> {
    let Recorded { path, manifest, is_booted, end, .. } = launch::record(spec)?;
    let Some(path) = path else { return Ok(Exit::Job(end)) };
    let shown = path.display();
    if let Err(error) = manifest.write(&path) {
        say(format_args!("cannot complete '{shown}': {error}"));
        if !path.is_dir() {
            // Somebody deleted it while the job ran: there is nothing to say of what it holds.
            return Ok(Exit::Job(end));
        }
    }
    let is_attached =
        folder::parts(&path).is_ok_and(|parts| parts.iter().any(|(part, _)| *part == Part::Process));
    if is_attached && (is_told || json.is_some()) {
        if let Some(reading) = tried(|| Input::new(false).read(&path)) {
            tell(reading, is_told, json);
        }
    } else if is_booted && !is_attached {
        say(
            "no Python process attached: it is not Python, is older than 3.10, runs with -I, -E or -S, or uses neither \
             TensorFlow, JAX nor PyTorch",
        );
    }
    say(format_args!("recording: {shown}"));
    Ok(Exit::Job(end))
}

/// Reports on a recording that was read once. Whatever fails is a line.
fn tell(reading: Reading, is_told: bool, json: Option<&Path>) {
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
    if is_told {
        tried(|| report::answer(&reading, &report::Shown::default(), &mut Sink::stderr()));
        tried(|| match reading.into_failures() {
            Some(failures) if !is_survived(&failures) => {
                oom::answer(&failures, OomDetail::FirstScreen, false, &mut Sink::stderr())
            }
            // A job that went on after all of them has a note in its report.
            _ => Ok(()),
        });
    }
}

fn tried<T>(part: impl FnOnce() -> Result<T, Failure>) -> Option<T> {
    // The job's exit code stands: a panic here, which has been announced, costs the report only.
    match catch_unwind(AssertUnwindSafe(part)) {
        Ok(Ok(done)) => Some(done),
        Ok(Err(failure)) => {
            say(format_args!("no report: {}", failure.text()));
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
