//! `vramline plan`: predicts the memory of any batch size from a few small ones.

mod confirm;

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
use crate::progress::ProgressLine;
use crate::{page, printer};

/// Default batch sizes of probes: small, and rarely a dimension of a model.
const DEFAULT_BATCHES: [u64; 3] = [7, 11, 13];

/// Number of additional compilations to find the largest batch size.
const MAX_COMPILED: usize = 6;

/// A compiled batch size is near enough to the largest one if it is smaller by at most 1/50.
const NEAR_DIVISOR: u64 = 50;

/// Number of additional probes that narrow the range of a prediction.
const MAX_MORE_PROBES: usize = 2;

/// Deadline of a compilation, as a multiple of the duration of the longest probe, and its minimum.
const COMPILE_TIME_FACTOR: u32 = 10;
const MIN_COMPILE_TIME: Duration = Duration::from_secs(120);

/// Deadline of a compilation without a probe.
const MAX_COMPILE_TIME: Duration = Duration::from_secs(1800);

const HELP: &str = "\
Vramline measures a few small batch sizes and predicts the others. Each measurement is a probe: a
short traced run of your script. With a command, Vramline makes the probes itself. It replaces
{batch}, starts with the smallest batch size, and ends each run after a few steps. Use small batch
sizes that are not a dimension of the model: 7, 11 and 13 rather than 8, 16 and 32. Use three,
because two cannot reveal that memory does not grow linearly.

From the probes Vramline computes the size of every tensor at other batch sizes, and replays these
requests through the framework's allocator. TensorFlow schedules ops in a different order in each
run. So the prediction is a range, and near the limit some runs fit and others do not:
    sure     nearly every run fits, with a margin for orders that no probe has shown
    likely   more than half of the runs fit

With a command and --limit, Vramline then confirms the answer. It runs the largest batch size that
is sure (or the first of --batch) for a few steps under the limit, several times for TensorFlow. If
a run fails, Vramline corrects the plan and tries a smaller batch size, at most 8 in all. Without a
command, nothing is called sure beyond 4 times the largest probe.

With a command and --batch, but without --limit, Vramline makes up to 2 more probes of a PyTorch
job if these narrow a wide range of reserved memory. --no-confirm prevents it.

If XLA compiled the program (JAX, or Keras with jit_compile=True), its working memory does not
grow linearly. Vramline then runs the command again at each probe's batch size, at the batch sizes
to predict and, with --limit, at a few near the limit, only until the program is compiled.

Examples:
    # make probes with the default batch sizes, and predict batch size 256
    vramline plan --batch 256 --limit 16GiB -- python train.py --batch-size {batch}
    # use recordings or snapshots that you have
    vramline plan --probe 7=a.vram --probe 11=b.vram --probe 13=c.vram --limit 16GiB
    vramline plan --probe 2=b2.pickle --probe 4=b4.pickle --probe 8=b8.pickle --batch 128 --curve
    # only compile with XLA
    vramline plan --compile-only --batch 256 -- python train_jax.py {batch}
    # vary the sequence length instead of the batch size
    vramline plan --variable length --batches 96,160,224 -- python train.py --length {length}

Exit codes: 0 it fits, or there is no limit; 3 it does not fit; 4 not certain; 1 no plan can be
made; 2 usage.";

/// Predict memory for other batch sizes and find the largest that fits.
#[derive(Debug, Args)]
#[command(after_long_help = HELP, override_usage = "vramline plan [OPTIONS] --batches 7,11,13 -- CMD {batch} ...
       vramline plan [OPTIONS] --probe 7=A.vram --probe 11=B.vram --probe 13=C.vram")]
pub(crate) struct PlanArgs {
    /// Recording, trace or PyTorch snapshot of a run, with its batch size. Give at least two batch sizes; several runs of the same batch
    /// size make the prediction better.
    #[arg(long, value_name = "BATCH=PATH", value_parser = probe, conflicts_with = "command")]
    pub(crate) probe: Vec<(u64, PathBuf)>,
    /// Make no probes. Run the command at each --batch until XLA has compiled it, and report the memory of the largest compiled program.
    #[arg(long, requires = "command", requires = "batch", conflicts_with_all = ["batches", "probe", "compiled"])]
    pub(crate) compile_only: bool,
    /// Batch sizes to predict, separated by commas [default: the largest that surely fits].
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) batch: Vec<u64>,
    #[command(flatten)]
    pub(crate) job: ProbeArgs,
    /// Number of runs under the limit that the batch size of the answer has to pass, with a command and --limit [default: 3 for TensorFlow,
    /// whose runs differ; 1 otherwise].
    #[arg(long, value_name = "N", requires = "command", value_parser = clap::value_parser!(u32).range(1..=100))]
    pub(crate) confirm: Option<u32>,
    /// Do not run the batch size of the answer: predict only.
    #[arg(long, conflicts_with = "confirm")]
    pub(crate) no_confirm: bool,
    /// Print memory as a function of the batch size, up to the largest that fits and beyond.
    #[arg(long)]
    pub(crate) curve: bool,
    /// Also write the plan to this file as an HTML page, with a chart of memory by batch size.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

