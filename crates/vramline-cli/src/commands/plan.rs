//! `vramline plan`: any batch from a few small ones.

use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use clap::Args;
use vramline::analysis::plan::{self, PlanAnalysis, PlanGate, PlanOptions, ProbeRead};
use vramline::analysis::redaction::Redaction;
use vramline::plan::{Compiled, Largest, Plan};
use vramline::source::{SourceError, read_programs};
use vramline::units::Bytes;
use vramline::view::plan::PlanView;

use crate::answer::{Form, Length, Sink};
use crate::exit::{Exit, Failure};
use crate::input::Input;
use crate::launch::compile::CompileJob;
use crate::launch::probes::{self, ProbeJob};
use crate::launch::say;
use crate::launch::values::Variables;
use crate::{page, printer};

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

const HELP: &str = "\
The probes are small runs of the same script, each with another batch. The second form makes them: it runs
the command with {batch} replaced, the smallest first, traced, and ended after a few steps. Good batches are
small, and no dimension of the model: 7, 11 and 13 rather than 8, 16 and 32. Three are better than two, which
always agree.

What every tensor takes at the batch in question is computed from the probes; the requests, made that large, go
through the framework's own allocator in the order of each probe. TensorFlow runs ops in another order each time,
so the answer is a range, and a batch near a limit fits in some runs and not in others:
    sure     nearly every run passes, with room for orders that no probe has shown
    likely   more runs pass than not

Where XLA compiled the program (Keras jit_compile=True), its working memory is no line of the batch: the command
is run again at every probe's batch, at those to predict and, with --limit, at a few near the edge, just until the
program is compiled.

Examples:
    vramline plan --batches 7,11,13 --batch 256 --limit 16GiB -- python train.py --batch-size {batch}
    vramline plan --probe 7=a.vram --probe 11=b.vram --probe 13=c.vram --limit 16GiB
    vramline plan --probe 2=b2.pickle --probe 4=b4.pickle --probe 8=b8.pickle --batch 128 --curve
    vramline plan --compile-only --batch 256 -- python train_jax.py {batch}
    vramline plan --variable length --batches 96,160,224 -- python train.py --length {length}

Exit codes: 0 it fits, or there is no limit; 3 it does not fit; 4 not certain; 1 there is no plan, and why; 2 usage.";

/// Predict the memory of any batch from a few small ones, and the largest batch that fits.
#[derive(Debug, Args)]
#[command(after_long_help = HELP, override_usage = "vramline plan [OPTIONS] --batches 7,11,13 -- CMD {batch} ...
   vramline plan [OPTIONS] --probe 7=A.vram --probe 11=B.vram --probe 13=C.vram")]
pub(crate) struct PlanArgs {
    /// A run with its batch: a recording, a trace or a PyTorch snapshot. Give at least two batches; several runs of one are welcome.
    #[arg(long, value_name = "BATCH=PATH", value_parser = probe, conflicts_with = "command")]
    pub(crate) probe: Vec<(u64, PathBuf)>,
    /// Make no probes: run the command for a few steps at each --batch, and tell what the largest program takes that XLA compiled.
    #[arg(long, requires = "command", requires = "batch", conflicts_with_all = ["batches", "probe", "compiled"])]
    pub(crate) compile_only: bool,
    /// The batch to predict; several with commas [default: the largest that surely fits].
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) batch: Vec<u64>,
    #[command(flatten)]
    pub(crate) job: ProbeArgs,
    /// Print memory against the batch, from the smallest probe to beyond the largest batch that fits.
    #[arg(long)]
    pub(crate) curve: bool,
    /// Also write the plan as a page: memory against the batch as a drawing, and the tables.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

// What a plan is made from: `plan` and `verify` have it in common. (No doc comment: clap would take it for that of the verb.)
#[derive(Debug, Args)]
pub(crate) struct ProbeArgs {
    /// What XLA wrote when it compiled at a batch (XLA_FLAGS='--xla_dump_to=FOLDER --xla_dump_hlo_as_proto'): the folder, or the file of
    /// one program. Give it for every probe and for the batch to predict; alone it tells what the program takes, not the process.
    #[arg(long, value_name = "BATCH=PATH", value_parser = probe)]
    pub(crate) compiled: Vec<(u64, PathBuf)>,
    /// Make probes with these batches, by running the command.
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', requires = "command", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) batches: Vec<u64>,
    /// Run the command so often for each of them: TensorFlow orders ops differently each time.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=20))]
    pub(crate) repeats: u32,
    /// Trace so many steps of each: every step is another order.
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u32).range(2..))]
    pub(crate) trace_steps: u32,
    /// Keep the probes in this folder; what is there already of the same command, settings and script is not run again.
    #[arg(short, long, value_name = "FOLDER", default_value = "plan.probes")]
    pub(crate) output: PathBuf,
    /// What the pool may take, such as 16GiB. On a device, leave room for the CUDA context.
    #[arg(long, value_name = "SIZE")]
    pub(crate) limit: Option<Bytes>,
    /// For how many steps a run goes on: the highest of them counts.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) steps: u64,
    /// What varies, where it is not the batch; the command then has it in braces.
    #[arg(long, value_name = "NAME", default_value = "batch")]
    pub(crate) variable: String,
    /// Only a pool whose name contains this [default: the one with the highest peak].
    #[arg(long, value_name = "NAME")]
    pub(crate) pool: Option<String>,
    #[command(flatten)]
    pub(crate) form: Form,
    #[command(flatten)]
    pub(crate) length: Length,
    /// The command, with {batch} where the batch belongs.
    #[arg(trailing_var_arg = true, value_name = "CMD", value_hint = clap::ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// A batch and the path of its run.
