"""Keeps every test away from the user's own data; runs the command line in this process."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from command_line import Result, Run

from autotune.cli import main
from autotune.device import gpus

SHARED = Path(__file__).resolve().parents[2] / "shared"

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell's background job, and all it starts
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def private_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data directory of the test's own."""
    home = tmp_path / "autotune-home"
    monkeypatch.setenv("AUTOTUNE_HOME", str(home))
    monkeypatch.delenv("AUTOTUNE_DB", raising=False)
    monkeypatch.delenv("AUTOTUNE_FROZEN", raising=False)
    if "NUMBA_CACHE_DIR" not in os.environ:
        monkeypatch.setenv("NUMBA_CACHE_DIR", "")  # as usual: each test would compile anew
    for others in ("CUPY_CACHE_DIR", "CUDA_CACHE_PATH"):
        if others not in os.environ:
            monkeypatch.setenv(others, "")
            monkeypatch.delenv(others)  # what is set in the test ends with it
    return home


@pytest.fixture(autouse=True)
def no_gpu(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hides real GPUs from this process and its children, unless the test is marked `gpu`."""
    if request.node.get_closest_marker("gpu") is None:
        hidden = gpus.Gpus(reason="the tests hide GPUs")
        monkeypatch.setattr(gpus, "local_gpus", lambda: hidden)
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


@pytest.fixture
def shared() -> Path:
    """The folder of recorded material beside the checkout; skips where it is absent."""
    if not SHARED.is_dir():
        pytest.skip("needs the recorded material in ../shared, which is not here")
    return SHARED


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs `autotune` with the given words."""

    def call(*words: object) -> Result:
        capfd.readouterr()
        code = main([str(word) for word in words])
        captured = capfd.readouterr()
        return Result(code, captured.out, captured.err)

    return call
