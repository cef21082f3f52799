"""decode on CUDA: keys and values read once, on their way to the registers of matrix units."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from autotune import Choice, Intermediate, Pass, PowerOfTwo, variant
from autotune.cuda import CudaSource
from autotune.cuda.structs import ArgumentStruct, Launches, bind
from autotune.model.expression import evaluate
from autotune.model.tunable import Tunable
from autotune_variants.decode.operations import decode

SOURCE = CudaSource(Path(__file__).parent / "decode.cu")

Run = Callable[..., None]

_STORAGE = {"float64": 0, "bfloat16": 1, "float16": 2, "float32": 3}
_QUERIES = 8  # of one product: more query heads of a key-value head are other blocks
_COMBINING = 256  # threads of a block that combines splits
_VECTOR = 16

_GROUP = "H // max(Hkv, 1)"
_TILES = f"ceil_div({_GROUP}, {_QUERIES})"
_STEP = "(warps*(16 if itemsize == 2 else 8))"  # keys of all warps of a block
_FLOPS = "2*B*H*N*(D + Dv)"
_BLOCKS = f"B*Hkv*{_TILES}"

# Shared memory of a block: kAttendShared in decode.cu, with as many blocks in a cluster.
_REAL = "(4 if itemsize == 2 else 8)"
_OWN = f"min({_GROUP}, {_QUERIES})"
_UNIT = f"({_VECTOR} // itemsize)"
_UNITS = f"ceil_div(D, {_UNIT})"
_RING = f"stages*2*{_STEP}*{_UNITS}*{_VECTOR}"
_MERGING = f"warps*{_OWN}*(({_UNITS} + 1)*{_UNIT} + 3)*{_REAL}"


def _shared(blocks: str | int) -> str:
    inbox = f"16 + ceil_div({blocks}*(2*{_OWN} + ceil_div({_OWN}*D, {blocks}))*{_REAL}, 16)*16"
    return f"(0 if {blocks} == 1 else {inbox}) + max({_RING}, {_MERGING})"


_DECLARED: dict[str, Any] = {
    "device": "cuda",
    "dtypes": tuple(_STORAGE),
}
_ADMITTED = (
    "compute >= 80",
    "Dv == D",
    "D >= 1",
    "D <= 256",
    "N < 2**31",
    f"max(B, Hkv*{_TILES}) < 2**16",
    f"stages == 0 or (warps >= 4 and D*itemsize % {_VECTOR} == 0)",
)


def _tunables(warps: int, stages: int, *others: Tunable) -> tuple[Tunable, ...]:
    """Warps of a block; tiles of a warp in shared memory, all but one of them on their way (0:
    straight to registers); with their defaults."""
    return (
        Choice("warps", (1, 2, 4, 8), default=warps, ordered=True),
        *others,
        Choice("stages", (0, 2, 3, 4), default=stages, ordered=True),
    )


def _build(problem: Any, config: Mapping[str, Any], splits: int = 1, cluster: int = 1) -> Run:
    sizes, warps = problem.sizes, int(config["warps"])
    group = sizes["H"] // max(sizes["Hkv"], 1)
    tiles, real = -(-group // _QUERIES), 4 if problem.itemsize == 2 else 8
    grid = (splits * cluster, sizes["Hkv"] * tiles, sizes["B"])
    macros = {
        "STORAGE": _STORAGE[problem.dtype],
        "HEAD_DIM": sizes["D"],
        "GROUP": max(group, 1),
        "WARPS": warps,
        "SPLIT": int(splits > 1),
        "CLUSTER": cluster,
    }
    arguments = _arguments(problem, splits, splits * cluster)

    def plan(aligned: bool) -> Launches:
        if 0 in grid:
            return []
        stages = int(config["stages"]) if aligned else 0  # asynchronous copies need the alignment
        shared = evaluate(_shared(cluster), {**problem.names, "warps": warps, "stages": stages})
        own = {**macros, "ALIGNED": aligned, "STAGES": stages, "ATTEND_SHARED": shared}
        attend = SOURCE.kernel("attend_splits" if cluster == 1 else "attend_cluster", own)
        launches = [
            attend.launcher(
                grid=grid,
                block=(32 * warps, 1, 1),
                shared=shared,
                arguments=arguments.code,
            )
        ]
        if splits > 1:
            combine = SOURCE.kernel("combine_splits", own)
            launches.append(
                combine.launcher(
                    grid=(sizes["H"], sizes["B"], 1),
                    block=(_COMBINING, 1, 1),
                    shared=real * (splits + _COMBINING + _COMBINING // 32),
                    arguments=arguments.code,
                    dependent=True,
                )
            )
        return launches

    return bind(arguments, plan, likely=sizes["D"] * problem.itemsize % _VECTOR == 0)


def _arguments(problem: Any, splits: int, shares: int) -> ArgumentStruct:
    """`splits` leave parts in memory; the keys of a head are cut into `shares`."""
    sizes = problem.sizes
    one = (sizes["B"], sizes["H"], sizes["D"])
    cache = (sizes["B"], sizes["Hkv"], sizes["N"], sizes["D"])
    temporaries = ("parts", "stats") if splits > 1 else ()
    share = -(-sizes["N"] // shares)
    return ArgumentStruct(
        ("q", "k", "v", "out", *temporaries),
        pointers=("q", "k", "v", "out", "parts", "stats"),
        strided={"q": "bhd", "k": "bhnd", "v": "bhnd", "out": "bhd"},
        shapes={"q": one, "k": cache, "v": cache, "out": one},
        sizes=(sizes["B"], sizes["H"], sizes["Hkv"], sizes["N"], splits, share),
        itemsize=problem.itemsize,
    )


@variant(
    decode,
    "cuda_unsplit",
    passes=(
        Pass(
            "attend",
            parallel=("B", "Hkv"),
            sequential={"N": _STEP},
            reads={"q": 1, "k": _TILES, "v": _TILES},
            writes={"out": "owned"},
            flops=_FLOPS,
        ),
    ),
    tunables=_tunables(4, 3),
    constraints=(*_ADMITTED, f"{_shared(1)} <= shared_per_block"),
    **_DECLARED,
)
def cuda_unsplit(problem: Any, config: Mapping[str, Any]) -> Run:
    """One block per key-value head and eight of its query heads; its warps share the keys."""
    return _build(problem, config)


@variant(
    decode,
    "cuda_cluster",
    passes=(
        Pass(
            "attend",
            parallel={"B": 1, "Hkv": 1, "N": "ceil_div(N, blocks)"},
            sequential={"N": _STEP},
            reads={"q": "blocks", "k": _TILES, "v": _TILES},
            writes={"out": "owned"},
            flops=_FLOPS,
        ),
    ),
    tunables=_tunables(8, 0, PowerOfTwo("blocks", 2, 8, default=8)),
    constraints=(*_ADMITTED, "compute >= 90", f"{_shared('blocks')} <= shared_per_block"),
    **_DECLARED,
)
def cuda_cluster(problem: Any, config: Mapping[str, Any]) -> Run:
    """The keys of a head shared by the blocks of a cluster, which add up in shared memory.

    One launch, and nothing but the output is written to memory.
    """
    return _build(problem, config, cluster=int(config["blocks"]))


@variant(
    decode,
    "cuda_split",
    passes=(
        Pass(
            "attend",
            parallel={"B": 1, "Hkv": 1, "N": "ceil_div(N, splits)"},
            sequential={"N": _STEP},
            reads={"q": "splits", "k": _TILES, "v": _TILES},
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
    tunables=_tunables(4, 3, PowerOfTwo("splits", 2, 1024, default=256)),
    constraints=(
        *_ADMITTED,
        f"{_shared(1)} <= shared_per_block",
        "splits == 2 or splits <= ceil_div(N, 64)",
        f"splits == 2 or {_BLOCKS}*splits <= 4*sms",
    ),
    **_DECLARED,
)
def cuda_split(problem: Any, config: Mapping[str, Any]) -> Run:
    """The keys of a head cut into splits, a block for each, whose sums another launch combines."""
    return _build(problem, config, splits=int(config["splits"]))
