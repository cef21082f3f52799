"""Variants on whole matrices on a GPU: products by cuBLAS, one kernel between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from autotune import Choice, Unit, variant
from autotune.cuda.cublas import WORKSPACES
from autotune_variants.mlp.cuda import passes
from autotune_variants.mlp.cuda.whole import run_whole
from autotune_variants.mlp.operations import (
    gated_mlp,
    gated_mlp_backward,
    gated_mlp_train,
    norm_mlp,
    norm_mlp_train,
)
from autotune_variants.norm.cuda.launches import STORAGE

Run = Callable[..., None]


def _declare(operation: Any) -> None:
    inputs = {tensor.name for tensor in operation.inputs}
    norm, gradients = "weight" in inputs, "grad_out" in inputs
    with_out = "out" in {tensor.name for tensor in operation.outputs}
    arrays = passes.temporaries(norm, gradients)
    names = tuple(array.name for array in arrays)

    def build(problem: Any, config: Mapping[str, Any]) -> Run:
        """Products by cuBLAS on whole matrices, one kernel for the activation between them."""
        return run_whole(problem, config, names)

    variant(
        operation,
        "cuda_blas",
        device="cuda",
        dtypes=tuple(STORAGE),
        passes=passes.passes(norm, gradients, with_out),
        intermediates=arrays,
        tunables=(Choice("room_mib", WORKSPACES, default=32, ordered=True),),
        constraints=("compute >= 80", "min(N, D, F) >= 1", "D * max(itemsize, 4) <= 65536"),
        unit=Unit("matrix"),
    )(build)


for _operation in (gated_mlp, gated_mlp_backward, gated_mlp_train, norm_mlp, norm_mlp_train):
    _declare(_operation)
