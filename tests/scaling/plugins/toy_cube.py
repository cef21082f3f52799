"""A tiny operation to sweep over sizes and threads."""

from __future__ import annotations

from typing import Any

import numpy as np

from autotune import Pass, Placement, PowerOfTwo, Threads, operation, variant


@operation(inputs="x[M,N]", outputs="y[M,N]", axes=(("N",),), flops="M*N**2")
def toy_cube(x: Any) -> Any:
    """Every element to the third power."""
    return x**3


SWEEP = Pass("cube", parallel=("M",), reads=("x",), writes={"y": "owned"})


@variant(toy_cube, "plain", passes=[SWEEP])
def plain(x: Any, y: Any) -> None:
    """One multiplication after the other."""
    np.multiply(x * x, x, out=y)


@variant(
    toy_cube,
    "threaded",
    passes=[SWEEP],
    tunables=[PowerOfTwo("splits", 1, 8, default=8), Threads(), Placement()],
    constraints=["splits <= 4*threads"],
)
def threaded(x: Any, y: Any, splits: int) -> None:
    """Says that it has threads, and uses one."""
    np.power(x, 3, out=y)


@variant(toy_cube, "small", passes=[SWEEP], constraints=["N <= 16"])
def small(x: Any, y: Any) -> None:
    """For short rows only."""
    np.power(x, 3, out=y)


@variant(toy_cube, "breaking")
def breaking(x: Any, y: Any) -> None:
    """Fails from 16 on."""
    if x.shape[1] >= 16:
        raise RuntimeError("too long")
    np.power(x, 3, out=y)
