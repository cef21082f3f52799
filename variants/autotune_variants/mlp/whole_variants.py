"""Variants on whole matrices: NumPy alone (the floor), and BLAS with sweeps in numba.

The weight gradients are matrix products over all tokens. `blas_joined` puts w_gate and w_up side
by side, so that each pair of products becomes one. A normalisation is a sweep of its own here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from autotune import Intermediate, Pass, Placement, Threads, variant
from autotune_variants.mlp import whole_passes as passes
from autotune_variants.mlp.operations import (
    gated_mlp,
    gated_mlp_backward,
    gated_mlp_train,
    norm_mlp,
    norm_mlp_train,
)
from autotune_variants.mlp.whole import NUMPY, numba_sweeps, run_whole
from autotune_variants.norm import passes as norm_passes

Run = Callable[..., None]

_COMMON: dict[str, Any] = {
    "dtypes": ("float32", "float64"),
    "tunables": (Threads(), Placement()),
    "blas": "parallel",
}
_GRAD_Z = Intermediate("grad_z", passes.LIKE_X)
_S, _SILU = Intermediate("s", passes.ROWS), Intermediate("silu", passes.ROWS)


def _temporaries(name: str, *, norm: bool, gradients: bool) -> tuple[Intermediate, ...]:
    """The arrays of a variant, which are also what tells `run_whole` what to do."""
    joined, plain = name == "blas_joined", name == "numpy"
    found = [*(passes.JOINED if joined else passes.HIDDEN)]
    found += [_S] if plain else []
    found += [_SILU] if plain and gradients else []
    found += [passes.GRAD_H] if gradients else []
    found += [passes.GRAD_JOINED] if gradients and joined else []
    found += [norm_passes.LINES] if (gradients and not joined) or (norm and plain) else []
    found += [passes.NORMAL] if norm else []
    found += [_GRAD_Z] if norm and gradients else []
    if norm:
        found += [norm_passes.INVERSE] if plain else [norm_passes.tiles(3, passes.NORM_ROWS)]
    if norm and gradients:
        found += [norm_passes.SLOPE] if plain else [norm_passes.WEIGHT_PARTS]
    return tuple(found)


def _passes(name: str, *, norm: bool, gradients: bool, with_out: bool) -> tuple[Pass, ...]:
    joined, plain = name == "blas_joined", name == "numpy"
    x, grad_x = ("z", "grad_z") if norm else ("x", "grad_x")
    rows = passes.NORM_ROWS
    norms = (
        (norm_passes.numpy_forward("z"), norm_passes.numpy_backward("grad_z"))
        if plain
        else (norm_passes.tiled_forward("z", rows), norm_passes.tiled_backward("grad_z", rows))
    )
    if gradients:
        middle = passes.gradient_passes(x, grad_x, joined, with_out)
        behind = (*norms[1], passes.RESIDUAL_OUT, passes.RESIDUAL_GRAD)
    else:
        middle = passes.forward_passes(x, joined)
        behind = (passes.RESIDUAL_OUT,)
    return (*norms[0], *middle, *behind) if norm else middle


def _declare(operation: Any, name: str, doc: str) -> None:
    inputs = {tensor.name for tensor in operation.inputs}
    norm, gradients = "weight" in inputs, "grad_out" in inputs
    with_out = "out" in {tensor.name for tensor in operation.outputs}
    arrays = _temporaries(name, norm=norm, gradients=gradients)
    temporaries = tuple(array.name for array in arrays)

    def build(problem: Any, config: Mapping[str, Any]) -> Run:
        if name == "numpy":
            return run_whole(problem, NUMPY, temporaries)
        return run_whole(problem, numba_sweeps(problem, config, passes.NORM_ROWS), temporaries)

    build.__doc__ = doc
    variant(
        operation,
        name,
        passes=_passes(name, norm=norm, gradients=gradients, with_out=with_out),
        intermediates=arrays,
        **_COMMON,
    )(build)


_DOCS = {
    "numpy": "Plain NumPy: products by BLAS, sweeps over whole arrays between them.",
    "blas": "Products by BLAS on whole matrices, one sweep for the activation between them.",
    "blas_joined": "As blas, with w_gate and w_up side by side: one product for two.",
}

for _operation in (gated_mlp, gated_mlp_backward, gated_mlp_train, norm_mlp, norm_mlp_train):
    for _name, _doc in _DOCS.items():
        _declare(_operation, _name, _doc)
