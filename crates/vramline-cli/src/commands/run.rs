//! `vramline run`: a job under a recording.
//!
//! The story: refuse what cannot be, make the folder, start the job, wait, complete the folder, report. From the job's start
//! on nothing here decides its exit code but the job itself.

use std::fs::File;
use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::atomic::Ordering;

use vramline::recording::folder::{self, Part};
use vramline::recording::manifest::{self, ClockPair, Clocks, RunManifest};
use vramline::recording::rows::Moment;
use vramline::units::Nanos;

use crate::cli::{ReportArgs, RunArgs};
use crate::commands::{oom, report};
use crate::exit::Hinted;
use crate::launch::child::Ending;
use crate::launch::environment::{self, Planned, Variables};
use crate::launch::{child, devices, driver, package, place, say, settings};
use crate::variables::{PYTHONPATH, RECORD, TO_PYTHON};

pub(crate) fn run(args: &RunArgs) -> Result<ExitCode, Hinted> {
    let Recorded { path, manifest, is_booted, code, .. } = record(args, None, &Variables::new(), None)?;
    if let Some(path) = path {
        finish(args, &manifest, path, is_booted);
    }
    Ok(ExitCode::from(code))
}

/// A job that has ended.
pub(crate) struct Recorded {
    /// Its recording, where there is one; `run.json` is still that of its beginning.
    pub(crate) path: Option<PathBuf>,
    pub(crate) manifest: RunManifest,
    /// Whether the job's Python was to record anything.
    pub(crate) is_booted: bool,
    /// The code that a shell would show.
    pub(crate) code: u8,
    /// Whether it was ended because enough was known.
    pub(crate) is_cut: bool,
}

/// Asked now and then while a job runs: whether it may be ended.
pub(crate) type Enough<'a> = &'a (dyn Fn() -> bool + Sync);

/// Runs a job under a recording, with a few more variables, to its end or until it is `enough`. What it prints goes into `log`
/// where one is given.
pub(crate) fn record(
    args: &RunArgs,
    log: Option<&File>,
    more: &Variables,
    enough: Option<Enough<'_>>,
) -> Result<Recorded, Hinted> {
    settings::check(args)?;
    let user = environment::of_user();
    let devices = driver::of_script().unwrap_or_else(|| devices::devices(Path::new("/")));
    let planned = environment::plan(args, &user, !devices.is_empty())?;
    planned.notes.iter().for_each(say);
    let boot = package::boot().inspect_err(|reason| {
        let limit = if args.limit.is_some() { "; --limit has no effect on a GPU" } else { "" };
        say(format_args!("{reason} (nothing is recorded inside the job{limit})"));
    });
    let is_booted = boot.is_ok();
    let mut manifest = manifest_of(args, user, &planned, devices);
    let wanted = args
        .output
        .clone()
        .unwrap_or_else(|| place::default_name(&args.command, manifest.clocks.begin.realtime_ns));
    let recording = place::make(&wanted, &manifest);

    let mut command = command_of(args, &planned, boot.as_deref().ok(), recording.as_deref());
    command.envs(more);
    if let Some(log) = log {
        command.stdin(Stdio::null());
        command.stdout(log.try_clone().map_err(anyhow::Error::from)?);
        command.stderr(log.try_clone().map_err(anyhow::Error::from)?);
    }
    let mut watch = None;
    let ending = Ending::default();
    let exit = std::thread::scope(|threads| {
        let started = |job| {
            watch = recording.as_deref().and_then(|path| driver::watch(path, job, args.rate, &manifest));
            if let Some(enough) = enough {
                let ending = &ending;
                threads.spawn(move || ending.wait(job, enough));
            }
        };
        let exit = child::run(command, started);
        ending.is_over.store(true, Ordering::Relaxed);
        exit
    });
    let is_cut = ending.is_cut.into_inner();
    let exit = match exit {
        Ok(exit) => exit,
        Err(error) => {
            let program = args.command.first().map(|program| program.to_string_lossy()).unwrap_or_default();
            say(format_args!("cannot start '{program}': {error}"));
            recording.iter().for_each(|path| place::unmake(path));
            let code = child::code_of_failure(&error);
            return Ok(Recorded { path: None, manifest, is_booted, code, is_cut });
        }
    };
    manifest.clocks.end = Some(clocks());
    manifest.exit = Some(exit);
    driver::finish(watch, &mut manifest);
    Ok(Recorded { path: recording, manifest, is_booted, code: child::code_of(exit), is_cut })
}

