"""The arguments of JAX's compiled programs: what the hook notes, and that the program does not notice it."""

import gc
import sys
import types
import weakref

import pytest

from vramline.attach import jax as hooks


class Steps:
    """What the hooks know of a recording: an open window, and the rows that were written."""

    def __init__(self):
        self.window = types.SimpleNamespace(is_open=True)
        self.rows = []
        self.job = types.SimpleNamespace(owners=self.rows.extend)

    def noted(self):
        """The program, the parameter's number and the address of each row."""
        return [(name, variable[1], address) for _, name, _, _, _, variable, _, _, _, _, address, _ in self.rows]


class Array:
    """An array on some devices."""

    def __init__(self, *addresses, deleted=False, fails=False):
        self.addresses, self.deleted, self.fails = addresses, deleted, fails

    def is_deleted(self):
        return self.deleted

    def devices(self):
        return set(self.addresses)

    def unsafe_buffer_pointer(self):
        if self.fails:
            raise RuntimeError("no buffer")
        assert len(self.addresses) == 1
        return self.addresses[0]

    @property
    def addressable_shards(self):
        return [types.SimpleNamespace(data=Array(address)) for address in self.addresses]


@pytest.fixture
def program_class(monkeypatch):
    """JAX's class of programs that run from Python, in a module of its name."""

    class ExecuteReplicated:
        def __init__(self, name, kept, platform="gpu", effects=()):
            device = types.SimpleNamespace(platform=platform)
            self.xla_executable = types.SimpleNamespace(local_devices=lambda: [device])
            self.name, self.kept_var_idx, self.ordered_effects = name, kept, list(effects)

        def __call__(self, *args):
            if "raise" in args:
                raise ValueError("the program's own")
            return ["result", len(args)]

    module = types.ModuleType("jax._src.interpreters.pxla")
    module.ExecuteReplicated = ExecuteReplicated
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return ExecuteReplicated


@pytest.fixture
def steps(program_class):
    steps = Steps()
    hooks._hook_arguments(steps)
    return steps


def test_addresses_are_noted_by_the_numbers_of_parameters(program_class, steps):
    program = program_class("jit(step)", {0, 2, 3, 4})
    assert program(Array(256), Array(512), Array(768, 1024), 3.5, Array(1280, deleted=True)) == ["result", 5]
    # The second argument is not used by the program; a number and a deleted array have no address.
    assert steps.noted() == [("jit(step)", 0, 256), ("jit(step)", 1, 768), ("jit(step)", 1, 1024)]
    assert all(row[0] == "argument" for row in steps.rows)


def test_tokens_come_before_the_arguments(program_class, steps):
    program_class("jit(step)", {0}, effects=["print"])(Array(256))
    assert steps.noted() == [("jit(step)", 1, 256)]


def test_a_key_is_noted_by_the_array_in_it(program_class, steps):
    program_class("jit(draw)", {0})(types.SimpleNamespace(_base_array=Array(256)))
    assert steps.noted() == [("jit(draw)", 0, 256)]


def test_only_the_first_calls_of_an_open_window_are_noted(program_class, steps):
    program = program_class("jit(step)", {0})
    for address in range(256, 2560, 256):
        program(Array(address))
    assert [address for _, _, address in steps.noted()] == [256, 512]
    steps.window.is_open = False
    program_class("jit(step)", {0})(Array(256))
    assert len(steps.rows) == 2


def test_memory_without_a_pool_is_not_noted(program_class, steps):
    program_class("jit(step)", {0}, platform="cpu")(Array(256))
    assert steps.rows == []


def test_nothing_reaches_the_program(program_class, steps):
    program = program_class("jit(step)", {0})
    assert program(Array(256, fails=True)) == ["result", 1]
    steps.job.owners = None
    assert program(Array(256)) == ["result", 1]
    with pytest.raises(ValueError, match="the program's own"):
        program("raise")
    assert program.__call__.__name__ == "__call__"


def test_no_array_is_kept(program_class, steps):
    array = Array(256)
    reference = weakref.ref(array)
    program_class("jit(step)", {0})(array)
    del array
    gc.collect()
    assert reference() is None and len(steps.rows) == 1


def test_a_version_without_the_class_is_left_alone(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax._src.interpreters.pxla", types.ModuleType("pxla"))
    hooks._hook_arguments(Steps())
    monkeypatch.delitem(sys.modules, "jax._src.interpreters.pxla")
    hooks._hook_arguments(Steps())


def test_jax_itself_runs_a_program_from_python_once(monkeypatch):
    jax = pytest.importorskip("jax")
    from jax._src.interpreters import pxla

    monkeypatch.setattr(pxla.ExecuteReplicated, "__call__", pxla.ExecuteReplicated.__call__)
    monkeypatch.setattr(hooks, "_WITHOUT_POOL", frozenset())
    steps = Steps()
    hooks._hook_arguments(steps)

    def step(params, unused, batch):
        return {name: value - batch.sum() for name, value in params.items()}

    compiled = jax.jit(step, donate_argnums=0)
    params = {"w": jax.numpy.ones((256, 256)), "b": jax.numpy.zeros(256)}
    unused, batch = jax.numpy.ones(2), jax.numpy.ones(512)
    steps.rows.clear()
    passed = [array.unsafe_buffer_pointer() for array in (params["b"], params["w"], batch)]
    params = compiled(params, unused, batch)
    assert steps.noted() == [("jit(step)", number, address) for number, address in enumerate(passed)]
    for _ in range(3):
        params = compiled(params, unused, batch)
    assert len({address for _, _, address in steps.noted()}) <= 6 and float(params["b"][0]) == -2048.0
    assert len(steps.rows) <= 2 * 3
