"""Runs the command line in this process, with the toy operation registered."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from scaling_bench import PLUGIN, Result

from autotune.cli import main
from autotune.plugins import load_file


@pytest.fixture(autouse=True)
def toy() -> None:
    """The toy operation."""
    load_file(PLUGIN)


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Callable[..., Result]:
    """Runs `autotune` with the given words."""

    def call(*words: object) -> Result:
        capfd.readouterr()
        code = main([str(word) for word in words])
        captured = capfd.readouterr()
        return Result(code, captured.out, captured.err)

    return call