fn probe(text: &str) -> Result<(u64, PathBuf), String> {
    let wrong = || "expected BATCH=PATH, such as 8=small.vram".to_owned();
    let (batch, path) = text.split_once('=').ok_or_else(wrong)?;
    let batch = batch.trim().parse().ok().filter(|&batch| batch > 0).ok_or_else(wrong)?;
    if path.is_empty() { Err(wrong()) } else { Ok((batch, path.into())) }
}

pub(crate) fn run(args: &PlanArgs) -> Result<Exit, Failure> {
    let mut redaction = args.job.form.redact.then(Redaction::default);
    let mut options = PlanOptions {
        batches: args.batch.clone(),
        curve: args.curve || args.html.is_some(),
        fixes: true,
        ..args.job.options()
    };
    if let Some(redaction) = &mut redaction {
        options.variable = redaction.varied(&options.variable);
    }
    let mut analysis = analysis(args, &options)?;
    // Afterwards: no sentence of a plan holds a name, and what is compiled is looked for by its own.
    if let Some(redaction) = &mut redaction {
        redaction.plan(&mut analysis);
    }
    let exit = match analysis.gate() {
        PlanGate::Pass => Exit::Done,
        PlanGate::Fail => Exit::No,
        PlanGate::NotCertain => Exit::NotCertain,
    };
    let document = PlanView::from(analysis);
    if let Some(file) = &args.html {
        Sink::stderr().page(file, &page::plan::page(&document))?;
    }
    let text = |style| {
        if args.job.length.full || args.curve {
            printer::plan::full(&document, args.curve, style)
        } else {
            printer::plan::first_screen(&document, style)
        }
    };
    Sink::stdout().answer(&document, args.job.form.json, text)?;
    Ok(exit)
}

fn analysis(args: &PlanArgs, options: &PlanOptions) -> Result<PlanAnalysis, Failure> {
    let job = &args.job;
    if args.compile_only {
        return compile_only(args, options);
    }
    let probes = if job.command.is_empty() { args.probe.clone() } else { job.make_probes()? };
    if probes.is_empty() && job.compiled.is_empty() {
        let hint = "give runs that you have (--probe 7=A.vram --probe 11=B.vram), or a command to make them with (-- python train.py --batch {batch})";
        return Err(Failure::usage("there is nothing to plan from", hint));
    }
    if probes.is_empty() {
        return Ok(plan::of_compiled(&job.given()?, options));
    }
    let (mut prepared, read) = job.prepared(&probes, options)?;
    if !job.command.is_empty() {
        compile(args, &mut prepared, &read)?;
    }
    let analysis = plan::plan(&prepared, &read, options);
    let is_told = |batch: u64| analysis.predictions.iter().any(|each| each.taken.batch == batch);
    if let Some(batch) = args.batch.iter().find(|batch| !is_told(**batch)) {
        let variable = &job.variable;
        return Err(Failure::usage(
            format!("nothing is predicted for {variable} {batch}: it would take more than any pool can have"),
            format!("see that this is the {variable} that you mean"),
        ));
    }
    // Giving back what large traces take would cost more than it is worth at the end.
    std::mem::forget((prepared, read));
    Ok(analysis)
}

/// What XLA compiles at the batches that are asked for, and no more.
fn compile_only(args: &PlanArgs, options: &PlanOptions) -> Result<PlanAnalysis, Failure> {
    let ProbeArgs { variable, command, output, .. } = &args.job;
    probes::check(command, variable)?;
    fs::create_dir_all(output).with_context(|| format!("cannot make '{}'", output.display()))?;
    let job = CompileJob { variable, command, folder: output, patience: LONGEST_PATIENCE };
    let mut compiled = Vec::new();
    for &batch in &args.batch {
        // Which program is the step is not known before all are there.
        compiled.extend(job.at(batch, &|_| false)?);
    }
    if compiled.is_empty() {
        return Err(Failure::error(
            "the command compiled no program",
            "is it compiled by XLA at all (JAX, Keras with jit_compile=True), and does it keep XLA_FLAGS as they are?",
        ));
    }
    Ok(plan::of_compiled(&compiled, options))
}

