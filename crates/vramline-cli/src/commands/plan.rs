//! `vramline plan`: any batch from a few small ones.

use std::io;
use std::path::PathBuf;
use std::process::ExitCode;

use vramline::plan::Plan;
use vramline::view::plan::{self, PlanView, ProbeRead, Wanted};

use crate::cli::PlanArgs;
use crate::commands::answer;
use crate::launch::environment::Variables;
use crate::launch::probes;
use crate::launch::settings::refusal;
use crate::{Hinted, page, plan_page, printer, watched};

const NO: u8 = 3;
const NOT_CERTAIN: u8 = 4;

/// Probes where the user names none: small, and hardly ever a dimension of a model.
const BATCHES: [u64; 3] = [7, 11, 13];

pub(crate) fn run(args: &PlanArgs) -> Result<ExitCode, Hinted> {
    let probes = match probes_of(args)? {
        Ok(probes) => probes,
        Err(code) => return Ok(ExitCode::from(code)),
    };
    let document = planned(args, &probes)?;
    if let Some(file) = &args.html {
        page::write(file, &plan_page::page(&document), &mut io::stderr())?;
    }
    answer(&document, args.json, |style| printer::plan::plan(&document, args.curve, style))?;
    Ok(ExitCode::from(code(&document)))
}

/// The probes, made if need be; a code where a signal ended that.
pub(crate) fn probes_of(args: &PlanArgs) -> Result<Result<Vec<(u64, PathBuf)>, u8>, Hinted> {
    if args.command.is_empty() {
        if args.probe.is_empty() {
            let hint = "give runs that you have (--probe 7=A.vram --probe 11=B.vram), or a command to make them with (-- python train.py --batch {batch})";
            return Err(refusal("there is nothing to plan from", hint));
        }
        return Ok(Ok(args.probe.clone()));
    }
    let kept = args.output.clone();
    let folder = kept.unwrap_or_else(|| PathBuf::from("plan.probes"));
    let batches = if args.batches.is_empty() { BATCHES.as_slice() } else { &args.batches };
    probes::make(&probes::Wanted {
        batches,
        repeats: args.repeats,
        trace_steps: args.trace_steps,
        variable: &args.variable,
        command: &args.command,
        folder: &folder,
        name: "probe",
        more: &Variables::new(),
        allocator: None,
    })
}

fn planned(args: &PlanArgs, probes: &[(u64, PathBuf)]) -> Result<PlanView, Hinted> {
    let (plan, read, wanted) = prepared(args, probes)?;
    let document = plan::view(&plan, &read, &wanted);
    // Giving back what large traces take would cost more than it is worth at the end.
    std::mem::forget((plan, read));
    Ok(document)
}

/// Probes, read and aligned.
pub(crate) fn prepared(
    args: &PlanArgs,
    probes: &[(u64, PathBuf)],
) -> Result<(Plan, Vec<ProbeRead>, Wanted), Hinted> {
    let mut read = Vec::new();
    for (batch, path) in probes {
        let reading = watched::read(path).map_err(|error| Hinted {
            hint: error.hint().to_owned(),
            error: anyhow::Error::from(error)
                .context(format!("the probe '{}' cannot be read", path.display())),
        })?;
        read.push(ProbeRead { batch: *batch, file: path.display().to_string(), reading });
    }
    let wanted = Wanted {
        batches: args.batch.clone(),
        limit: args.limit,
        steps: args.steps,
        pool: args.pool.clone(),
        variable: args.variable.clone(),
        curve: args.curve || args.html.is_some(),
        fixes: true,
    };
    let refused =
        |error: plan::NoPlan| Hinted { hint: error.hint().to_owned(), error: anyhow::Error::new(error) };
    let plan = plan::prepare(&read, &wanted).map_err(refused)?;
    Ok((plan, read, wanted))
}

/// A no outweighs what is not certain.
fn code(document: &PlanView) -> u8 {
    if document.limit_bytes.is_none() {
        return if document.certain { 0 } else { NOT_CERTAIN };
    }
    let says = |fits: Option<bool>| document.predictions.iter().any(|prediction| prediction.fits == fits);
    if says(Some(false)) {
        NO
    } else if says(None) || document.predictions.is_empty() {
        NOT_CERTAIN
    } else {
        0
    }
}
