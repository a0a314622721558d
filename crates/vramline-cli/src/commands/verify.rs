//! `vramline verify`: a prediction, measured.

use std::fs::File;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use serde_json::Value;
use vramline::analysis::verify::{Measured, Predicted, VerifyVerdict, peak, verify};
use vramline::plan::Fix;
use vramline::units::Bytes;
use vramline::view::verify::Verify;

use crate::cli::{Allocator, VerifyArgs};
use crate::commands::{answer, plan};
use crate::exit::{Hinted, NO, refusal};
use crate::launch::environment::Variables;
use crate::launch::probes::{self, ProbeJob};
use crate::variables::{FIX, TF_CUDNN_SCRATCH, TF_INTEROP_THREADS};
use crate::{printer, watched};

const SCRATCH_MIB: &str = "256";

pub(crate) fn run(args: &VerifyArgs) -> Result<ExitCode, Hinted> {
    let &[batch] = args.plan.batch.as_slice() else {
        return Err(refusal("verify needs one batch", "give the batch to measure at, such as --batch 256"));
    };
    if args.plan.html.is_some() || args.plan.curve || args.plan.compile_only {
        let hint = "--html, --curve and --compile-only are for `vramline plan`";
        return Err(refusal("verify measures one batch, and draws nothing", hint));
    }
    if !(args.tolerance.is_finite() && args.tolerance >= 0.0) {
        return Err(refusal(
            format!("{} is no tolerance", args.tolerance),
            "give a share, such as 0.05 for 5 %",
        ));
    }
    if args.plan.command.is_empty() {
        return Err(refusal(
            "there is nothing to run",
            "end with the command: -- python train.py --batch {batch}",
        ));
    }
    let predicted = match &args.planned {
        Some(file) => from_document(file, batch, args.fix.as_deref())?,
        None => match from_plan(args, batch)? {
            Ok(predicted) => predicted,
            Err(code) => return Ok(ExitCode::from(code)),
        },
    };
    let fixes = predicted.fixes.clone();
    let mut measured = Vec::new();
    // As it is, and with the fixes.
    let with: &[Fix] = &fixes;
    let turns = if with.is_empty() { vec![with] } else { vec![&[][..], with] };
    for fixes in turns {
        match measure(args, batch, fixes)? {
            Ok(peaks) => measured.push(peaks),
            Err(code) => return Ok(ExitCode::from(code)),
        }
    }
    let fixed = if with.is_empty() { None } else { measured.pop() };
    let base = measured.pop().ok_or_else(|| anyhow!("nothing was measured"))?;
    let document = Verify::from(verify(&predicted, base, fixed, args.tolerance));
    answer(&document, args.plan.json, |style| printer::verify::verify(&document, style))?;
    Ok(if document.verdict.word == VerifyVerdict::NotAsPredicted {
        ExitCode::from(NO)
    } else {
        ExitCode::SUCCESS
    })
}

/// The prediction of a plan that is made now; a code where a signal ended that.
fn from_plan(args: &VerifyArgs, batch: u64) -> Result<Result<Predicted, u8>, Hinted> {
    let made = match plan::probes_of(&args.plan)? {
        Ok(made) => made,
        Err(code) => return Ok(Err(code)),
    };
    let (plan, read, options) = plan::prepared(&args.plan, &made)?;
    let prediction = plan
        .predict(batch, u64::from(args.plan.trace_steps))
        .ok_or_else(|| anyhow!("the plan predicts nothing for {} {batch}", options.variable))?;
    let names: Vec<&str> = args.fix.iter().flat_map(|fix| fix.split('+')).collect();
    let fitting = args.plan.limit.and_then(|limit| plan.largest(limit, args.plan.steps).sure);
    let offered = plan.candidates(batch, fitting);
    let mut fixes = Vec::new();
    for name in names {
        let found = offered.iter().copied().find(|fix| fix.name() == name);
        let known: Vec<&str> =
            offered.iter().filter(|fix| fix.is_from_outside()).map(|fix| fix.name()).collect();
        let hint = format!("those that apply here: {}", known.join(", "));
        let fix = found.ok_or_else(|| refusal(format!("there is no fix '{name}' for this job"), &hint))?;
        if fixes.contains(&fix) {
            return Err(refusal(format!("'{name}' is given twice"), "each fix is applied once"));
        }
        if !fix.is_from_outside() {
            let hint = "change the code, and verify the changed command with --batch alone";
            return Err(refusal(format!("'{name}' is a change of the code"), hint));
        }
        fixes.push(fix);
    }
    let fixed = if fixes.is_empty() {
        None
    } else {
        plan.fixed(&fixes, batch, u64::from(args.plan.trace_steps)).and_then(|fixed| fixed.peak)
    };
    std::mem::forget((plan, read));
    Ok(Ok(Predicted {
        batch,
        fixes,
        peak: prediction.peak,
        low: prediction.low,
        high: prediction.high,
        fixed_peak: fixed,
    }))
}

/// The prediction of a document of `plan --json`.
fn from_document(file: &Path, batch: u64, fix: Option<&str>) -> Result<Predicted, Hinted> {
    let shown = file.display();
    let reader = File::open(file).with_context(|| format!("cannot read '{shown}'"))?;
    let document: Value = serde_json::from_reader(io::BufReader::new(reader))
        .with_context(|| format!("'{shown}' is no document of `vramline plan --json`"))?;
    let bytes = |value: &Value| value.as_u64().map(Bytes);
    let of_batch = |value: &&Value| value.get("batch").and_then(Value::as_u64) == Some(batch);
    let all = document.get("predictions").and_then(Value::as_array);
    let prediction = all.and_then(|all| all.iter().find(of_batch));
    let field = |name: &str| prediction.and_then(|prediction| prediction.get(name)).and_then(bytes);
    let (Some(peak), Some(low), Some(high)) = (field("peak_bytes"), field("low_bytes"), field("high_bytes"))
    else {
        let hint = format!("plan it: vramline plan ... --batch {batch} --json");
        return Err(Hinted { error: anyhow!("'{shown}' predicts nothing for batch {batch}"), hint });
    };
    if let Some(fix) = fix {
        // A fix is applied as the plan understood it, and only the plan knows into how many parts it goes.
        let hint = "leave --plan out: the fix is then planned for this job";
        return Err(refusal(format!("--plan holds no recipe for the fix '{fix}'"), hint));
    }
    Ok(Predicted { batch, fixes: Vec::new(), peak, low, high, fixed_peak: None })
}

/// Runs the command with fixes, and reads the peaks; a code where a signal ended that.
fn measure(args: &VerifyArgs, batch: u64, fixes: &[Fix]) -> Result<Result<Measured, u8>, Hinted> {
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
        trace_steps: args.plan.trace_steps,
        variable: &args.plan.variable,
        command: &args.plan.command,
        folder: &args.plan.output,
        name: &name,
        more: &more,
        allocator,
        // What is measured is measured now.
        is_anew: true,
    })?;
    let made = match made {
        Ok(made) => made,
        Err(code) => return Ok(Err(code)),
    };
    let mut peaks = Vec::new();
    for (_, path) in &made {
        let reading = watched::read(path).map_err(|error| Hinted {
            hint: error.hint().to_owned(),
            error: anyhow::Error::from(error).context(format!("'{}' cannot be read", path.display())),
        })?;
        let found = peak(&reading, args.plan.pool.as_deref());
        peaks.push(found.ok_or_else(|| Hinted {
            error: anyhow!("'{}' tells no peak", path.display()),
            hint: "`vramline report` says what is in it".to_owned(),
        })?);
    }
    Ok(Ok(Measured::of(peaks)))
}
