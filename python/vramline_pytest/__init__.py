"""The part of the pytest plugin that every pytest loads: options, the marker `vram_limit` and the fixture `vram`.

It imports neither `vramline` nor a framework. `vramline.testing`, which measures, is imported when a test or an option asks for it.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

import pytest

_MARKER = "vram_limit(size, device=None): fail the test if more than this is in use on a device while it runs, such as 2GiB"
_MEASURES = "vramline-measures"
# Options in the second run of a test. It runs one test, in one process, without anybody at the terminal, while the files of the first
# run are open.
_ALONE: dict[str, Any] = {
    "vram": False, "vram_baseline": None, "vram_update": False, "vram_explain": "off",
    "lf": False, "failedfirst": False, "newfirst": False, "stepwise": False, "cacheclear": False,
    "dist": "no", "tx": [], "usepdb": False, "trace": False,
    "basetemp": None, "log_file": os.devnull, "xmlpath": None,
}  # fmt: skip


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the options."""
    group = parser.getgroup("vramline", "memory of GPUs (vramline)")
    group.addoption("--vram", action="store_true", help="Show the peak memory of each test in a table.")
    group.addoption(
        "--vram-baseline", metavar="FILE", help="Fail a test whose own peak grew since this file was written. Write it with --vram-update."
    )
    group.addoption("--vram-update", action="store_true", help="Write the peaks of the tests that passed to the file of --vram-baseline.")
    group.addoption(
        "--vram-tolerance", metavar="SHARE|SIZE", default="2%", help="How much a peak may grow over its baseline, such as 2%% or 64MiB (default: 2%%)."
    )
    group.addoption(
        "--vram-explain",
        choices=("auto", "off"),
        default="auto",
        help="auto (default): run a test that needs too much once more under `vramline run`, and show what held its peak.",
    )
    # The test of a second run.
    group.addoption("--vram-again", help=argparse.SUPPRESS)


# Before pytest's own plugins read their options.
@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Declares the marker, and starts to measure if an option asks for it."""
    config.addinivalue_line("markers", _MARKER)
    options = config.option
    if options.vram_again:
        config.args = [os.path.join(config.rootpath, options.vram_again)]
        vars(options).update(_ALONE)
    if options.vram_update and not options.vram_baseline:
        raise pytest.UsageError("--vram-update needs --vram-baseline FILE, the file to write")
    if options.vram or options.vram_baseline:
        _measure(config)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tells a worker of pytest-xdist the command line, for second runs."""
    node.workerinput["vramline_args"] = list(node.config.invocation_params.args)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Starts to measure if a test asks for it."""
    if any(item.get_closest_marker("vram_limit") or "vram" in getattr(item, "fixturenames", ()) for item in items):
        _measure(config)
        from vramline.testing import check

        check(items)


def _measure(config: pytest.Config) -> None:
    if not config.pluginmanager.hasplugin(_MEASURES):
        from vramline.testing import Measures

        config.pluginmanager.register(Measures(config), _MEASURES)


@pytest.fixture
def vram(request: pytest.FixtureRequest) -> object:
    """The memory of the devices that this test uses: `vram.current`, `vram.peak`, `vram.limit("2GiB")`, `vram.watch("label")`."""
    from vramline.testing import Vram

    return Vram.of(request.node)
