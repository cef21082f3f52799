"""Normalisation of a tile of tokens in numba code, and its gradients; rows are contiguous.

Tiles and `sums` are C-contiguous matrices; `scratch` rows hold one number a token.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from autotune_variants.fastmath import INNER, full_width_vectors

_SUMS: dict[str, Any] = {"fastmath": {"contract", "nsz", "reassoc"}, **INNER}


@njit(**_SUMS)
def inverse_rms(x: Any, size: Any, eps: Any, inverse: Any) -> Any:
    """inverse[i] = 1 / sqrt(mean of x[i, :d]**2 + eps), for `size` (tokens, d)."""
    full_width_vectors()
    count, d = size
    for i in range(count):
        total = x.dtype.type(0)
        for j in range(d):
            total += x[i, j] * x[i, j]
        mean = total / x.dtype.type(d)
        inverse[i] = x.dtype.type(1) / np.sqrt(mean + x.dtype.type(eps))


@njit(**_SUMS)
def normalise(x: Any, size: Any, weight: Any, inverse: Any, z: Any) -> Any:
    """z = weight * x * inverse, for `size` (tokens, d)."""
    full_width_vectors()
    count, d = size
    for i in range(count):
        scale = inverse[i]
        for j in range(d):
            z[i, j] = x[i, j] * scale * weight[j]


@njit(**_SUMS)
def norm_gradients(
    x: Any, grad: Any, size: Any, weight: Any, inverse: Any, grad_x: Any, sums: Any
) -> Any:
    """grad_x from grad, the gradient of the normalised tile; adds that of the weight to sums[0].

    `grad_x` may be `grad` itself. sums[1] is scratch: the sums of this tile, which are added up
    apart, so that rounding errors grow with the number of tiles, not of tokens.
    """
    full_width_vectors()
    count, d = size
    zero = x.dtype.type(0)
    for j in range(d):
        sums[1, j] = zero
    for i in range(count):
        scale, slope = inverse[i], zero
        for j in range(d):
            slope += grad[i, j] * weight[j] * x[i, j]
        slope *= scale * scale / x.dtype.type(d)
        for j in range(d):
            above = grad[i, j]
            sums[1, j] += above * x[i, j] * scale
            grad_x[i, j] = scale * (above * weight[j] - x[i, j] * slope)
    for j in range(d):
        sums[0, j] += sums[1, j]
