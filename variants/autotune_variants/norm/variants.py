"""Variants of the normalisation: NumPy, and tiles of tokens that are read once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from autotune import Placement, PowerOfTwo, Threads, Unit, variant
from autotune_variants.norm import passes, whole
from autotune_variants.norm.operations import rmsnorm, rmsnorm_backward
from autotune_variants.norm.whole import Array

Run = Callable[..., None]

_DTYPES = ("float32", "float64")
ROWS = PowerOfTwo("rows", 4, 64, default=16)
TILE_CONSTRAINTS = ("rows < 2*N or rows == 4", "threads == 1 or threads <= ceil_div(N, rows)")
_TILES: dict[str, Any] = {
    "dtypes": _DTYPES,
    "unit": Unit("vector"),
    "tunables": (ROWS, Threads(), Placement()),
    "constraints": TILE_CONSTRAINTS,
}


@variant(
    *(rmsnorm, "tiled"),
    passes=passes.tiled_forward("out", "rows"),
    intermediates=(passes.tiles(2, "rows"),),
    **_TILES,
)
def forward(problem: Any, config: Mapping[str, Any]) -> Run:
    """Tiles of tokens in parallel, each read once from memory."""
    from autotune_variants.norm import table
    from autotune_variants.norm.steps import forward_step

    settings = {table.ROWS: config["rows"], table.WORKERS: config["threads"]}
    rows = (table.X, table.WEIGHT, table.OUT, table.SCRATCH)
    return table.bind((forward_step,), problem.dtype, settings, rows, scalars=(table.EPS,))


@variant(
    *(rmsnorm_backward, "tiled"),
    passes=passes.tiled_backward("grad_out", "rows"),
    intermediates=(passes.WEIGHT_PARTS, passes.tiles(3, "rows")),
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


@variant(
    *(rmsnorm, "numpy"),
    passes=passes.numpy_forward("out"),
    intermediates=(passes.INVERSE, passes.LINES),
    dtypes=_DTYPES,
)
def numpy_forward(
    x: Array, weight: Array, out: Array, inverse: Array, lines: Array, eps: float
) -> None:
    """Plain NumPy: four sweeps over whole arrays."""
    whole.normalise(x, weight, out, inverse, lines, eps)


@variant(
    *(rmsnorm_backward, "numpy"),
    passes=(*passes.NUMPY_INVERSE, *passes.numpy_backward("grad_out")),
    intermediates=(passes.INVERSE, passes.LINES, passes.SLOPE),
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
    whole.inverse_rms(x, inverse, lines, eps)
    whole.norm_gradients((x, weight, grad_out), (grad_x, grad_weight), inverse, lines, slope)
