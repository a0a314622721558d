//! The traces of a recording, and where in the program a peak was reached.

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
    /// Why it was started: `start`: before the first allocation of the process; `fit`: for a model that was not trained before; `validation` and
    /// `predict`: for the first of each; `retrace`: because a function was retraced for larger inputs; `rise`: because the peak
    /// of the process rose; `program`: by the program's own profiler; `oom`: a snapshot, because an allocation failed; `request`: because
    /// `vramline snapshot` requested it.
    #[field(unit = "word", null = "a later version wrote the recording")]
    pub opened_for: Option<WindowReason>,
    /// Its state: `begun`, `stopped`, `written`, `failed` (it could not be started) or `lost`.
    #[field(unit = "word", null = "a later version wrote the recording")]
    pub state: Option<TraceState>,
    /// Its start.
    #[field(null = "the profiler could not be started, or its start was not recorded")]
    pub begin_ns: Option<Nanos>,
    /// Its end.
    #[field(null = "the process ended before the profiler was stopped")]
    pub end_ns: Option<Nanos>,
    /// The folder with its files. What the program's own profiler wrote stays where it is.
    #[field(null = "the recording has no trace of the process")]
    pub path: Option<String>,
    /// Whether Vramline read it.
    pub is_read: bool,
    /// The highest peak of a pool in it.
    #[field(title = "peak", null = "the trace was not read, or shows no allocations")]
    pub peak_bytes: Option<Bytes>,
}

/// Where in a program a peak was reached.
#[derive(Debug, Serialize, Document)]
pub struct PeakPlaceView {
    /// The `fit`, from 1.
    #[field(null = "the peak was outside all fits")]
    pub fit: Option<u64>,
    /// The epoch, from zero.
    #[field(null = "the peak was outside all epochs, or the epoch was not recorded")]
    pub epoch: Option<u64>,
    /// The phase, as in steps; `other` outside fits, evaluations and predictions.
    pub phase: Phase,
    /// The step.
    #[field(null = "the peak was outside all steps")]
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
