//! `vramline top`: what holds the memory of this machine's devices right now.

use std::io::{self, IsTerminal};
use std::path::PathBuf;

use clap::Args;
use vramline::analysis::redaction::Redaction;

use crate::answer::{Form, Sink};
use crate::exit::{Exit, Failure};
use crate::lookout::Lookout;
use crate::printer;
use crate::tui;
use crate::variables::TERM;

const HELP: &str = "\
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

/// Watch the memory of this machine's devices: who holds it, what recorded jobs do with it, step by step.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct TopArgs {
    /// Recordings (*.vram), also of jobs that have ended, or folders that hold recordings of running ones
    /// [default: the current folder; running jobs of this machine are found in any case].
    #[arg(value_name = "PATH", value_hint = clap::ValueHint::AnyPath)]
    pub(crate) paths: Vec<PathBuf>,
    /// Look so many times a second.
    #[arg(long, value_name = "HZ", default_value_t = 1.0, value_parser = looks)]
    pub(crate) rate: f64,
    /// Print one look as text and end, as with --json.
    #[arg(long, conflicts_with = "json")]
    pub(crate) once: bool,
    #[command(flatten)]
    pub(crate) form: Form,
}

/// Looks a second.
fn looks(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (0.1..=20.0).contains(rate));
    rate.ok_or_else(|| "expected looks a second, from 0.1 to 20".to_owned())
}

pub(crate) fn run(args: &TopArgs) -> Result<Exit, Failure> {
    if let Some(missing) = args.paths.iter().find(|path| !path.is_dir()) {
        return Err(Failure::error(
            format!("'{}' is neither a recording nor a folder", missing.display()),
            "name recordings (NAME.vram) or folders that hold some; running jobs of this machine are found without",
        ));
    }
    let is_terminal = io::stdout().is_terminal();
    let is_dumb = std::env::var_os(TERM).is_some_and(|term| term == "dumb");
    if is_terminal && !is_dumb && !args.once && !args.form.json {
        if args.form.redact {
            let hint = "add --once or --json: that can be shared";
            return Err(Failure::usage("--redact is not for the live view", hint));
        }
        return tui::run(&args.paths, args.rate);
    }
    let redaction = args.form.redact.then(Redaction::default);
    let look = Lookout::new(&args.paths, args.rate, redaction).look(true);
    Sink::stdout()
        .answer(&look.document, args.form.json, |style| printer::top::top(&look.document, style))?;
    Ok(Exit::Done)
}