fn manifest_of(
    args: &RunArgs,
    user: Variables,
    planned: &Planned,
    devices: Vec<manifest::Device>,
) -> RunManifest {
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    RunManifest {
        kind: manifest::KIND.to_owned(),
        schema: manifest::SCHEMA,
        vramline: env!("CARGO_PKG_VERSION").to_owned(),
        command: args.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        cwd: std::env::current_dir().map(text).unwrap_or_default(),
        host: folder::host_name(),
        parent_pid: std::process::id(),
        clocks: Clocks { begin: clocks(), end: None },
        settings: settings::recorded(args, planned.stand_in),
        environment: manifest::environment(user.into_iter().chain(planned.set.clone())),
        devices,
        driver: None,
        exit: None,
    }
}

fn clocks() -> ClockPair {
    let now = Moment::now();
    ClockPair { realtime_ns: Nanos(now.wall), monotonic_ns: Nanos(now.monotonic) }
}

fn command_of(args: &RunArgs, planned: &Planned, boot: Option<&Path>, recording: Option<&Path>) -> Command {
    let mut words = args.command.iter();
    let mut command = Command::new(words.next().map_or("".as_ref(), |program| program.as_os_str()));
    command.args(words);
    for name in TO_PYTHON {
        command.env_remove(name);
    }
    command.envs(&planned.set);
    if let Some(path) = recording {
        // The job may change its folder before it looks.
        command.env(RECORD, std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
    }
    // Without a recording there is nothing to do inside the job but to limit it.
    if let Some(boot) = boot.filter(|_| recording.is_some() || args.limit.is_some()) {
        command.env(PYTHONPATH, environment::python_path(boot, std::env::var_os(PYTHONPATH)));
    }
    command
}

/// Completes the recording and reports on it. Whatever fails is a line.
fn finish(args: &RunArgs, manifest: &RunManifest, path: PathBuf, is_booted: bool) {
    let shown = path.display().to_string();
    if let Err(error) = manifest.write(&path) {
        say(format_args!("cannot complete '{shown}': {error}"));
        if !path.is_dir() {
            // Somebody deleted it while the job ran: there is nothing to say of what it holds.
            return;
        }
    }
    let is_attached =
        folder::parts(&path).is_ok_and(|parts| parts.iter().any(|(part, _)| *part == Part::Process));
    if is_attached {
        let report = ReportArgs::of(path);
        if !args.no_report {
            // Not locked: the line of progress is written there too, by a thread that would wait for ever.
            told(report::write(&report, io::stderr(), io::stderr().is_terminal()));
            told(oom::write(&report.path, io::stderr(), io::stderr().is_terminal()));
        }
        if let Some(file) = &args.json {
            told(
                File::create(file)
                    .map_err(|error| anyhow::Error::from(error).into())
                    .and_then(|file| report::write(&ReportArgs { json: true, ..report }, file, false)),
            );
        }
    } else if is_booted {
        say(
            "no Python process attached: it is not Python, is older than 3.10, runs with -I, -E or -S, or uses neither \
             TensorFlow, JAX nor PyTorch",
        );
    }
    say(format_args!("recording: {shown}"));
}

fn told(report: Result<(), Hinted>) {
    if let Err(Hinted { error, .. }) = report {
        say(format_args!("no report: {error:#}"));
    }
}
