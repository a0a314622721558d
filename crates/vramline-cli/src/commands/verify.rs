//! `vramline verify`: measures a prediction.

use std::path::{Path, PathBuf};

use clap::Args;
use vramline::analysis::plan::PlanOptions;
use vramline::analysis::verify::{Measured, Predicted, VerifyVerdict, peak, verify};
use vramline::plan::Fix;
use vramline::view::verify::Verify;

use crate::answer::Sink;
use crate::commands::plan::ProbeArgs;
use crate::exit::{Exit, Failure};
use crate::input::{self, Input};
use crate::launch::probes::{self, ProbeJob};
use crate::launch::values::{Allocator, Variables};
use crate::printer;
use crate::progress::ProgressLine;
use crate::variables::{FIX, TF_CUDNN_SCRATCH, TF_INTEROP_THREADS};

/// The limit of the fix `scratch-limit`.
const SCRATCH_MIB: &str = "256";

const HELP: &str = "\
`plan` predicts; `verify` measures. Vramline runs your command for a few steps, without and with
the fix, several times each, and compares the medians. Several runs are needed because TensorFlow
schedules ops in a different order each time. Your code is not changed; a fix is applied from
outside:
    mixed-precision   Keras: sets the global policy mixed_bfloat16 before the model is built
    accumulate        Keras: sets gradient_accumulation_steps, and uses a smaller batch size
    compile           Keras: compile(jit_compile=True), unless the script sets it
    one-thread        TensorFlow: TF_NUM_INTEROP_THREADS=1
    scratch-limit     TensorFlow on a GPU: TF_CUDNN_WORKSPACE_LIMIT_IN_MB=256
    expandable        PyTorch: expandable_segments
    async-allocator   CUDA's asynchronous pool; the profiler cannot see its peak
Join several fixes with +. Other fixes need a change to your code: another optimizer,
recomputation, the input pipeline; in PyTorch and JAX without Keras also those of Keras. Make the
change, then verify the changed command with --batch alone.

Examples:
    vramline verify --batch 256 -- python train.py --batch-size {batch}
    vramline verify --fix mixed-precision --batch 256 -- python train.py --batch-size {batch}
    # two fixes together, under a limit
    vramline verify --fix accumulate+mixed-precision --batch 256 --limit 8GiB \\
        -- python train.py --batch-size {batch}

Exit codes: 0 the measured peak is within the tolerance, or nothing was predicted; 3 it is outside
the tolerance; 1 error; 2 usage.";

/// Measure a batch size or a fix and compare it with the prediction.
#[derive(Debug, Args)]
#[command(after_long_help = HELP, override_usage = "vramline verify [OPTIONS] --batch N [--fix NAME] -- CMD {batch} ...")]
pub(crate) struct VerifyArgs {
    /// Batch size to measure.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) batch: Option<u64>,
    /// Fix to try. Join several with +.
    #[arg(long, value_name = "NAME")]
    pub(crate) fix: Option<String>,
    /// Take the prediction from this output of `vramline plan --json` instead of making a plan first.
    #[arg(long = "plan", value_name = "FILE", conflicts_with = "batches")]
    pub(crate) planned: Option<PathBuf>,
    /// Number of measurements, without and with the fix.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=50))]
    pub(crate) runs: u32,
    /// Largest allowed difference between the measured and the predicted peak, as a share of the predicted peak.
    #[arg(long, value_name = "SHARE", default_value_t = 0.05)]
    pub(crate) tolerance: f64,
    #[command(flatten)]
    pub(crate) job: ProbeArgs,
}

pub(crate) fn run(args: &VerifyArgs) -> Result<Exit, Failure> {
    let Some(batch) = args.batch else {
        return Err(Failure::usage(
            "verify needs --batch",
            "give the batch size to measure, such as --batch 256",
        ));
    };
    if !(args.tolerance.is_finite() && args.tolerance >= 0.0) {
        return Err(Failure::usage(
            format!("--tolerance {} is not a share", args.tolerance),
            "give a number of at least 0, such as 0.05 for 5 %",
        ));
    }
    if args.job.command.is_empty() {
        return Err(Failure::usage(
            "verify needs a command to run",
            "add the command at the end: -- python train.py --batch-size {batch}",
        ));
    }
    let predicted = match &args.planned {
        Some(file) => from_document(file, batch, args.fix.as_deref())?,
        None => from_plan(args, batch)?,
    };
    // Without and with the fixes.
    let base = measure(args, batch, &[])?;
    let fixed = if predicted.fixes.is_empty() { None } else { Some(measure(args, batch, &predicted.fixes)?) };
    let document = Verify::from(verify(&predicted, base, fixed, args.tolerance));
    let text = |style| printer::verify::verify(&document, args.job.length.full, style);
    Sink::stdout().answer(&document, args.job.form.json, text)?;
    Ok(match document.verdict.word {
        VerifyVerdict::NotAsPredicted => Exit::No,
        _ => Exit::Done,
    })
}

