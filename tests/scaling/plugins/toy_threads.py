"""A tiny operation whose variants can use more or fewer threads."""

from __future__ import annotations

from typing import Any

import numpy as np

from autotune import Pass, Threads, operation, variant


@operation(inputs="x[M,N]", outputs="y[M,N]", flops="M*N")
def toy_double(x: Any) -> Any:
    """Twice every element."""
    return 2 * x


ROWS = Pass("rows", parallel=("M",), reads=("x",), writes={"y": "owned"}, flops="M*N")
BOTH = Pass("both", parallel=("M", "N"), reads=("x",), writes={"y": "owned"}, flops="M*N")
TWICE = Pass("twice", parallel=("M", "N"), reads=("x",), writes={"y": "owned"}, flops="9*M*N")


@variant(toy_double, "alone", passes=[ROWS])
def alone(x: Any, y: Any) -> None:
    """Without threads."""
    np.multiply(x, 2, out=y)


@variant(toy_double, "by_rows", passes=[ROWS], tunables=[Threads()], constraints=["threads <= M"])
def by_rows(x: Any, y: Any) -> None:
    """A thread for each row at most."""
    np.multiply(x, 2, out=y)


@variant(toy_double, "slow", passes=[TWICE, TWICE], tunables=[Threads()])
def slow(x: Any, y: Any) -> None:
    """Any threads, and more work."""
    np.multiply(x, 2, out=y)


@variant(toy_double, "fast", passes=[BOTH], tunables=[Threads()])
def fast(x: Any, y: Any) -> None:
    """Any threads."""
    np.multiply(x, 2, out=y)
