//! `vramline plan`: any batch from a few small ones.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use std::{fs, io};

use anyhow::{Context, anyhow};
use vramline::analysis::plan::{self, PlanAnalysis, PlanGate, PlanOptions, ProbeRead};
use vramline::plan::{Compiled, Largest, Plan};
use vramline::source::{SourceError, read_programs};
use vramline::view::plan::PlanView;

use crate::cli::PlanArgs;
use crate::commands::answer;
use crate::exit::{Hinted, NO, NOT_CERTAIN, refusal};
use crate::launch::compile::CompileJob;
use crate::launch::environment::Variables;
use crate::launch::probes::{self, ProbeJob};
use crate::launch::say;
use crate::{page, printer, watched};

/// Probes where the user names none: small, and hardly ever a dimension of a model.
const BATCHES: [u64; 3] = [7, 11, 13];

/// Times that a program is compiled besides, to find the largest batch.
const MOST_COMPILED: usize = 6;

/// A batch that was compiled is near enough to the largest where it is smaller by no more than one part in so many.
const NEAR: u64 = 50;

/// A program is compiled within so many times what the longest probe took, and no sooner than after the least.
const PATIENCE: u32 = 10;
const LEAST_PATIENCE: Duration = Duration::from_secs(120);

/// The same where there was no probe.
const LONGEST_PATIENCE: Duration = Duration::from_secs(1800);

pub(crate) fn run(args: &PlanArgs) -> Result<ExitCode, Hinted> {
    let analysis = match analysis(args)? {
        Ok(analysis) => analysis,
        Err(code) => return Ok(ExitCode::from(code)),
    };
    let code = code(analysis.gate());
    let document = PlanView::from(analysis);
    if let Some(file) = &args.html {
        page::write(file, &page::plan::page(&document), &mut io::stderr())?;
    }
    answer(&document, args.json, |style| printer::plan::plan(&document, args.curve, style))?;
    Ok(ExitCode::from(code))
}

/// The plan; a code where a signal ended its making.
fn analysis(args: &PlanArgs) -> Result<Result<PlanAnalysis, u8>, Hinted> {
    if args.compile_only {
        return compile_only(args);
    }
    let probes = match probes_of(args)? {
        Ok(probes) => probes,
        Err(code) => return Ok(Err(code)),
    };
    if probes.is_empty() {
        return Ok(Ok(plan::of_compiled(&given(args)?, &options_of(args))));
    }
    let (mut prepared, read, options) = prepared(args, &probes)?;
    if !args.command.is_empty()
        && let Err(code) = compile(args, &mut prepared, &read)?
    {
        return Ok(Err(code));
    }
    let analysis = plan::plan(&prepared, &read, &options);
    let is_told = |batch: u64| analysis.predictions.iter().any(|each| each.taken.batch == batch);
    if let Some(batch) = args.batch.iter().find(|batch| !is_told(**batch)) {
        let hint = format!("see that this is the {} that you mean", args.variable);
        return Err(refusal(
            format!(
                "nothing is predicted for {} {batch}: it would take more than any pool can have",
                args.variable
            ),
            &hint,
        ));
    }
    // Giving back what large traces take would cost more than it is worth at the end.
    std::mem::forget((prepared, read));
    Ok(Ok(analysis))
}

/// What XLA compiles at the batches that are asked for, and no more; a code where a signal ended that.
fn compile_only(args: &PlanArgs) -> Result<Result<PlanAnalysis, u8>, Hinted> {
    probes::check(&args.command, &args.variable)?;
    fs::create_dir_all(&args.output).with_context(|| format!("cannot make '{}'", args.output.display()))?;
    let (variable, command) = (args.variable.as_str(), args.command.as_slice());
    let job = CompileJob { variable, command, folder: &args.output, patience: LONGEST_PATIENCE };
    let mut compiled = Vec::new();
    for &batch in &args.batch {
        // Which program is the step is not known before all are there.
        match job.at(batch, &|_| false)? {
            Ok(found) => compiled.extend(found),
            Err(code) => return Ok(Err(code)),
        }
    }
    if compiled.is_empty() {
        let hint = "is it compiled by XLA at all (JAX, Keras with jit_compile=True), and does it keep XLA_FLAGS as they are?";
        return Err(Hinted { error: anyhow!("the command compiled no program"), hint: hint.to_owned() });
    }
    Ok(Ok(plan::of_compiled(&compiled, &options_of(args))))
}

