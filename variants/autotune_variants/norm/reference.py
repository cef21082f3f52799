"""RMS normalisation in plain NumPy, in the dtype of its inputs: references and plain forms.

The plain ones sum in the opposite order and divide where the references multiply, so that the
difference tells what rounding does. In 16 bits they compute in float32 and round at the end.
CuPy arrays run as well; everything here is called through NumPy's functions for that.
"""

from __future__ import annotations

import numpy as np

from autotune_variants.products import Array, exact, widened


def inverse_rms(x: Array, eps: float) -> Array:
    """1 / sqrt(mean(x**2) + eps) of every row of x (N,D), as a column (N,1)."""
    squares = (x * x).sum(axis=1, keepdims=True) / max(x.shape[1], 1)
    inverse: Array = (1 / np.sqrt(squares + eps)).astype(x.dtype)
    return inverse


def normalise(x: Array, weight: Array, *, eps: float) -> Array:
    """weight * x / sqrt(mean(x**2) + eps), row by row."""
    return x * inverse_rms(x, eps) * weight


def plain_normalise(x: Array, weight: Array, *, eps: float) -> Array:
    """The same, the sum of squares from the last to the first and divided by its root."""
    dtype = x.dtype
    x, weight = widened(x, weight)
    out: Array = x / _plain_rms(x, eps) * weight
    return out.astype(dtype, copy=False)


def norm_gradients(x: Array, weight: Array, grad_out: Array, *, eps: float) -> tuple[Array, Array]:
    """Gradients of x (N,D) and of weight (D)."""
    inverse = inverse_rms(x, eps)
    unit, scaled = x * inverse, grad_out * weight
    slope = (scaled * unit).sum(axis=1, keepdims=True) / max(x.shape[1], 1)
    ones = np.ones_like(x, shape=(1, len(x)))
    return inverse * (scaled - unit * slope), exact(ones, grad_out * unit)[0]


def plain_norm_gradients(
    x: Array, weight: Array, grad_out: Array, *, eps: float
) -> tuple[Array, Array]:
    """The same, summed from the last to the first."""
    dtype = x.dtype
    x, weight, grad_out = widened(x, weight, grad_out)
    rms = _plain_rms(x, eps)
    unit, scaled = x / rms, grad_out * weight
    slope = (scaled * unit)[:, ::-1].sum(axis=1, keepdims=True) / max(x.shape[1], 1)
    grad_x = (scaled - unit * slope) / rms
    grad_weight = (grad_out * unit)[::-1].sum(axis=0)
    return grad_x.astype(dtype, copy=False), grad_weight.astype(dtype, copy=False)


def _plain_rms(x: Array, eps: float) -> Array:
    squares = (x * x)[:, ::-1].sum(axis=1, keepdims=True) / max(x.shape[1], 1)
    return np.sqrt(squares + eps).astype(x.dtype)
