"""Variants by tiles: matrix products by NumPy's BLAS on tiles, softmax online between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from autotune import Intermediate, Pass, Placement, PowerOfTwo, Threads, variant
from autotune_variants.attention.operations import attention, attention_backward, attention_train
from autotune_variants.blas import needs_blas, numpy_blas

Run = Callable[..., None]

_PER_QUERY_TILE = "ceil_div(Nq, block_q) * H / max(Hkv, 1)"
_PER_KEY_TILE = "ceil_div(Nk, block_k)"
_QK, _PV = "2*B*H*Nq*Nk*D", "2*B*H*Nq*Nk*Dv"
_HEADS = "max(B*Hkv, 1)"

FORWARD = Pass(
    "forward",
    parallel={"B": 1, "H": 1, "Nq": "block_q"},
    sequential={"Nk": "block_k"},
    reads={"q": 1, "k": _PER_QUERY_TILE, "v": _PER_QUERY_TILE},
    writes={"out": "owned", "lse": "owned"},
    flops=f"{_QK} + {_PV}",
)
DELTA = Pass(
    "delta",
    parallel=("B", "H", "Nq"),
    reads=("out", "grad_out"),
    writes={"delta": "owned"},
    flops="2*B*H*Nq*Dv",
)
GRADIENTS = Pass(
    "gradients",
    parallel={"B": 1, "Hkv": 1, "Nk": "block_k"},
    sequential={"Nq": "block_q"},
    reads={
        **{"k": 1, "v": 1, "q": _PER_KEY_TILE, "grad_out": _PER_KEY_TILE},
        **{"lse": _PER_KEY_TILE, "delta": _PER_KEY_TILE},
    },
    writes={
        **{"grad_k": "owned", "grad_v": "owned"},
        **{"grad_q": "reduction", "query_parts": "reduction"},
    },
    flops=f"3*{_QK} + 2*{_PV}",
)
SUM = Pass(
    "sum",
    parallel=("B", "H", "Nq"),
    reads=("grad_q", "query_parts"),
    writes={"grad_q": "owned"},
)

_FORWARD_TILES = "(D + Dv)*(block_q + block_k) + (block_k + 4)*block_q"
_GRADIENT_TILES = (
    "(D + Dv)*(2*block_k + block_q) + D*(block_k + block_q) + 2*block_q*block_k + 2*block_q"
)
# Copies of grad_q beside grad_q itself: one per further worker that may share a head of keys.
_PARTS = (
    f"(max(threads // {_HEADS}, 1) - 1) "
    f"if threads % {_HEADS} == 0 or {_HEADS} % threads == 0 else ceil_div(threads, {_HEADS})"
)


def _tiles(size: str) -> Intermediate:
    """The tiles of every worker, from one cache line to the next."""
    return Intermediate("tiles", ("threads", f"ceil_div({size}, 64)*64"))


_LSE = Intermediate("lse", ("B", "H", "Nq"))
_BACKWARD = (
    Intermediate("delta", ("B", "H", "Nq")),
    Intermediate("query_parts", (f"B*({_PARTS})", "H", "Nq", "D")),
)
_COMMON: dict[str, Any] = {
    "dtypes": ("float32", "float64"),
    "tunables": (
        PowerOfTwo("block_q", 16, 256, default=64),
        PowerOfTwo("block_k", 32, 512, default=128),
        Threads(),
        Placement(),
    ),
    "constraints": ("block_q < 2*Nq or block_q == 16", "block_k < 2*Nk or block_k == 32"),
    "requires": (needs_blas,),
    "blas": "serial",
}


def _bind(problem: Any, config: Mapping[str, Any], steps: tuple[Any, ...], rows: Any) -> Run:
    """`run(*arrays, scale)`: the steps in order, on the arrays entered in the table's rows."""
    import numpy as np

    from autotune_variants.attention.tiled_table import (
        describe,
        empty_table,
        run_steps,
        step_address,
    )

    blas = numpy_blas()
    if blas is None:
        raise RuntimeError(needs_blas.missing())
    workers = int(config["threads"])
    addresses = np.array([step_address(step, problem.dtype) for step in steps], np.int64)
    template = empty_table()
    template[0, :5] = (
        *(blas.gemm(problem.dtype), config["block_q"], config["block_k"], workers),
        problem.flags["causal"],
    )

    def run(*arguments: Any) -> None:
        table = template.copy()
        for row, array in zip(rows, arguments[:-1], strict=True):
            describe(table, row, array)
        table.view(np.float64)[0, 5] = arguments[-1]
        run_steps(addresses, workers, table)

    return run


@variant(
    attention,
    "blas_tiled",
    passes=(FORWARD,),
    intermediates=(_tiles(_FORWARD_TILES),),
    **_COMMON,
)
def blas_tiled(problem: Any, config: Mapping[str, Any]) -> Run:
    """Tiles of queries in parallel, online softmax over tiles of keys, two products per tile."""
    from autotune_variants.attention import tiled_table as rows
    from autotune_variants.attention.tiled_forward import forward_step

    order = (rows.Q, rows.K, rows.V, rows.OUT, rows.LSE, rows.SCRATCH)
    return _bind(problem, config, (forward_step,), order)


@variant(
    attention_backward,
    "blas_tiled",
    passes=(DELTA, GRADIENTS, SUM),
    intermediates=(*_BACKWARD, _tiles(_GRADIENT_TILES)),
    **_COMMON,
)
def blas_tiled_backward(problem: Any, config: Mapping[str, Any]) -> Run:
    """Tiles of keys in parallel, weights recomputed; grad_q in a copy per worker of a head."""
    from autotune_variants.attention import tiled_table as rows
    from autotune_variants.attention.tiled_backward import backward_step, delta_step, reduce_step

    order = (
        *(rows.Q, rows.K, rows.V, rows.OUT, rows.LSE, rows.GRAD_OUT),
        *(rows.GRAD_Q, rows.GRAD_K, rows.GRAD_V, rows.DELTA, rows.PARTS, rows.SCRATCH),
    )
    return _bind(problem, config, (delta_step, backward_step, reduce_step), order)


@variant(
    attention_train,
    "blas_tiled",
    passes=(FORWARD, DELTA, GRADIENTS, SUM),
    intermediates=(_LSE, *_BACKWARD, _tiles(f"max({_FORWARD_TILES}, {_GRADIENT_TILES})")),
    **_COMMON,
)
def blas_tiled_train(problem: Any, config: Mapping[str, Any]) -> Run:
    """The tiled forward and the tiled backward, scores recomputed in between."""
    from autotune_variants.attention import tiled_table as rows
    from autotune_variants.attention.tiled_backward import backward_step, delta_step, reduce_step
    from autotune_variants.attention.tiled_forward import forward_step

    order = (
        *(rows.Q, rows.K, rows.V, rows.GRAD_OUT, rows.OUT),
        *(rows.GRAD_Q, rows.GRAD_K, rows.GRAD_V),
        *(rows.LSE, rows.DELTA, rows.PARTS, rows.SCRATCH),
    )
    return _bind(problem, config, (forward_step, delta_step, backward_step, reduce_step), order)
