"""The floor: attention in plain NumPy, whole score matrices, products by a multithreaded BLAS."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from autotune import Intermediate, Pass, Placement, Threads, variant
from autotune_variants.attention.operations import attention, attention_backward, attention_train

Array = np.ndarray[Any, Any]
Run = Callable[..., None]

_QK, _PV = "2*B*H*Nq*Nk*D", "2*B*H*Nq*Nk*Dv"
_SCORES = ("B", "H", "Nq", "Nk")
_ROWS = ("B", "H", "Nq")

FORWARD = (
    Pass("scores", reads=("q", "k"), writes={"a": "owned"}, flops=_QK),
    Pass("softmax", reads={"a": 3}, writes={"a": "owned", "line": "owned", "lse": "owned"}),
    Pass("out", reads=("a", "v", "line"), writes={"out": "owned"}, flops=_PV),
)
WEIGHTS = (
    Pass("scores", reads=("q", "k"), writes={"a": "owned"}, flops=_QK),
    Pass("weights", reads={"a": 2, "lse": 1}, writes={"a": "owned"}),
)
GRADIENTS = (
    Pass("slopes", reads=("grad_out", "v"), writes={"gs": "owned"}, flops=_PV),
    Pass("delta", reads=("out", "grad_out"), writes={"line": "owned"}, flops="2*B*H*Nq*Dv"),
    Pass("gs", reads={"a": 1, "gs": 3, "line": 1}, writes={"gs": "owned"}),
    Pass("grad_q", reads=("gs", "k"), writes={"grad_q": "owned"}, flops=_QK),
    Pass("grad_k", reads=("gs", "q"), writes={"grad_k": "owned"}, flops=_QK),
    Pass("grad_v", reads=("a", "grad_out"), writes={"grad_v": "owned"}, flops=_PV),
)
_COMMON: dict[str, Any] = {
    "dtypes": ("float32", "float64"),
    "tunables": (Threads(), Placement()),
    "blas": "parallel",
}
_A, _GS = Intermediate("a", _SCORES), Intermediate("gs", _SCORES)
_LINE, _LSE = Intermediate("line", _ROWS), Intermediate("lse", _ROWS)
_STACK = Intermediate("stack", (*_ROWS, "max(D, Dv) * (H > Hkv)"))
"""Where queries of one key-value head lie behind each other, if their strides leave gaps."""


def _grouped(array: Array, kv_heads: int) -> Array:
    """(B, H, N, D) as (B, Hkv, H/Hkv, N, D), without a copy."""
    batch, heads, *rest = array.shape
    return array.reshape(batch, kv_heads, heads // max(kv_heads, 1), *rest)


def _stacked(array: Array, kv_heads: int, stack: Array | None = None) -> Array:
    """(B, H, N, D) as (B, Hkv, H/Hkv * N, D), copied to `stack` where it would be copied anyhow."""
    batch, heads, count, depth = array.shape
    if stack is not None and heads != kv_heads and not array.flags.c_contiguous:
        packed = stack.reshape(-1)[: array.size].reshape(array.shape)
        packed[...] = array
        array = packed
    return array.reshape(batch, kv_heads, heads // max(kv_heads, 1) * count, depth)


def _scores(q: Array, k: Array, a: Array, *, causal: bool, scale: float) -> None:
    """a = scale q k^T, masked scores -inf."""
    kv_heads, queries, keys = k.shape[1], q.shape[2], k.shape[2]
    np.matmul(_grouped(q, kv_heads), k[:, :, None].swapaxes(-1, -2), out=_grouped(a, kv_heads))
    np.multiply(a, a.dtype.type(scale), out=a)
    if causal:
        for i in range(queries):
            a[:, :, i, max(i + 1 + keys - queries, 0) :] = -np.inf


def _forward(
    q: Array, k: Array, v: Array, out: Array, lse: Array, a: Array, line: Array, **options: Any
) -> None:
    """Out and lse; `a` is left with the exponentials, before their division by the sum."""
    kv_heads = k.shape[1]
    _scores(q, k, a, **options)
    a.max(axis=-1, initial=-np.inf, out=lse)
    line[...] = np.where(np.isneginf(lse), 0, lse)
    np.subtract(a, line[..., None], out=a)
    np.exp(a, out=a)
    a.sum(axis=-1, out=line)
    with np.errstate(divide="ignore"):
        np.add(lse, np.log(line), out=lse)
    np.matmul(_grouped(a, kv_heads), v[:, :, None], out=_grouped(out, kv_heads))
    line[line == 0] = 1
    np.divide(out, line[..., None], out=out)


def _gradients(arrays: Mapping[str, Array], grads: tuple[Array, ...], scale: float) -> None:
    """grad_q, grad_k and grad_v from normalised weights `a`; the last three are scratch."""
    q, k, v, out, grad_out, a, gs, line, stack = (
        arrays[n] for n in ("q", "k", "v", "out", "grad_out", "a", "gs", "line", "stack")
    )
    grad_q, grad_k, grad_v = grads
    kv_heads = k.shape[1]
    slopes = _grouped(gs, kv_heads)
    np.matmul(_grouped(grad_out, kv_heads), v[:, :, None].swapaxes(-1, -2), out=slopes)
    np.einsum("bhid,bhid->bhi", out, grad_out, out=line)
    np.subtract(gs, line[..., None], out=gs)
    np.multiply(gs, a, out=gs)
    np.multiply(gs, gs.dtype.type(scale), out=gs)
    np.matmul(slopes, k[:, :, None], out=_grouped(grad_q, kv_heads))
    for weights, array, grad in ((gs, q, grad_k), (a, grad_out, grad_v)):
        rows = _stacked(weights, kv_heads).swapaxes(-1, -2)
        np.matmul(rows, _stacked(array, kv_heads, stack), out=grad)


@variant(attention, "numpy", passes=FORWARD, intermediates=(_A, _LINE), **_COMMON)
def forward(problem: Any, config: Mapping[str, Any]) -> Run:
    """Scores, softmax and product one after the other on whole matrices."""
    causal = bool(problem.flags["causal"])

    def run(*arrays: Any) -> None:
        *rest, scale = arrays
        _forward(*rest, causal=causal, scale=scale)

    return run


@variant(
    *(attention_backward, "numpy"),
    passes=(*WEIGHTS, *GRADIENTS),
    intermediates=(_A, _GS, _LINE, _STACK),
    **_COMMON,
)
def backward(problem: Any, config: Mapping[str, Any]) -> Run:
    """Weights from lse, their gradients, and three products, on whole matrices."""
    causal = bool(problem.flags["causal"])
    names = ("q", "k", "v", "out", "lse", "grad_out", "grad_q", "grad_k", "grad_v")

    def run(*arguments: Any) -> None:
        *given, scale = arguments
        arrays = dict(zip((*names, "a", "gs", "line", "stack"), given, strict=True))
        a, line, lse = arrays["a"], arrays["line"], arrays["lse"]
        _scores(arrays["q"], arrays["k"], a, causal=causal, scale=scale)
        line[...] = np.where(np.isneginf(lse), np.inf, lse)
        np.subtract(a, line[..., None], out=a)
        np.exp(a, out=a)
        _gradients(arrays, (arrays["grad_q"], arrays["grad_k"], arrays["grad_v"]), scale)

    return run


@variant(
    *(attention_train, "numpy"),
    passes=(*FORWARD, *GRADIENTS),
    intermediates=(_LSE, _A, _GS, _LINE, _STACK),
    **_COMMON,
)
def train(problem: Any, config: Mapping[str, Any]) -> Run:
    """The plain forward, whose weights the plain backward takes over."""
    causal = bool(problem.flags["causal"])
    names = ("q", "k", "v", "grad_out", "out", "grad_q", "grad_k", "grad_v")

    def run(*arguments: Any) -> None:
        *given, scale = arguments
        arrays = dict(zip((*names, "lse", "a", "gs", "line", "stack"), given, strict=True))
        a, line = arrays["a"], arrays["line"]
        first = (arrays[name] for name in ("q", "k", "v", "out", "lse", "a", "line"))
        _forward(*first, causal=causal, scale=scale)
        np.divide(a, line[..., None], out=a)
        _gradients(arrays, (arrays["grad_q"], arrays["grad_k"], arrays["grad_v"]), scale)

    return run