/// Where a compiler may be behind requests of the probes, compiles at their batches, at those that are asked for, and where there is
/// a limit at some near the largest that fits; a code where a signal ended that.
fn compile(args: &PlanArgs, plan: &mut Plan, read: &[ProbeRead]) -> Result<Result<(), u8>, Hinted> {
    let times = read.iter().filter_map(|probe| {
        let clocks = &probe.reading.recorded.as_ref()?.manifest.as_ref()?.clocks;
        let took = clocks.end.as_ref()?.monotonic_ns.0.checked_sub(clocks.begin.monotonic_ns.0)?;
        u64::try_from(took).ok().map(Duration::from_nanos)
    });
    let longest = times.max().unwrap_or_default();
    let job = CompileJob {
        variable: &args.variable,
        command: &args.command,
        folder: &args.output,
        patience: longest.saturating_mul(PATIENCE).max(LEAST_PATIENCE),
    };
    let mut batches: Vec<u64> = plan.probes.iter().map(|probe| probe.batch).collect();
    batches.dedup();
    let is_given = |plan: &Plan, batch: u64| plan.compiled.iter().any(|known| known.batch == batch);
    for batch in batches {
        let sizes = plan.unexplained(batch);
        if plan.is_explained(batch) {
            continue;
        }
        let found = match job.at(batch, &|compiled| compiled.explains(&sizes))? {
            Ok(found) => found,
            Err(code) => return Ok(Err(code)),
        };
        // Another batch would have no more to tell.
        let Some(found) = found.filter(|found| found.explains_any(&sizes)) else { return Ok(Ok(())) };
        plan.add_compiled(vec![found]);
    }
    let places = plan.places().to_vec();
    if places.is_empty() {
        return Ok(Ok(()));
    }
    let compile_at = |plan: &mut Plan, batch: u64| -> Result<Result<bool, u8>, Hinted> {
        let found = match job.at(batch, &|compiled| compiled.has(&places))? {
            Ok(found) => found,
            Err(code) => return Ok(Err(code)),
        };
        let is_found = found.is_some();
        plan.add_compiled(found.into_iter().collect());
        if is_found && plan.compiled_batches().is_some_and(|known| !known.contains(&batch)) {
            let name = &args.variable;
            say(format_args!("what was compiled there is not for {name} {batch}: is the data large enough?"));
            return Ok(Ok(false));
        }
        Ok(Ok(is_found))
    };
    for &batch in &args.batch {
        if !is_given(plan, batch)
            && let Err(code) = compile_at(plan, batch)?
        {
            return Ok(Err(code));
        }
    }
    for _ in 0..MOST_COMPILED {
        let Some(limit) = args.limit else { break };
        let Largest { sure, edge: Some(edge), .. } = plan.largest(limit, args.steps) else { break };
        if sure.is_some_and(|sure| edge - edge / NEAR <= sure) || is_given(plan, edge) {
            break;
        }
        match compile_at(plan, edge)? {
            Ok(true) => {}
            Ok(false) => break,
            Err(code) => return Ok(Err(code)),
        }
    }
    Ok(Ok(()))
}

/// The probes, made if need be; a code where a signal ended that.
pub(crate) fn probes_of(args: &PlanArgs) -> Result<Result<Vec<(u64, PathBuf)>, u8>, Hinted> {
    if args.command.is_empty() {
        if args.probe.is_empty() && args.compiled.is_empty() {
            let hint = "give runs that you have (--probe 7=A.vram --probe 11=B.vram), or a command to make them with (-- python train.py --batch {batch})";
            return Err(refusal("there is nothing to plan from", hint));
        }
        return Ok(Ok(args.probe.clone()));
    }
    let batches = if args.batches.is_empty() { BATCHES.as_slice() } else { &args.batches };
    probes::make(&ProbeJob {
        batches,
        repeats: args.repeats,
        trace_steps: args.trace_steps,
        variable: &args.variable,
        command: &args.command,
        folder: &args.output,
        name: "probe",
        more: &Variables::new(),
        allocator: None,
        is_anew: false,
    })
}

/// What XLA wrote, as it was given.
fn given(args: &PlanArgs) -> Result<Vec<Compiled>, Hinted> {
    let read = |(batch, path): &(u64, PathBuf)| {
        let programs = read_programs(path).map_err(|error| Hinted {
            hint: SourceError::NoProgram { path: path.clone() }.hint().to_owned(),
            error: anyhow::Error::from(error).context(format!("what was compiled at {batch} cannot be read")),
        })?;
        Ok(Compiled { batch: *batch, file: path.display().to_string(), programs })
    };
    args.compiled.iter().map(read).collect()
}

fn options_of(args: &PlanArgs) -> PlanOptions {
    PlanOptions {
        batches: args.batch.clone(),
        limit: args.limit,
        steps: args.steps,
        pool: args.pool.clone(),
        variable: args.variable.clone(),
        curve: args.curve || args.html.is_some(),
        fixes: true,
    }
}

/// Probes, read and aligned.
pub(crate) fn prepared(
    args: &PlanArgs,
    probes: &[(u64, PathBuf)],
) -> Result<(Plan, Vec<ProbeRead>, PlanOptions), Hinted> {
    let mut read = Vec::new();
    for (batch, path) in probes {
        let reading = watched::read(path).map_err(|error| Hinted {
            hint: error.hint().to_owned(),
            error: anyhow::Error::from(error)
                .context(format!("the probe '{}' cannot be read", path.display())),
        })?;
        read.push(ProbeRead { batch: *batch, file: path.display().to_string(), reading });
    }
    let options = options_of(args);
    let refused =
        |error: plan::NoPlan| Hinted { hint: error.hint().to_owned(), error: anyhow::Error::new(error) };
    let mut plan = plan::prepare(&read, &options).map_err(refused)?;
    if !args.compiled.is_empty() {
        plan.add_compiled(given(args)?);
    }
    Ok((plan, read, options))
}

fn code(gate: PlanGate) -> u8 {
    match gate {
        PlanGate::Pass => 0,
        PlanGate::Fail => NO,
        PlanGate::NotCertain => NOT_CERTAIN,
    }
}
