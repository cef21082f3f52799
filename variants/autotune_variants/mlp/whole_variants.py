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

Run = Callable[..., None]

_COMMON: dict[str, Any] = {
    "dtypes": ("float32", "float64"),
    "tunables": (Threads(), Placement()),
    "blas": "parallel",
}
_GRAD_Z = Intermediate("grad_z", passes.LINES)
_S, _SILU = Intermediate("s", passes.ROWS), Intermediate("silu", passes.ROWS)
_INVERSE, _SLOPE = Intermediate("inverse", ("N", 1)), Intermediate("slope", ("N",))


def _temporaries(name: str, *, norm: bool, gradients: bool) -> tuple[Intermediate, ...]:
    """The arrays of a variant, which are also what tells `run_whole` what to do."""
    joined, plain = name == "blas_joined", name == "numpy"
    found = [*(passes.JOINED if joined else passes.HIDDEN)]
    found += [_S] if plain else []
    found += [_SILU] if plain and gradients else []
    found += [passes.GRAD_H] if gradients else []
    found += [passes.GRAD_JOINED] if gradients and joined else []
    found += [passes.SUM] if (gradients and not joined) or (norm and plain) else []
    found += [passes.NORMAL] if norm else []
    found += [_GRAD_Z] if norm and gradients else []
    if norm:
        found += [_INVERSE] if plain else [passes.NORM_TILES]
    if norm and gradients:
        found += [_SLOPE] if plain else [passes.WEIGHT_PARTS]
    return tuple(found)


def _passes(name: str, *, norm: bool, gradients: bool, with_out: bool) -> tuple[Pass, ...]:
    joined, plain = name == "blas_joined", name == "numpy"
    x, grad_x = ("z", "grad_z") if norm else ("x", "grad_x")
    before = (passes.NUMPY_NORM if plain else passes.NORM) if norm else ()
    if not gradients:
        after = (passes.RESIDUAL_OUT,) if norm else ()
        return (*before, *passes.forward_passes(x, joined), *after)
    middle = passes.gradient_passes(x, grad_x, joined, with_out)
    if not norm:
        return middle
    behind = passes.NUMPY_NORM_GRADIENTS if plain else passes.NORM_GRADIENTS
    return (*before, *middle, *behind, passes.RESIDUAL_OUT, passes.RESIDUAL_GRAD)


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
