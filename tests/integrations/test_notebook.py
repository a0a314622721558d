"""Real notebooks, run by a real kernel: tables, the magics, and what a traceback keeps. Not in the everyday suite: Jupyter's packages are many."""

import html
import json
import re

import nbclient
import nbformat
import pytest

NO_GPU = 'import os; os.environ.update(CUDA_VISIBLE_DEVICES="-1", TF_CPP_MIN_LOG_LEVEL="3", TF_CPU_ALLOCATOR_USE_BFC="1", JAX_PLATFORMS="cpu")'
MIB = 1 << 20
# Fails in an inner function, with tensors in the variables of both.
FAILS = """
def outer(given):
    large = make(given)
    inner(large)

def inner(passed):
    small = half(passed)
    raise ValueError("no")
"""


class Executed:
    """A notebook after it ran: for each cell its texts, its HTML and what it printed."""

    def __init__(self, *cells):
        made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in (NO_GPU + "\n%load_ext vramline", *cells)])
        nbclient.NotebookClient(made, timeout=300, kernel_name="python3", allow_errors=True).execute()
        nbformat.validate(made)
        self._cells = {cell.source: cell.outputs for cell in made.cells}
        self.notebook = made

    def _data(self, begin, kind):
        (outputs,) = (outputs for source, outputs in self._cells.items() if source.startswith(begin))
        return [output.data.get(kind, "") for output in outputs if "data" in output]

    def texts(self, begin):
        return self._data(begin, "text/plain")

    def html(self, begin):
        return self._data(begin, "text/html")

    def raised(self, begin):
        (outputs,) = (outputs for source, outputs in self._cells.items() if source.startswith(begin))
        return [output.ename for output in outputs if output.output_type == "error"]

    def printed(self, begin):
        (outputs,) = (outputs for source, outputs in self._cells.items() if source.startswith(begin))
        return "".join(output.text for output in outputs if output.output_type == "stream" and output.name == "stdout")

    def told(self, begin):
        return json.loads(self.printed(begin).splitlines()[-1])


def test_a_run_is_shown_as_a_table_and_a_page(recording):
    ran = Executed(f"import vramline\nvramline.load({str(recording)!r})", f"%vramline page {recording} --height 500", "%vramline page nowhere.vram")
    (table,) = ran.html("import vramline")
    # The peak of the run, which fixtures/README.md tells.
    assert "<table" in table and "79.7 MiB" in table
    (frame,) = ran.html("%vramline page /")
    # Nothing of the notebook is in the reach of the page, and the page needs nothing of the network.
    assert re.match(r'<div><iframe srcdoc="[^"]+" sandbox="allow-scripts" title="[^"]+" style="[^"]*height:500px[^"]*"></iframe></div>$', frame)
    page = html.unescape(re.search('srcdoc="([^"]+)"', frame)[1])
    assert page.startswith("<!doctype html>") and "default-src 'none'" in page and "79.7 MiB" in page
    assert not ran.html("%vramline page nowhere") and not ran.raised("%vramline page nowhere")


@pytest.fixture(scope="module")
def tensorflow():
    read = 'tf.config.experimental.get_memory_info("CPU:0")'
    return Executed(
        "import json, sys, traceback\nimport tensorflow as tf",
        "%%vramline --save first\nx = tf.ones((1024, 1024))\nread = " + read,
        "print(json.dumps([first.devices[0].before, first.devices[0].after, first.devices[0].peak, read]))",
        "%%vramline --label second --save second\ny = x + 1\nz = tf.concat([y, y], 0)\ndel y\nz.shape[0]",
        f"read = {read}\nprint(json.dumps([second.devices[0].before, second.devices[0].after, second.devices[0].peak, read]))",
        "alias = x\n%vramline held",
        "def make(a): return tf.concat([a, a, a, a], 0)\ndef half(a): return a[:2048] * 2\n" + FAILS,
        "%%vramline --label fails\nouter(x)",
        f"held = {read}['current']",
        "%vramline free # first",
        f"print(json.dumps([held - {read}['current'], x.shape[0]]))",
        "outer(x) # unmeasured",
        f"held = {read}['current']\ntraceback.clear_frames(sys.last_traceback)\nprint(json.dumps(held - {read}['current']))",
        "try:\n    outer(x) # chained\nexcept ValueError as error:\n    raise RuntimeError('other') from error",
        f"held = {read}['current']\ntraceback.clear_frames(sys.last_traceback)\nmiddle = {read}['current']",
        "%vramline free # second",
        f"print(json.dumps([held - middle, middle - {read}['current']]))",
        "model = tf.keras.Sequential([tf.keras.layers.Input((1024,)), tf.keras.layers.Dense(1024)])\nmodel.compile('adam', 'mse')",
        "%%vramline --trace --page --label fit --save fit\nmodel.fit(x, x, batch_size=512, verbose=0);",
        f"read = {read}\nprint(json.dumps([fit.devices[0].after, sum(w.numpy().nbytes for w in model.variables + model.optimizer.variables)"
        ", {holder.name: holder.bytes for holder in fit.devices[0].held.holders}, read]))",
        "%vramline top",
        "%%vramline\nawait nothing()",
        "1 + 1 # the last",
    )


