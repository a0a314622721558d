//! `vramline top`: shows what holds the memory of this machine's devices now.

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
The upper part shows the memory of each device as a bar: reserved by the driver, in use by tensors,
cached by pools, contexts, other processes, free. The lower part lists the processes. For jobs
under `vramline run`, and for jobs that record themselves, it also shows the pools, the current
step, the peak of that step, and the headroom: how much higher the peak can rise before memory
runs out. For other processes it shows what the driver reports.

Vramline finds the recordings of running jobs through /proc, if you have permission. Give the PATH
of recordings by other users, or by other machines on a shared disk. top writes nothing and does
not disturb jobs.

For a job of many hosts on a shared folder, --hosts shows one row for each host: how many of the
ranks it has, the lowest and the highest step of them, the highest peak and the least headroom with
the ranks that have them, the age of the newest data, and whether the host runs, has ended, or has
sent no news for a while. Ranks that no host has shown, silent hosts and failed ones come first.

Keys:
    up, down, PgUp, PgDn   select a process            Enter   show its roles and steps
    H                      hosts or processes
    s, S                   sort by the next or         r       reverse the order
                           previous column             /       filter (Esc: show all)
    letter of a column     sort by it (see ?)          space   pause, continue
                                                       q       quit

Without a driver, top shows host memory and the jobs that use TensorFlow's pool on the CPU. If
standard output is not a terminal, top prints once, as with --once.

Examples:
    vramline top
    vramline top --rate 5                     # five updates per second
    vramline top --once                       # print once, as text
    vramline top runs/ other.vram             # also the recordings in a folder, and an ended one
    vramline top --hosts /shared/job.vram     # one row for each host of a job
    vramline top --json | jq '.processes[] | {pid, headroom_bytes}'

Exit codes: 0 done; 1 error; 2 usage; 128+n signal n ended it.";

/// Watch GPU memory live: devices, processes and recorded jobs.
#[derive(Debug, Args)]
#[command(after_long_help = HELP)]
pub(crate) struct TopArgs {
    /// Recordings (*.vram), also of ended jobs, or folders with recordings of running jobs. Running jobs of this machine are always
    /// found [default: the current folder].
    #[arg(value_name = "PATH", value_hint = clap::ValueHint::AnyPath)]
    pub(crate) paths: Vec<PathBuf>,
    /// Number of updates per second.
    #[arg(long, value_name = "HZ", default_value_t = 1.0, value_parser = updates)]
    pub(crate) rate: f64,
    /// Print once as text, and exit.
    #[arg(long, conflicts_with = "json")]
    pub(crate) once: bool,
    /// Show one row for each host of a job instead of devices and processes.
    #[arg(long)]
    pub(crate) hosts: bool,
    #[command(flatten)]
    pub(crate) form: Form,
}

/// Parses a number of updates per second.
fn updates(text: &str) -> Result<f64, String> {
    let rate = text.parse().ok().filter(|rate| (0.1..=20.0).contains(rate));
    rate.ok_or_else(|| "expected a number of updates per second, from 0.1 to 20".to_owned())
}

pub(crate) fn run(args: &TopArgs) -> Result<Exit, Failure> {
    if let Some(missing) = args.paths.iter().find(|path| !path.is_dir()) {
        return Err(Failure::error(
            format!("'{}' is neither a recording nor a folder", missing.display()),
            "give recordings (NAME.vram) or folders that contain recordings; running jobs of this machine are found without a path",
        ));
    }
    let is_terminal = io::stdout().is_terminal();
    let is_dumb = std::env::var_os(TERM).is_some_and(|term| term == "dumb");
    if is_terminal && !is_dumb && !args.once && !args.form.json {
        if args.form.redact {
            let hint = "add --once or --json";
            return Err(Failure::usage("--redact does not work with the live view", hint));
        }
        return tui::run(&args.paths, args.rate, args.hosts);
    }
    let redaction = args.form.redact.then(Redaction::default);
    let look = Lookout::new(&args.paths, args.rate, redaction).look(true);
    let print = if args.hosts { printer::top::hosts } else { printer::top::top };
    Sink::stdout().answer(&look.document, args.form.json, |style| print(&look.document, style))?;
    Ok(Exit::Done)
}
