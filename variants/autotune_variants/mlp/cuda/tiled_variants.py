"""Variants that hold a tile of tokens on chip: one launch for the output, three for gradients.

The gradients of the weights are sums over all tokens: each share of the tokens sums for itself,
and the shares are summed in order, or add to one sum as they end (`_atomic`). Hidden activations
are computed once for out and grad_x, and once more for the weights: they never lie in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from autotune import Choice, Intermediate, Pass, Unit, variant
from autotune_variants.mlp.cuda.tiled import TILE, tiled
from autotune_variants.mlp.operations import (
    gated_mlp,
    gated_mlp_backward,
    gated_mlp_train,
    norm_mlp,
    norm_mlp_train,
)

Run = Callable[..., None]


class Family(NamedTuple):
    """What multiplies."""

    name: str
    doc: str
    dtypes: tuple[str, ...]
    unit: Unit


FAMILIES = (
    Family("cuda_dmma", "float64 matrix units", ("float64",), Unit("matrix")),
    Family(
        "cuda_tf32x3",
        "three TF32 products for one of float32",
        ("float32",),
        Unit("matrix", "tf32", 3),
    ),
    Family(
        "cuda_mma",
        "TF32 products, exact for 16-bit operands",
        ("bfloat16", "float16"),
        Unit("matrix", "tf32"),
    ),
)

_TOKENS, _TILES = "16*row_warps", "ceil_div(N, 16*row_warps)"
_FEATURES = "(16*feature_warps // partners)"
_CHUNKS = f"ceil_div(F, {_FEATURES})"
_WEIGHTS = ("w_gate", "w_up", "w_down")
_GRADS = tuple(f"grad_{name}" for name in _WEIGHTS)

# Bytes of shared memory: TokenTiles in tiled_tokens.cuh, WeightTiles in tiled_weights.cuh.
_REAL = "max(itemsize, 4)"
_DEPTH = "(ceil_div(D, 16)*16)"
_PITCH = f"(ceil_div({_DEPTH}*{_REAL}, 128)*128 // {_REAL})"
_CHUNK_SIZE = f"(2*{_DEPTH}*chunk + chunk*{_PITCH})"
_EXCHANGE = "(0 if partners == 1 else 48*step*(feature_warps // partners))"

ONE_TOKEN = ("N >= 1",)
"""The sweep over the tokens sets the sums to zero that the other adds to."""

_ADMITTED = ("compute >= 80", "min(D, F) >= 1", "D <= 64")
_TOKEN_TUNABLES = (
    Choice("row_warps", (2, 4, 8), default=4, ordered=True),
    Choice("split_warps", (1, 2, 4), default=2, ordered=True),
    Choice("chunk", (32, 64), default=32, ordered=True),
)
_TOKEN_RULES = (
    "row_warps*split_warps <= 8",
    "chunk >= 16*split_warps",
)
_WEIGHT_RULES = (
    f"{_FEATURES} * {_REAL} % 128 == 0",
    f"partners == 1 or {_DEPTH} in (16, 32, 64)",
    "partners == 2 or step == 16",
    "itemsize < 8 or D <= 32 or partners == 2",
    f"shares == 8 or shares*{TILE} <= N",
    f"shares == 8 or shares*{_CHUNKS} <= 4*sms",
    f"{_REAL}*(2*{_DEPTH}*{_FEATURES} + {_FEATURES}*{_PITCH} + {4 * TILE}*{_PITCH}"
    f" + {_EXCHANGE}) <= shared_per_block",
)


def forms(operation: Any) -> tuple[bool, ...]:
    """Without atomics, and with them where there are gradients."""
    gradients = "grad_out" in {each.name for each in operation.inputs}
    return (False, True) if gradients else (False,)


def _token_bytes(gradients: bool) -> str:
    tiles = 2 if gradients else 1
    return (
        f"{_REAL}*({tiles}*{_TOKENS}*{_PITCH} + 2*{_CHUNK_SIZE} + {_TOKENS} + row_warps*{_DEPTH})"
        " <= shared_per_block"
    )


def _passes(norm: bool, gradients: bool, with_out: bool, atomic: bool) -> tuple[Pass, ...]:
    """One sweep over the tokens; where gradients are wanted another, and the sums of its shares.

    Memory delivers every array once; what each block reads of it, the cache does.
    """
    z = "z" if norm else "x"
    # Where x is normalised it is read again for grad_x, which the cache may spare.
    again = 1 if norm and gradients else 0
    reads: dict[str, Any] = {"x": 1 + again, **dict.fromkeys(_WEIGHTS, 1)}
    writes: dict[str, Any] = {"out": "owned"} if with_out else {}
    if norm:
        reads["weight"] = 1
    if gradients:
        reads["grad_out"] = 1
        writes["grad_x"] = "owned"
    if norm and gradients:
        writes |= {"z": "owned", "weight_parts": "reduction"}
    if atomic:
        writes["parts"] = "owned"  # zeros
    flops = (6 if with_out else 4) + (6 if gradients else 0)
    tokens = Pass(
        "tokens",
        parallel={"N": _TOKENS},
        sequential={"F": "chunk"},
        reads=reads,
        writes=writes,
        flops=f"{flops}*N*D*F",
    )
    if not gradients:
        return (tokens,)
    return (
        tokens,
        Pass(
            "weights",
            parallel={"F": _FEATURES, "N": "ceil_div(N, shares)"},
            sequential={"N": TILE},
            reads=dict.fromkeys((z, "grad_out", *_WEIGHTS), 1),
            writes={"parts": "atomic" if atomic else "reduction"},
            flops="12*N*D*F",
        ),
        Pass(
            "combine",
            reads=("parts", *(("weight_parts",) if norm else ())),
            writes=dict.fromkeys((*(("grad_weight",) if norm else ()), *_GRADS), "owned"),
        ),
    )


def parts_of_weights(atomic: bool) -> Intermediate:
    """What the shares of the tokens add up to, each for itself or all together."""
    return Intermediate("parts", (1 if atomic else "shares", 3, "F", "D"), "accumulator")


def _temporaries(norm: bool, atomic: bool) -> tuple[Intermediate, ...]:
    parts = parts_of_weights(atomic)
    if not norm:
        return (parts,)
    weight_parts = Intermediate("weight_parts", (_TILES, "D"), "accumulator")
    return (Intermediate("z", ("N", "D")), parts, weight_parts)


def _declare(operation: Any, family: Family, atomic: bool) -> None:
    inputs = {tensor.name for tensor in operation.inputs}
    norm, gradients = "weight" in inputs, "grad_out" in inputs
    with_out = "out" in {tensor.name for tensor in operation.outputs}
    arrays = _temporaries(norm, atomic) if gradients else ()
    names = tuple(array.name for array in arrays)
    of_weights = (
        Choice("feature_warps", (4, 8), default=8, ordered=True),
        Choice("partners", (1, 2), default=2, ordered=True),
        Choice("step", (16, 32), default=32, ordered=True),
        Choice("shares", (8, 16, 33, 66, 132), default=33, ordered=True),
    )
    rules = (*_ADMITTED, *_TOKEN_RULES, _token_bytes(gradients), *(ONE_TOKEN if atomic else ()))

    def build(problem: Any, config: Mapping[str, Any]) -> Run:
        return tiled(problem, config, names, atomic=atomic)

    sums = ", gradients of weights by atomics" if atomic else ""
    build.__doc__ = f"A tile of tokens on chip, weights passing by{sums}: {family.doc}."
    variant(
        operation,
        family.name + ("_atomic" if atomic else ""),
        device="cuda",
        dtypes=family.dtypes,
        passes=_passes(norm, gradients, with_out, atomic),
        intermediates=arrays,
        tunables=(*_TOKEN_TUNABLES, *(of_weights if gradients else ())),
        constraints=(*rules, *(_WEIGHT_RULES if gradients else ())),
        unit=family.unit,
    )(build)


for _operation in (gated_mlp, gated_mlp_backward, gated_mlp_train, norm_mlp, norm_mlp_train):
    for _family in FAMILIES:
        for _atomic in forms(_operation):
            _declare(_operation, _family, _atomic)
