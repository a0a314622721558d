//! `vramline verify`: a prediction, measured.

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
use crate::variables::{FIX, TF_CUDNN_SCRATCH, TF_INTEROP_THREADS};

const SCRATCH_MIB: &str = "256";

const HELP: &str = "\
A plan predicts; this measures. The command is run for a few steps as it is, and again with the fix, several
times each because TensorFlow orders ops differently each time; the middle ones are compared. Nothing in the
code is changed:
    mixed-precision   Keras: the global policy becomes mixed_bfloat16 before the model is built
    accumulate        Keras: optimizers get gradient_accumulation_steps, and the batch becomes smaller
    compile           Keras: compile(jit_compile=True) where the program does not say otherwise
    one-thread        TensorFlow: TF_NUM_INTEROP_THREADS=1
    scratch-limit     TensorFlow on a GPU: TF_CUDNN_WORKSPACE_LIMIT_IN_MB=256
    expandable        PyTorch: expandable_segments
    async-allocator   the driver's own pool; its peak is then not seen by the profiler
Several are joined by +. Fixes that change the code (another optimizer, recomputation, the input pipeline) are
yours to make; then give the changed command with --batch alone.

Examples:
    vramline verify --batch 256 -- python train.py --batch-size {batch}
    vramline verify --fix mixed-precision --batch 256 -- python train.py --batch-size {batch}
    vramline verify --fix accumulate+mixed-precision --batch 256 --limit 8GiB -- python train.py --batch-size {batch}

Exit codes: 0 measured within the tolerance of the prediction, or nothing was predicted; 3 outside it; 1 an
error; 2 usage.";

/// Run a few steps with a fix or another batch, and print what was predicted beside what is measured.
#[derive(Debug, Args)]
#[command(after_long_help = HELP, override_usage = "vramline verify [OPTIONS] --batch N [--fix NAME] -- CMD {batch} ...")]
pub(crate) struct VerifyArgs {
    /// The batch to measure at.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) batch: Option<u64>,
    /// The fix to try; several joined by +.
    #[arg(long, value_name = "NAME")]
    pub(crate) fix: Option<String>,
    /// A document of `vramline plan --json` to take the prediction from, instead of planning first.
    #[arg(long = "plan", value_name = "FILE", conflicts_with = "batches")]
    pub(crate) planned: Option<PathBuf>,
    /// Measure so often.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=50))]
    pub(crate) runs: u32,
    /// How far the measured peak may be from the predicted one, as a share of it.
    #[arg(long, value_name = "SHARE", default_value_t = 0.05)]
    pub(crate) tolerance: f64,
    #[command(flatten)]
    pub(crate) job: ProbeArgs,
}

pub(crate) fn run(args: &VerifyArgs) -> Result<Exit, Failure> {
    let Some(batch) = args.batch else {
        return Err(Failure::usage(
            "verify needs one batch",
            "give the batch to measure at, such as --batch 256",
        ));
    };
    if !(args.tolerance.is_finite() && args.tolerance >= 0.0) {
        return Err(Failure::usage(
            format!("{} is no tolerance", args.tolerance),
            "give a share, such as 0.05 for 5 %",
        ));
    }
    if args.job.command.is_empty() {
        return Err(Failure::usage(
            "there is nothing to run",
            "end with the command: -- python train.py --batch {batch}",
        ));
    }
    let predicted = match &args.planned {
        Some(file) => from_document(file, batch, args.fix.as_deref())?,
        None => from_plan(args, batch)?,
    };
    // As it is, and with the fixes.
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

/// The prediction of a plan that is made now.
fn from_plan(args: &VerifyArgs, batch: u64) -> Result<Predicted, Failure> {
    let job = &args.job;
    let made = job.make_probes()?;
    let options = PlanOptions { batches: vec![batch], ..job.options() };
    let (plan, read) = job.prepared(&made, &options)?;
    let prediction = plan.predict(batch, u64::from(job.trace_steps)).ok_or_else(|| {
        Failure::error(
            format!("the plan predicts nothing for {} {batch}", job.variable),
            format!("see that this is the {} that you mean", job.variable),
        )
    })?;
    let fitting = job.limit.and_then(|limit| plan.largest(limit, job.steps).sure);
    let offered = plan.candidates(batch, fitting);
    let mut fixes = Vec::new();
    for name in args.fix.iter().flat_map(|fix| fix.split('+')) {
        let found = offered.iter().copied().find(|fix| fix.name() == name);
        let fix = found.ok_or_else(|| {
            let known = offered.iter().filter(|fix| fix.is_from_outside()).map(|fix| fix.name());
            Failure::usage(
                format!("there is no fix '{name}' for this job"),
                format!("those that apply here: {}", known.collect::<Vec<_>>().join(", ")),
            )
        })?;
        if fixes.contains(&fix) {
            return Err(Failure::usage(format!("'{name}' is given twice"), "each fix is applied once"));
        }
        if !fix.is_from_outside() {
            let hint = "change the code, and verify the changed command with --batch alone";
            return Err(Failure::usage(format!("'{name}' is a change of the code"), hint));
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

/// The prediction of a document of `plan --json`.
fn from_document(file: &Path, batch: u64, fix: Option<&str>) -> Result<Predicted, Failure> {
    let plan = input::plan(file)?;
    let prediction = plan.at(batch).ok_or_else(|| {
        Failure::error(
            format!("'{}' predicts nothing for batch {batch}", file.display()),
            format!("plan it: vramline plan ... --batch {batch} --json"),
        )
    })?;
    if let Some(fix) = fix {
        // A fix is applied as the plan understood it, and only the plan knows into how many parts it goes.
        let hint = "leave --plan out: the fix is then planned for this job";
        return Err(Failure::usage(format!("--plan holds no recipe for the fix '{fix}'"), hint));
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

/// Runs the command with fixes, and reads the peaks.
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
            Fix::PlainOptimizer | Fix::Recompute | Fix::DataOnHost => {}
        }
    }
    if !inside.is_empty() {
        more.insert(FIX.to_owned(), inside.join(","));
    }
    let names: Vec<&str> = fixes.iter().map(|fix| fix.name()).collect();
    let name = if names.is_empty() { "measured".to_owned() } else { format!("measured-{}", names.join("-")) };
    let made = probes::make(&ProbeJob {
        batches: &[run_at],
        repeats: args.runs,
        trace_steps: args.job.trace_steps,
        variable: &args.job.variable,
        command: &args.job.command,
        folder: &args.job.output,
        name: &name,
        more: &more,
        allocator,
        // What is measured is measured now.
        is_anew: true,
    })?;
    let input = Input::new(false);
    let mut peaks = Vec::new();
    for (_, path) in &made {
        let shown = path.display();
        let reading = input
            .read_as_it_is(path)
            .map_err(|failure| failure.context(format!("'{shown}' cannot be read")))?;
        let found = peak(&reading, args.job.pool.as_deref());
        peaks.push(found.ok_or_else(|| {
            Failure::error(format!("'{shown}' tells no peak"), "`vramline report` says what is in it")
        })?);
    }
    Ok(Measured::of(peaks))
}
