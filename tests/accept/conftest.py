"""Runs the command line in this process, with the toy operation registered."""

from __future__ import annotations

import pytest
from accept_bench import PLUGIN, Result, Run

from autotune.cli import main
from autotune.plugins import load_file


@pytest.fixture(autouse=True)
def toy() -> None:
    """The toy operation."""
    load_file(PLUGIN)


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs `autotune` with the given words."""

    def call(*words: object) -> Result:
        capfd.readouterr()
        code = main([str(word) for word in words])
        captured = capfd.readouterr()
        return Result(code, captured.out, captured.err)

    return call