/// Where a compiler may be behind requests of the probes, compiles at their batches, at those that are asked for, and where there is
/// a limit at some near the largest that fits.
fn compile(args: &PlanArgs, plan: &mut Plan, read: &[ProbeRead]) -> Result<(), Failure> {
    let times = read.iter().filter_map(|probe| {
        let clocks = &probe.reading.recorded.as_ref()?.manifest.as_ref()?.clocks;
        let took = clocks.end.as_ref()?.monotonic_ns.0.checked_sub(clocks.begin.monotonic_ns.0)?;
        u64::try_from(took).ok().map(Duration::from_nanos)
    });
    let longest = times.max().unwrap_or_default();
    let job = CompileJob {
        variable: &args.job.variable,
        command: &args.job.command,
        folder: &args.job.output,
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
        let found = job.at(batch, &|compiled| compiled.explains(&sizes))?;
        // Another batch would have no more to tell.
        let Some(found) = found.filter(|found| found.explains_any(&sizes)) else { return Ok(()) };
        plan.add_compiled(vec![found]);
    }
    let places = plan.places().to_vec();
    if places.is_empty() {
        return Ok(());
    }
    let compile_at = |plan: &mut Plan, batch: u64| -> Result<bool, Failure> {
        let found = job.at(batch, &|compiled| compiled.has(&places))?;
        let is_found = found.is_some();
        plan.add_compiled(found.into_iter().collect());
        if is_found && plan.compiled_batches().is_some_and(|known| !known.contains(&batch)) {
            let name = &args.job.variable;
            say(format_args!("what was compiled there is not for {name} {batch}: is the data large enough?"));
            return Ok(false);
        }
        Ok(is_found)
    };
    for &batch in &args.batch {
        if !is_given(plan, batch) {
            compile_at(plan, batch)?;
        }
    }
    for _ in 0..MOST_COMPILED {
        let Some(limit) = args.job.limit else { break };
        let Largest { sure, edge: Some(edge), .. } = plan.largest(limit, args.job.steps) else { break };
        if sure.is_some_and(|sure| edge - edge / NEAR <= sure) || is_given(plan, edge) {
            break;
        }
        if !compile_at(plan, edge)? {
            break;
        }
    }
    Ok(())
}

impl ProbeArgs {
    /// The probes of the command, made if need be.
    pub(crate) fn make_probes(&self) -> Result<Vec<(u64, PathBuf)>, Failure> {
        let batches = if self.batches.is_empty() { BATCHES.as_slice() } else { &self.batches };
        probes::make(&ProbeJob {
            batches,
            repeats: self.repeats,
            trace_steps: self.trace_steps,
            variable: &self.variable,
            command: &self.command,
            folder: &self.output,
            name: "probe",
            more: &Variables::new(),
            allocator: None,
            is_anew: false,
        })
    }

    /// What a plan is asked for, less the batches.
    pub(crate) fn options(&self) -> PlanOptions {
        PlanOptions {
            limit: self.limit,
            steps: self.steps,
            pool: self.pool.clone(),
            variable: self.variable.clone(),
            ..PlanOptions::default()
        }
    }

    /// What XLA wrote, as it was given.
    fn given(&self) -> Result<Vec<Compiled>, Failure> {
        let read = |(batch, path): &(u64, PathBuf)| {
            let programs = read_programs(path).map_err(|error| Failure::Error {
                hint: SourceError::NoProgram { path: path.clone() }.hint().to_owned(),
                error: anyhow::Error::from(error)
                    .context(format!("what was compiled at {batch} cannot be read")),
            })?;
            Ok(Compiled { batch: *batch, file: path.display().to_string(), programs })
        };
        self.compiled.iter().map(read).collect()
    }

    /// Probes, read and aligned.
    pub(crate) fn prepared(
        &self,
        probes: &[(u64, PathBuf)],
        options: &PlanOptions,
    ) -> Result<(Plan, Vec<ProbeRead>), Failure> {
        let input = Input::new(false);
        let mut read = Vec::new();
        for (batch, path) in probes {
            let file = path.display().to_string();
            let reading = input
                .read_as_it_is(path)
                .map_err(|failure| failure.context(format!("the probe '{file}' cannot be read")))?;
            read.push(ProbeRead { batch: *batch, file, reading });
        }
        let mut plan = plan::prepare(&read, options)?;
        if !self.compiled.is_empty() {
            plan.add_compiled(self.given()?);
        }
        Ok((plan, read))
    }
}
