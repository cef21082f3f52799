"""rmsnorm and its backward on CUDA: every tensor is read once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from autotune import Choice, Intermediate, Pass, PowerOfTwo, variant
from autotune_variants.norm.cuda.launches import STORAGE, norm_launches
from autotune_variants.norm.operations import rmsnorm, rmsnorm_backward

Run = Callable[..., None]

_TUNABLES = (
    Choice("lanes", (32, 64, 128, 256, 512), default=32, ordered=True),  # threads of a row
    Choice("block", (128, 256, 512), default=256, ordered=True),  # threads of a block
    PowerOfTwo("blocks", 64, 4096, default=512),
)
_ADMITTED = (
    "compute >= 80",
    "D >= 1",
    "lanes <= block",
    "ceil_div(D, lanes) * max(itemsize, 4) <= 128",  # a thread's features are in registers
    "lanes == 32 or lanes * 16 <= 2 * D * itemsize",  # 16 bytes for most of the threads
    "blocks == 64 or blocks * (block // lanes) <= N",
)
_DECLARED: dict[str, Any] = {
    "device": "cuda",
    "dtypes": tuple(STORAGE),
    "tunables": _TUNABLES,
    "constraints": _ADMITTED,
}


def _build(
    problem: Any, config: Mapping[str, Any], names: tuple[str, ...], entries: tuple[str, ...]
) -> Run:
    sizes = problem.sizes["N"], problem.sizes["D"]
    return norm_launches(sizes, problem.dtype, config, names, entries)


@variant(
    rmsnorm,
    "cuda_rows",
    passes=(
        Pass(
            "normalise",
            parallel={"N": "block // lanes"},
            sequential=("D",),
            reads={"x": 1, "weight": "blocks"},
            writes={"out": "owned"},
            flops="4*N*D",
        ),
    ),
    **_DECLARED,
)
def cuda_rows(problem: Any, config: Mapping[str, Any]) -> Run:
    """A row in the registers of some threads, which sum its squares by shuffles."""
    return _build(problem, config, ("x", "weight", "out"), ("normalise",))


@variant(
    rmsnorm_backward,
    "cuda_rows",
    passes=(
        Pass(
            "rows",
            parallel={"N": "ceil_div(N, blocks)"},
            sequential={"N": "block // lanes"},
            reads={"x": 1, "weight": "blocks", "grad_out": 1},
            writes={"grad_x": "owned", "parts": "reduction"},
            flops="11*N*D",
        ),
        Pass("sum", parallel=("D",), reads=("parts",), writes={"grad_weight": "owned"}),
    ),
    intermediates=(Intermediate("parts", ("blocks", "D"), "accumulator"),),
    **_DECLARED,
)
def cuda_rows_backward(problem: Any, config: Mapping[str, Any]) -> Run:
    """The same; every block keeps its share of grad_weight, and another launch sums those."""
    names = ("x", "weight", "grad_out", "grad_x", "grad_weight", "parts")
    return _build(problem, config, names, ("backward_rows", "sum_parts"))