/// Makes a plan and returns its prediction.
fn from_plan(args: &VerifyArgs, batch: u64) -> Result<Predicted, Failure> {
    let job = &args.job;
    let made = job.make_probes()?;
    let options = PlanOptions { batches: vec![batch], ..job.options() };
    let (plan, read) = job.prepared(&made, &options)?;
    let _line = ProgressLine::timed("planning");
    let prediction = plan.predict(batch, u64::from(job.trace_steps)).ok_or_else(|| {
        Failure::error(
            format!("cannot predict {} {batch}: it needs more memory than any pool can have", job.variable),
            format!("check the value; give a smaller {} with --batch", job.variable),
        )
    })?;
    let fitting = job.limit.and_then(|limit| plan.largest(limit, job.steps).to_confirm);
    let offered = plan.candidates(batch, fitting);
    let mut fixes = Vec::new();
    for name in args.fix.iter().flat_map(|fix| fix.split('+')) {
        let found = offered.iter().copied().find(|fix| fix.name() == name);
        let fix = found.ok_or_else(|| {
            let outside = offered.iter().filter(|&&fix| plan.is_from_outside(fix));
            let known: Vec<&str> = outside.map(|fix| fix.name()).collect();
            let hint = if known.is_empty() {
                "no fix can be applied without a change to the code: change it, then verify the changed command with --batch alone".to_owned()
            } else {
                format!("fixes that apply: {}", known.join(", "))
            };
            Failure::usage(format!("fix '{name}' does not apply to this job"), hint)
        })?;
        if fixes.contains(&fix) {
            return Err(Failure::usage(format!("fix '{name}' is given twice"), "give each fix once"));
        }
        if !plan.is_from_outside(fix) {
            let hint = "change the code, then verify the changed command with --batch alone";
            return Err(Failure::usage(format!("fix '{name}' needs a change to the code of this job"), hint));
        }
        fixes.push(fix);
    }
    let fixed_peak = if fixes.is_empty() {
        None
    } else {
        plan.fixed(&fixes, batch, u64::from(job.trace_steps)).and_then(|fixed| fixed.peak)
    };
    std::mem::forget((plan, read));
    let (peak, low, high) = (prediction.peak, prediction.low, prediction.high);
    Ok(Predicted { batch, fixes, peak, low, high, fixed_peak })
}

/// Takes the prediction from a document of `plan --json`.
fn from_document(file: &Path, batch: u64, fix: Option<&str>) -> Result<Predicted, Failure> {
    let plan = input::plan(file)?;
    let prediction = plan.at(batch).ok_or_else(|| {
        Failure::error(
            format!("'{}' has no prediction for batch {batch}", file.display()),
            format!("make one with: vramline plan --batch {batch} --json ... > plan.json"),
        )
    })?;
    if let Some(fix) = fix {
        // How a fix is applied, such as the number of accumulation steps, is known while planning only.
        let hint = "leave out --plan: vramline then plans the fix for this job";
        return Err(Failure::usage(format!("--plan and --fix {fix} cannot be combined"), hint));
    }
    Ok(Predicted {
        batch,
        fixes: Vec::new(),
        peak: prediction.peak_bytes,
        low: prediction.low_bytes,
        high: prediction.high_bytes,
        fixed_peak: None,
    })
}

/// Runs the command with fixes and returns the peaks.
fn measure(args: &VerifyArgs, batch: u64, fixes: &[Fix]) -> Result<Measured, Failure> {
    let mut more = Variables::new();
    let mut inside = Vec::new();
    let mut allocator = None;
    let mut run_at = batch;
    for fix in fixes {
        match fix {
            Fix::Accumulate { micro, times } => {
                run_at = *micro;
                inside.push(format!("accumulate={times}"));
            }
            Fix::MixedPrecision | Fix::Compile => inside.push(fix.name().to_owned()),
            Fix::OneThread => drop(more.insert(TF_INTEROP_THREADS.to_owned(), "1".to_owned())),
            Fix::ScratchLimit => drop(more.insert(TF_CUDNN_SCRATCH.to_owned(), SCRATCH_MIB.to_owned())),
            Fix::Expandable => allocator = Some(Allocator::Expandable),
            Fix::AsyncAllocator => allocator = Some(Allocator::Async),
            // These need a change of the code.
            Fix::PlainOptimizer
            | Fix::Recompute
            | Fix::StepInBackward
            | Fix::OneByOne
            | Fix::SetToNone
            | Fix::DataOnHost => {}
        }
    }
    if !inside.is_empty() {
        more.insert(FIX.to_owned(), inside.join(","));
    }
    let names: Vec<&str> = fixes.iter().map(|fix| fix.name()).collect();
    let name = if names.is_empty() { "measured".to_owned() } else { format!("measured-{}", names.join("-")) };
    let label = if names.is_empty() { "run".to_owned() } else { format!("run with {}", names.join(" + ")) };
    let made = probes::make(&ProbeJob {
        batches: &[run_at],
        repeats: args.runs,
        steps: args.job.trace_steps,
        is_traced: true,
        variable: &args.job.variable,
        command: &args.job.command,
        folder: &args.job.output,
        name: &name,
        label: &label,
        more: &more,
        allocator,
        limit: None,
        // A measurement is always made now.
        is_anew: true,
    })?;
    let input = Input::new(false);
    let mut peaks = Vec::new();
    for (_, path) in &made {
        let shown = path.display();
        let reading =
            input.read_as_it_is(path).map_err(|failure| failure.context(format!("cannot read '{shown}'")))?;
        let found = peak(&reading, args.job.pool.as_deref());
        peaks.push(found.ok_or_else(|| {
            Failure::error(
                format!("'{shown}' has no peak"),
                format!("see what was recorded with: vramline report {shown}"),
            )
        })?);
    }
    Ok(Measured::of(peaks))
}
