//! Reads a framework's counters with one call per device and without lookups.
//!
//! The training between two steps evicts this code from the CPU's caches, and a Python frame costs microseconds then. So no
//! Python code of ours runs between the end of a step and its mark. The adapter (`frameworks/tensorflow.py`,
//! `frameworks/torch.py`) provides the calls.

use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString, PyTuple};
use vramline::recording::rows::{Counters, Moment};

/// The number of reads before the frameworks are checked again: the program may have started to use another one.
const READS_PER_PLAN: u32 = 100;

/// A prepared way to read and reset the counters of a program that uses one framework.
#[pyclass(module = "_vramline", frozen)]
pub(crate) struct Plan {
    /// The plan is valid while this object has this value in this attribute.
    guard: (Py<PyAny>, Py<PyString>, Py<PyAny>),
    /// Returns the figures of a device as dicts.
    ask: Py<PyAny>,
    /// Resets the peak of a device.
    forget: Py<PyAny>,
    devices: Vec<Device>,
    figures: Figures,
    /// By device: when Vramline last reset its peak.
    resets: Py<PyDict>,
    left: AtomicU32,
}

struct Device {
    name: String,
    /// The same as an object, which is a key of `resets`.
    key: Py<PyString>,
    /// The arguments of `ask` and `forget`.
    arguments: Py<PyTuple>,
}

/// Where the figures of a device lie in what the framework returns: the keys, from the outermost dict inwards.
struct Figures {
    current: Vec<Py<PyString>>,
    peak: Vec<Py<PyString>>,
    /// None if the framework does not report the size of its pool.
    pool: Option<Vec<Py<PyString>>>,
}

fn figure(told: &Bound<'_, PyAny>, keys: &[Py<PyString>]) -> PyResult<i64> {
    let mut at = told.clone();
    for key in keys {
        at = at.get_item(key)?;
    }
    at.extract()
}

#[pymethods]
impl Plan {
    #[new]
    #[pyo3(signature = (guard, ask, forget, devices, resets, current, peak, pool = None))]
    #[expect(clippy::too_many_arguments, reason = "one per part of the calls")]
    fn new(
        py: Python<'_>,
        guard: (Py<PyAny>, Py<PyString>, Py<PyAny>),
        ask: Py<PyAny>,
        forget: Py<PyAny>,
        devices: Vec<(String, Py<PyTuple>)>,
        resets: Py<PyDict>,
        current: Vec<Py<PyString>>,
        peak: Vec<Py<PyString>>,
        pool: Option<Vec<Py<PyString>>>,
    ) -> Plan {
        let device = |(name, arguments): (String, Py<PyTuple>)| Device {
            key: PyString::new(py, &name).unbind(),
            name,
            arguments,
        };
        let devices = devices.into_iter().map(device).collect();
        let figures = Figures { current, peak, pool };
        Plan { guard, ask, forget, devices, figures, resets, left: AtomicU32::new(READS_PER_PLAN) }
    }

    /// Returns the counters of every device as tuples; None if the plan is no longer valid or the framework raises.
    #[pyo3(name = "read")]
    fn read_tuples(&self, py: Python<'_>) -> Option<Vec<crate::Read>> {
        let tuple = |counters: Counters| {
            let Counters { device, current, peak, peak_since, pool, limit, reason } = counters;
            (device, current, peak, peak_since, pool, limit, reason)
        };
        Some(self.read(py)?.into_iter().map(tuple).collect())
    }

    /// Resets the peak of every device. Returns False if the plan is no longer valid or the framework raises.
    pub(crate) fn reset(&self, py: Python<'_>) -> bool {
        self.holds(py)
            && self.devices.iter().all(|device| {
                let forgotten = self.forget.bind(py).call1(device.arguments.bind(py));
                forgotten.is_ok()
                    && self.resets.bind(py).set_item(&device.key, Moment::monotonic_now()).is_ok()
            })
    }
}

impl Plan {
    fn holds(&self, py: Python<'_>) -> bool {
        let (object, name, value) = &self.guard;
        object.bind(py).getattr(name).is_ok_and(|now| now.is(value))
    }

    /// Returns the counters of every device; `None` if the plan is no longer valid, has no reads left, or the framework raises.
    pub(crate) fn read(&self, py: Python<'_>) -> Option<Vec<Counters>> {
        let used = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
        if used.is_err() || !self.holds(py) {
            return None;
        }
        let resets = self.resets.bind(py);
        let ask = |device: &Device| -> PyResult<Counters> {
            let told = self.ask.bind(py).call1(device.arguments.bind(py))?;
            let since = resets.get_item(&device.key)?.map(|since| since.extract::<i64>()).transpose()?;
            Ok(Counters {
                device: device.name.clone(),
                current: Some(figure(&told, &self.figures.current)?),
                peak: Some(figure(&told, &self.figures.peak)?),
                peak_since: since,
                pool: self.figures.pool.as_ref().map(|keys| figure(&told, keys)).transpose()?,
                limit: None,
                reason: None,
            })
        };
        self.devices.iter().map(ask).collect::<PyResult<_>>().ok()
    }
}
