"""Variants by tiles of tokens: a tile's hidden activations stay in cache between its products.

The gradients of the weights, sums over all tokens, are accumulated in a copy for each of `shares`
shares of the tokens of every thread, and the copies are summed in order. With one share each thread
accumulates for itself, a CPU's counterpart of atomic additions; the same number of copies gives the
same bits whatever the number of threads.
In the variants of `norm_mlp` the tile is normalised on its way to the first product.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from autotune import Choice, Intermediate, Pass, Placement, PowerOfTwo, Threads, Unit, variant
from autotune_variants.blas import blas_gemm, needs_blas
from autotune_variants.mlp.operations import (
    gated_mlp,
    gated_mlp_backward,
    gated_mlp_train,
    norm_mlp,
    norm_mlp_train,
)

Run = Callable[..., None]

_TILES = "ceil_div(N, rows)"
_BLOCKS = (
    Choice("rows", (16, 32, 64, 128), default=64, ordered=True),
    Choice("hidden", (64, 128, 256), default=128, ordered=True),
)
_CONSTRAINTS = (
    "rows < 2*N or rows == 16",
    "hidden < 2*F or hidden == 64",
    "threads == 1 or threads <= ceil_div(N, rows)",
)
_SPLITS = "threads*shares"
_SHARES = PowerOfTwo("shares", 1, 8)
_SHARE_CONSTRAINT = f"shares == 1 or {_SPLITS} <= {_TILES}"
_WEIGHTS = dict.fromkeys(("w_gate", "w_up", "w_down"), _TILES)
# Room for blocks of weights whose rows BLAS cannot read where they are.
_SPARE = "3*hidden*D + D + rows"
_PARTS = Intermediate("parts", (_SPLITS, "3*F", "D"))
_WEIGHT_PARTS = Intermediate("weight_parts", (f"2*{_SPLITS}", "D"))


def _room(size: str) -> Intermediate:
    """The tiles of every worker; each worker's start on a cache line."""
    return Intermediate("tiles", ("threads", f"ceil_div({size} + {_SPARE}, 64)*64"))


_FORWARD_ROOM = _room("3*rows*D + 2*rows*hidden")
_GRADIENT_ROOM = _room("8*rows*D + 3*rows*hidden")


def forward_passes(norm: bool) -> tuple[Pass, ...]:
    """One sweep over the tiles of tokens."""
    weight = {"weight": "threads"} if norm else {}
    return (
        Pass(
            "forward",
            parallel={"N": "rows"},
            sequential={"F": "hidden"},
            reads={"x": 1, **weight, **_WEIGHTS},
            writes={"out": "owned"},
            flops="6*N*D*F",
        ),
    )


def gradient_passes(norm: bool, with_out: bool) -> tuple[Pass, ...]:
    """One sweep over the tiles of tokens, and the sums of what each share of them left."""
    weight = {"weight": "threads"} if norm else {}
    parts = {"parts": f"{_TILES}/({_SPLITS})"}
    more = {"weight_parts": "reduction"} if norm else {}
    out = {"out": "owned"} if with_out else {}
    sums = Pass(
        "sum_weights",
        parallel=("F",),
        reads=("parts",),
        writes=dict.fromkeys(("grad_w_gate", "grad_w_up", "grad_w_down"), "owned"),
        flops=f"3*{_SPLITS}*D*F",
    )
    norm_sum = Pass(
        "sum_norm", parallel=("D",), reads=("weight_parts",), writes={"grad_weight": "owned"}
    )
    return (
        Pass(
            "tokens",
            parallel={"N": f"ceil_div(N, {_SPLITS})"},
            sequential={"N": "rows", "F": "hidden"},
            reads={"x": 1, "grad_out": 1, **weight, **_WEIGHTS, **parts},
            writes={**out, "grad_x": "owned", "parts": "reduction", **more},
            flops="18*N*D*F" if with_out else "16*N*D*F",
        ),
        sums,
        *((norm_sum,) if norm else ()),
    )


def _declare(operation: Any, name: str, **declared: Any) -> Any:
    """Declare a builder twice: with products by BLAS and with products in vector registers."""

    def declare(build: Callable[..., Run]) -> Callable[..., Run]:
        for products in ("blas", "simd"):
            _declare_with(products, operation, name, build, declared)
        return build

    return declare


def _declare_with(
    products: str, operation: Any, name: str, build: Any, declared: Mapping[str, Any]
) -> None:
    def builder(problem: Any, config: Mapping[str, Any]) -> Run:
        return build(problem, config, products)

    kind = {"blas": "products by BLAS", "simd": "products in vector registers"}[products]
    builder.__doc__ = f"{build.__doc__} ({kind})"
    variant(
        operation,
        f"{products}_{name}",
        dtypes=("float32", "float64"),
        requires=(needs_blas,) if products == "blas" else (),
        blas="serial" if products == "blas" else None,
        unit=Unit("matrix" if products == "blas" else "vector"),
        **declared,
    )(builder)