// The options that `plan` and `verify` share. (Not a doc comment: clap would use it as the help of the verb.)
#[derive(Debug, Args)]
pub(crate) struct ProbeArgs {
    /// Folder or file of programs that XLA compiled at a batch size, from XLA_FLAGS='--xla_dump_to=FOLDER --xla_dump_hlo_as_proto'. Give
    /// one for every probe and every batch size to predict. Without probes, the answer covers the program only, not the process.
    #[arg(long, value_name = "BATCH=PATH", value_parser = probe)]
    pub(crate) compiled: Vec<(u64, PathBuf)>,
    /// Batch sizes of the probes that Vramline makes by running the command [default: 7,11,13].
    #[arg(long, value_name = "N,N,...", value_delimiter = ',', requires = "command", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) batches: Vec<u64>,
    /// Number of runs per batch size. TensorFlow schedules ops in a different order each time, so one run is not enough.
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=20))]
    pub(crate) repeats: u32,
    /// Number of training steps of each run. Probes trace all of them: every step may have a different order of ops.
    #[arg(long, value_name = "N", default_value_t = 12, value_parser = clap::value_parser!(u32).range(2..))]
    pub(crate) trace_steps: u32,
    /// Folder for the probes. Probes that already exist for the same command, settings and script are reused.
    #[arg(short, long, value_name = "FOLDER", default_value = "plan.probes")]
    pub(crate) output: PathBuf,
    /// Limit of the memory pool, such as 16GiB. On a GPU, leave room for the CUDA context.
    #[arg(long, value_name = "SIZE")]
    pub(crate) limit: Option<Bytes>,
    /// Number of steps of a real run. The highest peak of all steps counts.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) steps: u64,
    /// Name of the varied value, if it is not the batch size. The command must contain it in braces.
    #[arg(long, value_name = "NAME", default_value = "batch")]
    pub(crate) variable: String,
    /// Plan for a pool whose name contains NAME [default: the pool with the highest peak].
    #[arg(long, value_name = "NAME")]
    pub(crate) pool: Option<String>,
    #[command(flatten)]
    pub(crate) form: Form,
    #[command(flatten)]
    pub(crate) length: Length,
    /// Command to run, with {batch} in place of the batch size.
    #[arg(trailing_var_arg = true, value_name = "CMD", value_hint = clap::ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// Parses a batch size and the path of its run.
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
    // Redacted at the end, because compiled programs are found by their real names.
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
        let hint = "give existing runs (--probe 7=A.vram --probe 11=B.vram --probe 13=C.vram), or a command to run (-- python train.py --batch-size {batch})";
        return Err(Failure::usage("plan needs probes or a command", hint));
    }
    if probes.is_empty() {
        return Ok(plan::of_compiled(&job.given()?, options));
    }
    let (mut prepared, mut read) = job.prepared(&probes, options)?;
    if !job.command.is_empty() {
        compile(args, &mut prepared, &read)?;
        probe_more(args, options, &mut prepared, &mut read)?;
    }
    let confirmation = confirm::confirm(args, options, &mut prepared, &mut read)?;
    let line = ProgressLine::timed("planning");
    let analysis = plan::plan_confirmed(&prepared, &read, options, confirmation);
    drop(line);
    let is_predicted = |batch: u64| analysis.predictions.iter().any(|each| each.taken.batch == batch);
    if let Some(batch) = args.batch.iter().find(|batch| !is_predicted(**batch)) {
        let variable = &job.variable;
        return Err(Failure::usage(
            format!("cannot predict {variable} {batch}: it needs more memory than any pool can have"),
            format!("check the value; give a smaller {variable} with --batch"),
        ));
    }
    // The process is about to end: freeing large traces would only delay that.
    std::mem::forget((prepared, read));
    Ok(analysis)
}

/// Makes the probes that narrow the range most, if nothing is run under a limit anyway. A probe that fails ends that: what is known is enough
/// for a plan.
fn probe_more(
    args: &PlanArgs,
    options: &PlanOptions,
    prepared: &mut Plan,
    read: &mut Vec<ProbeRead>,
) -> Result<(), Failure> {
    if args.no_confirm || options.limit.is_some() || !args.job.compiled.is_empty() {
        return Ok(());
    }
    for _ in 0..MAX_MORE_PROBES {
        let Some(next) = plan::next_probe(prepared, options) else { break };
        let made = args.job.make_probes_at(&[next.batch], 1).and_then(|made| read_probes(&made));
        let more = match made {
            Ok(more) => more,
            Err(failure @ Failure::Interrupted { .. }) => return Err(failure),
            Err(failure) => {
                say(format!("no probe at {} {}: {}", args.job.variable, next.batch, failure.text()));
                break;
            }
        };
        let count = read.len();
        read.extend(more);
        let line = ProgressLine::timed("planning");
        let again = plan::prepare(read, options);
        drop(line);
        match again {
            Ok(again) => *prepared = again,
            Err(error) => {
                read.truncate(count);
                say(format!("the probe at {} {} is left out: {error}", args.job.variable, next.batch));
                break;
            }
        }
    }
    Ok(())
}

