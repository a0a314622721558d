//! `_vramline`: the library through which the Python package uses the core.
//!
//! It has no logic of its own: it converts arguments to the core's types, and the core's answers to Python's. The training
//! process loads it, so it contains neither the terminal interface nor the server.

#![expect(clippy::needless_pass_by_value, reason = "pyo3 passes arguments by value")]

mod dataset;
mod driver;
mod forking;
mod plan;
mod plan_document;
mod step;
mod terminate;
mod watched;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use vramline::analysis::accounts::{Accounts, DeviceLedger};
use vramline::analysis::diff::{DiffOptions, RunSide, diff, names};
use vramline::analysis::report::{ReportOptions, report};
use vramline::event::{How, Phase};
use vramline::ledger::moments::LedgerMoment;
use vramline::ledger::{DeviceFigures, Facts, JobProcess, Ledger, PoolFigures, SourcedBytes, Teller};
use vramline::recording::folder::{self, ProcessId, host_name};
use vramline::recording::identity::{FrameworkRank, Launcher, RankIdentity};
use vramline::recording::process::ProcessRecorder;
use vramline::recording::reader;
use vramline::recording::rows::{
    Counters, Inventory, LayerPath, Mark, Moment, OwnerKind, OwnerRow, RecordedMarkKind, TraceState,
    Variable, WindowReason,
};
use vramline::recording::sampler::Sampler;
use vramline::recording::stream::{self, StreamError};
use vramline::snapshot::Role;
use vramline::units::{Bytes, Nanos};
use vramline::view::diff::Diff;
use vramline::view::ledger;
use vramline::view::report::Report;

use plan::Plan;
use plan_document::{PlanDocument, PlannedBatch};
use step::{Step, Steps};

/// Device, current, peak, when the peak was reset, pool, limit, and the reason for what is missing.
type Read = (String, Option<i64>, Option<i64>, Option<i64>, Option<i64>, Option<i64>, Option<String>);

/// The state of a trace, its number, why it was started, and the folder if the program's own profiler writes it.
type TraceCells = (Option<String>, Option<i64>, Option<String>, Option<String>);

fn counters((device, current, peak, peak_since, pool, limit, reason): Read) -> Counters {
    Counters { device, current, peak, peak_since, pool, limit, reason }
}

fn failed(error: &StreamError) -> PyErr {
    PyOSError::new_err(error.to_string())
}

/// A row of the stream of owners: kind, name, time, model, layer, variable with its number, role, source, begin, end, address,
/// function.
type OwnerTuple = (
    String,
    String,
    i64,
    Option<String>,
    Option<String>,
    Option<(String, Option<i64>)>,
    String,
    Option<String>,
    Option<i64>,
    Option<i64>,
    Option<u64>,
    Option<i64>,
);

/// Writes the events of one process to a recording. A forked child needs its own.
#[pyclass(module = "_vramline", frozen)]
struct Recorder {
    recorder: Arc<ProcessRecorder>,
    sampler: Mutex<Option<Sampler>>,
}

#[pymethods]
impl Recorder {
    #[new]
    fn new(folder: PathBuf, process: &str) -> PyResult<Recorder> {
        let id: ProcessId = process.parse().map_err(|error| PyValueError::new_err(format!("{error}")))?;
        Ok(Recorder { recorder: Arc::new(ProcessRecorder::new(&folder, &id)), sampler: Mutex::new(None) })
    }

    /// Writes a mark that ends now, with the counters read just before. Returns whether the peak has risen since `watch_peaks`.
    /// `trace` is the state of a trace, its number, why it was started, and the folder of the program's own profiler.
    #[pyo3(signature = (kind, label, phase, how, step, batches, epoch, begin_ns, counters, trace = (None, None, None, None)))]
    #[expect(clippy::too_many_arguments, reason = "one per column")]
    fn mark(
        &self,
        kind: &str,
        label: Option<String>,
        phase: Option<&str>,
        how: Option<&str>,
        step: Option<i64>,
        batches: Option<i64>,
        epoch: Option<i64>,
        begin_ns: Option<i64>,
        counters: Vec<Read>,
        trace: TraceCells,
    ) -> PyResult<bool> {
        let (trace_state, window, opened_for, path) = trace;
        let mark = Mark {
            kind: RecordedMarkKind::of_word(kind),
            label,
            phase: phase.map(|word| Phase::of_word(word).unwrap_or(Phase::Other)),
            how: how.and_then(How::of_word),
            step,
            batches,
            epoch,
            begin: begin_ns,
            time: Moment::now(),
            counters: counters.into_iter().map(self::counters).collect(),
            trace_state: trace_state.and_then(|word| TraceState::of_word(&word)),
            window,
            opened_for: opened_for.and_then(|word| WindowReason::of_word(&word)),
            path,
        };
        self.recorder.mark(&mark).map_err(|error| failed(&error))
    }

