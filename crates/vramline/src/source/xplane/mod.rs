//! XPlane: the trace that TensorFlow's and JAX's profilers write (`*.xplane.pb`).
//!
//! ```text
//! XSpace: planes=1, errors=2, warnings=3, hostnames=4
//! XPlane: id=1, name=2, lines=3, event_metadata=4 (map), stat_metadata=5 (map), stats=6
//! XLine:  id=1, name=2, timestamp_ns=3, events=4, duration_ps=9, display_id=10, display_name=11
//! XEvent: metadata_id=1, offset_ps=2 | num_occurrences=5, duration_ps=3, stats=4
//! XStat:  metadata_id=1, double=2 | uint64=3 | int64=4 | str=5 | bytes=6 | ref=7 | compressed_str=8
//! ```
//!
//! Two passes over the file ([`index`], then [`lines`] with [`decode`] and [`quick`]), because lines precede the tables they refer
//! to. Memory grows with the number of memory events and of distinct names, not with the file. This module reads; it
//! draws no conclusions.

mod decode;
mod index;
mod lines;
mod programs;
mod quick;
mod walk;

use std::io;

use super::input::{Input, SMALL_PIECE};
use crate::event::{Framework, History};
use crate::units::plural;

/// Reads a trace. If the file is cut off or damaged, the history has what was read before that, and a warning.
pub(crate) fn read(input: &Input) -> io::Result<History> {
    let mut history = History::default();
    let index = index::read(&mut input.stream(SMALL_PIECE)?, &mut history)?;
    lines::read(input, &index, &mut history)?;
    programs::read(input, &index, &mut history)?;
    if history.framework.is_none() {
        history.framework = guess_framework(&history);
    }
    if let Some(at) = index.cut_at {
        let (lost, hint) = if index.lost_tables {
            (
                "the table of names after the events is missing, so no event can be identified",
                "copy the file again, or wait until the profiler has finished writing",
            )
        } else {
            ("only the part before that was read", "copy the file again to get the rest")
        };
        history.warnings.add(
            "truncated",
            format!("the file ends at byte {at} in the middle of a message; {lost}"),
            hint,
        );
    }
    if let Some(at) = index.malformed_at {
        history.warnings.add(
            "malformed",
            format!("the bytes at {at} are not a valid field; the rest of that message was skipped"),
            "the file was damaged after it was written: record it again if figures look wrong",
        );
    }
    if history.recorder.bare_events > 0 {
        history.warnings.add(
            "bare-events",
            plural(
                history.recorder.bare_events,
                "memory event has neither size nor address and was skipped",
                "memory events have neither size nor address and were skipped",
            ),
            "",
        );
    }
    Ok(history)
}

/// The framework of a file without a version: JAX calls its functions through pjit, everything else is TensorFlow.
fn guess_framework(history: &History) -> Option<Framework> {
    let has_pjit = history.names.iter().any(|(_, text)| text.starts_with("PjitFunction("));
    if has_pjit {
        return Some(Framework::Jax);
    }
    let recorder = &history.recorder;
    (recorder.shows_tf_ops || !history.events.is_empty()).then_some(Framework::TensorFlow)
}
