"""What the gated MLP does between its products, and products whose sums stay short; numba code."""

from __future__ import annotations

from typing import Any

from numba import njit

from autotune_variants.attention.tiled_rows import matrix
from autotune_variants.fastmath import INNER, exp, full_width_vectors
from autotune_variants.gemm import multiply, multiply_transposed

_ELEMENTWISE: dict[str, Any] = {"fastmath": {"contract", "nsz"}, **INNER}
_TERMS = 256  # added up in one chain; whole sums are added to each other


@njit(**_ELEMENTWISE)
def sigmoid(u: Any) -> Any:
    """1 / (1 + exp(-u)), without overflow."""
    one = type(u)(1)
    e = exp(-abs(u))
    inverse = one / (one + e)
    return inverse if u >= 0 else e * inverse


@njit(**_ELEMENTWISE)
def gate(u: Any, v: Any, size: Any) -> Any:
    """u becomes u sigmoid(u) v, for `size` (rows, columns)."""
    full_width_vectors()
    for i in range(size[0]):
        for j in range(size[1]):
            u[i, j] = u[i, j] * sigmoid(u[i, j]) * v[i, j]


@njit(**_ELEMENTWISE)
def gate_gradients(u: Any, v: Any, grad_h: Any, size: Any) -> Any:
    """In place: u and v become their gradients and grad_h the hidden activations h.

    With s = sigmoid(u): h = u s v, grad_u = grad_h v s (1 + u (1 - s)), grad_v = grad_h u s.
    """
    full_width_vectors()
    for i in range(size[0]):
        for j in range(size[1]):
            a, b, above = u[i, j], v[i, j], grad_h[i, j]
            s = sigmoid(a)
            silu = a * s
            u[i, j] = above * b * (s + silu * (type(a)(1) - s))
            v[i, j] = above * silu
            grad_h[i, j] = silu * b


@njit(**INNER)
def product(gemm: Any, size: Any, a: Any, b: Any, c: Any) -> Any:
    """c = a b as `multiply` has it, `c` a matrix, in sums of 256 terms."""
    one, zero = c.dtype.type(1), c.dtype.type(0)
    m, n, k = size
    target = matrix(c)
    multiply(gemm, (m, n, min(k, _TERMS)), one, a, b, zero, target)
    for done in range(_TERMS, k, _TERMS):
        left = (a[0] + done * c.itemsize, a[1])
        right = (b[0] + done * b[1] * c.itemsize, b[1])
        multiply(gemm, (m, n, min(k - done, _TERMS)), one, left, right, one, target)


@njit(**INNER)
def transposed_product(gemm: Any, size: Any, a: Any, b: Any, c: Any) -> Any:
    """c = a^T b as `multiply_transposed` has it, `c` a matrix, in sums of 256 terms."""
    one, zero = c.dtype.type(1), c.dtype.type(0)
    m, n, k = size
    target = matrix(c)
    multiply_transposed(gemm, (m, n, min(k, _TERMS)), one, a, b, zero, target)
    for done in range(_TERMS, k, _TERMS):
        left = (a[0] + done * a[1] * c.itemsize, a[1])
        right = (b[0] + done * b[1] * c.itemsize, b[1])
        part = (m, n, min(k - done, _TERMS))
        multiply_transposed(gemm, part, one, left, right, one, target)
