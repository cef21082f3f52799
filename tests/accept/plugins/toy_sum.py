"""A tiny operation whose variants differ in what an acceptance test asks."""

from __future__ import annotations

from typing import Any

import numpy as np

from autotune import Choice, Pass, Requirement, operation, variant


@operation(inputs="x[M,N]", outputs="y[M]", axes=(("N",), ("M",)), flops="M*N")
def toy_sum(x: Any) -> Any:
    """The sum of every row."""
    return x.sum(axis=1)


ONCE = Pass("sum", parallel=("M",), sequential=("N",), reads=("x",), writes={"y": "owned"})
THRICE = Pass("sum", parallel=("M",), reads={"x": 3}, writes={"y": "owned"})


@variant(toy_sum, "numpy", passes=[ONCE])
def with_numpy(x: Any, y: Any) -> None:
    """One reduction."""
    np.sum(x, axis=1, out=y)


@variant(toy_sum, "thrice", passes=[THRICE], tunables=[Choice("repeats", (1, 20))])
def thrice(x: Any, y: Any, repeats: int) -> None:
    """Reads everything more often than it has to."""
    for _ in range(repeats):
        np.sum(x, axis=1, out=y)


@variant(toy_sum, "clipped", passes=[ONCE])
def clipped(x: Any, y: Any) -> None:
    """Right only as long as no element is large."""
    np.sum(np.clip(x, -20, 20), axis=1, out=y)


@variant(toy_sum, "even")
def even(x: Any, y: Any) -> None:
    """Right only for rows of even length."""
    np.sum(x[:, : x.shape[1] // 2 * 2], axis=1, out=y)


@variant(toy_sum, "absent", passes=[ONCE], requires=[Requirement("unicorn", lambda: "no unicorn")])
def absent(x: Any, y: Any) -> None:
    """Cannot run anywhere."""


@operation(inputs="x[N]", outputs="y[N]", flops="N")
def toy_narrow(x: Any) -> Any:
    """Everything doubled, for which there are variants of one dtype only."""
    return 2 * x


@variant(toy_narrow, "narrow", dtypes=["float32"])
def narrow(x: Any, y: Any) -> None:
    """Not for float64."""
    np.multiply(x, 2, out=y)


@variant(toy_narrow, "on_cuda", device="cuda")
def on_cuda(x: Any, y: Any) -> None:
    """Not for a CPU."""
    np.multiply(x, 2, out=y)
