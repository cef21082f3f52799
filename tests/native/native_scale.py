"""A problem and a call for the kernels of conftest.py."""

from __future__ import annotations

from typing import Any

import numpy as np

from autotune.model import Operation, Problem
from autotune.model.operation import parse_tensors
from autotune.native import NativeSource

PLAIN = {"optimize": "O2", "native": False}
"""The quickest build."""

SCALE = Operation(
    "native_scale",
    ("N",),
    parse_tensors("x[N]"),
    parse_tensors("y[N]"),
    reference=print,
    plain=print,
    scalars={"factor": 2.0},
)


def problem(dtype: str = "float32") -> Problem:
    """Eight numbers."""
    return Problem.of(SCALE, (8,), dtype)


def scaled(source: NativeSource, dtype: str = "float32", **config: Any) -> float:
    """What the kernel makes of 1, given the factor 2."""
    kernel = source.kernel("scale", problem(dtype), {**PLAIN, **config}, (0,))
    x, y = np.ones(8, dtype), np.zeros(8, dtype)
    kernel(x, y, 2.0)
    assert (y == y[0]).all()
    return float(y[0])
