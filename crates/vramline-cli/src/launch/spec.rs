//! The settings of a recorded job and their defaults. Conflicts between settings are found here; `environment` turns settings into
//! environment variables.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;

use vramline::recording::manifest::{self, DriverTrace, StandIn};
use vramline::units::Bytes;

use crate::exit::Failure;
use crate::launch::values::{
    Allocator, DriverTraceMode, Gpus, LocalFirst, Stop, Switch, Trace, UntilOom, Variables,
};

/// The unit of limits: pools are limited to a whole number of MiB.
pub(crate) const MIB: Bytes = Bytes(1 << 20);

/// Returns whether a job may be ended. It is called repeatedly while the job runs.
pub(crate) type Enough<'a> = &'a (dyn Fn() -> bool + Sync);

/// A job to record. All defaults are in [`JobSpec::default`]; its command is empty.
pub(crate) struct JobSpec<'a> {
    /// The command and its arguments.
    pub(crate) command: Vec<OsString>,
    /// The folder to record into. The default name is made from the script and the time.
    pub(crate) output: Option<PathBuf>,
    /// The name of the job, if the user gives one. Runs of one job write one recording.
    pub(crate) job: Option<String>,
    /// The user's labels.
    pub(crate) labels: BTreeMap<String, String>,
    /// Whether the recording is written to a local folder first.
    pub(crate) local_first: LocalFirst,
    /// Which steps are traced.
    pub(crate) trace: Trace,
    /// The longest duration of one trace, in seconds.
    pub(crate) trace_seconds: u32,
    /// Whether PyTorch's allocator records live blocks after the trace.
    pub(crate) until_oom: UntilOom,
    /// Whether the framework's peak counter is reset at each step.
    pub(crate) step_peaks: bool,
    /// Samples per second; 0 turns sampling off.
    pub(crate) rate: f64,
    /// The GPUs that the job may use.
    pub(crate) gpus: Option<Gpus>,
    /// Whether pools grow as needed.
    pub(crate) growth: Option<Switch>,
    /// The largest size of a pool.
    pub(crate) limit: Option<Bytes>,
    /// How the framework gets memory from the driver.
    pub(crate) allocator: Option<Allocator>,
    /// Whether calls of NVIDIA's driver are recorded.
    pub(crate) driver_trace: DriverTraceMode,
    /// When the job is ended, if before its program ends.
    pub(crate) stop: Option<Stop>,
    /// Whether TensorFlow's pool allocator is switched on for the CPU where there is no GPU.
    pub(crate) stand_in: bool,
    /// Additional environment variables of the job.
    pub(crate) more: Variables,
    /// A file for the job's output. With it, the job has no standard input.
    pub(crate) log: Option<&'a File>,
    /// Ends the job early.
    pub(crate) enough: Option<Enough<'a>>,
    /// Whether a signal such as Ctrl-C ends the job even if the job ignores it. A job of `vramline run` decides for itself.
    pub(crate) must_obey: bool,
    /// A label for the line of progress while the job runs; `None` where the job uses the terminal itself.
    pub(crate) progress: Option<String>,
}

impl Default for JobSpec<'_> {
    fn default() -> Self {
        JobSpec {
            command: Vec::new(),
            output: None,
            job: None,
            labels: BTreeMap::new(),
            // Whoever looks into the folder while the job runs finds the files there.
            local_first: LocalFirst::Off,
            trace: Trace::Auto,
            trace_seconds: 60,
            until_oom: UntilOom::Auto,
            step_peaks: false,
            rate: 10.0,
            gpus: None,
            growth: None,
            limit: None,
            allocator: None,
            driver_trace: DriverTraceMode::Auto,
            stop: None,
            stand_in: true,
            more: Variables::new(),
            log: None,
            enough: None,
            must_obey: false,
            progress: None,
        }
    }
}

impl JobSpec<'_> {
    /// Refuses settings that conflict with each other on any machine.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let hides_gpus = self.gpus.as_ref().is_some_and(Gpus::is_none);
        let own_pool = matches!(self.allocator, Some(Allocator::Async | Allocator::Platform));
        let allocator = self.allocator.map_or("", Allocator::word);
        if let Some(limit) = self.limit {
            if limit < MIB {
                return Err(Failure::usage(
                    format!("--limit {limit} is too small: the smallest limit is 1 MiB"),
                    "give at least 1MiB, with a unit: --limit 8GiB",
                ));
            }
            if self.growth == Some(Switch::On) {
                return Err(Failure::usage(
                    "--limit conflicts with --growth on: TensorFlow does not allow memory growth together with a limit",
                    "leave out --growth: the limit alone keeps the rest of the GPU free",
                ));
            }
            if own_pool {
                return Err(Failure::usage(
                    format!(
                        "--limit conflicts with --allocator {allocator}, which has no pool that could be limited"
                    ),
                    format!("leave out --limit or --allocator {allocator}"),
                ));
            }
            if hides_gpus && !self.stand_in {
                return Err(Failure::usage(
                    "--limit has no effect with --gpus none and --no-stand-in: there is no pool to limit",
                    "leave out --no-stand-in: the limit then applies to TensorFlow's pool on the CPU",
                ));
            }
        }
        if self.growth == Some(Switch::Off) && own_pool {
            return Err(Failure::usage(
                format!(
                    "--growth off conflicts with --allocator {allocator}, which takes memory only as needed"
                ),
                format!("leave out --growth off or --allocator {allocator}"),
            ));
        }
        if hides_gpus && (self.growth.is_some() || self.allocator.is_some()) {
            let option = if self.growth.is_some() { "--growth" } else { "--allocator" };
            return Err(Failure::usage(
                format!("{option} applies to GPU memory, but --gpus none hides every GPU"),
                format!("leave out {option} or --gpus none"),
            ));
        }
        Ok(())
    }

    /// The settings as they are stored in `run.json`.
    pub(crate) fn recorded(&self, stand_in: StandIn, driver_trace: DriverTrace) -> manifest::Settings {
        manifest::Settings {
            trace: self.trace.to_string(),
            trace_seconds: self.trace_seconds,
            stop_after_steps: self.stop.and_then(Stop::steps),
            rate: self.rate,
            step_peaks: self.step_peaks,
            gpus: self.gpus.as_ref().map(Gpus::to_string),
            growth: self.growth.map(|growth| growth == Switch::On),
            limit_bytes: self.limit,
            allocator: self.allocator.map(|allocator| allocator.word().to_owned()),
            stand_in,
            driver_trace,
        }
    }
}
