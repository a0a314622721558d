//! Records one job, from its start to its end.
//!
//! Refuses impossible settings, creates the folder, starts the job and waits for it. Once the job has started, only the job decides
//! its exit code.

use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use vramline::recording::folder::{self, ProcessId};
use vramline::recording::identity::RankIdentity;
use vramline::recording::manifest::{self, ClockPair, Clocks, DriverTrace, RunManifest};
use vramline::recording::rows::Moment;
use vramline::units::Nanos;

use crate::exit::{Failure, JobEnd};
use crate::launch::child::Ending;
use crate::launch::environment::{self, Planned};
use crate::launch::spec::JobSpec;
use crate::launch::values::{DriverTraceMode, Variables};
use crate::launch::{child, devices, driver, package, place, preload, say, say_once};
use crate::progress::ProgressLine;
use crate::variables::{DRIVER_TRACE, LD_PRELOAD, PYTHONPATH, RECORD, TO_PYTHON};

/// A job that has ended.
pub(crate) struct Recorded {
    /// The recording, if there is one. Its `run.json` is still the one from the start of the job.
    pub(crate) path: Option<PathBuf>,
    pub(crate) manifest: RunManifest,
    /// Whether the Python side of Vramline was set up to load inside the job.
    pub(crate) is_booted: bool,
    /// How the job ended.
    pub(crate) end: JobEnd,
    /// The first signal that asked for an end while the job ran, even if the job ignored it.
    pub(crate) interrupted: Option<i32>,
}

/// Runs a job and records it, until it ends or is ended early.
pub(crate) fn record(spec: &JobSpec<'_>) -> Result<Recorded, Failure> {
    spec.check()?;
    let user = environment::of_user();
    let devices = driver::of_script().unwrap_or_else(|| devices::devices(Path::new("/")));
    // If no device is found there may still be one: not every driver lists its devices in /proc or /dev.
    let missing =
        spec.gpus.as_ref().filter(|_| !devices.is_empty()).and_then(|gpus| gpus.beyond(devices.len()));
    if let Some(gpu) = missing {
        let (count, last) = (devices.len(), devices.len() - 1);
        let there =
            if count == 1 { "1 GPU, number 0".to_owned() } else { format!("{count} GPUs, 0 to {last}") };
        return Err(Failure::usage(
            format!("there is no GPU {gpu}: this machine has {there}"),
            "change --gpus; `vramline doctor` lists the GPUs. CUDA would silently ignore the rest of the list",
        ));
    }
    let planned = environment::plan(spec, &user, !devices.is_empty())?;
    let boot = package::boot();
    if let (Err(reason), true) = (&boot, planned.limits_inside) {
        // A job with a limit must not run without it.
        return Err(Failure::usage(
            format!("cannot apply --limit inside the job: {reason}"),
            "install the package for the Python that runs this job, or leave out --limit",
        ));
    }
    planned.notes.iter().for_each(say_once);
    if let Err(reason) = &boot {
        say_once(format_args!("{reason}; nothing is recorded inside the job"));
    }
    let preloaded = preload::of(spec, boot.as_deref().ok(), !devices.is_empty());
    // Whoever did not ask for it needs no reason.
    if let (Err(reason), DriverTraceMode::On) = (&preloaded, spec.driver_trace) {
        say_once(format_args!("cannot record calls of the driver: {reason}; everything else is recorded"));
    }
    let driver_trace = match &preloaded {
        Ok(None) => DriverTrace::Off,
        Ok(Some(_)) => DriverTrace::On,
        Err(_) => DriverTrace::Impossible,
    };
    let manifest = manifest_of(spec, user, &planned, devices, driver_trace);
    let wanted = spec
        .output
        .clone()
        .unwrap_or_else(|| place::default_name(&spec.command, manifest.clocks.begin.realtime_ns));
    let recording = place::make(&wanted, &manifest);

    let mut command = command_of(spec, &planned, boot.as_deref().ok(), recording.as_deref());
    command.env_remove(DRIVER_TRACE);
    if let (Ok(Some(library)), Some(path)) = (&preloaded, &recording) {
        command.env(DRIVER_TRACE, std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
        command.env(LD_PRELOAD, preload::first(library, std::env::var_os(LD_PRELOAD)));
    }
    if let Some(log) = spec.log {
        command.stdin(Stdio::null());
        command.stdout(log.try_clone()?);
        command.stderr(log.try_clone()?);
    }
    let (mut watch, mut line) = (None, None);
    let ending = Ending::new(spec.enough, spec.must_obey);
    let exit = std::thread::scope(|threads| {
        let started = |job| {
            line = spec.progress.clone().map(ProgressLine::timed);
            watch = recording.as_deref().and_then(|path| driver::watch(path, job, spec.rate, &manifest));
            if ending.may_come() {
                let ending = &ending;
                threads.spawn(move || ending.wait(job));
            }
        };
        child::run(command, started, &ending)
    });
    drop(line);
    let mut recorded = Recorded {
        path: recording,
        is_booted: boot.is_ok(),
        interrupted: ending.interrupted(),
        end: JobEnd::NotStarted,
        manifest,
    };
    match exit {
        Ok(exit) => {
            recorded.end = JobEnd::Ended(exit);
            recorded.manifest.clocks.end = Some(clocks());
            recorded.manifest.exit = Some(exit);
            driver::finish(watch, &mut recorded.manifest);
        }
        Err(error) => {
            let program = spec.command.first().map(|program| program.to_string_lossy()).unwrap_or_default();
            say(format_args!("cannot start '{program}': {error}"));
            recorded.path.take().iter().for_each(|path| place::unmake(path));
            if error.kind() == io::ErrorKind::NotFound {
                recorded.end = JobEnd::NotFound;
            }
        }
    }
    Ok(recorded)
}

fn manifest_of(
    spec: &JobSpec<'_>,
    user: Variables,
    planned: &Planned,
    devices: Vec<manifest::Device>,
    driver_trace: DriverTrace,
) -> RunManifest {
    let text = |path: PathBuf| path.to_string_lossy().into_owned();
    let own = ProcessId::of_running(std::process::id()).ok();
    let identity = RankIdentity { run: own.map(|id| id.to_string()), ..RankIdentity::of(&user, None) };
    RunManifest {
        kind: manifest::KIND.to_owned(),
        schema: manifest::SCHEMA,
        vramline: env!("CARGO_PKG_VERSION").to_owned(),
        command: spec.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        cwd: std::env::current_dir().map(text).unwrap_or_default(),
        host: folder::host_name(),
        parent_pid: std::process::id(),
        identity,
        clocks: Clocks { begin: clocks(), end: None },
        settings: spec.recorded(planned.stand_in, driver_trace),
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

fn command_of(
    spec: &JobSpec<'_>,
    planned: &Planned,
    boot: Option<&Path>,
    recording: Option<&Path>,
) -> Command {
    let mut words = spec.command.iter();
    let mut command = Command::new(words.next().map_or("".as_ref(), |program| program.as_os_str()));
    command.args(words);
    for name in TO_PYTHON {
        command.env_remove(name);
    }
    command.envs(&planned.set).envs(&spec.more);
    if let Some(path) = recording {
        // Absolute, because the job may change its working directory.
        command.env(RECORD, std::path::absolute(path).unwrap_or_else(|_| path.to_owned()));
    }
    // Without a recording, the Python side is needed only to apply the limit.
    if let Some(boot) = boot.filter(|_| recording.is_some() || spec.limit.is_some()) {
        command.env(PYTHONPATH, environment::python_path(boot, std::env::var_os(PYTHONPATH)));
    }
    command
}