    /// Writes a step that ends now, with the counters that the plan reads. Returns whether the peak has risen since
    /// `watch_peaks`; None if the plan is no longer valid, and nothing was written.
    #[pyo3(signature = (plan, label, phase, how, step, batches, epoch, begin_ns))]
    #[expect(clippy::too_many_arguments, reason = "one for each column")]
    fn step(
        &self,
        py: Python<'_>,
        plan: &Bound<'_, Plan>,
        label: Option<String>,
        phase: &str,
        how: &str,
        step: i64,
        batches: i64,
        epoch: Option<i64>,
        begin_ns: Option<i64>,
    ) -> PyResult<Option<bool>> {
        let mark = Mark {
            kind: RecordedMarkKind::Step,
            label,
            phase: Some(Phase::of_word(phase).unwrap_or(Phase::Other)),
            how: How::of_word(how),
            step: Some(step),
            batches: Some(batches),
            epoch,
            begin: begin_ns,
            ..Mark::default()
        };
        self.write_step(py, plan, mark)
    }

    /// Makes the first mark return True whose peak is more than a twentieth above the highest so far.
    fn watch_peaks(&self) {
        self.recorder.watch_peaks();
    }

    /// Writes variables: (owner, name, role, shape, dtype, bytes, device, address, model, layer, source, number).
    #[expect(clippy::type_complexity, reason = "one for each column")]
    fn inventory(
        &self,
        variables: Vec<(
            Option<String>,
            String,
            String,
            Option<String>,
            Option<String>,
            u64,
            Option<String>,
            Option<u64>,
            Option<String>,
            Option<String>,
            Option<String>,
            Option<i64>,
        )>,
    ) -> PyResult<()> {
        let variables = variables.into_iter().map(
            |(owner, name, role, shape, dtype, bytes, device, address, model, layer, source, number)| {
                Variable {
                    owner,
                    name,
                    role: Role::of_word(&role).unwrap_or_default(),
                    shape,
                    dtype,
                    bytes: Bytes(bytes),
                    device,
                    address,
                    layer: LayerPath { model, layer },
                    source,
                    number,
                }
            },
        );
        let inventory = Inventory { time: Moment::now(), variables: variables.collect() };
        self.recorder.inventory(&inventory).map_err(|error| failed(&error))
    }

    /// Writes owners of ops: (kind, name, time, model, layer, (variable, its number), role, source, begin, end, address, function).
    /// Times are of the monotonic clock.
    fn owners(&self, rows: Vec<OwnerTuple>) -> PyResult<()> {
        let now = Moment::now();
        let row = |row: OwnerTuple| {
            let (kind, name, time, model, layer, variable, role, source, begin, end, address, function) = row;
            let (variable, variable_number) = variable.unzip();
            OwnerRow {
                time: Moment {
                    monotonic: time,
                    wall: now.wall.saturating_sub(now.monotonic.saturating_sub(time)),
                },
                kind: OwnerKind::of_word(&kind).unwrap_or_default(),
                name,
                layer: LayerPath { model, layer },
                variable,
                variable_number: variable_number.flatten(),
                role: Role::of_word(&role).unwrap_or_default(),
                source,
                span: begin.zip(end),
                address,
                function,
            }
        };
        let rows: Vec<OwnerRow> = rows.into_iter().map(row).collect();
        self.recorder.owners(&rows).map_err(|error| failed(&error))
    }

