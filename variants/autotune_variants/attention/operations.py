"""The attention operations: forward, backward, and both in one call."""

from __future__ import annotations

from typing import Any

from autotune import operation
from autotune.arrays import array_dtype
from autotune_variants.attention import published
from autotune_variants.attention.reference import (
    Array,
    forward,
    gradients,
    plain_forward,
    plain_gradients,
    plain_train,
)

_SHAPE: dict[str, Any] = {
    "dims": "B H Hkv Nq Nk D Dv",
    "shape": "B H N D",
    "aliases": {"N": ("Nq", "Nk")},
    "defaults": {"Hkv": "H", "Nk": "Nq", "Dv": "D"},
    "flags": {"causal": False},
    "scalars": {"scale": "max(D, 1)**-0.5"},
    "rules": ("H == Hkv or (Hkv > 0 and H % Hkv == 0)",),
    "axes": (("Nq", "Nk"), ("B", "H", "Hkv")),
    "dtypes": ("float32", "float64", "bfloat16", "float16"),
}
_ATTENDED = "B*H*(min(Nq, Nk)*(2*Nk - min(Nq, Nk) + 1)//2 if causal else Nq*Nk)"
"""Pairs of a query and a key that it attends."""


@operation(
    **_SHAPE,
    inputs="q[B,H,Nq,D] k[B,Hkv,Nk,D] v[B,Hkv,Nk,Dv]",
    outputs="out[B,H,Nq,Dv] lse[B,H,Nq]:accumulator",
    residuals=("lse",),
    flops=f"2*{_ATTENDED}*(D + Dv)",
    tolerance={"out": 2.0, "lse": 2.0},
    plain=plain_forward,
    published=published.FORWARD,
)
def attention(q: Array, k: Array, v: Array, *, causal: bool, scale: float) -> tuple[Array, Array]:
    """softmax(scale * Q K^T) V, and lse, the natural log of each row's sum of exponentials.

    Query head h attends key-value head h // (H / Hkv). With `causal`, query i attends key j when
    j <= i + Nk - Nq: the last query sees every key (bottom-right alignment, as FlashAttention from
    2.1 on). Rows with nothing to attend give 0, and lse = -inf. In 16 bits lse is float32.
    Formulas: arXiv 2606.07713.
    """
    return forward(q, k, v, causal=causal, scale=scale)


def _consistent_sample(problem: Any, rng: Any) -> tuple[Array, ...]:
    """Random q, k, v, grad_out, with the out and lse that belong to them."""
    sizes = problem.sizes
    wide = [
        rng.standard_normal(tensor.shape(sizes))
        for tensor in problem.operation.inputs
        if tensor.name in ("q", "k", "v", "grad_out")
    ]
    dtype, sums = array_dtype(problem.dtype), problem.element_type("accumulator")
    q, k, v, grad_out = (array.astype(dtype) for array in wide)
    (scale,) = problem.scalars()
    inputs = [array.astype("float64") for array in (q, k, v)]
    out, lse = forward(*inputs, causal=bool(problem.flags["causal"]), scale=scale)
    return q, k, v, out.astype(dtype), lse.astype(sums), grad_out


@operation(
    **_SHAPE,
    inputs="q[B,H,Nq,D] k[B,Hkv,Nk,D] v[B,Hkv,Nk,Dv] "
    "out[B,H,Nq,Dv] lse[B,H,Nq]:accumulator grad_out[B,H,Nq,Dv]",
    outputs="grad_q[B,H,Nq,D] grad_k[B,Hkv,Nk,D] grad_v[B,Hkv,Nk,Dv]",
    flops=f"2*{_ATTENDED}*(3*D + 2*Dv)",
    tolerance={"grad_q": 3.0, "grad_k": 3.0, "grad_v": 3.0},
    sample=_consistent_sample,
    plain=plain_gradients,
    published=published.BACKWARD,
)
def attention_backward(
    q: Array,
    k: Array,
    v: Array,
    out: Array,
    lse: Array,
    grad_out: Array,
    *,
    causal: bool,
    scale: float,
) -> tuple[Array, Array, Array]:
    """Gradients of q, k and v, given what `attention` returned and the gradient of its out.

    With A = exp(scale * Q K^T - lse) and GS = scale * A * (dO V^T - rowsum(dO * Out)):
    GQ = GS K, GK = GS^T Q, GV = A^T dO; GK and GV sum over the query heads of a group.
    Formulas: HAL 05659212 and, for the row sum, arXiv 2205.14135. Since out and lse follow from
    the other inputs, the reference does without them, and so without their rounding.
    """
    return gradients(q, k, v, grad_out, causal=causal, scale=scale)


@operation(
    **_SHAPE,
    inputs="q[B,H,Nq,D] k[B,Hkv,Nk,D] v[B,Hkv,Nk,Dv] grad_out[B,H,Nq,Dv]",
    outputs="out[B,H,Nq,Dv] grad_q[B,H,Nq,D] grad_k[B,Hkv,Nk,D] grad_v[B,Hkv,Nk,Dv]",
    flops=f"4*{_ATTENDED}*(2*D + Dv)",
    tolerance={"out": 2.0, "grad_q": 3.0, "grad_k": 3.0, "grad_v": 3.0},
    plain=plain_train,
    published=published.TRAIN,
)
def attention_train(
    q: Array, k: Array, v: Array, grad_out: Array, *, causal: bool, scale: float
) -> tuple[Array, Array, Array, Array]:
    """Forward and backward in one call, as a training step needs them: out and the gradients.

    The same mathematics and masks as `attention` and `attention_backward`; the fair ground for
    comparing arrangements that run them separately with arrangements that fuse them.
    """
    out, _ = forward(q, k, v, causal=causal, scale=scale)
    return out, *gradients(q, k, v, grad_out, causal=causal, scale=scale)
