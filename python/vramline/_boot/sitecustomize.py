"""Runs at the start of every Python process of a job under `vramline run`, and attaches when the process imports a framework.

A program without a framework pays next to nothing. `sys.path` stays as it would be, the user's own `sitecustomize` runs, and an error
here does not reach the program.
"""

import os
import sys


def _find_own():
    """Finds the user's own sitecustomize, further down the path."""
    from importlib.machinery import PathFinder

    return PathFinder.find_spec("sitecustomize", sys.path)


def _chain(ours):
    spec = _find_own()
    if spec is None or spec.loader is None:
        return
    from importlib.util import module_from_spec

    own = module_from_spec(spec)
    sys.modules["sitecustomize"] = own
    try:
        spec.loader.exec_module(own)
    except BaseException:
        # Let Python report the error of the user's module, as it would without us.
        sys.modules["sitecustomize"] = ours
        raise


class _Waiting:
    """Attaches when one of the frameworks is about to be imported."""

    names = frozenset({"tensorflow", "keras", "tf_keras", "jax", "torch"})

    def find_spec(self, name, path=None, target=None):
        if name in self.names:
            if self in sys.meta_path:
                sys.meta_path.remove(self)
            _attach()
            # Attaching inserted a finder at the front, which this import has passed already: search again from the front.
            for finder in sys.meta_path:
                find = getattr(finder, "find_spec", None)
                spec = find(name, path, target) if find else None
                if spec is not None:
                    return spec
        return None


def _attach():
    try:
        _load_package()
        from vramline import attach

        attach.begin()
    except Exception as error:
        print(f"vramline: this process is not recorded: {error}", file=sys.stderr)


def _load_package():
    """Loads our package from next to this file, even if the program's environment has another one: it fits the launcher's version."""
    if "vramline" in sys.modules:
        return
    from importlib.util import module_from_spec, spec_from_file_location

    home = os.path.dirname(_HERE)
    where = os.path.join(home, "__init__.py")
    spec = spec_from_file_location("vramline", where, submodule_search_locations=[home])
    module = module_from_spec(spec)
    sys.modules["vramline"] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules["vramline"]
        raise


_HERE = os.path.dirname(os.path.abspath(__file__))
# PYTHONPATH keeps this folder for child processes; the path of this program is restored.
sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]
if os.environ.get("VRAMLINE_RECORD") and sys.version_info >= (3, 10):
    sys.meta_path.insert(0, _Waiting())
_chain(sys.modules.get("sitecustomize"))
