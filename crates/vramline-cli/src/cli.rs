//! Every argument of every verb. Only clap lives here; verbs turn these into what the core understands.

pub(crate) mod values;

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;

use clap::{ArgMatches, Args, FromArgMatches, Parser, Subcommand, ValueEnum};
use vramline::analysis::diff::Threshold;
use vramline::replay::Setting;
use vramline::units::{Bytes, Nanos};

use values::{Gpus, Trace};

/// Shows, to the byte, what holds a GPU's memory while a model trains.
#[derive(Debug, Parser)]
#[command(name = "vramline", version, arg_required_else_help = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a job and record how it uses memory, without a change to its code.
    #[command(after_long_help = RUN_HELP, override_usage = "vramline run [OPTIONS] -- CMD [ARGS]...")]
    Run(Box<RunArgs>),
    /// Say what held the memory: of a recording, of a trace that TensorFlow's or JAX's profiler wrote, or of a PyTorch
    /// snapshot.
    #[command(after_long_help = REPORT_HELP)]
    Report(ReportArgs),
    /// Say why an allocation failed: from a log, a dump of the pool, or a recording.
    #[command(after_long_help = OOM_HELP)]
    Oom(OomArgs),
    /// Run a trace through its allocator: is it reproduced, what is fragmented and why, what would other settings do.
    #[command(after_long_help = REPLAY_HELP)]
    Replay(ReplayArgs),
    /// Compare runs: whose peak is higher, by how much, and which op makes the difference.
    #[command(after_long_help = DIFF_HELP)]
    Diff(DiffArgs),
    /// Predict the memory of any batch from a few small ones, and the largest batch that fits.
    #[command(after_long_help = PLAN_HELP, override_usage = "vramline plan [OPTIONS] --batches 7,11,13 -- CMD {batch} ...
       vramline plan [OPTIONS] --probe 7=A.vram --probe 11=B.vram --probe 13=C.vram")]
    Plan(Box<PlanArgs>),
    /// Run a few steps with a fix or another batch, and print what was predicted beside what is measured.
    #[command(after_long_help = VERIFY_HELP, override_usage = "vramline verify [OPTIONS] --batch N [--fix NAME] -- CMD {batch} ...")]
    // What of a plan's options has no meaning here is refused, and not offered.
    #[command(mut_args = |arg| match arg.get_id().as_str() {
        "html" | "curve" | "compile_only" | "probe" => arg.hide(true),
        "batch" => arg.help("The batch to measure at"),
        _ => arg,
    })]
    Verify(Box<VerifyArgs>),
    /// Say whether jobs fit one device together, with which limits, and how to start them.
    #[command(after_long_help = PACK_HELP)]
    Pack(PackArgs),
    /// Show the report as a page from this machine: exact where you zoom in, live while the run goes on.
    #[command(after_long_help = SERVE_HELP)]
    Serve(ServeArgs),
    /// Hand the data to other tools: every allocation with its life, as a table or as a trace for Perfetto.
    #[command(after_long_help = EXPORT_HELP)]
    Export(ExportArgs),
    /// Watch the memory of this machine's devices: who holds it, what recorded jobs do with it, step by step.
    #[command(after_long_help = TOP_HELP)]
    Top(TopArgs),
    /// Say what can be measured on this machine, what cannot, why, and the switch for it.
    #[command(after_long_help = DOCTOR_HELP)]
    Doctor(DoctorArgs),
    /// Train a small model on whatever is here, recorded and reported on.
    Demo(DemoArgs),
    /// Print a PyTorch snapshot as JSON, as it was read. For comparing with Python's own reading.
    #[command(hide = true)]
    Unpickle(UnpickleArgs),
    /// Print a script that completes commands and options in your shell.
    #[command(
        after_help = "For bash: vramline completions bash > ~/.local/share/bash-completion/completions/vramline"
    )]
    Completions(CompletionsArgs),
    /// Write the manual pages, one for each command, into a folder. For those who make packages.
    #[command(hide = true)]
    Man(ManArgs),
}

const RUN_HELP: &str = "\
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

