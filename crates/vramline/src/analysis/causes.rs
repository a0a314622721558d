//! Failures with what led to them: a recording also knows whether memory grew from step to step until it ran out.

use std::path::PathBuf;
use std::sync::Arc;

use super::reading::{self, OutOfMemory};
use super::report::{ReportOptions, report};
use crate::advise::{Finding, GROWTH_RULES};
use crate::source::{Progress, SourceError};
use crate::units::Bytes;

/// Reads the failed allocations of logs, dumps, snapshots and recordings; [`oom`](crate::oom()) explains them.
///
/// A log and the dump of the same failure are joined. `limit` is the limit that the user set for the pool, where known; it decides between
/// a pool that is too small and memory that is exhausted.
///
/// # Errors
///
/// A path that cannot be read, or is a file that tells of no failures, such as a trace. A log without a failure is no error.
pub fn read_failures(
    paths: &[PathBuf],
    limit: Option<Bytes>,
    progress: &Arc<Progress>,
) -> Result<OutOfMemory, SourceError> {
    let mut read = reading::read_told(paths, limit, progress)?;
    if super::oom::is_survived(&read) {
        return Ok(read);
    }
    for path in paths.iter().filter(|path| reading::is_recording(path)) {
        let reading = reading::read_watched(path, progress)?;
        let found = report(&reading, &ReportOptions::default()).findings;
        read.growth.extend(found.into_iter().filter(|finding| GROWTH_RULES.contains(&finding.rule)));
    }
    Ok(read)
}

/// What memory grew by until a failure; the most bytes first.
#[must_use]
pub(crate) fn growth(read: &OutOfMemory) -> Option<&Finding> {
    read.growth.iter().max_by_key(|finding| finding.bytes)
}
