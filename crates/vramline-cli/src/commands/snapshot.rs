//! `vramline snapshot`: asks a running job for a snapshot of its memory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use vramline::analysis::asked::{self, SnapshotAnalysis};
use vramline::recording::folder::ProcessId;
use vramline::recording::local::LocalParts;
use vramline::recording::reader::{self, Recorded};
use vramline::recording::request::{SnapshotAnswer, SnapshotRequest};
use vramline::view::snapshot::SnapshotReport;

use crate::answer::Sink;
use crate::exit::{Exit, Failure};
use crate::launch::say;
use crate::printer;
use crate::progress::ProgressLine;

const HELP: &str = "\
The job must run under `vramline run`, on this machine or on another one that shares the folder.
The command puts a request file into the recording. Each process of the job notices it within a
tenth of a second (`--rate` of `vramline run`), writes its state and answers. No signal is sent, so
handlers of the job are not disturbed, and the training goes on.

What a process writes:
    PyTorch     a snapshot of its allocator: every live block, with its owner and call stack
    JAX         a profile of its live arrays
    TensorFlow  a trace of the next steps, which is complete some seconds later
    all         the framework's counters; only these while a trace is open

With `--local-first` the processes look into a local folder. On their machine the command finds it;
elsewhere it says on which host to run it, and with which folder.

Afterwards `vramline report RECORDING` shows the snapshot if more was in use than in the traces.

Examples:
    vramline snapshot train.vram
    vramline snapshot train.vram --timeout 60          # a job that is stuck in a long step
    vramline snapshot train.vram --json | jq '.processes[] | {pid, state, window}'

Exit codes: 0 every running process answered; 1 the job has ended, no process answered, or the
recording cannot be read or written; 2 usage; 4 some processes did not answer in time.";

/// Ask a running job for a snapshot of its memory.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct SnapshotArgs {
    /// Recording of a job that runs under `vramline run`.
    #[arg(value_name = "RECORDING", value_hint = clap::ValueHint::DirPath)]
    pub(crate) path: PathBuf,
    /// Seconds to wait for answers.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub(crate) timeout: u32,
    /// Print the answer as a JSON document with exact byte counts.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Time between two looks for answers.
const PAUSE: Duration = Duration::from_millis(50);
/// Looks after which the command checks whether a process has ended.
const LOOKS: u32 = 10;

pub(crate) fn run(args: &SnapshotArgs) -> Result<Exit, Failure> {
    if !reader::is_recording(&args.path) {
        return Err(Failure::error(
            format!("'{}' is not a recording", args.path.display()),
            "give the folder that `vramline run` prints when it starts a job: NAME.vram",
        ));
    }
    let path = &folder(&args.path)?;
    let recorded = read(path)?;
    let asked = asked::running(&recorded);
    if asked.is_empty() {
        return Err(Failure::error(
            format!("no process of '{}' is running: the job has ended", path.display()),
            "`vramline report` shows what it recorded",
        ));
    }
    let request = SnapshotRequest::write(path).map_err(|error| {
        Failure::error(
            format!("cannot write a request into '{}': {error}", path.display()),
            "run the command as the user who runs the job",
        )
    })?;
    let begin = Instant::now();
    let answers = wait(path, &request, &asked, Duration::from_secs(args.timeout.into()))?;
    let analysis = SnapshotAnalysis::of(&read(path)?, &answers, begin.elapsed().as_secs_f64());
    let document = SnapshotReport::from(&analysis);
    Sink::stdout().answer(&document, args.json, |style| printer::snapshot::snapshot(&document, style))?;
    match analysis.answered() {
        (0, _) => Err(Failure::error(
            format!("no process answered within {} s", args.timeout),
            "the job may be stuck in one long call, or was started with --rate 0; try a longer --timeout",
        )),
        (answered, asked) if answered < asked => Ok(Exit::NotCertain),
        _ => Ok(Exit::Done),
    }
}

/// The folder in which the processes of a job look for a request: with `vramline run --local-first`, a local one.
fn folder(path: &Path) -> Result<PathBuf, Failure> {
    let LocalParts { here, elsewhere } = LocalParts::of(path);
    let command = |path: &Path| format!("`vramline snapshot {}`", path.display());
    let there: Vec<String> =
        elsewhere.iter().map(|(host, path)| format!("{} on {host}", command(path))).collect();
    match here.as_slice() {
        [] if there.is_empty() => Ok(path.to_owned()),
        [] => Err(Failure::error(
            format!(
                "'{}' has no files of the job yet: they are in local folders until it has ended",
                path.display()
            ),
            format!("run {}", there.join(", and ")),
        )),
        [only] => {
            if !there.is_empty() {
                say(format_args!("other hosts of the job are not asked: run {}", there.join(", and ")));
            }
            Ok(only.clone())
        }
        several => {
            let here: Vec<String> = several.iter().map(|path| command(path)).collect();
            Err(Failure::error(
                format!(
                    "'{}' has no files of the job yet: its runs on this machine write to several local folders",
                    path.display()
                ),
                format!("run {}", here.into_iter().chain(there).collect::<Vec<_>>().join(", and ")),
            ))
        }
    }
}

fn read(path: &Path) -> Result<Recorded, Failure> {
    reader::read(path).map_err(|error| Failure::error(error.to_string(), error.hint()))
}

/// Waits until each process has answered or ended, but not longer than the timeout.
fn wait(
    path: &Path,
    request: &SnapshotRequest,
    asked: &[ProcessId],
    timeout: Duration,
) -> Result<Vec<(ProcessId, Option<SnapshotAnswer>)>, Failure> {
    let (begin, count) = (Instant::now(), asked.len());
    let done = Arc::new(AtomicUsize::new(0));
    let shown = Arc::clone(&done);
    let _line = ProgressLine::start(move |elapsed| {
        let answered = shown.load(Ordering::Relaxed);
        format!("waiting for the job: {answered} of {count} processes answered, {} s", elapsed.as_secs())
    });
    let mut answers: Vec<(ProcessId, Option<SnapshotAnswer>)> =
        asked.iter().map(|id| (id.clone(), None)).collect();
    let mut looks: u32 = 0;
    loop {
        for (id, answer) in answers.iter_mut().filter(|(_, answer)| answer.is_none()) {
            *answer = SnapshotAnswer::of(path, id, request);
        }
        let answered = answers.iter().filter(|(_, answer)| answer.is_some()).count();
        done.store(answered, Ordering::Relaxed);
        looks += 1;
        // A process that ends meanwhile will not answer.
        if looks.is_multiple_of(LOOKS) {
            let running = asked::running(&read(path)?);
            answers.retain(|(id, answer)| answer.is_some() || running.contains(id));
        }
        if answers.iter().all(|(_, answer)| answer.is_some()) || begin.elapsed() >= timeout {
            return Ok(answers);
        }
        std::thread::sleep(PAUSE);
    }
}