Examples:
    vramline run -- python train.py --epochs 3
    vramline run -o small.vram --limit 8GiB -- python train.py
    vramline run --gpus 1 --growth on -- python -m my.training
    vramline run --trace steps=20 -- torchrun --nproc-per-node 2 train.py
    vramline run --trace off --rate 1 -- ./job.sh        only counters, once a second

Exit codes: the job's own; 128+n where signal n ended it; 127 not found; 126 not executable;
2 refused settings.";

const REPORT_HELP: &str = "\
A recording comes from `vramline run -- python train.py`, without a change to the script.

To record a trace with TensorFlow, before the first tensor is made:
    tf.profiler.experimental.start(logdir)
    model.fit(...)                            # a few steps are enough
    tf.profiler.experimental.stop()
with JAX:
    with jax.profiler.trace(logdir): ...
with PyTorch, a memory snapshot:
    torch.cuda.memory._record_memory_history()
    train()
    torch.cuda.memory._dump_snapshot(\"snapshot.pickle\")
Without a GPU, set TF_CPU_ALLOCATOR_USE_BFC=1 so that TensorFlow uses its pool allocator on the CPU.

Examples:
    vramline report train.vram                a recording
    vramline report train.vram --html train.html      a page: timeline, map, tables
    vramline report logdir                    the newest run in a log directory
    vramline report host.xplane.pb --by layer
    vramline report host.xplane.pb --at 2.17s what was held at that moment
    vramline report snapshot.pickle --by stack
    vramline report host.xplane.pb --json | jq '.pools[0].at_peak.by_role'";

const OOM_HELP: &str = "\
Reads what TensorFlow (from 1.x on), JAX, XLA and PyTorch write when memory runs out, anywhere in a log
of any size: wrapped, cut, coloured, mixed with other output, gzip or not. One verdict a failure:
    device      the pool's limit left enough, but the driver refused: a neighbour or a context has it
    fragmented  enough is free, but in pieces
    slack       enough is taken by chunks beyond what was asked for
    exhausted   it does not fit beside what is held
    limit       the same two, under a limit that you set: the recording or --limit proves it
No verdict is given where the log does not tell enough; it then says what is missing.

TensorFlow's dump tells more than its text. To have one for each failed allocation:
    TF_BFC_MEMORY_DUMP=/tmp/dump python train.py 2> train.log
`vramline run` does that by itself, and ends with this post-mortem.

Examples:
    vramline oom train.log
    vramline oom train.log /tmp/dump_GPU_0_bfc.*     text and dumps, compared chunk by chunk
    vramline oom snapshot.pickle                     failures in its history
    vramline oom train.log --limit 8GiB              the pool's limit is a setting of yours
    vramline oom train.vram --json | jq '.failures[0].verdict'

Exit codes: 0 also where no failure is found, which is said; 1 a file cannot be read; 2 usage.";

const PLAN_HELP: &str = "\
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

#[derive(Debug, Args)]
pub(crate) struct PlanArgs {
    /// A run with its batch: a recording, a trace or a PyTorch snapshot. Give at least two batches; several runs of one are welcome.
    #[arg(long, value_name = "BATCH=PATH", value_parser = probe, conflicts_with = "command")]
    pub(crate) probe: Vec<(u64, PathBuf)>,
    /// What XLA wrote when it compiled at a batch (XLA_FLAGS='--xla_dump_to=FOLDER --xla_dump_hlo_as_proto'): the folder, or the file of
    /// one program. Give it for every probe and for the batch to predict; alone it tells what the program takes, not the process.
    #[arg(long, value_name = "BATCH=PATH", value_parser = probe)]
    pub(crate) compiled: Vec<(u64, PathBuf)>,
    /// Make no probes: run the command for a few steps at each --batch, and tell what the largest program takes that XLA compiled.
    #[arg(long, requires = "command", requires = "batch", conflicts_with_all = ["batches", "probe", "compiled"])]
    pub(crate) compile_only: bool,
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
    /// The batch to predict; several with commas [default: the largest that surely fits].
    #[arg(long, value_name = "N", value_delimiter = ',', value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) batch: Vec<u64>,
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
    /// Print memory against the batch, from the smallest probe to beyond the largest batch that fits.
    #[arg(long)]
    pub(crate) curve: bool,
    /// Also write the plan as a page: memory against the batch as a drawing, and the tables.
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Print everything as one JSON document, exact to the byte.
    #[arg(long)]
    pub(crate) json: bool,
    /// The command, with {batch} where the batch belongs.
    #[arg(trailing_var_arg = true, value_name = "CMD", value_hint = clap::ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

const VERIFY_HELP: &str = "\
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

#[derive(Debug, Args)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    pub(crate) plan: PlanArgs,
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
}

const PACK_HELP: &str = "\
A job is a recording (*.vram), a trace, or a plan that `vramline plan --json` wrote; NAME=PATH names it, and PATH@BATCH
chooses a batch of a plan. Each gets a limit: the least that its pool needs, and headroom. What a process holds beside
its pool (a context, libraries) comes on top: recordings made on a device tell it, else --context.

The least is known from an exact replay or from a plan; of other runs only the peak is known, and that is said.

Examples:
    vramline pack a.vram b.vram --device-memory 80GiB
    vramline pack big=plan.json@256 small=plan.json@32 --device-memory 24GiB --context 700MiB
    vramline pack a.vram b.vram                    on this machine's first GPU, with what is taken there now

Exit codes: 0 they fit; 3 they do not; 4 not certain, and why; 1 an error; 2 usage.";

#[derive(Debug, Args)]
pub(crate) struct PackArgs {
    /// Recordings, traces or plans.
    #[arg(required = true, value_name = "[NAME=]PATH[@BATCH]", value_hint = clap::ValueHint::AnyPath)]
    pub(crate) jobs: Vec<String>,
    /// The device's memory, such as 80GiB [default: this machine's device, else that of a recording].
    #[arg(long, value_name = "SIZE")]
    pub(crate) device_memory: Option<Bytes>,
    /// Which of this machine's devices, by the driver's number.
    #[arg(long, value_name = "N", default_value_t = 0, conflicts_with = "device_memory")]
    pub(crate) gpu: usize,
    /// What the driver keeps of the device [default: as the driver or a recording tells].
    #[arg(long, value_name = "SIZE")]
    pub(crate) reserved: Option<Bytes>,
    /// What each process holds beside its pool, where its recording does not tell.
    #[arg(long, value_name = "SIZE")]
    pub(crate) context: Option<Bytes>,
    /// Percent of its least that a pool gets on top.
    #[arg(long, value_name = "PERCENT", default_value_t = 10, value_parser = clap::value_parser!(u64).range(0..=1000))]
    pub(crate) headroom: u64,
    /// Print everything as one JSON document, exact to the byte.
    #[arg(long)]
    pub(crate) json: bool,
}

/// A batch and the path of its run.
fn probe(text: &str) -> Result<(u64, PathBuf), String> {
    let wrong = || "expected BATCH=PATH, such as 8=small.vram".to_owned();
    let (batch, path) = text.split_once('=').ok_or_else(wrong)?;
    let batch = batch.trim().parse().ok().filter(|&batch| batch > 0).ok_or_else(wrong)?;
    if path.is_empty() { Err(wrong()) } else { Ok((batch, path.into())) }
}

#[derive(Debug, Args)]
pub(crate) struct OomArgs {
    /// Logs, dumps that TF_BFC_MEMORY_DUMP made, PyTorch snapshots, recordings (*.vram), or folders of logs and dumps.
    #[arg(required = true, value_name = "PATH", value_hint = clap::ValueHint::AnyPath)]
    pub(crate) paths: Vec<PathBuf>,
    /// The limit that you set for the pool, such as 8GiB.
    #[arg(long, value_name = "SIZE")]
    pub(crate) limit: Option<Bytes>,
    /// Show every failure in full, not only the first of each kind.
    #[arg(long)]
    pub(crate) all: bool,
    /// Print the whole post-mortem as one JSON document, exact to the byte.
    #[arg(long)]
    pub(crate) json: bool,
}

const REPLAY_HELP: &str = "\
A replay is exact where the trace begins before the first allocation, as `vramline run` makes it, and
every address and size is reproduced. TensorFlow's, JAX's and PyTorch's allocators have rules here.

Settings of --what-if, joined by commas:
    limit=8GiB            what the pool may take
    restart=on|STEP       what is held at a step (on: the last) goes into an empty pool, and it goes on
    allocator=cuda_malloc_async   the driver's own pool: its rules are not public, the answer is bounds
  of TensorFlow's and JAX's:
    growth=on|off         grow as needed, or take the limit at the first request
    gc=on|off             give idle regions back before a request fails
    fragmentation=0.05    the share of the limit that a chunk may exceed its request by; 0 is 128 MiB
  of PyTorch's (its own names are taken as well):
    expandable=on|off     segments that grow in place (expandable_segments)
    split_size=128MiB|off blocks of this size and more are not split (max_split_size_mb)
    roundup=8             divisions between powers of two that sizes are rounded to
    gc=0.8|off            give idle segments back from this share of the limit on

Requests come in the recorded order. Where the driver would put regions is not known: several
placements are tried, and an answer that depends on it is given as such.

Examples:
    vramline replay train.vram
    vramline replay train.vram --what-if limit=4GiB --what-if limit=4GiB,growth=off
    vramline replay train.vram --find limit
    vramline replay snapshot.pickle --what-if expandable=on --what-if split_size=128MiB
    vramline replay train.vram --gate exact --gate fits --what-if limit=8GiB      for CI

Exit codes: 0 done, 1 error, 2 usage, 3 a gate says no, 4 a gate cannot be certain.";

#[derive(Debug, Args)]
pub(crate) struct ReplayArgs {
    /// A recording (*.vram), a trace (*.xplane.pb, gzip or not), the folder of a profile run, a whole log directory, or a
    /// PyTorch memory snapshot (*.pickle).
    pub(crate) path: PathBuf,
    /// Also run the same requests with these settings, such as limit=8GiB,growth=off; may be given several times.
    #[arg(long, value_name = "KEY=VALUE,...")]
    pub(crate) what_if: Vec<Setting>,
    /// A file with one --what-if a line; empty lines and those that begin with # are passed over.
    #[arg(long, value_name = "FILE")]
    pub(crate) settings: Option<PathBuf>,
    /// Look for the smallest limit, in whole MiB, that still fits.
    #[arg(long, value_enum)]
    pub(crate) find: Option<Find>,
    /// Also ask for this much at the end or at --at, and print what the framework would log where there is no room.
    #[arg(long, value_name = "SIZE")]
    pub(crate) ask: Option<Bytes>,
    /// The moment of --ask, such as 2176220145 (nanoseconds), 2176.2ms or 2.176s.
    #[arg(long, value_name = "TIME", requires = "ask")]
    pub(crate) at: Option<Nanos>,
    /// The op that --ask names.
    #[arg(long, value_name = "NAME", requires = "ask", default_value = "")]
    pub(crate) op: String,
    /// Exit with 3 where this does not hold, and with 4 where it is not certain; may be given several times.
    #[arg(long, value_enum)]
    pub(crate) gate: Vec<Gate>,
    /// Only pools whose name contains this.
    #[arg(long, value_name = "NAME")]
    pub(crate) pool: Option<String>,
    /// Print everything as one JSON document, exact to the byte.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Find {
    /// The smallest limit that fits.
    Limit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Gate {
    /// Every pool is reproduced from the start.
    Exact,
    /// Every what-if fits.
    Fits,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// The folder to record into; a name that is taken gets a number [default: SCRIPT-DATE-TIME.vram].
    #[arg(short, long, value_name = "NAME.vram")]
    pub(crate) output: Option<PathBuf>,
    /// Trace allocations: the first steps (auto), not at all (off), N steps (steps=N), or all.
    #[arg(long, value_name = "auto|off|steps=N|all", default_value_t = Trace::Auto)]
    pub(crate) trace: Trace,
    /// End the trace so many seconds after the first step in any case; `all` goes on to the end.
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) trace_seconds: u32,
    /// Reset the framework's peak at each step, so that each step has its own. The script sees that too.
    #[arg(long)]
    pub(crate) step_peaks: bool,
    /// Read the counters so many times a second; 0 is never.
    #[arg(long, value_name = "HZ", default_value_t = 10.0, value_parser = values::rate)]
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

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Switch {
    On,
    Off,
}

impl Switch {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Switch::On => "on",
            Switch::Off => "off",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Allocator {
    /// Each framework's own pool.
    Default,
    /// CUDA's asynchronous pool.
    Async,
    /// No pool: each request goes to the driver (JAX only).
    Platform,
    /// The own pool, in segments that grow (PyTorch only).
    Expandable,
}

impl Allocator {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Allocator::Default => "default",
            Allocator::Async => "async",
            Allocator::Platform => "platform",
            Allocator::Expandable => "expandable",
        }
    }
}

const DOCTOR_HELP: &str = "\
For each GPU: whether the driver tells its memory, what each process holds, and exact peaks.
For each framework that the Python has: whether it can use a GPU, and whether its allocator tells
what it does. Each thing that is not to be had comes with its reason, and with the switch that
would give it: a variable, a flag of the container, a package.

The usual traps:
    per-process figures   in a container the driver may number processes as the host does, or
                          list none; --pid=host helps
    asynchronous pools    TF_GPU_ALLOCATOR=cuda_malloc_async, XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async
                          and backend:cudaMallocAsync blind the profilers
    hidden devices        CUDA_VISIBLE_DEVICES is looked at as a job would
    python -I, -E, -S     such a Python ignores `vramline run`

Nothing is initialised: the driver's library is loaded, no CUDA context is made, and no framework is
imported without --deep. Variables count as they are set here: run it where the job would run.

Examples:
    vramline doctor
    vramline doctor --python .venv/bin/python
    vramline doctor --deep                    imports the frameworks and asks them
    vramline doctor --json | jq '.measures[] | select(.can != true)'

Exit codes: 0 whatever is found; 2 usage.";

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// The Python whose frameworks are looked at [default: python, then python3].
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::CommandName)]
    pub(crate) python: Option<PathBuf>,
    /// Import the frameworks, in a process of their own, and ask them for GPUs.
    #[arg(long)]
    pub(crate) deep: bool,
    /// Print everything as one JSON document, exact to the byte.
    #[arg(long)]
    pub(crate) json: bool,
}

