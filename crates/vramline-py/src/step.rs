//! `with rec.step(number):` without Python code of ours in the usual case; [`crate::plan`] explains why.
//!
//! The subclass in Python handles the other cases: a line to print, the first mark, a plan that is no longer valid.

use pyo3::intern;
use pyo3::prelude::*;
use vramline::event::{How, Phase};
use vramline::recording::rows::{Mark, Moment, RecordedMarkKind};

use crate::Recorder;
use crate::plan::Plan;

/// Base class of `vramline.Recording`: counts steps and writes them.
#[pyclass(module = "_vramline", subclass)]
pub(crate) struct Steps {
    /// The session, whose attribute `_recorder` is the recorder of this process.
    #[pyo3(get)]
    _session: Option<Py<PyAny>>,
    /// The module whose attribute `plan` is the plan.
    counters: Option<Py<PyAny>>,
    phase: Phase,
    resets: bool,
    /// Whether a step only writes a mark, so that Rust handles it alone.
    is_plain: bool,
    #[pyo3(get, set)]
    _count: i64,
    /// The number of the current step, or of the one that an exception ended last.
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

    /// Sets what `__init__` of the subclass knows.
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

    /// Measures one step of a loop: `with rec.step(number): ...`.
    ///
    /// The step has its own peak, unless `step_peaks=False`. Without a number, steps are counted from 0.
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

    /// Writes the step that ends now; `None` if the subclass in Python has to.
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

/// One step of a loop, measured from the beginning to the end of its `with` block. An exception inside does not change that.
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
        kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let steps = self.steps.bind(py);
        // No mutable borrow while the framework is called, because it may release the GIL and let other threads run.
        if steps.borrow().end(py, self.number, self.begin).is_none() {
            steps.call_method1(intern!(py, "_end_step"), (self.number, self.begin))?;
        }
        let mut steps = steps.borrow_mut();
        steps._now = (!kind.is_none()).then(|| self.number.unwrap_or(steps._count));
        steps._count += 1;
        Ok(())
    }
}
