//! The traces of the processes of a recording: which there are, which of them shows a pool's highest moment, and where in the program a
//! peak was reached.

use std::fmt;

use super::process::ProcessStory;
use super::reading::{Host, Reading};
use crate::recording::fits::fit_of;
use crate::recording::reader::Recorded;
use crate::recording::rows::{Counters, Mark, Moment, RecordedMarkKind, TraceState, WindowReason};
use crate::trace::recorded::RecordedStep;
use crate::trace::{Phase, PoolTrace};
use crate::units::{Bytes, Nanos};
use crate::warning::Warning;

/// A trace of a process.
#[derive(Clone, Debug)]
pub struct WindowFacts {
    /// The machine.
    pub host: String,
    /// The process.
    pub pid: u64,
    /// Its number in the process, from 1.
    pub number: u64,
    /// Why it was begun.
    pub reason: Option<WindowReason>,
    /// What became of it.
    pub state: Option<TraceState>,
    /// When it began.
    pub begin: Option<Nanos>,
    /// When it ended.
    pub end: Option<Nanos>,
    /// Where its files lie, or would.
    pub path: Option<String>,
    /// Whether it was read.
    pub is_read: bool,
    /// The most that a pool held in it.
    pub peak: Option<Bytes>,
}

/// Where in a program a peak was reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeakPlace {
    /// The fit, from 1.
    pub fit: Option<u64>,
    /// The epoch, from zero.
    pub epoch: Option<u64>,
    /// What the program did.
    pub phase: Phase,
    /// The step; `None` where it was reached outside of steps.
    pub step: Option<i64>,
    /// Whether the process has several fits, so that the number of one tells something.
    pub has_fits: bool,
}

impl fmt::Display for PeakPlace {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.phase, self.step) {
            (Phase::Train, Some(step)) => write!(out, "in training step {step}")?,
            (Phase::Validation, Some(step)) => write!(out, "in validation step {step}")?,
            (Phase::Predict, Some(step)) => write!(out, "in prediction step {step}")?,
            (Phase::Other, Some(step)) => write!(out, "in step {step}")?,
            (Phase::Train, None) => write!(out, "in training, between steps")?,
            (Phase::Validation, None) => write!(out, "in validation, between steps")?,
            (Phase::Predict, None) => write!(out, "in prediction, between steps")?,
            (Phase::Other, None) => write!(out, "between steps")?,
        }
        if let Some(epoch) = self.epoch {
            write!(out, " of epoch {epoch}")?;
        }
        match self.fit {
            Some(fit) if self.has_fits => write!(out, " of fit {fit}"),
            _ => Ok(()),
        }
    }
}

impl ProcessStory<'_> {
    /// Where in the program a moment of the report's clock lies.
    pub(super) fn place_at(&self, at: Nanos, device: &str, steps: &[RecordedStep]) -> PeakPlace {
        let fits = self.process.fits();
        let is_in = |step: &&RecordedStep| self.clock(step.begin) <= at && at <= self.clock(step.end);
        let step = steps.iter().filter(|step| step.device == device).find(is_in);
        if let Some(step) = step {
            return PeakPlace {
                fit: step.fit,
                epoch: step.epoch,
                phase: step.phase,
                step: Some(step.number),
                has_fits: fits.len() > 1,
            };
        }
        // Phases end after their steps; the innermost that holds the moment ends first.
        let is_around = |mark: &&Mark| {
            mark.kind == RecordedMarkKind::Phase
                && self.clock(mark.began()) <= at
                && at <= self.clock(mark.time)
        };
        let around = self.process.marks.iter().find(is_around);
        let span = around.map(|mark| (mark.began().monotonic, mark.time.monotonic));
        PeakPlace {
            fit: span.and_then(|(begin, end)| fit_of(&fits, begin, end)),
            epoch: None,
            phase: around.and_then(|mark| mark.phase).unwrap_or(Phase::Other),
            step: None,
            has_fits: fits.len() > 1,
        }
    }

    /// Where in the program the framework's own peak of a device rose to its highest; `None` where nobody counted.
    pub(super) fn place_of_rise(&self, device: &str, steps: &[RecordedStep]) -> Option<PeakPlace> {
        let read = |mark: &Mark| -> Option<i64> {
            let of_device = |read: &&Counters| read.device == device;
            mark.counters.iter().find(of_device).and_then(|read| read.peak.max(read.current))
        };
        let highest = self.process.marks.iter().filter_map(read).max()?;
        let first = self.process.marks.iter().find(|mark| read(mark) == Some(highest))?;
        let end = first.time;
        // A mark tells of the time up to it: of a step its own.
        let at = match (&first.kind, first.begin) {
            (RecordedMarkKind::Step | RecordedMarkKind::Call, Some(_)) => end,
            _ => Moment { monotonic: end.monotonic.saturating_sub(1), wall: end.wall.saturating_sub(1) },
        };
        Some(self.place_at(self.clock(at), device, steps))
    }
}

