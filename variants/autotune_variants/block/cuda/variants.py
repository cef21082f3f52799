"""Variants of the transformer block on CUDA: which parts it is composed of, and what is fused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from autotune import PowerOfTwo, Unit, variant
from autotune.model import Variant
from autotune.model.expression import evaluate
from autotune.registry import registry
from autotune_variants.block.cuda import passes
from autotune_variants.block.operations import (
    projected_block,
    projected_block_train,
    transformer_block,
    transformer_block_train,
)

Run = Callable[..., None]

_OPERATIONS = (
    *("attention", "attention_backward"),
    *("gated_mlp", "gated_mlp_train", "norm_mlp", "norm_mlp_train"),
)
PARTS: tuple[Variant, ...] = tuple(
    each for name in _OPERATIONS for each in registry.variants(name) if each.device == "cuda"
)
"""Every built-in variant that may serve a part; this module is imported after all of theirs."""


def _declare(operation: Any, name: str, doc: str, *, fused: bool) -> None:
    projected = "w_o" in {tensor.name for tensor in operation.inputs}
    train = "grad_out" in {tensor.name for tensor in operation.inputs}
    arrays = passes.temporaries(projected, train, fused)

    def build(problem: Any, config: Mapping[str, Any]) -> Run:
        from autotune_variants.block.cuda.parts import run_block

        values = {**problem.names, **config}
        shapes = {a.name: tuple(int(evaluate(d, values)) for d in a.dims) for a in arrays}
        return run_block(problem, shapes)

    build.__doc__ = doc
    variant(
        operation,
        name,
        device="cuda",
        dtypes=operation.dtypes,
        passes=passes.passes(projected, train, fused),
        intermediates=arrays,
        tunables=(PowerOfTwo("room", 1, 16, default=2),),
        constraints=(
            "compute >= 80",
            "min(B, N, D) >= 1",
            "min(F, H, Hkv) >= 1",
            "Dh >= 1",
            "D * max(itemsize, 4) <= 65536",
        ),
        unit=Unit("matrix"),
        parts=PARTS,
    )(build)


for _operation in (
    *(transformer_block, transformer_block_train, projected_block, projected_block_train),
):
    _declare(
        *(_operation, "cuda_parts_norm_mlp"),
        "Attention and norm_mlp by dispatch, projections by cuBLAS.",
        fused=True,
    )
    _declare(
        *(_operation, "cuda_parts"),
        "Attention and MLP by dispatch, projections by cuBLAS; residuals added by normalisations.",
        fused=False,
    )
