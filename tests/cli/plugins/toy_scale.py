"""A tiny operation with variants of every fate, for the tests of the command line."""

from __future__ import annotations

from typing import Any

import numpy as np

from autotune import Choice, Pass, operation, variant


@operation(
    inputs="x[N]",
    outputs="y[N]",
    flags={"reverse": False},
    axes=(("N",),),
    flops="N",
)
def toy_scale(x: Any, *, reverse: bool) -> Any:
    """Twice x, backwards if asked."""
    return 2 * x[::-1] if reverse else 2 * x


SWEEP = Pass("sweep", parallel=("N",), reads=("x",), writes={"y": "owned"})


@variant(toy_scale, "numpy", passes=[SWEEP], constraints=["not reverse"])
def with_numpy(x: Any, y: Any) -> None:
    """One ufunc."""
    np.multiply(x, 2, out=y)


@variant(toy_scale, "flipped", passes=[SWEEP], tunables=[Choice("copies", (1, 2))])
def flipped(x: Any, y: Any, reverse: bool, copies: int) -> None:
    """Through copies of the input."""
    for _ in range(copies):
        x = x.copy()
    np.multiply(x[::-1] if reverse else x, 2, out=y)


@variant(toy_scale, "broken", constraints=["not reverse"])
def broken(x: Any, y: Any) -> None:
    """Raises."""
    raise RuntimeError("this one never works")


@variant(toy_scale, "halves", constraints=["not reverse"])
def halves(x: Any, y: Any) -> None:
    """Wrong: writes half of the output."""
    y[: len(y) // 2] = 2 * x[: len(y) // 2]


@variant(toy_scale, "noisy", dtypes=["float64"], constraints=["not reverse"])
def noisy(x: Any, y: Any) -> None:
    """Prints as it runs."""
    print("noise on stdout")
    np.add(x, x, out=y)
