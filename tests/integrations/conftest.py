"""What the tests of integrations share: the tool, and a recording that is kept."""

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def binary():
    return Path(os.environ["VRAMLINE_BIN"])


@pytest.fixture(scope="session")
def recording():
    return Path(__file__).resolve().parents[2] / "fixtures" / "tf221_cpu_keras.vram"