const TOP_HELP: &str = "\
Devices stand first, each as a bar that adds up to its memory: what the driver keeps, what pools have in
use and what they keep in reserve, contexts, other processes, free. Below stand the processes. Of a job
under `vramline run`, or one that records itself, also its pools, its step and that step's peak, and how
much higher its peak could rise before memory runs out (headroom); of the others what the driver says.

Recordings of running jobs are found by themselves, through /proc, where this user may look; those of
others, or of other machines on a shared disk, by their PATH. Nothing is written and no job is disturbed.

Keys:
    up, down, PgUp, PgDn   choose a process            Enter   its roles and steps
    s, S, or a column's    sort by the next, the       r       the other way round
    letter (see ?)         previous, or that one       /       show only what matches (Esc: all)
    space                  stand still, go on          q       quit

Without a driver the machine's own memory is shown, and the jobs that use TensorFlow's pool on the CPU.
Where standard output is no terminal, one look is printed, as with --once.

Examples:
    vramline top
    vramline top --rate 5
    vramline top --once                       one look, as text
    vramline top runs/ other.vram             also recordings in a folder, and this one even if it has ended
    vramline top --json | jq '.processes[] | select(.headroom_bytes != null) | {pid, headroom_bytes}'

Exit codes: 0 done, 1 error, 2 usage, 128+n ended by signal n.";