    /// Samples every `pace` seconds in a thread. The thread holds the GIL only while it calls `read` for the framework's
    /// counters, and `on_request` where somebody requests a snapshot. Returns whether the thread could be started.
    #[pyo3(signature = (pace, read, on_request = None))]
    fn start_sampling(
        &self,
        py: Python<'_>,
        pace: f64,
        read: Py<PyAny>,
        on_request: Option<Py<PyAny>>,
    ) -> PyResult<bool> {
        let pace =
            Duration::try_from_secs_f64(pace).map_err(|error| PyValueError::new_err(error.to_string()))?;
        self.stop_sampling(py);
        let ask = move |is_requested: bool| {
            // Attaching fails while the interpreter shuts down: there is nothing to read then.
            let answer = forking::between_forks(|| {
                Python::try_attach(|py| {
                    if let Some(tell) = on_request.as_ref().filter(|_| is_requested) {
                        // It starts a thread; without one there is no answer.
                        let _ = tell.call0(py);
                    }
                    read.call0(py).and_then(|found| found.extract::<Vec<Read>>(py)).ok()
                })
            });
            answer.flatten().unwrap_or_default().into_iter().map(counters).collect()
        };
        let sampler = Sampler::start(Arc::clone(&self.recorder), pace, ask);
        let is_running = sampler.is_some();
        *self.sampler.lock().unwrap_or_else(PoisonError::into_inner) = sampler;
        Ok(is_running)
    }

    /// Stops the sampling thread.
    fn stop_sampling(&self, py: Python<'_>) {
        let sampler = self.sampler.lock().unwrap_or_else(PoisonError::into_inner).take();
        // The thread may be waiting for the GIL to read its last sample.
        py.detach(|| {
            if let Some(mut sampler) = sampler {
                sampler.stop();
            }
        });
    }

    /// Gives up the recorder in a forked child, without freeing anything. The threads of the parent do not exist here, and
    /// dropping one would touch its stack, which the child may have freed.
    fn abandon(&self) {
        if let Ok(mut sampler) = self.sampler.try_lock() {
            std::mem::forget(sampler.take());
        }
        std::mem::forget(Arc::clone(&self.recorder));
    }

    /// Stops the sampling thread, and waits a short time until everything is on disk.
    fn close(&self, py: Python<'_>) {
        self.stop_sampling(py);
        py.detach(|| self.recorder.close());
    }
}

impl Recorder {
    /// Writes a step that ends now, with the counters that the plan reads. Returns whether the peak has risen since
    /// `watch_peaks`; `None` if the plan is no longer valid, and nothing was written.
    fn write_step(&self, py: Python<'_>, plan: &Bound<'_, Plan>, mut step: Mark) -> PyResult<Option<bool>> {
        let Some(counters) = plan.get().read(py) else { return Ok(None) };
        (step.time, step.counters) = (Moment::now(), counters);
        self.recorder.mark(&step).map(Some).map_err(|error| failed(&error))
    }
}

/// Creates the folder of a recording. Returns its path, and whether it has another name because the requested one was taken.
#[pyfunction]
fn create_folder(path: PathBuf) -> PyResult<(PathBuf, bool)> {
    let created = folder::create(&path)?;
    Ok((created.path, created.is_renamed))
}

/// Returns the name of this process in the names of its files.
#[pyfunction]
fn process_name() -> PyResult<String> {
    Ok(ProcessId::of_running(std::process::id())?.to_string())
}

/// Returns the environment variables that a recording may contain.
#[pyfunction]
fn environment() -> BTreeMap<String, String> {
    vramline::recording::manifest::environment(variables())
}

fn variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.to_string_lossy().into_owned())))
}

/// Returns which part of which job this process is, as JSON. `framework` is what a connected framework knows: `jax` or
/// `torch-distributed`, the rank and the number of processes.
#[pyfunction]
#[pyo3(signature = (framework = None))]
fn identity_json(framework: Option<(String, u64, Option<u64>)>) -> PyResult<String> {
    let framework = framework.and_then(|(name, rank, world_size)| {
        Some(FrameworkRank { launcher: Launcher::of_word(&name)?, rank, world_size })
    });
    serde_json::to_string(&RankIdentity::of(&variables().collect(), framework))
        .map_err(|error| PyOSError::new_err(error.to_string()))
}

/// Returns the report on a path as JSON.
#[pyfunction]
fn report_json(py: Python<'_>, path: PathBuf) -> PyResult<String> {
    py.detach(|| {
        let reading = vramline::read(&path)
            .map_err(|error| PyOSError::new_err(format!("{error}\nhint: {}", error.hint())))?;
        serde_json::to_string(&Report::from(report(&reading, &ReportOptions::default())))
            .map_err(|error| PyOSError::new_err(error.to_string()))
    })
}