/// The traces of a recording, in order.
pub(super) fn windows(reading: &Reading, recorded: &Recorded) -> Vec<WindowFacts> {
    let mut all = Vec::new();
    for (number, process) in recorded.processes.iter().enumerate() {
        let story = ProcessStory::with_windows(process, reading.windows_of(number));
        let traces = || reading.hosts.iter().chain(&reading.later).chain(&reading.moments);
        let hosts = || traces().filter(|host| host.process == Some(number));
        for window in process.windows() {
            let is_it = |host: &&Host| host.window.as_ref().is_some_and(|own| own.number == window.number);
            let pools = hosts().filter(is_it).flat_map(|host| &host.trace.pools);
            let states = hosts().filter(is_it).flat_map(|host| &host.trace.history.pools);
            let state = states
                .filter_map(|pool| pool.caching.as_ref()?.state.as_ref())
                .map(|state| state.blocks.iter().map(|block| block.size).sum::<Bytes>());
            let of_file = reading
                .still_moments
                .iter()
                .find(|moment| moment.process == number && moment.window.number == window.number);
            let stills =
                of_file.iter().flat_map(|moment| &moment.still.pools).map(|pool| pool.snapshot.in_use);
            all.push(WindowFacts {
                host: story.host(),
                pid: story.pid(),
                number: window.number,
                reason: window.reason,
                state: window.state,
                begin: window.begun.map(|begun| story.clock(begun)),
                end: window.stopped.map(|stopped| story.clock(stopped)),
                path: window.place.as_ref().map(|place| place.display().to_string()),
                is_read: hosts().any(|host| is_it(&host)) || of_file.is_some(),
                peak: pools
                    .filter_map(PoolTrace::peak)
                    .map(|peak| peak.bytes)
                    .chain(state)
                    .chain(stills)
                    .max(),
            });
        }
    }
    all
}

/// What the reader should know of profiles that programs made of themselves.
pub(super) fn warnings(windows: &[WindowFacts], reading: &Reading) -> Vec<Warning> {
    let read = windows.iter().filter(|window| window.reason == Some(WindowReason::Program) && window.is_read);
    let told = read.filter_map(|window| {
        Some(Warning {
            code: "own-profile",
            text: format!(
                "the program ran its own profiler; Vramline reads that trace, {}, as trace {} of process {}",
                window.path.as_ref()?,
                window.number,
                window.pid
            ),
            hint: String::new(),
        })
    });
    let missing = reading.missing.iter().map(|path| Warning {
        code: "own-profile-missing",
        text: format!("the program ran its own profiler, but its trace is no longer in {}", path.display()),
        hint: "the recording refers to these files and has no copy of them: put them back to include them"
            .to_owned(),
    });
    told.chain(missing).collect()
}

/// For each trace of a reading (those that are later after the others) and each of its pools: whether another trace of the same
/// process shows a higher moment of the same pool, or the same one earlier.
pub(super) fn outdone(reading: &Reading) -> Vec<Vec<bool>> {
    let hosts: Vec<&Host> = reading.hosts.iter().chain(&reading.later).collect();
    let peak = |pool: &PoolTrace| pool.peak().map(|peak| peak.bytes);
    let is_outdone = |at: usize, host: &Host, pool: &PoolTrace| {
        let others = hosts.iter().enumerate().filter(|(_, other)| {
            host.process.is_some() && other.process == host.process && !std::ptr::eq(**other, host)
        });
        let mut same = others.flat_map(|(number, other)| {
            let pools = other.trace.pools.iter();
            pools.filter(|each| other.pool_name(each) == host.pool_name(pool)).map(move |each| (number, each))
        });
        same.any(|(number, other)| (peak(other), number < at) > (peak(pool), at < number))
    };
    let of_host = |(at, host): (usize, &&Host)| {
        host.trace.pools.iter().map(|pool| is_outdone(at, host, pool)).collect()
    };
    hosts.iter().enumerate().map(of_host).collect()
}
