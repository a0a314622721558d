//! A wrapper around a function of a framework, without a Python frame.
//!
//! TensorFlow shows users the last frame of a traceback; a wrapper in Python would take the place of the user's own frame.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use vramline::recording::rows::Moment;

/// Calls a function, then another one with the time when the call began, its arguments and its result; None if it failed.
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
        // An error in the second function must not reach the caller.
        let _ = self.after.call1(py, (begin, args, result.as_ref().ok()));
        result
    }
}
