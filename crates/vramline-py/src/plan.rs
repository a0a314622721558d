//! Reads a framework's counters with one call per device and without lookups.
//!
//! The training between two steps evicts this code from the CPU's caches, and a Python frame costs microseconds then. So no
//! Python code of ours runs between the end of a step and its mark. The adapter (`vramline.tensorflow`) provides the calls.

use std::sync::atomic::{AtomicU32, Ordering};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use vramline::recording::rows::{Counters, Moment};

/// The number of reads before the frameworks are checked again: the program may have started to use another one.
const READS_PER_PLAN: u32 = 100;

/// A prepared way to read and reset the counters of a program that uses one framework.
#[pyclass(module = "_vramline", frozen)]
pub(crate) struct Plan {
    /// The plan is valid while this object has this value in this attribute.
    guard: (Py<PyAny>, Py<PyString>, Py<PyAny>),
    /// Returns the figures of a device: `ask(value, device)["current"]` and `["peak"]`.
    ask: Py<PyAny>,
    /// Resets the peak of a device: `forget(value, device)`.
    forget: Py<PyAny>,
    devices: Vec<(Py<PyString>, String)>,
    /// By device: when Vramline last reset its peak.
    resets: Py<PyDict>,
    left: AtomicU32,
}

#[pymethods]
impl Plan {
    #[new]
    fn new(
        py: Python<'_>,
        guard: (Py<PyAny>, Py<PyString>, Py<PyAny>),
        ask: Py<PyAny>,
        forget: Py<PyAny>,
        devices: Vec<String>,
        resets: Py<PyDict>,
    ) -> Plan {
        let devices =
            devices.into_iter().map(|device| (PyString::new(py, &device).unbind(), device)).collect();
        Plan { guard, ask, forget, devices, resets, left: AtomicU32::new(READS_PER_PLAN) }
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
            && self.devices.iter().all(|(name, _)| {
                let forgotten = self.forget.bind(py).call1((&self.guard.2, name));
                forgotten.is_ok() && self.resets.bind(py).set_item(name, Moment::monotonic_now()).is_ok()
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
        let ask = |(name, device): &(Py<PyString>, String)| -> PyResult<Counters> {
            let told = self.ask.bind(py).call1((&self.guard.2, name))?;
            let since = resets.get_item(name)?.map(|since| since.extract::<i64>()).transpose()?;
            Ok(Counters {
                device: device.clone(),
                current: Some(told.get_item(intern!(py, "current"))?.extract()?),
                peak: Some(told.get_item(intern!(py, "peak"))?.extract()?),
                peak_since: since,
                pool: None,
                limit: None,
                reason: None,
            })
        };
        self.devices.iter().map(ask).collect::<PyResult<_>>().ok()
    }
}
