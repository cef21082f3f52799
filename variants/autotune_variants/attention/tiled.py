"""Variants by tiles: matrix products on tiles, by BLAS or in vector registers, softmax between."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from autotune import Choice, Intermediate, Placement, Threads, Unit, variant
from autotune_variants.attention import tiled_passes as passes
from autotune_variants.attention.operations import attention, attention_backward, attention_train
from autotune_variants.blas import blas_gemm, needs_blas

Run = Callable[..., None]

_BLOCKS = (
    Choice("block_q", (16, 32, 48, 64, 96, 128), default=64, ordered=True),
    Choice("block_k", (48, 64, 96, 128, 192), default=96, ordered=True),
)
_CONSTRAINTS = ("block_q < 2*Nq or block_q == 16", "block_k < 2*Nk or block_k == 48")

_HEADS = "max(B*Hkv, 1)"
# Copies of a gradient beside the gradient itself: one per further worker that may share a head.
_COPIES = (
    f"((max(threads // {_HEADS}, 1) - 1) "
    f"if threads % {_HEADS} == 0 or {_HEADS} % threads == 0 else ceil_div(threads, {_HEADS}))"
)
_LSE = Intermediate("lse", ("B", "H", "Nq"))
_DELTA = Intermediate("delta", ("B", "H", "Nq"))
_QUERY_PARTS = Intermediate("query_parts", (f"B*{_COPIES}", "H", "Nq", "D"))
_KEY_PARTS = Intermediate("key_parts", (f"B*{_COPIES}", "Hkv", "Nk", "D"))
_VALUE_PARTS = Intermediate("value_parts", (f"B*{_COPIES}", "Hkv", "Nk", "Dv"))


def _forward_tiles(tiles: str) -> str:
    """Numbers one worker needs in `forward_scratch`."""
    return f"(D + Dv)*(block_q + block_k) + ({tiles}*(block_k + 1) + 5)*block_q"


_BACKWARD_TILES = (
    "(D + Dv)*(2*block_k + block_q) + D*(block_k + block_q) + 2*block_q*block_k + 2*block_q"
)
_FUSED_TILES = (
    f"{_forward_tiles('ceil_div(Nk, block_k)')} + (block_k + 2)*block_q"
    " + 2*(D + Dv)*block_q + (D + Dv)*block_k"
)


def _tiles(size: str) -> Intermediate:
    """The tiles of every worker; each worker's start on a cache line."""
    return Intermediate("tiles", ("threads", f"ceil_div({size}, 64)*64"))


def _declare(operation: Any, arrangement: str, parts: tuple[Any, ...], *arrays: Any) -> Any:
    """Declare a builder twice: with products by BLAS and with products in vector registers."""

    def declare(build: Callable[..., Run]) -> Callable[..., Run]:
        for products in ("blas", "simd"):
            _declare_with(products, operation, arrangement, build, passes=parts, arrays=arrays)
        return build

    return declare


def _declare_with(
    products: str, operation: Any, arrangement: str, build: Any, *, passes: Any, arrays: Any
) -> None:
    def builder(problem: Any, config: Mapping[str, Any]) -> Run:
        return build(problem, config, products)

    kind = {"blas": "products by BLAS", "simd": "products in vector registers"}[products]
    builder.__doc__ = f"{build.__doc__} ({kind})"
    variant(
        operation,
        f"{products}_{arrangement}",
        dtypes=("float32", "float64"),
        passes=passes,
        intermediates=arrays,
        tunables=(*_BLOCKS, Threads(), Placement()),
        constraints=_CONSTRAINTS,
        requires=(needs_blas,) if products == "blas" else (),
        blas="serial" if products == "blas" else None,
        unit=Unit("matrix" if products == "blas" else "vector"),
    )(builder)