def test_a_cell_has_the_figures_of_tensorflow(tensorflow):
    before, after, peak, read = tensorflow.told("print(json.dumps([first")
    # The framework began in this cell.
    assert (before, after, peak) == (0, read["current"], read["peak"]) and after >= 4 * MIB
    before, after, peak, read = tensorflow.told("read = tf.config.experimental.get_memory_info(\"CPU:0\")\nprint(json.dumps([second")
    assert (after, peak) == (read["current"], read["peak"])
    assert after - before >= 8 * MIB and peak - before >= 12 * MIB
    figures, value = tensorflow.texts("%%vramline --label second")
    assert f"({peak:,} bytes)" in figures and re.search(r"z +EagerTensor float32\[2048,1024\] +8 MiB +\+8 MiB +8 MiB", figures)
    # The value of the last line is the value of the cell.
    assert value == "2048"


def test_a_block_with_two_names_is_counted_once(tensorflow):
    (shown,) = tensorflow.texts("alias = x")
    # Deleting one of them frees nothing.
    assert re.search(r"x +EagerTensor float32\[1024,1024\] +4 MiB +0 B", shown)
    assert re.search(r"alias +EagerTensor float32\[1024,1024\] +0 B +0 B", shown)


def test_what_a_traceback_keeps_is_told_and_freed(tensorflow):
    figures, kept = tensorflow.texts("%%vramline --label fails")
    assert tensorflow.raised("%%vramline --label fails") == ["ValueError"]
    assert figures.startswith("fails: peak ")
    assert kept.startswith(f"The traceback of ValueError holds 24 MiB ({24 * MIB:,} bytes) on CPU:0")
    assert re.search(r"large in outer\(\) +EagerTensor float32\[4096,1024\] +16 MiB", kept)
    assert re.search(r"small in inner\(\) +EagerTensor float32\[2048,1024\] +8 MiB", kept)
    # The variable of the notebook that was passed on is not among them, and survives.
    assert "given in" not in kept
    (freed,) = tensorflow.texts("%vramline free # first")
    measured, rows = tensorflow.told("print(json.dumps([held - tf")
    assert measured >= 24 * MIB and f"({measured:,} bytes)" in freed and rows == 1024


def test_the_line_without_us_frees_the_same(tensorflow):
    (kept,) = tensorflow.texts("outer(x) # unmeasured")
    assert "`import sys, traceback; traceback.clear_frames(sys.last_traceback)`" in kept
    assert tensorflow.told("held = tf.config.experimental.get_memory_info(\"CPU:0\")['current']\ntraceback.clear_frames(sys.last_traceback)\nprint") >= 24 * MIB


def test_causes_keep_their_own_traceback(tensorflow):
    (kept,) = tensorflow.texts("try:")
    # The plain line frees nothing then, so it is not offered.
    assert "The traceback of RuntimeError holds 24 MiB" in kept and "clear_frames" not in kept
    by_the_line, by_the_magic = tensorflow.told("print(json.dumps([held - middle")
    assert by_the_line == 0 and by_the_magic >= 24 * MIB


def test_a_model_is_found_with_its_optimizer(tensorflow):
    after, size, names, read = tensorflow.told("read = tf.config.experimental.get_memory_info(\"CPU:0\")\nprint(json.dumps([fit")
    assert after == read["current"]
    # Model and optimizer, each variable counted once, with counters of a few bytes.
    assert 0 <= names["model"] - size < 4096


