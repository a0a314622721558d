"""Found by every Python process of a job that `vramline run` started; waits for a framework and then attaches.

It costs a program without a framework next to nothing, leaves `sys.path` as it would be, runs the user's own `sitecustomize`,
and whatever goes wrong here goes no further.
"""

import os
import sys


def _find_own():
    """The user's own sitecustomize, further down the path."""
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
        # What Python would say of it is for Python to say, and as if we were not here.
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
            # Attaching has put a finder in front; this import has passed that place already.
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
    """Our package from beside this file, whatever the program's environment holds: launcher and package are of one version."""
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
# The variable stays for the children; this program's own path is as it would be.
sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry or ".") != _HERE]
if os.environ.get("VRAMLINE_RECORD") and sys.version_info >= (3, 10):
    sys.meta_path.insert(0, _Waiting())
_chain(sys.modules.get("sitecustomize"))
