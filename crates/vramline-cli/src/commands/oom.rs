//! `vramline oom`: explains failed allocations.

use std::path::PathBuf;

use clap::Args;
use vramline::OutOfMemory;
use vramline::analysis::oom::oom;
use vramline::units::Bytes;
use vramline::view::oom::OomReport;

use crate::answer::{Form, Length, Sink};
use crate::exit::{Exit, Failure};
use crate::input::Input;
use crate::printer::{self, oom::OomDetail};

const HELP: &str = "\
Reads the out-of-memory errors that TensorFlow (1.x and later), JAX, XLA and PyTorch print. They can
be anywhere in a log of any size: wrapped, cut, coloured, mixed with other output, gzipped. Each
failure gets one verdict:
    device full other processes hold the memory, or the driver refused although the limit
                left enough room (`device` in the JSON)
    fragmented  enough memory is free, but no free block is large enough
    rounding    rounding takes the missing memory: the allocator handed out more than requested
                (`slack` in the JSON)
    exhausted   the memory in use leaves too little room for the request
    limit       like rounding or exhausted, under a limit that you set (--limit or the recording)
If the log does not say enough for a verdict, the answer says what is missing.

TensorFlow's memory dump says more than its log. To get one for each failed allocation:
    TF_BFC_MEMORY_DUMP=/tmp/dump python train.py 2> train.log
`vramline run` does this automatically, and prints this answer at the end. For PyTorch it writes a
snapshot at the failure: the answer then says who held the memory, by module, parameter or line of
code, and what grew since the first steps. If a signal ended the job, it says what the job held
when that was last known.

Examples:
    vramline oom train.log
    python train.py 2>&1 | vramline oom -               # standard input
    vramline oom train.log /tmp/dump_GPU_0_bfc.*        # log and dumps together
    vramline oom snapshot.pickle                        # failures in a PyTorch snapshot
    vramline oom train.log --limit 8GiB                 # you limited the pool to 8 GiB
    vramline oom train.vram --json | jq '.failures[0].verdict'
    vramline oom train.vram --json | jq '.failures[0].held.growth'

Exit codes: 0 done, also if no failure was found; 1 a file cannot be read; 2 usage.";

/// Explain an out-of-memory error from a log, dump or recording.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct OomArgs {
    /// Logs, dumps of TF_BFC_MEMORY_DUMP, PyTorch snapshots, recordings (*.vram), or folders with logs and dumps. - reads standard
    /// input.
    #[arg(required = true, value_name = "PATH", value_hint = clap::ValueHint::AnyPath)]
    pub(crate) paths: Vec<PathBuf>,
    /// Limit that you set for the pool, such as 8GiB.
    #[arg(long, value_name = "SIZE")]
    pub(crate) limit: Option<Bytes>,
    /// Explain every failure in full, not only the first of each kind.
    #[arg(long)]
    pub(crate) all: bool,
    #[command(flatten)]
    pub(crate) form: Form,
    #[command(flatten)]
    pub(crate) length: Length,
}

pub(crate) fn run(args: &OomArgs) -> Result<Exit, Failure> {
    let read = Input::new(args.form.redact).read_failures(&args.paths, args.limit)?;
    let detail = match (args.all, args.length.full) {
        (true, _) => OomDetail::All,
        (false, true) => OomDetail::Full,
        (false, false) => OomDetail::FirstScreen,
    };
    answer(&read, detail, args.form.json, &mut Sink::stdout())?;
    Ok(Exit::Done)
}

/// Writes the post-mortem of failures that were read.
pub(crate) fn answer(
    read: &OutOfMemory,
    detail: OomDetail,
    is_json: bool,
    out: &mut Sink<'_>,
) -> Result<(), Failure> {
    let document = OomReport::from(&oom(read));
    out.answer(&document, is_json, |style| printer::oom::oom(&document, detail, style))
}
