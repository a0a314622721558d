//! `vramline gather`: joins the recordings of several hosts of one job.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clap::Args;
use clap::builder::NonEmptyStringValueParser;
use vramline::recording::gather::gather;
use vramline::units::Bytes;

use crate::exit::{Exit, Failure};
use crate::launch::say;
use crate::progress::ProgressLine;

const HELP: &str = "\
Hosts with a shared folder need no gathering: runs of one job that have the same --output write one
recording. Copy the recordings of other hosts to one machine and gather them there.

Recordings are joined if they name the same job: that of `vramline run --job`, or of the launcher.
Where nothing names the job, --job NAME says that they belong together. A recording of another job
is refused. The inputs are not changed, and the result appears as a whole or not at all.

Examples:
    vramline gather node0.vram node1.vram -o job.vram
    vramline gather node*.vram -o job.vram --job mine
    vramline report job.vram

Exit codes: 0 joined; 1 not one job, or a file cannot be read or written; 2 usage.";

/// Join the recordings that several hosts made of one job.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct GatherArgs {
    /// Recordings of one job.
    #[arg(required = true, num_args = 1.., value_name = "PATH.vram")]
    pub(crate) recordings: Vec<PathBuf>,
    /// Folder for the joined recording. It must not exist.
    #[arg(short, long, value_name = "NAME.vram")]
    pub(crate) output: PathBuf,
    /// Name of the job, for recordings that have none.
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub(crate) job: Option<String>,
}

pub(crate) fn run(args: &GatherArgs) -> Result<Exit, Failure> {
    let copied = Arc::new(AtomicU64::new(0));
    let shown = Arc::clone(&copied);
    let line =
        ProgressLine::start(move |_| format!("gathering: {} copied", Bytes(shown.load(Ordering::Relaxed))));
    let count = |bytes| copied.store(bytes, Ordering::Relaxed);
    let gathered = gather(&args.recordings, &args.output, args.job.as_deref(), count);
    drop(line);
    let gathered = gathered.map_err(|error| Failure::error(error.to_string(), error.hint()))?;
    for path in &gathered.left_out {
        say(format_args!("left out '{}', which is not a file of a recording", path.display()));
    }
    let job = gathered.job.as_ref().map_or(String::new(), |job| format!(" of job '{job}'"));
    say(format_args!("recording{job}: {} ({gathered}, {})", args.output.display(), Bytes(gathered.bytes)));
    Ok(Exit::Done)
}
