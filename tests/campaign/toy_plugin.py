"""A plugin for the real worker: `campaign_scale`, whose variants win, lose, lie, raise and die."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from autotune import Choice, Pass, Problem, operation, variant

_FLOW = (Pass("all", parallel=("N",), reads=("x",), writes={"y": "owned"}),)


@operation(inputs="x[N]", outputs="y[N]", flops="N")
def campaign_scale(x: Any) -> Any:
    """y = 2 x."""
    return 2 * x


@variant(campaign_scale, passes=_FLOW, tunables=(Choice("pause", (3, 1, 2, 4)),))
def sleepy(problem: Problem, config: Mapping[str, Any]) -> Any:
    """Takes `pause` milliseconds."""

    def run(x: Any, y: Any) -> None:
        time.sleep(1e-3 * config["pause"])
        np.multiply(x, 2, out=y)

    return run


@variant(campaign_scale, passes=_FLOW)
def slow(problem: Problem, config: Mapping[str, Any]) -> Any:
    """Takes 5 milliseconds."""

    def run(x: Any, y: Any) -> None:
        time.sleep(5e-3)
        np.multiply(x, 2, out=y)

    return run


@variant(campaign_scale, passes=_FLOW)
def wrong(problem: Problem, config: Mapping[str, Any]) -> Any:
    """Forgets the last element."""

    def run(x: Any, y: Any) -> None:
        np.multiply(x[:-1], 2, out=y[:-1])

    return run


@variant(campaign_scale, passes=_FLOW)
def raising(problem: Problem, config: Mapping[str, Any]) -> Any:
    """Cannot be built."""
    raise RuntimeError("this variant cannot be built")


@variant(campaign_scale, passes=_FLOW)
def dying(problem: Problem, config: Mapping[str, Any]) -> Any:
    """Takes its process down."""

    def run(x: Any, y: Any) -> None:
        os.abort()

    return run


@variant(campaign_scale, passes=_FLOW, constraints=("N >= 1000000",))
def picky(problem: Problem, config: Mapping[str, Any]) -> Any:
    """For large sizes only."""
    raise AssertionError("never built")


@operation(inputs="x[N]", outputs="y[N]", flops="N")
def toy_broken(x: Any) -> Any:
    """y = 3 x."""
    return 3 * x


@variant(toy_broken, passes=_FLOW)
def first_broken(problem: Problem, config: Mapping[str, Any]) -> Any:
    """Cannot be built."""
    raise RuntimeError("out of luck")


@variant(toy_broken, passes=_FLOW)
def second_broken(problem: Problem, config: Mapping[str, Any]) -> Any:
    """Cannot be built either."""
    raise SystemExit(1)
