"""A variant that runs out of memory on one problem goes on serving the others."""

from __future__ import annotations

from typing import Any

import numpy as np

from autotune import dispatch, stats
from autotune.model import Pass
from autotune.registry import operation, variant


@operation(inputs="x[N]", outputs="y[N]", name="served_large")
def served_large(x: Any) -> Any:
    """Twice x."""
    return 2 * x


def _passes(times: int) -> list[Pass]:
    return [Pass("all", parallel=("N",), reads={"x": times}, writes={"y": "owned"})]


@variant(served_large, "greedy", passes=_passes(1))
def greedy(x: Any, y: Any) -> None:
    if x.size > 8:
        raise MemoryError("no room for that")
    y[...] = 2 * x


@variant(served_large, "thrifty", passes=_passes(9))
def thrifty(x: Any, y: Any) -> None:
    y[...] = 2 * x


def test_it_is_set_aside_for_that_problem_alone(bench: Any) -> None:
    large, small = np.ones(4096, np.float32), np.ones(8, np.float32)
    set_aside = stats().quarantines
    kernel = dispatch(served_large, large)
    assert kernel.variant == "greedy"
    assert (kernel(large) == 2).all()
    assert kernel.variant == "thrifty"
    assert dispatch(served_large, large).variant == "thrifty"
    assert stats().quarantines == set_aside + 1
    kernel = dispatch(served_large, small)
    assert kernel.variant == "greedy"
    assert (kernel(small) == 2).all()
