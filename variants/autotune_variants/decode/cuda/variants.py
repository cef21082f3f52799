"""decode on CUDA: keys and values read once, straight into the registers of matrix units."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from autotune import Choice, Intermediate, Pass, PowerOfTwo, variant
from autotune.cuda import CudaSource
from autotune.cuda.structs import ArgumentStruct, Launches, bind
from autotune_variants.decode.operations import decode

SOURCE = CudaSource(Path(__file__).parent / "decode.cu")

Run = Callable[..., None]

_STORAGE = {"float64": 0, "bfloat16": 1, "float16": 2, "float32": 3}
_QUERIES = 8  # of one product: more query heads of a key-value head are other blocks
_COMBINING = 256  # threads of a block that combines splits
_VECTOR = 16

_GROUP = "H // max(Hkv, 1)"
_TILES = f"ceil_div({_GROUP}, {_QUERIES})"
_FLOPS = "2*B*H*N*(D + Dv)"
_STREAM = {"q": "splits", "k": _TILES, "v": _TILES}

_DECLARED: dict[str, Any] = {
    "device": "cuda",
    "dtypes": tuple(_STORAGE),
}
_WARPS = Choice("warps", (1, 2, 4, 8), default=4, ordered=True)
_ADMITTED = ("compute >= 80", "Dv == D", "D >= 1", "D <= 256")


def _build(problem: Any, config: Mapping[str, Any]) -> Run:
    sizes, splits = problem.sizes, int(config.get("splits", 1))
    group = sizes["H"] // max(sizes["Hkv"], 1)
    real = 4 if problem.itemsize == 2 else 8
    shared = {
        "attend_splits": real * _QUERIES * (2 * int(config["warps"]) + sizes["D"]),
        "combine_splits": real * (splits + _COMBINING + _COMBINING // 32),
    }
    macros = {
        "STORAGE": _STORAGE[problem.dtype],
        "HEAD_DIM": sizes["D"],
        "GROUP": max(group, 1),
        "WARPS": config["warps"],
        "SPLITS": splits,
        "ATTEND_SHARED": shared["attend_splits"],
        "COMBINE_SHARED": shared["combine_splits"],
    }
    tiles = -(-group // _QUERIES)
    steps = {"attend_splits": (sizes["B"] * sizes["Hkv"] * tiles * splits, 32 * config["warps"])}
    if splits > 1:
        steps["combine_splits"] = (sizes["B"] * sizes["H"], _COMBINING)
    arguments = _arguments(problem, splits)

    def plan(aligned: bool) -> Launches:
        return [
            SOURCE.kernel(entry, {**macros, "ALIGNED": aligned}).launcher(
                grid=(blocks, 1, 1),
                block=(threads, 1, 1),
                shared=shared[entry],
                arguments=arguments.code,
            )
            for entry, (blocks, threads) in steps.items()
            if blocks
        ]

    return bind(arguments, plan, likely=sizes["D"] * problem.itemsize % _VECTOR == 0)


def _arguments(problem: Any, splits: int) -> ArgumentStruct:
    sizes = problem.sizes
    one = (sizes["B"], sizes["H"], sizes["D"])
    cache = (sizes["B"], sizes["Hkv"], sizes["N"], sizes["D"])
    temporaries = ("parts", "stats") if splits > 1 else ()
    return ArgumentStruct(
        ("q", "k", "v", "out", *temporaries),
        pointers=("q", "k", "v", "out", "parts", "stats"),
        strided={"q": "bhd", "k": "bhnd", "v": "bhnd", "out": "bhd"},
        shapes={"q": one, "k": cache, "v": cache, "out": one},
        sizes=(sizes["B"], sizes["H"], sizes["Hkv"], sizes["N"]),
        itemsize=problem.itemsize,
    )


@variant(
    decode,
    "cuda_unsplit",
    passes=(
        Pass(
            "attend",
            parallel=("B", "Hkv"),
            sequential={"N": "16*warps"},
            reads={"q": 1, "k": _TILES, "v": _TILES},
            writes={"out": "owned"},
            flops=_FLOPS,
        ),
    ),
    tunables=(_WARPS,),
    constraints=_ADMITTED,
    **_DECLARED,
)
def cuda_unsplit(problem: Any, config: Mapping[str, Any]) -> Run:
    """One block per key-value head and eight of its query heads; its warps share the keys."""
    return _build(problem, config)


@variant(
    decode,
    "cuda_split",
    passes=(
        Pass(
            "attend",
            parallel={"B": 1, "Hkv": 1, "N": "ceil_div(N, splits)"},
            sequential={"N": "16*warps"},
            reads=_STREAM,
            writes={"parts": "owned", "stats": "owned"},
            flops=_FLOPS,
        ),
        Pass(
            "combine",
            parallel=("B", "H"),
            reads={"parts": 1, "stats": 2},
            writes={"out": "owned"},
        ),
    ),
    intermediates=(
        Intermediate("parts", ("B", "Hkv", "splits", _GROUP, "D"), "accumulator"),
        Intermediate("stats", ("B", "Hkv", "splits", 2, _GROUP), "accumulator"),
    ),
    tunables=(_WARPS, PowerOfTwo("splits", 2, 1024, default=64)),
    constraints=(
        *_ADMITTED,
        "splits == 2 or splits <= ceil_div(N, 64)",
        f"splits == 2 or B*Hkv*{_TILES}*splits <= 16*sms",
    ),
    **_DECLARED,
)
def cuda_split(problem: Any, config: Mapping[str, Any]) -> Run:
    """The keys of a head cut into splits, a block for each, whose sums another launch combines."""
    return _build(problem, config)