#[derive(Debug, Args)]
pub(crate) struct TopArgs {
    /// Recordings (*.vram), also of jobs that have ended, or folders that hold recordings of running ones
    /// [default: the current folder; running jobs of this machine are found in any case].
    #[arg(value_name = "PATH", value_hint = clap::ValueHint::AnyPath)]
    pub(crate) paths: Vec<PathBuf>,
    /// Look so many times a second.
    #[arg(long, value_name = "HZ", default_value_t = 1.0, value_parser = values::looks)]
    pub(crate) rate: f64,
    /// Print one look as text and end.
    #[arg(long)]
    pub(crate) once: bool,
    /// Print one look as one JSON document, exact to the byte, and end.
    #[arg(long, conflicts_with = "once")]
    pub(crate) json: bool,
}

const DIFF_HELP: &str = "\
Every run is compared with the first. Pools are matched by name, else by device (those of compiled
programs by what they are for); what they held at the peak by role, op and layer; steps by number,
not by time. Recordings and any file that `report` reads can be compared: eager with graph mode, two
models, two versions, two batch sizes.

A job does not need the same memory each time it runs. Make it a few times, and give the repeats of
each run together: figures are then medians (of an even number the mean of the two in the middle),
and a difference that is no larger than what repeats of one run differ by is no alarm.

