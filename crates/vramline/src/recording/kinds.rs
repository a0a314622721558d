//! The words that marks are written with: what kind of mark it is, and what became of the trace.
//!
//! These enums are the one declaration of their words; the Python package takes the lists from here.

use serde::{Serialize, Serializer};

/// What a mark of a recording is about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum RecordedMarkKind {
    /// A step that the program announced, or an optimizer's update.
    Step,
    /// A call of a compiled function that is no whole training step.
    Call,
    /// An epoch.
    Epoch,
    /// A fit, an evaluation or a prediction.
    Phase,
    /// A moment that the program named.
    #[default]
    Mark,
    /// What became of the trace.
    Trace,
    /// A compiled function was traced once more, because it was called with shapes or types that are new to it.
    Retrace,
    /// A launch setting that was applied, or was not.
    Setting,
    /// The exception that ended the program.
    Exception,
    /// The end of the process.
    End,
    /// A kind that a later Vramline writes.
    Other(String),
}

/// Every kind that is written, in the order in which the docs list them.
static KNOWN: [RecordedMarkKind; 10] = [
    RecordedMarkKind::Step,
    RecordedMarkKind::Call,
    RecordedMarkKind::Epoch,
    RecordedMarkKind::Phase,
    RecordedMarkKind::Mark,
    RecordedMarkKind::Trace,
    RecordedMarkKind::Retrace,
    RecordedMarkKind::Setting,
    RecordedMarkKind::Exception,
    RecordedMarkKind::End,
];

written_as!(RecordedMarkKind [
    "step", "call", "epoch", "phase", "mark", "trace", "retrace", "setting", "exception", "end"
]);

impl RecordedMarkKind {
    /// Every kind that is written.
    #[must_use]
    pub fn known() -> &'static [RecordedMarkKind] {
        &KNOWN
    }

    /// The word used in recordings and in JSON.
    #[must_use]
    pub fn word(&self) -> &str {
        match self {
            RecordedMarkKind::Step => "step",
            RecordedMarkKind::Call => "call",
            RecordedMarkKind::Epoch => "epoch",
            RecordedMarkKind::Phase => "phase",
            RecordedMarkKind::Mark => "mark",
            RecordedMarkKind::Trace => "trace",
            RecordedMarkKind::Retrace => "retrace",
            RecordedMarkKind::Setting => "setting",
            RecordedMarkKind::Exception => "exception",
            RecordedMarkKind::End => "end",
            RecordedMarkKind::Other(word) => word,
        }
    }

    /// The kind of a word.
    #[must_use]
    pub fn of_word(word: &str) -> RecordedMarkKind {
        let known = KNOWN.iter().find(|kind| kind.word() == word).cloned();
        known.unwrap_or_else(|| RecordedMarkKind::Other(word.to_owned()))
    }
}

impl Serialize for RecordedMarkKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.word())
    }
}

/// Why a trace of a process was begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowReason {
    /// The process began.
    Start,
    /// A model was trained that had not been before.
    Fit,
    /// The first validation or evaluation.
    Validation,
    /// The first prediction.
    Predict,
    /// A compiled function was traced again for larger inputs.
    Retrace,
    /// The peak of the process had risen since the window before.
    Rise,
    /// The program started its own profiler.
    Program,
    /// An allocation failed: the snapshot of that moment.
    Oom,
    /// `vramline snapshot` asked for it.
    Request,
}

words!(WindowReason {
    Start => "start",
    Fit => "fit",
    Validation => "validation",
    Predict => "predict",
    Retrace => "retrace",
    Rise => "rise",
    Program => "program",
    Oom => "oom",
    Request => "request",
});

/// What became of a process's trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TraceState {
    /// The profiler was started.
    Begun,
    /// The profiler was stopped: the trace ends here.
    Stopped,
    /// The trace lies on disk.
    Written,
    /// The profiler could not be started.
    Failed,
    /// The trace could not be written.
    Lost,
}

words!(TraceState {
    Begun => "begun",
    Stopped => "stopped",
    Written => "written",
    Failed => "failed",
    Lost => "lost",
});
