"""Variants of decode."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from autotune import Choice, Intermediate, Pass, Placement, PowerOfTwo, Threads, variant
from autotune_variants.decode.operations import decode

Run = Callable[..., None]

_DTYPES = ("float32", "float64")

_GROUP = "H // max(Hkv, 1)"
# Prefetching pays where K and V come from memory and costs where they are in a near cache.
_AHEAD = Choice("ahead", (0, 32), 32, ordered=True)
_READ_ONCE = "2*B*H*N*(D + Dv)"


def temporaries(splits: str | int) -> tuple[Intermediate, ...]:
    return (
        Intermediate("parts", ("B", "Hkv", splits, _GROUP, "Dv")),
        Intermediate("stats", ("B", "Hkv", splits, 2, _GROUP)),
        Intermediate("queries", ("threads", _GROUP, "D")),
        Intermediate("weights", ("threads", _GROUP, "block")),
        Intermediate("sums", ("threads", _GROUP, "Dv")),
        Intermediate("packed_keys", ("threads", "block", "D")),
        Intermediate("packed_values", ("threads", "block", "Dv")),
    )


SPLIT = (
    Pass(
        "attend",
        parallel={"B": 1, "Hkv": 1, "N": "ceil_div(N, splits)"},
        sequential={"N": "block"},
        reads={"q": "splits", "k": 1, "v": 1},
        writes={"parts": "owned", "stats": "owned"},
        flops=_READ_ONCE,
    ),
    Pass("combine", parallel=("B", "H"), reads=("parts", "stats"), writes={"out": "owned"}),
)
SPLIT_TUNABLES = (
    PowerOfTwo("splits", 2, 256, default=16),
    PowerOfTwo("block", 32, 1024, default=256),
)
SPLIT_CONSTRAINTS = (
    "splits == 2 or splits <= ceil_div(N, 64)",
    "splits <= 8*threads",
    "threads == 1 or threads <= B*Hkv*splits",
    "block == 32 or block < 2*ceil_div(N, splits)",
)


@variant(
    decode,
    "split",
    dtypes=_DTYPES,
    passes=SPLIT,
    intermediates=temporaries("splits"),
    tunables=(*SPLIT_TUNABLES, _AHEAD, Threads(), Placement()),
    constraints=SPLIT_CONSTRAINTS,
)
def split(problem: Any, config: Mapping[str, Any]) -> Run:
    """The cache cut into splits, each swept once with an online softmax, and combined."""
    from autotune_variants.decode.kernels_split import kernel

    return kernel(problem.dtype, int(config["threads"]), int(config["ahead"]))


@variant(
    decode,
    "unsplit",
    dtypes=_DTYPES,
    passes=(
        Pass(
            "attend",
            parallel=("B", "Hkv"),
            sequential={"N": "block"},
            reads=("q", "k", "v"),
            writes={"out": "owned"},
            flops=_READ_ONCE,
        ),
    ),
    intermediates=temporaries(1),
    tunables=(PowerOfTwo("block", 32, 1024, default=256), _AHEAD, Threads(), Placement()),
    constraints=("threads == 1 or threads <= B*Hkv", "block == 32 or block < 2*N"),
)
def unsplit(problem: Any, config: Mapping[str, Any]) -> Run:
    """One worker per key-value head: K and V swept once with an online softmax."""
    from autotune_variants.decode.kernels_split import kernel

    return kernel(problem.dtype, int(config["threads"]), int(config["ahead"]))


@variant(
    decode,
    "three_pass",
    dtypes=_DTYPES,
    passes=(
        Pass(
            "scores",
            parallel={"N": "ceil_div(N, threads)"},
            sequential=("B", "Hkv"),
            reads={"q": "threads", "k": 1},
            writes={"scores": "owned", "peaks": "owned"},
            flops="2*B*H*N*D",
        ),
        Pass(
            "exponentials",
            parallel={"N": "ceil_div(N, threads)"},
            sequential=("B", "H"),
            reads={"scores": 1, "peaks": "threads"},
            writes={"scores": "owned", "totals": "owned"},
            flops="2*B*H*N",
        ),
        Pass(
            "values",
            parallel={"B": 1, "Hkv": 1, "Dv": "block_d"},
            sequential=("N",),
            reads={"scores": "ceil_div(Dv, block_d)", "v": 1, "totals": "ceil_div(Dv, block_d)"},
            writes={"out": "owned"},
            flops="2*B*H*N*Dv",
        ),
    ),
    intermediates=(
        Intermediate("scores", ("B", "Hkv", _GROUP, "8*ceil_div(N, 8)")),
        Intermediate("peaks", ("threads", "B", "Hkv", _GROUP)),
        Intermediate("totals", ("threads", "B", "Hkv", _GROUP)),
        Intermediate("queries", ("threads", _GROUP, "D")),
        Intermediate("sums", ("threads", 2, _GROUP, "block_d")),
        Intermediate("packed", ("threads", 512, "max(D, block_d)")),
    ),
    tunables=(PowerOfTwo("block_d", 16, 128, default=16), Threads(), Placement()),
    constraints=("block_d == 16 or block_d < 2*Dv",),
)
def three_pass(problem: Any, config: Mapping[str, Any]) -> Run:
    """Scores and maximum, exponentials and sum, then blocks of features (the study's form)."""
    from autotune_variants.decode.kernels_three_pass import kernel

    staged = kernel(problem.dtype)

    def run(*arguments: Any) -> None:
        for stage in range(3):
            staged(*arguments, stage)

    return run


@variant(
    decode,
    "numpy",
    dtypes=_DTYPES,
    passes=(
        Pass(
            "scores",
            sequential=("B", "Hkv"),
            reads=("q", "k"),
            writes={"scores": "owned"},
            flops="2*B*H*N*D",
        ),
        Pass("softmax", sequential=("B", "Hkv"), reads={"scores": 4}, writes={"scores": "owned"}),
        Pass(
            "values",
            sequential=("B", "Hkv"),
            reads=("scores", "v"),
            writes={"out": "owned"},
            flops="2*B*H*N*Dv",
        ),
    ),
    intermediates=(Intermediate("scores", (_GROUP, "N")),),
    tunables=(Threads(), Placement()),
    blas="parallel",
)
def numpy(problem: Any, config: Mapping[str, Any]) -> Run:
    """Plain NumPy: two products by BLAS with a softmax between them, head by head."""
    import numpy as np

    def run(q: Any, k: Any, v: Any, out: Any, scores: Any, scale: float) -> None:
        group = scores.shape[0]
        for b, kv in np.ndindex(k.shape[:2]):
            heads = slice(kv * group, (kv + 1) * group)
            np.matmul(q[b, heads] * q.dtype.type(scale), k[b, kv].T, out=scores)
            scores -= scores.max(axis=1, keepdims=True, initial=-np.inf)
            np.exp(scores, out=scores)
            total = scores.sum(axis=1, keepdims=True)
            out[b, heads] = (scores @ v[b, kv]) / np.where(total > 0, total, 1)

    return run
