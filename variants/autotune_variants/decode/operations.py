"""The decode operation."""

from __future__ import annotations

from autotune import operation
from autotune_variants.attention.reference import Array, one_query, plain_one_query
from autotune_variants.decode.published import COUNTS


@operation(
    dims="B H Hkv N D Dv",
    shape="B H N D",
    defaults={"Hkv": "H", "Dv": "D"},
    inputs="q[B,H,D] k[B,Hkv,N,D] v[B,Hkv,N,Dv]",
    outputs="out[B,H,Dv]",
    scalars={"scale": "max(D, 1)**-0.5"},
    rules=("H == Hkv or (Hkv > 0 and H % Hkv == 0)",),
    axes=(("N",), ("B", "H", "Hkv")),
    dtypes=("float32", "float64", "bfloat16", "float16"),
    flops="2*B*H*N*(D + Dv)",
    tolerance={"out": 2.0},
    plain=plain_one_query,
    published=COUNTS,
)
def decode(q: Array, k: Array, v: Array, *, scale: float) -> Array:
    """softmax(scale * q K^T) V for one query per head, as in generating one token.

    Query head h attends key-value head h // (H / Hkv). With N = 0 the result is 0. Formulas:
    arXiv 2607.19456.
    """
    return one_query(q, k, v, scale=scale)