Examples:
    vramline diff before.vram after.vram
    vramline diff before.vram after.vram --by layer
    vramline diff before.vram after.vram --html diff.html          a page: curves step by step, bars
    vramline diff batch32.vram batch64.vram batch128.vram
    vramline diff before.vram after.vram --fail-over 2%            for CI
    vramline diff --repeats before-*.vram --repeats after-*.vram --fail-over 64MiB
    vramline diff after.vram --repeats before-*.vram               a run against repeats
    vramline diff before.vram after.vram --json | jq '.rows[] | select(.by == \"op\")'

Exit codes: 0 done, 1 error, 2 usage, 3 a peak grew by more than --fail-over, 4 it cannot be told
(the runs have no pool in common, or a peak is not known).";

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    /// Runs: recordings (*.vram), or traces, snapshots and folders as in `report`. The first is what the others are compared with.
    #[arg(value_name = "PATH", required_unless_present = "repeats", value_hint = clap::ValueHint::AnyPath)]
    pub(crate) paths: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) repeats: Repeats,
    /// Show only rows by this, beside the peaks [default: role, op and step; with --json all].
    #[arg(long, value_enum)]
    pub(crate) by: Option<DiffBy>,
    /// Show so many rows of a grouping, those that changed most first.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) top: usize,
    /// Exit with 3 where the peak of a pool is higher than in the first run by more than this, such as 2% or 64MiB.
    #[arg(long, value_name = "SHARE|SIZE")]
    pub(crate) fail_over: Option<Threshold>,
    /// Print the whole comparison as one JSON document, exact to the byte.
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the comparison to this file as a page for a browser: one file, which needs no network.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "by"], value_hint = clap::ValueHint::FilePath)]
    pub(crate) html: Option<PathBuf>,
}