def _bind(
    problem: Any, config: Mapping[str, Any], products: str, steps: tuple[Any, ...], rows: Any
) -> Run:
    """`run(*arrays, scale)`: the steps in order, on the arrays entered in the table's rows."""
    import numpy as np

    from autotune_variants.attention import tiled_table as table
    from autotune_variants.gemm import register_gemm

    gemm = blas_gemm(problem.dtype) if products == "blas" else register_gemm(problem.dtype)
    workers = int(config["threads"])
    addresses = np.array([table.step_address(step, problem.dtype) for step in steps], np.int64)
    template = table.empty_table()
    blocks = config["block_q"], config["block_k"]
    template[table.SETTINGS, :5] = gemm, *blocks, workers, problem.flags["causal"]
    describe, run_steps = table.describe, table.run_steps

    def run(*arguments: Any) -> None:
        filled = template.copy()
        for row, array in zip(rows, arguments[:-1], strict=True):
            describe(filled, row, array)
        filled.view(np.float64)[table.SETTINGS, 5] = arguments[-1]
        run_steps(addresses, workers, filled)

    return run


@_declare(attention, "tiled", (passes.FORWARD,), _tiles(_forward_tiles("1")))
def _forward(problem: Any, config: Mapping[str, Any], products: str) -> Run:
    """Tiles of queries in parallel, online softmax over tiles of keys."""
    from autotune_variants.attention import tiled_table as table
    from autotune_variants.attention.tiled_forward import forward_step

    rows = (table.Q, table.K, table.V, table.OUT, table.LSE, table.SCRATCH)
    return _bind(problem, config, products, (forward_step,), rows)


@_declare(
    *(attention_backward, "tiled", (passes.DELTA, passes.GRADIENTS, passes.SUM_QUERIES)),
    *(_DELTA, _QUERY_PARTS, _tiles(_BACKWARD_TILES)),
)
def _backward(problem: Any, config: Mapping[str, Any], products: str) -> Run:
    """Tiles of keys in parallel, weights recomputed; grad_q summed over the workers of a head."""
    from autotune_variants.attention import tiled_table as table
    from autotune_variants.attention.tiled_backward import backward_step
    from autotune_variants.attention.tiled_sums import delta_step, query_sum_step

    rows = (
        *(table.Q, table.K, table.V, table.OUT, table.LSE, table.GRAD_OUT),
        *(table.GRAD_Q, table.GRAD_K, table.GRAD_V),
        *(table.DELTA, table.QUERY_PARTS, table.SCRATCH),
    )
    steps = (delta_step, backward_step, query_sum_step)
    return _bind(problem, config, products, steps, rows)


@_declare(
    attention_train,
    "tiled",
    (passes.FORWARD, passes.DELTA, passes.GRADIENTS, passes.SUM_QUERIES),
    *(_LSE, _DELTA, _QUERY_PARTS, _tiles(f"max({_forward_tiles('1')}, {_BACKWARD_TILES})")),
)
def _train(problem: Any, config: Mapping[str, Any], products: str) -> Run:
    """The tiled forward, then the tiled backward with the weights recomputed."""
    from autotune_variants.attention import tiled_table as table
    from autotune_variants.attention.tiled_backward import backward_step
    from autotune_variants.attention.tiled_forward import forward_step
    from autotune_variants.attention.tiled_sums import delta_step, query_sum_step

    rows = (
        *(table.Q, table.K, table.V, table.GRAD_OUT, table.OUT),
        *(table.GRAD_Q, table.GRAD_K, table.GRAD_V),
        *(table.LSE, table.DELTA, table.QUERY_PARTS, table.SCRATCH),
    )
    steps = (forward_step, delta_step, backward_step, query_sum_step)
    return _bind(problem, config, products, steps, rows)


@_declare(
    *(attention_train, "row_fused", (passes.FUSED, passes.SUM_KEYS)),
    *(_KEY_PARTS, _VALUE_PARTS, _tiles(_FUSED_TILES)),
)
def _row_fused(problem: Any, config: Mapping[str, Any], products: str) -> Run:
    """One sweep over tiles of queries, whose weights stay in cache from forward to backward."""
    from autotune_variants.attention import tiled_table as table
    from autotune_variants.attention.tiled_fused import fused_step
    from autotune_variants.attention.tiled_sums import key_sum_step

    rows = (
        *(table.Q, table.K, table.V, table.GRAD_OUT, table.OUT),
        *(table.GRAD_Q, table.GRAD_K, table.GRAD_V),
        *(table.KEY_PARTS, table.VALUE_PARTS, table.SCRATCH),
    )
    return _bind(problem, config, products, (fused_step, key_sum_step), rows)
