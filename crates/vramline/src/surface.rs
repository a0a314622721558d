//! What programs call that use the library: each answer as the document that the command of the same name prints with `--json`.

use crate::analysis::oom;
use crate::analysis::plan::{self, NoPlan, PlanOptions, ProbeRead};
use crate::analysis::reading::{OutOfMemory, Reading};
use crate::analysis::replay::{self, ReplayOptions};
use crate::analysis::report::{self, ReportOptions};
use crate::replay::NotForThis;
use crate::view::oom::OomReport;
use crate::view::plan::PlanView;
use crate::view::replay::Replay;
use crate::view::report::Report;

/// Reports what held the memory: the peak of each pool, what it consisted of, and how memory went over steps.
///
/// `vramline report` prints the same. Every byte in use at a peak is in the document: the sums are exact.
///
/// ```
/// use vramline::{ReportOptions, Role, read, report};
///
/// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/tf221_cpu_cnn_from_start.xplane.pb");
/// let report = report(&read(path.as_ref())?, &ReportOptions::default());
/// let held = report.pools[0].at_peak.as_ref().expect("a trace has a history");
/// assert_eq!(held.in_use_bytes.to_string(), "69.3 MiB");
/// assert_eq!(held.by_role.get(Role::Activations).percent_of(held.in_use_bytes), "33.3 %");
/// # Ok::<(), vramline::SourceError>(())
/// ```
#[must_use]
pub fn report(reading: &Reading, options: &ReportOptions) -> Report {
    report::report(reading, options).into()
}

/// Runs the requests of each pool through a simulation of the allocator that served them, and through the same allocator with
/// other settings.
///
/// The document says how far the simulation follows the trace (often exactly, address by address), why the pool grew, and in
/// [`Replay::what_if`] what would have happened under each of [`ReplayOptions::what_if`]. `vramline replay` prints the same.
///
/// # Errors
///
/// A setting that the pool's allocator does not have.
///
/// ```
/// use vramline::{ReplayOptions, read, replay};
///
/// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/tf221_cpu_cnn_from_start.xplane.pb");
/// let options = ReplayOptions { what_if: vec!["limit=50MiB".parse()?], ..ReplayOptions::default() };
/// let reading = read(path.as_ref())?;
/// let replay = replay(&reading, &options)?;
/// assert!(replay.pools[0].exact);
/// assert_eq!(replay.what_if[0].fits, Some(false));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn replay(reading: &Reading, options: &ReplayOptions) -> Result<Replay, NotForThis> {
    Ok(Replay::from(&replay::replay(reading, options)?))
}

/// Explains each failed allocation: why it failed, by how much memory was short, who held the rest, and what would have helped.
///
/// [`read_failures`](crate::read_failures) reads them. `vramline oom` prints the same.
#[must_use]
pub fn oom(read: &OutOfMemory) -> OomReport {
    OomReport::from(&oom::oom(read))
}

/// Predicts the memory of other batch sizes from traces of a few small ones.
///
/// Three probes of different batch sizes, each with a few training steps, tell how the size of each request grows. The requests
/// are scaled to the batch sizes in question and run through the allocator. `vramline plan` prints the same.
///
/// # Errors
///
/// A probe without a pool, or probes that do not fit together.
pub fn plan(probes: &[ProbeRead], options: &PlanOptions) -> Result<PlanView, NoPlan> {
    let prepared = plan::prepare(probes, options)?;
    Ok(plan::plan(&prepared, probes, options).into())
}
