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


def _declare(operation: Any, name: str, doc: str, *, fused: bool, atomic: bool = False) -> None:
    projected = "w_o" in {tensor.name for tensor in operation.inputs}
    train = "grad_out" in {tensor.name for tensor in operation.inputs}
    arrays = passes.temporaries(projected, train, fused)

    def build(problem: Any, config: Mapping[str, Any]) -> Run:
        from autotune_variants.block.cuda.parts import run_block

        values = {**problem.names, **config}
        shapes = {a.name: tuple(int(evaluate(d, values)) for d in a.dims) for a in arrays}
        return run_block(problem, shapes, atomic=atomic)

    build.__doc__ = doc
    variant(
        operation,
        name,
        device="cuda",
        dtypes=operation.dtypes,
        passes=passes.passes(projected, train, fused, atomic),
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


_BLOCKS = {
    "cuda_parts_norm_mlp": (True, "Attention and norm_mlp by dispatch, projections by cuBLAS"),
    "cuda_parts": (
        False,
        "Attention and MLP by dispatch, projections by cuBLAS; residuals added by normalisations",
    ),
}
for _operation in (
    *(transformer_block, transformer_block_train, projected_block, projected_block_train),
):
    for _name, (_fused, _doc) in _BLOCKS.items():
        _declare(_operation, _name, f"{_doc}.", fused=_fused)
        if "grad_out" in {tensor.name for tensor in _operation.inputs}:
            _atomic = f"{_doc}; parts may add atomically."
            _declare(_operation, f"{_name}_atomic", _atomic, fused=_fused, atomic=True)
