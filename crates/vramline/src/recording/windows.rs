//! The traces of a process: which there are, why each was begun, when it lasted, and where its files lie.

use std::path::PathBuf;

use super::reader::RecordedProcess;
use super::rows::{Mark, Moment, RecordedMarkKind, TraceState, WindowReason};

/// One trace of a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedWindow {
    /// Its number in the process, from 1.
    pub number: u64,
    /// Why it was begun; `None` where a later Vramline wrote the word.
    pub reason: Option<WindowReason>,
    /// When the profiler was started; `None` if it failed to start, or the start was not recorded.
    pub begun: Option<Moment>,
    /// When it was stopped.
    pub stopped: Option<Moment>,
    /// What became of it.
    pub state: Option<TraceState>,
    /// Its folder, whether or not it is there.
    pub place: Option<PathBuf>,
    /// Whether it shows one moment only.
    pub is_moment: bool,
}

impl RecordedWindow {
    /// Whether the program's own profiler made it.
    #[must_use]
    pub fn is_of_program(&self) -> bool {
        self.reason == Some(WindowReason::Program)
    }

    /// Whether a span of the monotonic clock lies within it. What ran before the first window began is within that: it begins
    /// before the first allocation.
    #[must_use]
    pub fn covers(&self, begin: i64, end: i64) -> bool {
        let is_first = self.number == 1 && !self.is_of_program();
        let has_begun = is_first || self.begun.is_some_and(|begun| begun.monotonic <= begin);
        has_begun && self.stopped.is_some_and(|stopped| end <= stopped.monotonic)
    }
}

impl RecordedProcess {
    /// Its traces, in the order in which they were begun.
    #[must_use]
    pub fn windows(&self) -> Vec<RecordedWindow> {
        let mut windows: Vec<RecordedWindow> = Vec::new();
        for mark in self.marks.iter().filter(|mark| mark.kind == RecordedMarkKind::Trace) {
            // Earlier versions made one, and did not number it.
            let number = mark.window.and_then(|number| u64::try_from(number).ok()).unwrap_or(1);
            if !windows.iter().any(|window| window.number == number) {
                windows.push(self.window(number, mark));
            }
            let Some(window) = windows.iter_mut().find(|window| window.number == number) else { continue };
            match mark.trace_state {
                Some(TraceState::Begun) => window.begun = window.begun.or(Some(mark.time)),
                Some(TraceState::Stopped) => window.stopped = window.stopped.or(Some(mark.time)),
                _ => {}
            }
            window.state = mark.trace_state.or(window.state);
            if let Some(path) = &mark.path {
                window.place = Some(PathBuf::from(path));
            }
        }
        if windows.is_empty() && self.trace.is_some() {
            windows.push(self.window(1, &Mark::default()));
        }
        windows
    }

    fn window(&self, number: u64, first: &Mark) -> RecordedWindow {
        let is_unnumbered = first.window.is_none();
        let place = self.trace.as_ref().map(|trace| match number {
            1 => trace.clone(),
            later => {
                let mut name = trace.file_name().unwrap_or_default().to_owned();
                name.push(format!(".{later}"));
                trace.with_file_name(name)
            }
        });
        let moment = self.moments.get(&number);
        RecordedWindow {
            is_moment: moment.is_some() || first.opened_for == Some(WindowReason::Oom),
            number,
            reason: first.opened_for.or(is_unnumbered.then_some(WindowReason::Start)),
            begun: None,
            stopped: None,
            state: None,
            place: moment
                .cloned()
                .or_else(|| place.filter(|_| first.opened_for != Some(WindowReason::Program))),
        }
    }
}
