"""The transformer block in plain NumPy, from the references of its parts, or their plain forms.

Arrays come by name. CuPy arrays run as well; everything here is called through NumPy's functions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from autotune_variants.attention import reference as attention
from autotune_variants.mlp.reference import (
    norm_mlp_forward,
    norm_mlp_gradients,
    plain_norm_mlp_forward,
    plain_norm_mlp_gradients,
)
from autotune_variants.norm.reference import (
    norm_gradients,
    normalise,
    plain_norm_gradients,
    plain_normalise,
)
from autotune_variants.products import Array, exact, opposite, widened

Arrays = Mapping[str, Array]


class Parts(NamedTuple):
    """What computes the parts: the references, or the plain forms."""

    product: Callable[[Array, Array], Array]
    normalise: Callable[..., Array]
    norm_gradients: Callable[..., tuple[Array, Array]]
    attention: Callable[..., tuple[Array, Array]]
    attention_gradients: Callable[..., tuple[Array, Array, Array]]
    norm_mlp: Callable[..., Array]
    norm_mlp_gradients: Callable[..., Any]


def _gradients_again(
    q: Array, k: Array, v: Array, out: Array, lse: Array, grad_out: Array, **options: Any
) -> tuple[Array, Array, Array]:
    """The reference of attention's gradients, which does without out and lse."""
    return attention.gradients(q, k, v, grad_out, **options)


def _plain_product(a: Array, b: Array) -> Array:
    """a @ b summed in the opposite order, in float32 and rounded where a and b have 16 bits."""
    left, right = widened(a, b)
    return opposite(left, right).astype(a.dtype, copy=False)


REFERENCE = Parts(
    *(exact, normalise, norm_gradients, attention.forward, _gradients_again),
    *(norm_mlp_forward, norm_mlp_gradients),
)
PLAIN = Parts(
    *(_plain_product, plain_normalise, plain_norm_gradients),
    *(attention.plain_forward, attention.plain_gradients),
    *(plain_norm_mlp_forward, plain_norm_mlp_gradients),
)


class _Forward(NamedTuple):
    """What the backward needs of the forward; tokens are rows."""

    x: Array
    z: Array
    q: Array
    k: Array
    v: Array
    out: Array
    lse: Array
    r: Array


def _matrix(weight: Array) -> Array:
    """A projection (D,H,Dh) as a matrix (D, H*Dh)."""
    width, heads, depth = weight.shape
    return weight.reshape(width, heads * depth)


def _matrix_out(weight: Array) -> Array:
    """The output projection (H,Dh,D) as a matrix (H*Dh, D)."""
    heads, depth, width = weight.shape
    return weight.reshape(heads * depth, width)


def _heads(rows: Array, batch: int, weight: Array) -> Array:
    """(B*N, H*Dh) as (B,H,N,Dh)."""
    _, heads, depth = weight.shape
    return rows.reshape(batch, len(rows) // max(batch, 1), heads, depth).transpose(0, 2, 1, 3)


def _rows(heads: Array) -> Array:
    """(B,H,N,Dh) as (B*N, H*Dh)."""
    batch, count, tokens, depth = heads.shape
    return heads.transpose(0, 2, 1, 3).reshape(batch * tokens, count * depth)


def _mlp_weights(arrays: Arrays) -> list[Array]:
    return [arrays[name] for name in ("weight2", "w_gate", "w_up", "w_down")]


def _forward(arrays: Arrays, parts: Parts, causal: bool, eps: float) -> _Forward:
    batch, tokens, width = arrays["x"].shape
    x = arrays["x"].reshape(batch * tokens, width)
    z = parts.normalise(x, arrays["weight1"], eps=eps)
    weights = [arrays[name] for name in ("w_q", "w_k", "w_v")]
    q, k, v = (_heads(parts.product(z, _matrix(w)), batch, w) for w in weights)
    out, lse = parts.attention(q, k, v, causal=causal, scale=max(q.shape[3], 1) ** -0.5)
    rows = _rows(out)
    if "w_o" in arrays:
        rows = parts.product(rows, _matrix_out(arrays["w_o"]))
    return _Forward(x, z, q, k, v, out, lse, x + rows)


def block(arrays: Arrays, parts: Parts, *, causal: bool, eps: float) -> Array:
    """R = x + Attention(Norm(x)), then R + MLP(Norm(R)), as (B,N,D)."""
    r = _forward(arrays, parts, causal, eps).r
    out = parts.norm_mlp(r, *_mlp_weights(arrays), residual=True, eps=eps)
    return out.reshape(arrays["x"].shape)


def block_train(arrays: Arrays, parts: Parts, *, causal: bool, eps: float) -> tuple[Array, ...]:
    """The output, then the gradients of all inputs but grad_out, in their order."""
    f = _forward(arrays, parts, causal, eps)
    weights, options = _mlp_weights(arrays), {"residual": True, "eps": eps}
    out = parts.norm_mlp(f.r, *weights, **options)
    grad_out = arrays["grad_out"].reshape(f.x.shape)
    grad_r, *grad_mlp = parts.norm_mlp_gradients(f.r, *weights, grad_out, **options)
    grad_rows, grad_w_o = grad_r, []
    if "w_o" in arrays:
        w_o = arrays["w_o"]
        grad_rows = parts.product(grad_r, _matrix_out(w_o).T)
        grad_w_o = [parts.product(_rows(f.out).T, grad_r).reshape(w_o.shape)]
    grads = parts.attention_gradients(
        *(f.q, f.k, f.v, f.out, f.lse, _heads(grad_rows, len(arrays["x"]), arrays["w_q"])),
        causal=causal,
        scale=max(f.q.shape[3], 1) ** -0.5,
    )
    pairs = [(arrays[n], _rows(g)) for n, g in zip(("w_q", "w_k", "w_v"), grads, strict=True)]
    from_q, from_k, from_v = (parts.product(grad, _matrix(w).T) for w, grad in pairs)
    grad_z = from_q + from_k + from_v
    grad_projections = [parts.product(f.z.T, grad).reshape(w.shape) for w, grad in pairs]
    grad_x, grad_weight1 = parts.norm_gradients(f.x, arrays["weight1"], grad_z, eps=eps)
    shape = arrays["x"].shape
    return (
        *(out.reshape(shape), (grad_x + grad_r).reshape(shape), grad_weight1),
        *(*grad_projections, *grad_w_o, *grad_mlp),
    )
