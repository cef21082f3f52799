"""Variants of the normalisation: NumPy, and tiles of tokens in vector registers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from autotune import Intermediate, Pass, Placement, PowerOfTwo, Threads, variant
from autotune_variants.norm.operations import rmsnorm, rmsnorm_backward

Array = np.ndarray[Any, Any]
Run = Callable[..., None]

_DTYPES = ("float32", "float64")
_TILES: dict[str, Any] = {
    "dtypes": _DTYPES,
    "tunables": (PowerOfTwo("rows", 4, 64, default=16), Threads(), Placement()),
    "constraints": ("rows < 2*N or rows == 4", "threads == 1 or threads <= ceil_div(N, rows)"),
}
_TOKENS = {"N": "rows"}

FORWARD = Pass(
    "forward",
    parallel=_TOKENS,
    reads={"x": 1, "weight": "threads"},
    writes={"out": "owned"},
    flops="4*N*D",
)
BACKWARD = Pass(
    "backward",
    parallel=_TOKENS,
    reads={"x": 1, "grad_out": 1, "weight": "threads"},
    writes={"grad_x": "owned", "weight_parts": "reduction"},
    flops="11*N*D",
)
SUM_WEIGHT = Pass(
    "sum_weight", parallel=("D",), reads=("weight_parts",), writes={"grad_weight": "owned"}
)


def _tiles(count: int) -> Intermediate:
    """Tiles of every worker, its copy of the weight and one number a token; on cache lines."""
    size = f"{count}*rows*D + D + rows"
    return Intermediate("tiles", ("threads", f"ceil_div({size}, 64)*64"))


@variant(rmsnorm, "tiled", passes=(FORWARD,), intermediates=(_tiles(2),), **_TILES)
def forward(problem: Any, config: Mapping[str, Any]) -> Run:
    """Tiles of tokens in parallel, each read once from memory."""
    from autotune_variants.norm import table
    from autotune_variants.norm.steps import forward_step

    settings = {table.ROWS: config["rows"], table.WORKERS: config["threads"]}
    rows = (table.X, table.WEIGHT, table.OUT, table.SCRATCH)
    return table.bind((forward_step,), problem.dtype, settings, rows, scalars=(table.EPS,))


@variant(
    *(rmsnorm_backward, "tiled"),
    passes=(BACKWARD, SUM_WEIGHT),
    intermediates=(Intermediate("weight_parts", ("2*threads", "D")), _tiles(3)),
    **_TILES,
)
def backward(problem: Any, config: Mapping[str, Any]) -> Run:
    """Tiles of tokens in parallel; the weight's gradient accumulated per thread and summed."""
    from autotune_variants.norm import table
    from autotune_variants.norm.steps import backward_step, weight_step

    settings = {table.ROWS: config["rows"], table.WORKERS: config["threads"]}
    rows = (
        *(table.X, table.WEIGHT, table.GRAD_OUT, table.GRAD_X, table.GRAD_WEIGHT),
        *(table.WEIGHT_PARTS, table.SCRATCH),
    )
    steps = (backward_step, weight_step)
    return table.bind(steps, problem.dtype, settings, rows, scalars=(table.EPS,))


INVERSE, LINES = Intermediate("inverse", ("N", 1)), Intermediate("lines", ("N", "D"))
NUMPY_FORWARD = (
    Pass("squares", reads=("x",), writes={"lines": "owned"}, flops="N*D"),
    Pass("inverse", reads=("lines",), writes={"inverse": "owned"}, flops="N*D"),
    Pass("scale", reads=("x", "inverse"), writes={"out": "owned"}, flops="N*D"),
    Pass("weight", reads=("out", "weight"), writes={"out": "owned"}, flops="N*D"),
)


def rows_inverse(x: Array, inverse: Array, lines: Array, eps: float) -> None:
    """inverse (N,1) = 1 / sqrt(mean(x**2) + eps); `lines` (N,D) is scratch."""
    np.multiply(x, x, out=lines)
    lines.sum(axis=1, keepdims=True, out=inverse)
    np.divide(inverse, max(x.shape[1], 1), out=inverse)
    np.add(inverse, inverse.dtype.type(eps), out=inverse)
    np.sqrt(inverse, out=inverse)
    np.divide(1, inverse, out=inverse)


@variant(*(rmsnorm, "numpy"), passes=NUMPY_FORWARD, intermediates=(INVERSE, LINES), dtypes=_DTYPES)
def numpy_forward(
    x: Array, weight: Array, out: Array, inverse: Array, lines: Array, eps: float
) -> None:
    """Plain NumPy: four sweeps over whole arrays."""
    rows_inverse(x, inverse, lines, eps)
    np.multiply(x, inverse, out=out)
    np.multiply(out, weight, out=out)


NUMPY_BACKWARD = (
    *NUMPY_FORWARD[:2],
    Pass("unit", reads=("x", "inverse"), writes={"lines": "owned"}, flops="N*D"),
    Pass("weight", reads=("lines", "grad_out"), writes={"grad_weight": "owned"}, flops="2*N*D"),
    Pass("scaled", reads=("grad_out", "weight"), writes={"grad_x": "owned"}, flops="N*D"),
    Pass("slope", reads=("lines", "grad_x"), writes={"slope": "owned"}, flops="2*N*D"),
    Pass("project", reads=("lines", "slope"), writes={"lines": "owned"}, flops="N*D"),
    Pass("subtract", reads=("grad_x", "lines"), writes={"grad_x": "owned"}, flops="N*D"),
    Pass("scale", reads=("grad_x", "inverse"), writes={"grad_x": "owned"}, flops="N*D"),
)


@variant(
    *(rmsnorm_backward, "numpy"),
    passes=NUMPY_BACKWARD,
    intermediates=(INVERSE, LINES, Intermediate("slope", ("N",))),
    dtypes=_DTYPES,
)
def numpy_backward(
    x: Array,
    weight: Array,
    grad_out: Array,
    grad_x: Array,
    grad_weight: Array,
    inverse: Array,
    lines: Array,
    slope: Array,
    eps: float,
) -> None:
    """Plain NumPy: nine sweeps over whole arrays."""
    rows_inverse(x, inverse, lines, eps)
    np.multiply(x, inverse, out=lines)
    np.einsum("nd,nd->d", lines, grad_out, out=grad_weight)
    np.multiply(grad_out, weight, out=grad_x)
    np.einsum("nd,nd->n", lines, grad_x, out=slope)
    np.divide(slope, max(x.shape[1], 1), out=slope)
    np.multiply(lines, slope[:, None], out=lines)
    np.subtract(grad_x, lines, out=grad_x)
    np.multiply(grad_x, inverse, out=grad_x)