/// Returns the ledgers of a recording as JSON: one list of lines per moment (of the monotonic clock) and device.
#[pyfunction]
fn ledgers_json(py: Python<'_>, path: PathBuf, times: Vec<i64>) -> PyResult<String> {
    py.detach(|| {
        let reading = vramline::read(&path)
            .map_err(|error| PyOSError::new_err(format!("{error}\nhint: {}", error.hint())))?;
        let pools = report(&reading, &ReportOptions::default()).pools;
        let ledgers = Accounts::of(&reading, &pools).map_or(Vec::new(), |books| books.at_times(&times));
        let ledgers: Vec<_> = ledgers.into_iter().map(|ledger| ledger::rows(&[ledger])).collect();
        serde_json::to_string(&ledgers).map_err(|error| PyOSError::new_err(error.to_string()))
    })
}

/// Returns the ledger of a device now as JSON, from the figures of the driver and of the framework for this process.
#[pyfunction]
#[pyo3(signature = (device, total, reserved, free, process, why_process, pool, why_pool, current, why_current))]
#[expect(clippy::too_many_arguments, reason = "one per figure, with its reason")]
fn ledger_json(
    device: String,
    total: Option<u64>,
    reserved: Option<u64>,
    free: Option<u64>,
    process: Option<u64>,
    why_process: String,
    pool: Option<u64>,
    why_pool: String,
    current: Option<u64>,
    why_current: String,
) -> PyResult<String> {
    let told =
        |bytes: Option<u64>| bytes.map(|bytes| SourcedBytes { bytes: Bytes(bytes), by: Teller::Framework });
    let memory = total.zip(free).map(|(total, free)| DeviceFigures {
        total: Bytes(total),
        reserved: reserved.map(Bytes),
        free: Bytes(free),
    });
    let pool = PoolFigures {
        name: device.clone(),
        taken: told(pool),
        not_taken: why_pool,
        in_use: told(current),
        not_in_use: why_current,
        parts: None,
        segments: None,
    };
    let job = JobProcess {
        pid: std::process::id(),
        held: process.map(Bytes),
        not_held: why_process.clone(),
        pools: vec![pool],
        ..JobProcess::default()
    };
    let is_stand_in = device.starts_with("CPU");
    let facts =
        Facts { device, memory, no_memory: why_process, job: vec![job], is_stand_in, ..Facts::default() };
    let now = Nanos(Moment::monotonic_now());
    let ledger = DeviceLedger {
        host: Some(host_name()).filter(|host| !host.is_empty()),
        at: now,
        moment: LedgerMoment::Asked,
        told_at: process.map(|_| now),
        ledger: Ledger::of(&facts),
    };
    serde_json::to_string(&ledger::rows(&[ledger])).map_err(|error| PyOSError::new_err(error.to_string()))
}

/// Returns the comparison of runs, each with its repeats, as JSON.
#[pyfunction]
fn diff_json(py: Python<'_>, sides: Vec<Vec<PathBuf>>) -> PyResult<String> {
    py.detach(|| {
        let read = |path: &PathBuf| {
            let reading = vramline::read(path)
                .map_err(|error| PyOSError::new_err(format!("{error}\nhint: {}", error.hint())))?;
            Ok(report(&reading, &ReportOptions::default()))
        };
        let side = |(name, paths): (String, &Vec<PathBuf>)| {
            let reports = paths.iter().map(read).collect::<PyResult<Vec<_>>>()?;
            Ok(RunSide { name, reports })
        };
        let named = names(&sides).into_iter().zip(&sides);
        let compared = named.map(side).collect::<PyResult<Vec<_>>>()?;
        serde_json::to_string(&Diff::from(&diff(&compared, &DiffOptions::default())))
            .map_err(|error| PyOSError::new_err(error.to_string()))
    })
}

