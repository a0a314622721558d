//! What a job is to be recorded with: every setting, and its default. Which of them exclude each other is decided here; what they
//! do to the job's environment, in `environment`.

use std::ffi::OsString;
use std::fs::File;
use std::path::PathBuf;

use vramline::recording::manifest::{self, StandIn};
use vramline::units::Bytes;

use crate::exit::Failure;
use crate::launch::values::{Allocator, Gpus, Switch, Trace, Variables};

/// Pools are limited in whole ones.
pub(crate) const MIB: Bytes = Bytes(1 << 20);

/// Asked now and then while a job runs: whether it may be ended.
pub(crate) type Enough<'a> = &'a (dyn Fn() -> bool + Sync);

/// A job to record. [`JobSpec::default`] is the only place of defaults; its command is empty.
pub(crate) struct JobSpec<'a> {
    /// The command and its arguments.
    pub(crate) command: Vec<OsString>,
    /// The folder to record into; one that tells what ran and when, where none is given.
    pub(crate) output: Option<PathBuf>,
    /// How much of the job's allocations is traced.
    pub(crate) trace: Trace,
    /// After so many seconds a trace ends in any case.
    pub(crate) trace_seconds: u32,
    /// Whether the framework's peak is reset at each step.
    pub(crate) step_peaks: bool,
    /// How often a second the counters are read; 0 is never.
    pub(crate) rate: f64,
    /// The GPUs that the job may see.
    pub(crate) gpus: Option<Gpus>,
    /// Whether pools grow.
    pub(crate) growth: Option<Switch>,
    /// What a pool may take.
    pub(crate) limit: Option<Bytes>,
    /// How frameworks get memory from the driver.
    pub(crate) allocator: Option<Allocator>,
    /// Whether the job ends when its trace is over.
    pub(crate) stops: bool,
    /// Whether TensorFlow's pool on the CPU may stand in for that of a GPU.
    pub(crate) stand_in: bool,
    /// Variables that the job gets besides.
    pub(crate) more: Variables,
    /// Where the job's output goes instead of ours. It then reads nothing either.
    pub(crate) log: Option<&'a File>,
    /// Ends the job before its time.
    pub(crate) enough: Option<Enough<'a>>,
    /// Whether a signal that ends programs (Ctrl-C) ends this one whatever it does about it. A user's own job decides for itself.
    pub(crate) must_obey: bool,
}

impl Default for JobSpec<'_> {
    fn default() -> Self {
        JobSpec {
            command: Vec::new(),
            output: None,
            trace: Trace::Auto,
            trace_seconds: 60,
            step_peaks: false,
            rate: 10.0,
            gpus: None,
            growth: None,
            limit: None,
            allocator: None,
            stops: false,
            stand_in: true,
            more: Variables::new(),
            log: None,
            enough: None,
            must_obey: false,
        }
    }
}

impl JobSpec<'_> {
    /// Refuses settings that exclude each other, whatever the machine and the environment are.
    pub(crate) fn check(&self) -> Result<(), Failure> {
        let hides_gpus = self.gpus.as_ref().is_some_and(Gpus::is_none);
        let own_pool = matches!(self.allocator, Some(Allocator::Async | Allocator::Platform));
        let allocator = self.allocator.map_or("", Allocator::word);
        if let Some(limit) = self.limit {
            if limit < MIB {
                return Err(Failure::usage(
                    format!("--limit is {limit}, and pools are limited in whole MiB"),
                    "give at least 1MiB, and a unit: --limit 8GiB",
                ));
            }
            if self.growth == Some(Switch::On) {
                return Err(Failure::usage(
                    "--limit contradicts --growth on: TensorFlow does not combine memory growth with a limit",
                    "leave --growth out: the limit alone keeps the rest of the GPU free",
                ));
            }
            if own_pool {
                return Err(Failure::usage(
                    format!(
                        "--limit contradicts --allocator {allocator}, which has no pool that a limit would bound"
                    ),
                    "leave one of them out",
                ));
            }
            if hides_gpus && !self.stand_in {
                return Err(Failure::usage(
                    "--limit has nothing to limit with --gpus none and --no-stand-in",
                    "leave --no-stand-in out: the limit then holds for TensorFlow's pool on the CPU",
                ));
            }
        }
        if self.growth == Some(Switch::Off) && own_pool {
            return Err(Failure::usage(
                format!(
                    "--growth off contradicts --allocator {allocator}, which takes memory as it is needed"
                ),
                "leave one of them out",
            ));
        }
        if hides_gpus && (self.growth.is_some() || self.allocator.is_some()) {
            let option = if self.growth.is_some() { "--growth" } else { "--allocator" };
            return Err(Failure::usage(
                format!("{option} is about a GPU's memory, and --gpus none leaves no GPU"),
                format!("leave {option} or --gpus none out"),
            ));
        }
        Ok(())
    }

    /// The settings as a recording tells them.
    pub(crate) fn recorded(&self, stand_in: StandIn) -> manifest::Settings {
        manifest::Settings {
            trace: self.trace.to_string(),
            trace_seconds: self.trace_seconds,
            rate: self.rate,
            step_peaks: self.step_peaks,
            gpus: self.gpus.as_ref().map(Gpus::to_string),
            growth: self.growth.map(|growth| growth == Switch::On),
            limit_bytes: self.limit,
            allocator: self.allocator.map(|allocator| allocator.word().to_owned()),
            stand_in,
        }
    }
}
