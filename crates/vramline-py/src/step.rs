//! `with rec.step(number):` without a frame of Python on the usual way; see [`crate::plan`] for why.
//!
//! What is unusual (a line to print, a first mark, a plan that no longer holds) goes to the subclass in Python.

use pyo3::intern;
use pyo3::prelude::*;
use vramline::event::{How, Phase};
use vramline::recording::rows::{Mark, Moment, RecordedMarkKind};

use crate::Recorder;
use crate::plan::Plan;

/// What `vramline.recorder.Recording` is made of: counts steps and writes them.
#[pyclass(module = "_vramline", subclass)]
pub(crate) struct Steps {
    /// Has the recorder of this process under `_recorder`.
    #[pyo3(get)]
    _session: Option<Py<PyAny>>,
    /// The module that has the plan under `plan`.
    counters: Option<Py<PyAny>>,
    phase: Phase,
    resets: bool,
    /// Whether nothing but a mark is to be made of a step.
    is_plain: bool,
    #[pyo3(get, set)]
    _count: i64,
    /// The number of the step that is going on.
    #[pyo3(get, set)]
    _now: Option<i64>,
}

#[pymethods]
impl Steps {
    #[new]
    #[pyo3(signature = (*_args, **_options))]
    fn new(_args: &Bound<'_, PyAny>, _options: Option<&Bound<'_, PyAny>>) -> Steps {
        Steps {
            _session: None,
            counters: None,
            phase: Phase::Other,
            resets: false,
            is_plain: false,
            _count: 0,
            _now: None,
        }
    }

    /// What `__init__` knows.
    fn _prepare(
        &mut self,
        session: Py<PyAny>,
        counters: Py<PyAny>,
        phase: &str,
        resets: bool,
        is_plain: bool,
    ) {
        (self._session, self.counters) = (Some(session), Some(counters));
        (self.phase, self.resets, self.is_plain) =
            (Phase::of_word(phase).unwrap_or(Phase::Other), resets, is_plain);
    }

    /// Measures one step: `with rec.step(step): ...`. Its peak is its own: the framework's peak is reset at its beginning.
    #[pyo3(signature = (number = None))]
    fn step(slf: Bound<'_, Self>, number: Option<i64>) -> Step {
        Step { steps: slf.unbind(), number, begin: 0 }
    }
}

impl Steps {
    fn plan<'py>(&self, py: Python<'py>) -> Option<Bound<'py, Plan>> {
        let plan = self.counters.as_ref()?.bind(py).getattr(intern!(py, "plan")).ok()?;
        plan.cast_into::<Plan>().ok()
    }

    /// Writes the step that ends now; false where Python has to.
    fn end(&self, py: Python<'_>, number: Option<i64>, begin: i64) -> Option<()> {
        if !self.is_plain {
            return None;
        }
        let session = self._session.as_ref()?.bind(py);
        let recorder = session.getattr(intern!(py, "_recorder")).ok()?.cast_into::<Recorder>().ok()?;
        let plan = self.plan(py)?;
        let step = Mark {
            kind: RecordedMarkKind::Step,
            phase: Some(self.phase),
            how: Some(How::Api),
            step: Some(number.unwrap_or(self._count)),
            batches: Some(1),
            begin: Some(begin),
            ..Mark::default()
        };
        match recorder.get().write_step(py, &plan, step) {
            Ok(written) => written.map(drop),
            Err(error) => session.call_method1(intern!(py, "failed"), (error.into_value(py),)).ok().map(drop),
        }
    }
}

/// One step: measured from entering to leaving it. An exception inside is the program's; the step is written all the same.
#[pyclass(module = "_vramline")]
pub(crate) struct Step {
    steps: Py<Steps>,
    number: Option<i64>,
    begin: i64,
}

#[pymethods]
impl Step {
    fn __enter__<'py>(mut slf: PyRefMut<'py, Self>, py: Python<'py>) -> PyResult<PyRefMut<'py, Self>> {
        let number = slf.number;
        let steps = slf.steps.bind(py).clone();
        let plan = {
            let mut steps = steps.borrow_mut();
            steps._now = number;
            if steps.resets { Some(steps.plan(py)) } else { None }
        };
        if let Some(plan) = plan
            && !plan.is_some_and(|plan| plan.get().reset(py))
        {
            steps.call_method0(intern!(py, "_reset"))?;
        }
        slf.begin = Moment::monotonic_now();
        Ok(slf)
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let steps = self.steps.bind(py);
        // Not borrowed for writing while the framework is asked: it may let other threads run.
        if steps.borrow().end(py, self.number, self.begin).is_none() {
            steps.call_method1(intern!(py, "_end_step"), (self.number, self.begin))?;
        }
        let mut steps = steps.borrow_mut();
        steps._count += 1;
        steps._now = None;
        Ok(())
    }
}