def _settings(problem: Any, config: Mapping[str, Any], products: str, flags: int) -> dict[int, int]:
    from autotune_variants.gemm import register_gemm
    from autotune_variants.norm import table

    gemm = blas_gemm(problem.dtype) if products == "blas" else register_gemm(problem.dtype)
    if problem.flags.get("residual"):
        flags |= table.RESIDUAL
    return {
        table.GEMM: gemm,
        table.ROWS: config["rows"],
        table.HIDDEN: config["hidden"],
        table.WORKERS: config["threads"],
        table.SPLITS: config["threads"] * config.get("shares", 1),
        table.FLAGS: flags,
    }


def _forward(problem: Any, config: Mapping[str, Any], products: str, norm: bool) -> Run:
    from autotune_variants.mlp.steps import forward_step
    from autotune_variants.norm import table

    settings = _settings(problem, config, products, table.NORM if norm else 0)
    rows = (
        *(table.X, *((table.WEIGHT,) if norm else ()), table.W_GATE, table.W_UP, table.W_DOWN),
        *(table.OUT, table.SCRATCH),
    )
    scalars = (table.EPS,) if norm else ()
    return table.bind((forward_step,), problem.dtype, settings, rows, scalars=scalars)


def _gradients(
    problem: Any, config: Mapping[str, Any], products: str, *, norm: bool, with_out: bool
) -> Run:
    from autotune_variants.mlp.steps import gradient_step
    from autotune_variants.mlp.sweeps import sum_step
    from autotune_variants.norm import table
    from autotune_variants.norm.steps import weight_step

    flags = (table.NORM if norm else 0) | (table.WITH_OUT if with_out else 0)
    settings = _settings(problem, config, products, flags)
    rows = (
        *(table.X, *((table.WEIGHT,) if norm else ()), table.W_GATE, table.W_UP, table.W_DOWN),
        *(table.GRAD_OUT, *((table.OUT,) if with_out else ()), table.GRAD_X),
        *((table.GRAD_WEIGHT,) if norm else ()),
        *(table.GRAD_GATE, table.GRAD_UP, table.GRAD_DOWN, table.PARTS),
        *(*((table.WEIGHT_PARTS,) if norm else ()), table.SCRATCH),
    )
    steps = (gradient_step, sum_step, *((weight_step,) if norm else ()))
    scalars = (table.EPS,) if norm else ()
    return table.bind(steps, problem.dtype, settings, rows, scalars=scalars)


_FORWARD: dict[str, Any] = {
    "intermediates": (_FORWARD_ROOM,),
    "tunables": (*_BLOCKS, Threads(), Placement()),
    "constraints": _CONSTRAINTS,
}
GRADIENT_TUNABLES = (*_BLOCKS, _SHARES)
GRADIENT_CONSTRAINTS = (*_CONSTRAINTS, _SHARE_CONSTRAINT)
_GRADIENTS: dict[str, Any] = {
    "tunables": (*GRADIENT_TUNABLES, Threads(), Placement()),
    "constraints": GRADIENT_CONSTRAINTS,
}
_PLAIN_ROOM = (_PARTS, _GRADIENT_ROOM)
_NORM_ROOM = (_PARTS, _WEIGHT_PARTS, _GRADIENT_ROOM)


@_declare(gated_mlp, "tiled", passes=forward_passes(norm=False), **_FORWARD)
def mlp_forward(problem: Any, config: Mapping[str, Any], products: str) -> Run:
    """Tiles of tokens in parallel, their hidden activations in cache."""
    return _forward(problem, config, products, norm=False)


@_declare(norm_mlp, "tiled", passes=forward_passes(norm=True), **_FORWARD)
def norm_mlp_forward(problem: Any, config: Mapping[str, Any], products: str) -> Run:
    """Tiles of tokens in parallel, normalised and multiplied while they are in cache."""
    return _forward(problem, config, products, norm=True)


@_declare(
    *(gated_mlp_backward, "splits"),
    passes=gradient_passes(norm=False, with_out=False),
    intermediates=_PLAIN_ROOM,
    **_GRADIENTS,
)
def mlp_backward(problem: Any, config: Mapping[str, Any], products: str) -> Run:
    """Tiles of tokens in parallel; weight gradients accumulated by share of tokens and summed."""
    return _gradients(problem, config, products, norm=False, with_out=False)


@_declare(
    *(gated_mlp_train, "splits"),
    passes=gradient_passes(norm=False, with_out=True),
    intermediates=_PLAIN_ROOM,
    **_GRADIENTS,
)
def mlp_train(problem: Any, config: Mapping[str, Any], products: str) -> Run:
    """Forward and backward of a tile in one go; weight gradients by share of tokens, summed."""
    return _gradients(problem, config, products, norm=False, with_out=True)


@_declare(
    *(norm_mlp_train, "splits"),
    passes=gradient_passes(norm=True, with_out=True),
    intermediates=_NORM_ROOM,
    **_GRADIENTS,
)
def norm_mlp_train_splits(problem: Any, config: Mapping[str, Any], products: str) -> Run:
    """Normalisation and MLP of a tile, forward and backward, in one go; weights as in the MLP."""
    return _gradients(problem, config, products, norm=True, with_out=True)
