//! A function of somebody else's that is looked at while it runs.
//!
//! Written here because TensorFlow shows users the last frame of a traceback: a frame of Python's in between would take its place.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use vramline::recording::rows::Moment;

/// Calls a function, and afterwards another with when the first began and what it was given.
#[pyclass(module = "_vramline", frozen)]
pub(crate) struct Watched {
    call: Py<PyAny>,
    after: Py<PyAny>,
}

#[pymethods]
impl Watched {
    #[new]
    fn new(call: Py<PyAny>, after: Py<PyAny>) -> Watched {
        Watched { call, after }
    }

    #[pyo3(signature = (*args, **kwargs))]
    fn __call__(
        &self,
        py: Python<'_>,
        args: &Bound<'_, PyTuple>,
        kwargs: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Py<PyAny>> {
        let begin = Moment::monotonic_now();
        let result = self.call.call(py, args, kwargs);
        // Whatever goes wrong with looking is not the caller's.
        let _ = self.after.call1(py, (begin, args));
        result
    }
}
