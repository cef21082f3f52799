"""The gated MLP in plain NumPy, in the dtype of its inputs: references and plain forms.

The plain ones sum every product in the opposite order. In 16 bits they compute in float32 and
round what such an implementation stores: the hidden activations, their gradients, the outputs.
CuPy arrays run as well; everything here is called through NumPy's functions for that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from autotune_variants.norm.reference import (
    norm_gradients,
    normalise,
    plain_norm_gradients,
    plain_normalise,
)
from autotune_variants.products import Array, exact, opposite, rounded, widened

Product = Callable[[Array, Array], Array]


class Weights(NamedTuple):
    """w_gate (D,F), w_up (D,F) and w_down (F,D)."""

    gate: Array
    up: Array
    down: Array


def _sigmoid(u: Array) -> Array:
    with np.errstate(over="ignore"):  # exp(-u) = inf gives 0, as it should
        result: Array = 1 / (1 + np.exp(-u))
    return result


def _hidden(x: Array, w: Weights, product: Product) -> tuple[Array, Array, Array]:
    """x w_gate, x w_up, and the sigmoid of the first."""
    u, v = product(x, w.gate), product(x, w.up)
    return u, v, _sigmoid(u)


def mlp(x: Array, w_gate: Array, w_up: Array, w_down: Array) -> Array:
    """(SiLU(x w_gate) * (x w_up)) w_down."""
    u, v, s = _hidden(x, Weights(w_gate, w_up, w_down), exact)
    return exact(u * s * v, w_down)


def plain_mlp(x: Array, w_gate: Array, w_up: Array, w_down: Array) -> Array:
    """The same, every product summed in the opposite order."""
    dtype = x.dtype
    w = Weights(*widened(w_gate, w_up, w_down))
    u, v, s = _hidden(widened(x)[0], w, opposite)
    return opposite(rounded(u * s * v, dtype), w.down).astype(dtype, copy=False)


def mlp_gradients(
    x: Array, w_gate: Array, w_up: Array, w_down: Array, grad_out: Array
) -> tuple[Array, Array, Array, Array]:
    """Gradients of x and of the three weights."""
    return _gradients(x, Weights(w_gate, w_up, w_down), grad_out, exact, x.dtype)


def plain_mlp_gradients(
    x: Array, w_gate: Array, w_up: Array, w_down: Array, grad_out: Array
) -> tuple[Array, Array, Array, Array]:
    """The same, every product summed in the opposite order."""
    dtype = x.dtype
    x, grad_out, *weights = widened(x, grad_out, w_gate, w_up, w_down)
    found = _gradients(x, Weights(*weights), grad_out, opposite, dtype)
    grad_x, grad_gate, grad_up, grad_down = (each.astype(dtype, copy=False) for each in found)
    return grad_x, grad_gate, grad_up, grad_down


def _gradients(
    x: Array, w: Weights, grad_out: Array, product: Product, stored: np.dtype
) -> tuple[Array, Array, Array, Array]:
    u, v, s = _hidden(x, w, product)
    silu, grad_h = u * s, product(grad_out, w.down.T)
    h = rounded(silu * v, stored)
    grad_v = rounded(grad_h * silu, stored)
    grad_u = rounded(grad_h * v * s * (1 + u * (1 - s)), stored)
    grad_x = product(grad_u, w.gate.T) + product(grad_v, w.up.T)
    return grad_x, product(x.T, grad_u), product(x.T, grad_v), product(h.T, grad_out)


def norm_mlp_forward(
    x: Array,
    weight: Array,
    w_gate: Array,
    w_up: Array,
    w_down: Array,
    *,
    residual: bool = False,
    eps: float = 1e-6,
) -> Array:
    """The gated MLP of the normalised x, plus x where `residual`."""
    out = mlp(normalise(x, weight, eps=eps), w_gate, w_up, w_down)
    return x + out if residual else out


def plain_norm_mlp_forward(
    x: Array,
    weight: Array,
    w_gate: Array,
    w_up: Array,
    w_down: Array,
    *,
    residual: bool = False,
    eps: float = 1e-6,
) -> Array:
    """The same by the plain parts."""
    out = plain_mlp(plain_normalise(x, weight, eps=eps), w_gate, w_up, w_down)
    return out + x if residual else out


Gradients = tuple[Array, Array, Array, Array, Array]


def norm_mlp_gradients(
    x: Array,
    weight: Array,
    w_gate: Array,
    w_up: Array,
    w_down: Array,
    grad_out: Array,
    *,
    residual: bool = False,
    eps: float = 1e-6,
) -> Gradients:
    """Gradients of x, of the normalisation's weight, and of the three weights of the MLP."""
    z = normalise(x, weight, eps=eps)
    grad_z, *others = mlp_gradients(z, w_gate, w_up, w_down, grad_out)
    grad_x, grad_weight = norm_gradients(x, weight, grad_z, eps=eps)
    grad_gate, grad_up, grad_down = others
    return (
        grad_x + grad_out if residual else grad_x,
        *(grad_weight, grad_gate, grad_up, grad_down),
    )


def plain_norm_mlp_gradients(
    x: Array,
    weight: Array,
    w_gate: Array,
    w_up: Array,
    w_down: Array,
    grad_out: Array,
    *,
    residual: bool = False,
    eps: float = 1e-6,
) -> Gradients:
    """The same by the plain parts."""
    z = plain_normalise(x, weight, eps=eps)
    grad_z, *others = plain_mlp_gradients(z, w_gate, w_up, w_down, grad_out)
    grad_x, grad_weight = plain_norm_gradients(x, weight, grad_z, eps=eps)
    grad_gate, grad_up, grad_down = others
    return (
        grad_x + grad_out if residual else grad_x,
        *(grad_weight, grad_gate, grad_up, grad_down),
    )
