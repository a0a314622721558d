"""A trace of a block of code in this process, by the profiler of the framework that it uses."""

from __future__ import annotations

import pathlib
import pickle
import sys
from typing import Any

from vramline.frameworks import counters

_MOST_EVENTS = 500_000


class CannotTrace(RuntimeError):
    """Raised if nothing can be traced here. The message says why."""


class Trace:
    """A trace of everything between its start and `stop`. Only one profiler can run in a process."""

    def __init__(self, folder: pathlib.Path) -> None:
        self._folder = folder
        used = [adapter.NAME for adapter in counters.adapters()]
        # TensorFlow can be traced from its import on.
        self.framework = next((name for name in ("tensorflow", "torch", "jax") if name in used or (name == "tensorflow" and name in sys.modules)), "")
        start = {"tensorflow": self._tensorflow, "torch": self._torch, "jax": self._jax}.get(self.framework)
        if start is None:
            raise CannotTrace("no framework has used a device yet: import it and make a first tensor in an earlier cell")
        try:
            self._session: Any = start()
        except Exception as error:
            raise CannotTrace(f"the profiler did not start: {error}") from error

    def _tensorflow(self) -> Any:
        from tensorflow.python.profiler.internal import _pywrap_profiler as profiler

        session = profiler.ProfilerSession()
        session.start(str(self._folder), {"host_tracer_level": 2, "python_tracer_level": 0, "device_tracer_level": 0})
        return session

    def _torch(self) -> Any:
        memory = sys.modules["torch"].cuda.memory
        memory._record_memory_history(enabled="all", context="alloc", stacks="python", max_entries=_MOST_EVENTS)
        return memory

    def _jax(self) -> Any:
        from jax._src.lib import _profiler

        options = _profiler.ProfileOptions()
        options.host_tracer_level = 2
        options.python_tracer_level = 0
        return _profiler.ProfilerSession(options)

    def stop(self) -> pathlib.Path:
        """Ends the trace and writes it. Returns a path that `vramline report` reads."""
        if self.framework == "tensorflow":
            self._session.export_to_tb()
            return self._folder
        if self.framework == "jax":
            file = self._folder / "cell.xplane.pb"
            file.write_bytes(self._session.stop())
            return file
        file = self._folder / "cell.pickle"
        with file.open("wb") as stream:
            pickle.dump(self._session._snapshot(), stream)
        self._session._record_memory_history(enabled=None)
        return file