def test_a_trace_says_what_held_the_peak(tensorflow):
    # The cell ends with `;`, so that its value is not shown.
    traced, page, figures = tensorflow.texts("%%vramline --trace")
    assert figures.startswith("fit: peak ")
    assert traced.startswith("fit: what held the traced peak of ") and "in use before the cell" in traced
    assert re.search(r"(activations|gradients|temporaries|inputs|optimizer) +\d", traced)
    assert page.startswith("Report page of fit (")
    assert "srcdoc=" in tensorflow.html("%%vramline --trace")[1]


def test_the_rest_of_the_magics_answer(tensorflow):
    (top,) = tensorflow.texts("%vramline top")
    assert "CPU:0   tensorflow" in top and "Devices" in top
    assert not tensorflow.raised("%%vramline\nawait")
    assert tensorflow.texts("1 + 1") == ["2"]


def test_jax_says_what_it_cannot_count():
    ran = Executed(
        "import json, jax, jax.numpy as jnp\nfirst = jnp.ones((4,))",
        "%%vramline --save figures\nx = jnp.ones((1024, 1024))\ny = (x, x * 2)",
        "told = figures.devices[0]\nprint(json.dumps([told.before, told.peak, told.listed, sum(a.nbytes for a in jax.live_arrays()), told.held.bytes]))",
        "def make(a): return jnp.concatenate([a, a])\ndef half(a): return a[:1024] * 2\n" + FAILS,
        "outer(x) # raises",
        "import gc, sys\nbefore = sum(a.nbytes for a in jax.live_arrays())",
        "del sys.last_traceback, sys.last_value; gc.collect()\nprint(json.dumps(before - sum(a.nbytes for a in jax.live_arrays()))) # deleted",
        "outer(x) # again",
        "%vramline free",
        "print(json.dumps(before - sum(a.nbytes for a in jax.live_arrays())))",
    )
    before, peak, listed, lives, names = ran.told("told = figures")
    assert (before, peak) == (None, None)
    # What JAX lists, all of which has a name here.
    assert listed == lives == names == 8 * MIB + 16
    (shown,) = ran.texts("%%vramline")
    assert shown.startswith("cell: JAX keeps no memory statistics of a CPU. On CPU:0, the arrays that JAX lists take 8 MiB")
    (kept,) = ran.texts("outer(x) # raises")
    assert f"holds 12 MiB ({12 * MIB:,} bytes) on CPU:0" in kept
    # IPython keeps the exception in more places than these.
    assert ran.told("del sys.last_traceback") == 0
    # The next exception takes the place of the first in all of them.
    assert ran.told("print(json.dumps(before") == 12 * MIB


def test_torch_is_searched_by_its_storages():
    pytest.importorskip("torch", reason="PyTorch is not installed")
    ran = Executed(
        "import json, torch",
        "%%vramline --save figures\nmodel = torch.nn.Linear(1024, 1024, bias=False)\nadam = torch.optim.Adam(model.parameters())\n"
        "model(torch.ones(8, 1024)).sum().backward()\nadam.step()\nview = model.weight.detach()[:10]",
        "told = figures.devices[0]\nprint(json.dumps([told.held.bytes, {h.name: [h.bytes, h.only] for h in told.held.holders}]))",
        "def make(a): return torch.cat([a, a])\ndef half(a): return a[:1024] * 2\n" + FAILS,
        "with torch.no_grad(): outer(model.weight)",
        "%vramline free",
    )
    total, names = ran.told("told = figures")
    # The weight and its gradient, two moments of Adam, and its count of steps. The view is no block of its own.
    assert total == 4 * 4 * MIB + 4
    assert names["model"][0] == 8 * MIB and names["adam"] == [8 * MIB + 4, 8 * MIB + 4] and names["view"] == [0, 0]
    (shown,) = ran.texts("%%vramline")
    assert "PyTorch does not count the memory of a CPU" in shown
    (kept,) = ran.texts("with torch.no_grad")
    assert f"holds 12 MiB ({12 * MIB:,} bytes) on CPU:0" in kept
    (freed,) = ran.texts("%vramline free")
    assert f"Freed 12 MiB ({12 * MIB:,} bytes) of tensors and arrays" in freed
