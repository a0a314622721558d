//! The traces of a recording as documents, and where in a program a peak was reached.

use serde::Serialize;

use crate::analysis::windows::{PeakPlace, WindowFacts};
use crate::document::Document;
use crate::event::Phase;
use crate::recording::kinds::{TraceState, WindowReason};
use crate::units::{Bytes, Nanos};

/// A trace of a process.
#[derive(Debug, Serialize, Document)]
pub struct WindowView {
    /// The machine.
    pub host: String,
    /// The process.
    pub pid: u64,
    /// Its number in the process, from 1.
    pub window: u64,
    /// Why it was begun: `start` before the process' first allocation; `fit` for a model that was not trained before; `validation` and
    /// `predict` for the first of each; `retrace` because a function was traced again for larger inputs; `rise` because the peak
    /// of the process had risen; `program`: the program's own profiler.
    #[field(unit = "word", null = "a later version wrote the recording")]
    pub opened_for: Option<WindowReason>,
    /// What became of it: `begun`, `stopped`, `written`, `failed` to begin, or `lost`.
    #[field(unit = "word", null = "a later version wrote the recording")]
    pub state: Option<TraceState>,
    /// When it began.
    #[field(null = "the profiler could not be started, or nobody noted when it was")]
    pub begin_ns: Option<Nanos>,
    /// When it ended.
    #[field(null = "the process ended before the profiler was stopped")]
    pub end_ns: Option<Nanos>,
    /// The folder with its files. Those of the program's own profiler stay where the program put them.
    #[field(null = "the recording holds no trace of the process")]
    pub path: Option<String>,
    /// Whether it was read.
    pub is_read: bool,
    /// The most that a pool held in it.
    #[field(title = "peak", null = "the trace was not read, or shows no allocations")]
    pub peak_bytes: Option<Bytes>,
}

/// Where in a program a peak was reached.
#[derive(Debug, Serialize, Document)]
pub struct PeakPlaceView {
    /// The `fit`, from 1.
    #[field(null = "it was reached outside of every fit")]
    pub fit: Option<u64>,
    /// The epoch, from zero.
    #[field(null = "it was reached outside of every epoch, or nobody told")]
    pub epoch: Option<u64>,
    /// As in steps; `other` outside of fits, evaluations and predictions.
    pub phase: Phase,
    /// The step.
    #[field(null = "it was reached outside of every step")]
    pub step: Option<i64>,
}

impl From<WindowFacts> for WindowView {
    fn from(window: WindowFacts) -> WindowView {
        WindowView {
            host: window.host,
            pid: window.pid,
            window: window.number,
            opened_for: window.reason,
            state: window.state,
            begin_ns: window.begin,
            end_ns: window.end,
            path: window.path,
            is_read: window.is_read,
            peak_bytes: window.peak,
        }
    }
}

impl From<PeakPlace> for PeakPlaceView {
    fn from(place: PeakPlace) -> PeakPlaceView {
        PeakPlaceView { fit: place.fit, epoch: place.epoch, phase: place.phase, step: place.step }
    }
}
