"""Normalisation on whole arrays in plain NumPy, into arrays that are given."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def normalise(
    x: Array, weight: Array, out: Array, inverse: Array, lines: Array, eps: float
) -> None:
    """out = weight * x * inverse, and inverse (N,1) = 1 / sqrt(mean(x**2) + eps)."""
    inverse_rms(x, inverse, lines, eps)
    np.multiply(x, inverse, out=out)
    np.multiply(out, weight, out=out)


def inverse_rms(x: Array, inverse: Array, lines: Array, eps: float) -> None:
    """inverse (N,1) = 1 / sqrt(mean(x**2) + eps); `lines` (N,D) is scratch."""
    np.multiply(x, x, out=lines)
    lines.sum(axis=1, keepdims=True, out=inverse)
    np.divide(inverse, max(x.shape[1], 1), out=inverse)
    np.add(inverse, inverse.dtype.type(eps), out=inverse)
    np.sqrt(inverse, out=inverse)
    np.divide(1, inverse, out=inverse)


def norm_gradients(
    inputs: tuple[Array, Array, Array],
    grads: tuple[Array, Array],
    inverse: Array,
    lines: Array,
    slope: Array,
) -> None:
    """Gradients (grad_x, grad_weight) of inputs (x, weight, grad_out), once inverse is known.

    `lines` (N,D) and `slope` (N) are scratch.
    """
    x, weight, grad_out = inputs
    grad_x, grad_weight = grads
    np.multiply(x, inverse, out=lines)
    np.einsum("nd,nd->d", lines, grad_out, out=grad_weight)
    np.multiply(grad_out, weight, out=grad_x)
    np.einsum("nd,nd->n", lines, grad_x, out=slope)
    np.divide(slope, max(x.shape[1], 1), out=slope)
    np.multiply(lines, slope[:, None], out=lines)
    np.subtract(grad_x, lines, out=grad_x)
    np.multiply(grad_x, inverse, out=grad_x)