/// `--repeats A1 A2 --repeats B1 B2`: which paths stand together. Derived arguments forget that.
#[derive(Clone, Debug, Default)]
pub(crate) struct Repeats(pub(crate) Vec<Vec<PathBuf>>);

impl FromArgMatches for Repeats {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Repeats, clap::Error> {
        let given = matches.get_occurrences::<PathBuf>("repeats").into_iter().flatten();
        Ok(Repeats(given.map(|paths| paths.cloned().collect()).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Repeats::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Repeats {
    fn augment_args(command: clap::Command) -> clap::Command {
        command.arg(
            clap::Arg::new("repeats")
                .long("repeats")
                .value_name("PATH")
                .num_args(1..)
                .action(clap::ArgAction::Append)
                .value_parser(clap::value_parser!(PathBuf))
                .value_hint(clap::ValueHint::AnyPath)
                .help(
                    "Several recordings of the same run, as one side of the comparison; may be given several times. They stand \
                     before runs that are given alone",
                ),
        )
    }

    fn augment_args_for_update(command: clap::Command) -> clap::Command {
        Repeats::augment_args(command)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum DiffBy {
    Device,
    Role,
    Op,
    Layer,
    Step,
}

const EXPORT_HELP: &str = "\
parquet, csv and json hold one row for each allocation: pool, device, process, address, when it was
made and freed, bytes asked for, bytes of its chunk, op, layer, role, variable, shape, type, step, and
whether it lives at its pool's peak. docs/export.md has the columns.

perfetto is a trace in Chrome's event format, which https://ui.perfetto.dev and chrome://tracing open:
a counter for each pool, the steps, and a slice for each allocation.

Examples:
    vramline export train.vram --to parquet -o train.parquet
    duckdb -c \"SELECT role, sum(bytes) FROM 'train.parquet' WHERE at_peak GROUP BY role\"
    vramline export train.vram --to perfetto -o train.json
    vramline export snapshot.pickle --to csv -o - | head";

#[derive(Debug, Args)]
pub(crate) struct ExportArgs {
    /// A recording (*.vram), a trace, a PyTorch snapshot, the folder of a profile run, or a whole log directory.
    #[arg(value_hint = clap::ValueHint::AnyPath)]
    pub(crate) path: PathBuf,
    /// The format.
    #[arg(long, value_enum)]
    pub(crate) to: ExportFormat,
    /// The file to write; - is standard output.
    #[arg(short, long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    pub(crate) output: PathBuf,
    /// Only pools whose name contains this.
    #[arg(long, value_name = "NAME")]
    pub(crate) pool: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExportFormat {
    Parquet,
    Perfetto,
    Csv,
    Json,
}

const SERVE_HELP: &str = "\
The page is the one of `report --html`. From a server it also gets every event and allocation of the
window that you look at, however long the trace is, and follows a run that goes on.

Only this machine can open it, and only with the address that is printed: it holds a random word.

Examples:
    vramline serve train.vram                 prints an address; Ctrl-C ends it
    vramline serve train.vram --open          also opens a browser
    vramline run -o train.vram -- python train.py & vramline serve train.vram
    ssh -L 8080:127.0.0.1:8080 gpu-machine vramline serve train.vram --port 8080";

#[derive(Debug, Args)]
pub(crate) struct ServeArgs {
    /// A recording (*.vram), also of a run that goes on, or any file or folder that `report` reads.
    #[arg(value_hint = clap::ValueHint::AnyPath)]
    pub(crate) path: PathBuf,
    /// The port [default: one that is free].
    #[arg(long, value_name = "N", default_value_t = 0, hide_default_value = true)]
    pub(crate) port: u16,
    /// The address to listen at; any but this machine's own (127.0.0.1, ::1) lets others in [default: 127.0.0.1].
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) host: Option<IpAddr>,
    /// Also open it in a browser.
    #[arg(long)]
    pub(crate) open: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DemoArgs {
    /// The folder to record into; a name that is taken gets a number.
    #[arg(short, long, value_name = "NAME.vram", default_value = "demo.vram")]
    pub(crate) output: PathBuf,
    /// The Python to train with [default: the one that vramline is installed in, else python3].
    #[arg(long, value_name = "PATH")]
    pub(crate) python: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// A recording (*.vram), a trace (*.xplane.pb), a PyTorch snapshot (gzip or not), the folder of a profile run, or a whole
    /// log directory.
    pub(crate) path: PathBuf,
    /// Group what was held by op, by model layer, by role or by call stack.
    #[arg(long, value_enum, default_value_t = By::Op)]
    pub(crate) by: By,
    /// Show so many rows a pool and sum up the rest [default: 12; with --json all].
    #[arg(long, value_name = "N")]
    pub(crate) top: Option<usize>,
    /// Also show what was held at this moment of the trace, such as 2176220145 (nanoseconds), 2176.2ms or 2.176s.
    #[arg(long, value_name = "TIME")]
    pub(crate) at: Option<Nanos>,
    /// Only pools whose name contains this.
    #[arg(long, value_name = "NAME")]
    pub(crate) pool: Option<String>,
    /// Print the whole report as one JSON document, exact to the byte.
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the report to this file as a page for a browser: one file, which needs no network.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["json", "by", "top", "at"], value_hint = clap::ValueHint::FilePath)]
    pub(crate) html: Option<PathBuf>,
}

impl RunArgs {
    /// A run as `vramline run -o OUTPUT -- COMMAND` makes it.
    pub(crate) fn of(output: PathBuf, command: Vec<OsString>) -> RunArgs {
        RunArgs {
            output: Some(output),
            trace: Trace::Auto,
            trace_seconds: 60,
            step_peaks: false,
            rate: 10.0,
            gpus: None,
            growth: None,
            limit: None,
            allocator: None,
            stop: false,
            no_stand_in: false,
            no_report: false,
            json: None,
            command,
        }
    }
}

impl ReportArgs {
    /// A report as `vramline report PATH` gives it.
    pub(crate) fn of(path: PathBuf) -> ReportArgs {
        ReportArgs { path, by: By::Op, top: None, at: None, pool: None, json: false, html: None }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    Op,
    Layer,
    Role,
    Stack,
}

#[derive(Debug, Args)]
pub(crate) struct UnpickleArgs {
    pub(crate) path: PathBuf,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    pub(crate) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(crate) struct ManArgs {
    /// An existing folder.
    pub(crate) folder: PathBuf,
}
