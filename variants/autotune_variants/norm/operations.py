"""The normalisation operations: forward and backward."""

from __future__ import annotations

from typing import Any

from autotune import operation
from autotune_variants.norm import published
from autotune_variants.norm.reference import (
    norm_gradients,
    normalise,
    plain_norm_gradients,
    plain_normalise,
)
from autotune_variants.products import Array

_SHAPE: dict[str, Any] = {
    "dims": "N D",
    "scalars": {"eps": 1e-6},
    "axes": (("N",), ("D",)),
    "dtypes": ("float32", "float64", "bfloat16", "float16"),
}


@operation(
    **_SHAPE,
    inputs="x[N,D] weight[D]",
    outputs="out[N,D]",
    flops="4*N*D",
    tolerance={"out": 2.0},
    plain=plain_normalise,
)
def rmsnorm(x: Array, weight: Array, *, eps: float) -> Array:
    """weight * x / sqrt(mean(x**2) + eps) for each of N tokens of D features; eps is 1e-6.

    Formula: arXiv 1910.07467, with eps inside the root as HAL 05734881 has it.
    """
    return normalise(x, weight, eps=eps)


@operation(
    **_SHAPE,
    inputs="x[N,D] weight[D] grad_out[N,D]",
    outputs="grad_x[N,D] grad_weight[D]",
    flops="11*N*D",
    tolerance={"grad_x": 2.0, "grad_weight": 3.0},
    plain=plain_norm_gradients,
    published=published.BACKWARD,
)
def rmsnorm_backward(
    x: Array, weight: Array, grad_out: Array, *, eps: float
) -> tuple[Array, Array]:
    """Gradients of x and weight, given those of what `rmsnorm` returned.

    With r = sqrt(mean(x**2) + eps), u = x / r and g = weight * grad_out:
    grad_x = (g - u * mean(g * u)) / r, grad_weight = the sum of grad_out * u over the tokens.
    Formulas: HAL 05734881.
    """
    return norm_gradients(x, weight, grad_out, eps=eps)