/// Returns the columns of a stream, and the number of bytes of an incomplete message at its end. A column of integers is its
/// bytes and a mask of nulls; a column of text is a list.
#[pyfunction]
fn read_stream<'py>(py: Python<'py>, path: PathBuf) -> PyResult<(Bound<'py, PyDict>, u64)> {
    let table = py.detach(|| stream::read(&path)).map_err(|error| failed(&error))?;
    let columns = PyDict::new(py);
    for (name, is_text) in table.columns() {
        if is_text {
            columns.set_item(&name, PyList::new(py, table.texts(&name))?)?;
            continue;
        }
        let values = table.ints(&name);
        let numbers: Vec<u8> = values.iter().flat_map(|value| value.unwrap_or(0).to_ne_bytes()).collect();
        let nulls: Vec<u8> = values.iter().map(|value| u8::from(value.is_none())).collect();
        columns.set_item(&name, (PyBytes::new(py, &numbers), PyBytes::new(py, &nulls)))?;
    }
    Ok((columns, table.torn_bytes))
}

/// Converts a size such as `8GiB` to bytes.
#[pyfunction]
fn parse_size(text: &str) -> PyResult<u64> {
    let size = text.parse::<Bytes>().map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(size.0)
}

/// Returns whether a path is a recording.
#[pyfunction]
fn is_recording(path: PathBuf) -> bool {
    reader::is_recording(&path)
}

/// Returns the host memory that this process holds; `None` if it is unknown.
#[pyfunction]
fn resident_bytes() -> Option<i64> {
    vramline::recording::sampler::resident_bytes()
}

#[pymodule]
fn _vramline(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("SCHEMA", vramline::recording::schema::VERSION)?;
    let words = |words: Vec<&str>| PyTuple::new(module.py(), words);
    let kinds = RecordedMarkKind::known().iter().map(RecordedMarkKind::word).collect();
    module.add("MARK_KINDS", words(kinds)?)?;
    module.add("PHASES", words(Phase::ALL.map(Phase::word).to_vec())?)?;
    module.add("HOWS", words(How::ALL.map(How::word).to_vec())?)?;
    module.add("ROLES", words(Role::ALL.map(Role::word).to_vec())?)?;
    module.add("TRACE_STATES", words(TraceState::ALL.map(TraceState::word).to_vec())?)?;
    module.add("WINDOW_REASONS", words(WindowReason::ALL.map(WindowReason::word).to_vec())?)?;
    module.add_class::<Recorder>()?;
    module.add_class::<Plan>()?;
    module.add_class::<Steps>()?;
    module.add_class::<Step>()?;
    module.add_class::<PlanDocument>()?;
    module.add_class::<PlannedBatch>()?;
    module.add_class::<watched::Watched>()?;
    module.add_function(wrap_pyfunction!(parse_size, module)?)?;
    module.add_function(wrap_pyfunction!(is_recording, module)?)?;
    module.add_function(wrap_pyfunction!(create_folder, module)?)?;
    module.add_function(wrap_pyfunction!(process_name, module)?)?;
    module.add_function(wrap_pyfunction!(environment, module)?)?;
    module.add_function(wrap_pyfunction!(identity_json, module)?)?;
    module.add_function(wrap_pyfunction!(report_json, module)?)?;
    module.add_function(wrap_pyfunction!(diff_json, module)?)?;
    module.add_function(wrap_pyfunction!(ledgers_json, module)?)?;
    module.add_function(wrap_pyfunction!(ledger_json, module)?)?;
    module.add_function(wrap_pyfunction!(read_stream, module)?)?;
    module.add_function(wrap_pyfunction!(resident_bytes, module)?)?;
    module.add_function(wrap_pyfunction!(dataset::dataset_schema, module)?)?;
    module.add_function(wrap_pyfunction!(dataset::dataset_queries, module)?)?;
    module.add_function(wrap_pyfunction!(dataset::dataset_rows, module)?)?;
    module.add_function(wrap_pyfunction!(driver::driver_json, module)?)?;
    module.add_function(wrap_pyfunction!(driver::driver_visible, module)?)?;
    module.add_function(wrap_pyfunction!(driver::driver_memory, module)?)?;
    module.add_function(wrap_pyfunction!(driver::host_memory, module)?)?;
    module.add_function(wrap_pyfunction!(terminate::before_terminate, module)?)?;
    module.add_function(wrap_pyfunction!(forking::before_fork, module)?)?;
    module.add_function(wrap_pyfunction!(forking::after_fork, module)?)?;
    Ok(())
}
