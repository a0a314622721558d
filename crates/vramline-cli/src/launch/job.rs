//! One job under a recording, from its start to its end.
//!
//! Refuses what cannot be, makes the folder, starts the job, waits. From the job's start on nothing here decides its exit code but the
//! job itself.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;

use vramline::recording::folder;
use vramline::recording::manifest::{self, ClockPair, Clocks, RunManifest};
use vramline::recording::rows::Moment;
use vramline::units::Nanos;

use crate::cli::RunArgs;
use crate::exit::Hinted;
use crate::launch::child::Ending;
use crate::launch::environment::{self, Planned, Variables};
use crate::launch::{child, devices, driver, package, place, say, settings};
use crate::variables::{PYTHONPATH, RECORD, TO_PYTHON};

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
