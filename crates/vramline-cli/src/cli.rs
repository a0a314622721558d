//! Every argument of every verb. Only clap lives here; verbs turn these into what the core understands.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use vramline::units::Nanos;

/// Shows, to the byte, what holds a GPU's memory while a model trains.
#[derive(Debug, Parser)]
#[command(name = "vramline", version, arg_required_else_help = true, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Say what held the memory at the peak, from a trace that TensorFlow's or JAX's profiler wrote.
    #[command(after_long_help = REPORT_HELP)]
    Report(ReportArgs),
    /// Print a script that completes commands and options in your shell.
    #[command(
        after_help = "For bash: vramline completions bash > ~/.local/share/bash-completion/completions/vramline"
    )]
    Completions(CompletionsArgs),
}

const REPORT_HELP: &str = "\
To record a trace with TensorFlow, before the first tensor is made:
    tf.profiler.experimental.start(logdir)
    model.fit(...)                            # a few steps are enough
    tf.profiler.experimental.stop()
with JAX:
    with jax.profiler.trace(logdir): ...
Without a GPU, set TF_CPU_ALLOCATOR_USE_BFC=1 so that TensorFlow uses its pool allocator on the CPU.

Examples:
    vramline report logdir                    the newest run in a log directory
    vramline report host.xplane.pb --by layer
    vramline report host.xplane.pb --at 2.17s what was held at that moment
    vramline report host.xplane.pb --json | jq '.pools[0].at_peak.by_role'";

#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// A trace (*.xplane.pb, gzip or not), the folder of a profile run, or a whole log directory.
    pub(crate) path: PathBuf,
    /// Group what was held by op, by model layer or by role.
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
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum By {
    Op,
    Layer,
    Role,
}

#[derive(Debug, Args)]
pub(crate) struct CompletionsArgs {
    pub(crate) shell: clap_complete::Shell,
}
