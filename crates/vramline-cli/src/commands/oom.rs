//! `vramline oom`: why allocations failed.

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
    python train.py 2>&1 | vramline oom -            what is piped into it
    vramline oom train.log /tmp/dump_GPU_0_bfc.*     text and dumps, compared chunk by chunk
    vramline oom snapshot.pickle                     failures in its history
    vramline oom train.log --limit 8GiB              the pool's limit is a setting of yours
    vramline oom train.vram --json | jq '.failures[0].verdict'

Exit codes: 0 also where no failure is found, which is said; 1 a file cannot be read; 2 usage.";

/// Say why an allocation failed: from a log, a dump of the pool, or a recording.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct OomArgs {
    /// Logs, dumps that TF_BFC_MEMORY_DUMP made, PyTorch snapshots, recordings (*.vram), folders of logs and dumps; - is standard
    /// input.
    #[arg(required = true, value_name = "PATH", value_hint = clap::ValueHint::AnyPath)]
    pub(crate) paths: Vec<PathBuf>,
    /// The limit that you set for the pool, such as 8GiB.
    #[arg(long, value_name = "SIZE")]
    pub(crate) limit: Option<Bytes>,
    /// Show every failure in full, not only the first of each kind.
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