/// Reads recordings, traces or snapshots with their batch sizes.
fn read_probes(probes: &[(u64, PathBuf)]) -> Result<Vec<ProbeRead>, Failure> {
    let input = Input::new(false);
    let read = |(batch, path): &(u64, PathBuf)| {
        let file = path.display().to_string();
        let reading = input
            .read_as_it_is(path)
            .map_err(|failure| failure.context(format!("cannot read the probe '{file}'")))?;
        Ok(ProbeRead { batch: *batch, file, reading })
    };
    probes.iter().map(read).collect()
}

/// Compiles at the requested batch sizes, without probes.
fn compile_only(args: &PlanArgs, options: &PlanOptions) -> Result<PlanAnalysis, Failure> {
    let ProbeArgs { variable, command, output, .. } = &args.job;
    probes::check(command, variable)?;
    fs::create_dir_all(output).with_context(|| format!("cannot create the folder '{}'", output.display()))?;
    let job = CompileJob { variable, command, folder: output, patience: MAX_COMPILE_TIME };
    let mut compiled = Vec::new();
    for &batch in &args.batch {
        // Vramline does not know which program is the step before all are compiled.
        compiled.extend(job.at(batch, &|_| false)?);
    }
    if compiled.is_empty() {
        return Err(Failure::error(
            "XLA compiled no program in this command",
            "check that the script uses XLA (JAX, or Keras with jit_compile=True) and does not change XLA_FLAGS",
        ));
    }
    Ok(plan::of_compiled(&compiled, options))
}

/// If compiled programs may be behind requests of the probes, compiles at the batch sizes of the probes, at the requested batch sizes
/// and, with a limit, at a few near the largest that fits.
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
        patience: longest.saturating_mul(COMPILE_TIME_FACTOR).max(MIN_COMPILE_TIME),
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
        // Other batch sizes would not help either.
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
            say(format_args!(
                "compiling at {name} {batch}: the compiled program has another {name}; the data may be too small"
            ));
            return Ok(false);
        }
        Ok(is_found)
    };
    for &batch in &args.batch {
        if !is_given(plan, batch) {
            compile_at(plan, batch)?;
        }
    }
    for _ in 0..MAX_COMPILED {
        let Some(limit) = args.job.limit else { break };
        let line = ProgressLine::timed("planning");
        let largest = plan.largest(limit, args.job.steps);
        drop(line);
        let Largest { sure, edge: Some(edge), .. } = largest else { break };
        if sure.is_some_and(|sure| edge - edge / NEAR_DIVISOR <= sure) || is_given(plan, edge) {
            break;
        }
        if !compile_at(plan, edge)? {
            break;
        }
    }
    Ok(())
}

impl ProbeArgs {
    /// The probes of the command. Runs those that do not exist yet.
    pub(crate) fn make_probes(&self) -> Result<Vec<(u64, PathBuf)>, Failure> {
        let batches = if self.batches.is_empty() { DEFAULT_BATCHES.as_slice() } else { &self.batches };
        self.make_probes_at(batches, self.repeats)
    }

    /// The probes of the command at some batch sizes.
    fn make_probes_at(&self, batches: &[u64], repeats: u32) -> Result<Vec<(u64, PathBuf)>, Failure> {
        probes::make(&ProbeJob {
            batches,
            repeats,
            steps: self.trace_steps,
            is_traced: true,
            variable: &self.variable,
            command: &self.command,
            folder: &self.output,
            name: "probe",
            label: "probe",
            more: &Variables::new(),
            allocator: None,
            limit: None,
            is_anew: false,
        })
    }

    /// The options of a plan, without batch sizes.
    pub(crate) fn options(&self) -> PlanOptions {
        PlanOptions {
            limit: self.limit,
            steps: self.steps,
            pool: self.pool.clone(),
            variable: self.variable.clone(),
            ..PlanOptions::default()
        }
    }

    /// The compiled programs of `--compiled`.
    fn given(&self) -> Result<Vec<Compiled>, Failure> {
        let read = |(batch, path): &(u64, PathBuf)| {
            let programs = read_programs(path).map_err(|error| Failure::Error {
                hint: SourceError::NoProgram { path: path.clone() }.hint().to_owned(),
                error: anyhow::Error::from(error)
                    .context(format!("cannot read the programs compiled at {} {batch}", self.variable)),
            })?;
            Ok(Compiled { batch: *batch, file: path.display().to_string(), programs })
        };
        self.compiled.iter().map(read).collect()
    }

    /// Reads the probes and prepares a plan from them.
    pub(crate) fn prepared(
        &self,
        probes: &[(u64, PathBuf)],
        options: &PlanOptions,
    ) -> Result<(Plan, Vec<ProbeRead>), Failure> {
        let read = read_probes(probes)?;
        let line = ProgressLine::timed("planning");
        let mut plan = plan::prepare(&read, options)?;
        drop(line);
        if !self.compiled.is_empty() {
            plan.add_compiled(self.given()?);
        }
        Ok((plan, read))
    }
}
