"""Variants that multiply float32 on the 16-bit matrix units, a tile of tokens on chip.

As in tiled_variants.py, after one launch that writes every tensor as the sum of two float16
numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from autotune import Choice, Intermediate, Pass, Unit, variant
from autotune_variants.mlp.cuda.split import WIDTH, split
from autotune_variants.mlp.cuda.tiled import TILE
from autotune_variants.mlp.cuda.tiled_variants import ONE_TOKEN, forms, parts_of_weights
from autotune_variants.mlp.operations import (
    gated_mlp,
    gated_mlp_backward,
    gated_mlp_train,
    norm_mlp,
    norm_mlp_train,
)

Run = Callable[..., None]

_TOKENS = "16*row_warps"
_ROWS, _HIDDEN = "ceil_div(N, 128)*128", f"ceil_div(F, {WIDTH})*{WIDTH}"
_WEIGHTS = ("w_gate", "w_up", "w_down")
_GRADS = tuple(f"grad_{name}" for name in _WEIGHTS)
_PLANES = Intermediate("planes", (f"{WIDTH}*(4*{_ROWS} + 6*{_HIDDEN})",), "float16")
_SCALES = Intermediate("scales", (f"4 + 3*{_ROWS}",), "float32")
_WEIGHT_PARTS = Intermediate("weight_parts", (f"ceil_div(N, {_TOKENS})", "D"), "accumulator")

_TUNABLES = (
    Choice("row_warps", (4, 8), default=4, ordered=True),
    Choice("split_warps", (1, 2), default=2, ordered=True),
)
_SHARES = Choice("shares", (8, 16, 33, 66, 132), default=33, ordered=True)
_RULES = ("compute >= 80", "min(D, F) >= 1", f"D <= {WIDTH}", "row_warps*split_warps <= 8")
_SHARE_RULES = (
    f"shares == 8 or shares*{TILE} <= N",
    f"shares == 8 or shares*ceil_div(F, {WIDTH}) <= 4*sms",
)


def _shared(gradients: bool) -> str:
    """TokenPlanes in split_tokens.cuh; WeightPlanes takes less."""
    planes = 4 if gradients else 2
    depth = "(ceil_div(D, 16)*16)"
    return f"{planes}*{_TOKENS}*128 + 98304 + 4*({_TOKENS} + row_warps*{depth}) <= shared_per_block"


def _passes(norm: bool, gradients: bool, with_out: bool, atomic: bool) -> tuple[Pass, ...]:
    """Memory delivers every array once; what each block reads of it, the cache does."""
    above = ("grad_out",) if gradients else ()
    prepare = Pass(
        "prepare",
        parallel=("N",),
        reads=("x", *(("weight",) if norm else ()), *above, *_WEIGHTS),
        writes={"planes": "owned", "scales": "owned"},
        flops="4*N*D" if norm else 0,
    )
    # Where x is normalised it is read again for grad_x.
    reads = ["planes", "scales", *(("x", "weight") if norm and gradients else ())]
    writes: dict[str, Any] = {"out": "owned"} if with_out else {}
    if gradients:
        writes["grad_x"] = "owned"
    if norm and gradients:
        writes["weight_parts"] = "reduction"
    if atomic:
        writes["parts"] = "owned"  # zeros
    flops = (6 if with_out else 4) + (6 if gradients else 0)
    tokens = Pass(
        "tokens",
        parallel={"N": _TOKENS},
        sequential={"F": WIDTH},
        reads=reads,
        writes=writes,
        flops=f"{flops}*N*D*F",
    )
    if not gradients:
        return (prepare, tokens)
    return (
        prepare,
        tokens,
        Pass(
            "weights",
            parallel={"F": WIDTH, "N": "ceil_div(N, shares)"},
            sequential={"N": TILE},
            reads=("planes", "scales"),
            writes={"parts": "atomic" if atomic else "reduction"},
            flops="12*N*D*F",
        ),
        Pass(
            "combine",
            reads=("parts", *(("weight_parts",) if norm else ())),
            writes=dict.fromkeys((*(("grad_weight",) if norm else ()), *_GRADS), "owned"),
        ),
    )


def _declare(operation: Any, atomic: bool) -> None:
    inputs = {tensor.name for tensor in operation.inputs}
    norm, gradients = "weight" in inputs, "grad_out" in inputs
    with_out = "out" in {tensor.name for tensor in operation.outputs}
    of_gradients = (parts_of_weights(atomic), *((_WEIGHT_PARTS,) if norm else ()))
    arrays = (_PLANES, _SCALES, *(of_gradients if gradients else ()))
    names = tuple(array.name for array in arrays)

    def build(problem: Any, config: Mapping[str, Any]) -> Run:
        return split(problem, config, names, atomic=atomic)

    sums = ", gradients of weights by atomics" if atomic else ""
    build.__doc__ = f"A tile of tokens on chip{sums}: three float16 products for one of float32."

    variant(
        operation,
        "cuda_split_half" + ("_atomic" if atomic else ""),
        device="cuda",
        dtypes=("float32",),
        passes=_passes(norm, gradients, with_out, atomic),
        intermediates=arrays,
        tunables=(*_TUNABLES, *((_SHARES,) if gradients else ())),
        constraints=(
            *_RULES,
            _shared(gradients),
            *(_SHARE_RULES if gradients else ()),
            *(ONE_TOKEN if atomic else ()),
        ),
        unit=Unit("matrix", "float16", 3),
    )(build)


for _operation in (gated_mlp, gated_mlp_backward, gated_mlp_train, norm_mlp, norm_mlp_train):
    for _atomic in forms(_operation):
        _declare(_operation, _atomic)
