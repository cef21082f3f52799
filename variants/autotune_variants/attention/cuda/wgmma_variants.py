"""Attention on warpgroup products (compute 9.0): 16-bit, and float32 through float16 halves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from autotune import Choice, Intermediate, Pass, Unit
from autotune.cuda import CudaSource
from autotune.cuda.structs import Launches
from autotune.model import Operation
from autotune.model.expression import evaluate
from autotune.model.traits import values
from autotune_variants.attention.cuda.arguments import ARGUMENTS, Run, bind
from autotune_variants.attention.cuda.declared import declare
from autotune_variants.attention.cuda.tiled import Macros
from autotune_variants.attention.cuda.tiled_passes import DELTA, INVERSE, ROW_VECTOR, SHIFT
from autotune_variants.attention.operations import attention, attention_backward, attention_train

HALF = CudaSource(Path(__file__).parent / "half.cu")
SPLIT = CudaSource(Path(__file__).parent / "split.cu")

_THREADS = 256
_OWNED = 128  # queries of a forward block, keys of a backward block
_PRODUCT = "2*B*H*Nq*Nk*D"
_WIDTH = "(64 if D <= 64 else 128)"  # the padded head
_ROWS = "ceil_div(B*H*Nq, 8)"
_KEYS = Choice("key_step", (64, 128), default=128, ordered=True)  # keys of a forward step

# The grid of every kernel, and what it needs in shared memory.
_BLOCKS = {
    **dict.fromkeys(("forward", "forward_train"), f"ceil_div(Nq, {_OWNED})*B*H"),
    **dict.fromkeys(("prepare", "finish"), _ROWS),
    "backward_columns": f"ceil_div(Nk, {_OWNED})*B*Hkv",
}
HALF_BLOCKS = {**_BLOCKS, "measure": "16*B*(H + Hkv)"}
HALF_SHARED = {
    "forward": f"(256 + 8*key_step)*{_WIDTH}",
    "backward_columns": f"1024*{_WIDTH} + 2048 + 16384",
}
SPLIT_SHARED = {"forward": "32768 + 1024*key_step", "backward_columns": "165888"}
_MACROS = {"forward": "FORWARD_SHARED", "backward_columns": "COLUMN_SHARED"}

_FEW_ROWS = "max(Nq, Nk) < 2**31 - 256"  # they are counted in 32 bits
_ADMITTED = (_FEW_ROWS, "D >= 1", "Dv == D", "compute == 90", "key_step == 128 or Nk > 64")
_STREAM: dict[str, Any] = {"parallel": {"B": 1, "H": 1, "Nq": _OWNED}, "flops": f"2*{_PRODUCT}"}


def _shared(sizes: Mapping[str, str], entry: str) -> str:
    return sizes.get(entry.removesuffix("_train"), "0")


def macros(problem: Any, config: Mapping[str, Any], source: CudaSource) -> Macros:
    """The macros of a source's kernels, the shared memory they must turn out to need among them."""
    names, sizes = values(problem, config), HALF_SHARED if source is HALF else SPLIT_SHARED
    chosen: Macros = {
        "HEAD_DIM": problem.sizes["D"],
        "CAUSAL": bool(problem.flags["causal"]),
        "KEY_STEP": config.get("key_step", 128),
    }
    if source is HALF:
        chosen["HALF_FLOAT16"] = problem.dtype == "float16"
    for entry, size in sizes.items():
        chosen[_MACROS[entry]] = int(evaluate(size, {"key_step": 128, **names}))
    return chosen


def _launches(
    problem: Any,
    config: Mapping[str, Any],
    source: CudaSource,
    entries: Sequence[str],
    aligned: bool,
) -> Launches:
    chosen = macros(problem, config, source)
    chosen["ALIGNED" if source is HALF else "VECTOR_GQ"] = aligned
    names = {"key_step": 128, **values(problem, config)}
    pieces = "64*B*(2*H + 2*Hkv)" if "backward_columns" in entries else "64*B*(H + 2*Hkv)"
    blocks = HALF_BLOCKS if source is HALF else {**_BLOCKS, "measure": pieces, "split": pieces}
    sizes = HALF_SHARED if source is HALF else SPLIT_SHARED
    made = []
    for entry in entries:
        count = int(evaluate(blocks[entry], names))
        if count:
            made.append(
                source.kernel(entry, chosen).launcher(
                    grid=(count, 1, 1),
                    block=(_THREADS, 1, 1),
                    shared=int(evaluate(_shared(sizes, entry), names)),
                    arguments=ARGUMENTS,
                )
            )
    return made


def _declare(
    operation: Operation,
    name: str,
    source: CudaSource,
    entries: tuple[str, ...],
    *,
    doc: str,
    dtypes: tuple[str, ...],
    passes: tuple[Pass, ...],
    temporaries: tuple[Intermediate, ...] = (),
    kept: Mapping[str, str],
) -> None:
    tensors = [tensor.name for tensor in (*operation.inputs, *operation.outputs)]
    names = [*tensors, *(array.name for array in temporaries)]
    sizes = HALF_SHARED if source is HALF else SPLIT_SHARED
    streams = any(entry.startswith("forward") for entry in entries)
    needed = [_shared(sizes, entry) for entry in entries]

    def build(problem: Any, config: Mapping[str, Any]) -> Run:
        def plan(aligned: bool) -> Launches:
            return _launches(problem, config, source, entries, aligned=aligned)

        return bind(problem, names, plan, kept)

    admitted = _ADMITTED if streams else _ADMITTED[:-1]
    declare(
        operation,
        name,
        build,
        doc=doc,
        dtypes=dtypes,
        passes=passes,
        intermediates=temporaries,
        tunables=(_KEYS,) if streams else (),
        unit=Unit("matrix") if source is HALF else Unit("matrix", "float16", 3),
        constraints=(
            *admitted,
            f"D <= {128 if source is HALF else 64}",
            *(f"{size} <= shared_per_block" for size in needed if size != "0"),
        ),
    )


def _forward_pass(reads: Sequence[str], writes: Sequence[str]) -> Pass:
    kept = dict.fromkeys(writes, "owned")
    return Pass("forward", sequential={"Nk": "key_step"}, reads=reads, writes=kept, **_STREAM)


def _prepare_pass(writes: Sequence[str], *ranges: str) -> Pass:
    return Pass(
        "prepare",
        parallel=ROW_VECTOR,
        reads=("out", "grad_out", "lse", *ranges),
        writes=dict.fromkeys(writes, "owned"),
        flops="2*B*H*Nq*D",
    )


def _column_pass(reads: Sequence[str], atomic: str) -> Pass:
    return Pass(
        "columns",
        parallel={"B": 1, "H": 1, "Nk": _OWNED},
        sequential={"Nq": 64},
        reads=reads,
        writes={"grad_k": "owned", "grad_v": "owned", atomic: "atomic"},
        flops=f"5*{_PRODUCT}",
    )


def _declare_half() -> None:
    sums = Intermediate("query_sums", ("B", "H", "Nq", "D"), "float32")
    norms = Intermediate("norms", ("B*(H + Hkv)", 16), "float32")
    measure = Pass("measure", reads=("grad_out", "v"), writes={"norms": "owned"})
    finish = Pass("finish", parallel=ROW_VECTOR, reads=("query_sums",), writes={"grad_q": "owned"})
    doc = "Two warpgroups stream keys past 128 queries"
    _declare(
        *(attention, "cuda_wgmma", HALF, ("forward",)),
        doc=f"{doc}.",
        dtypes=("bfloat16", "float16"),
        passes=(_forward_pass(("q", "k", "v"), ("out", "lse")),),
        kept={},
    )
    for name, dtype in (("cuda_wgmma", "bfloat16"), ("cuda_wgmma_fitted", "float16")):
        fitted = dtype == "float16"
        own = (DELTA, SHIFT, sums, *((norms,) if fitted else ()))
        reads = ("q", "k", "v", "grad_out", "delta", "shift", *(("norms",) if fitted else ()))
        columns = (*((measure,) if fitted else ()), _column_pass(reads, "query_sums"), finish)
        entries = (*(("measure",) if fitted else ()), "backward_columns", "finish")
        words = "keys past 128 queries, then queries past 128 keys; GQ by atomics in float32"
        words += ", gradients of scores scaled into float16's range." if fitted else "."
        common: dict[str, Any] = {
            "dtypes": (dtype,),
            "temporaries": own,
            "kept": {"query_sums": "scratch", "norms": "measures"},
        }
        written = ("delta", "shift", "query_sums")
        _declare(
            *(attention_backward, name, HALF, ("prepare", *entries)),
            doc=f"Two warpgroups stream {words.partition(', then ')[2]}",
            passes=(_prepare_pass(written), *columns),
            **common,
        )
        first = _forward_pass(("q", "k", "v", "grad_out"), ("out", *written))
        _declare(
            *(attention_train, name, HALF, ("forward_train", *entries)),
            doc=f"Two warpgroups stream {words}",
            passes=(first, *columns),
            **common,
        )


def _declare_split() -> None:
    ranges = Intermediate("ranges", (4, "B*H", 2, 64), "float32")
    vectors = (DELTA, SHIFT, INVERSE)
    written = ("delta", "shift", "inverse", "grad_q")

    def halves(count: str) -> Intermediate:
        return Intermediate("halves", (f"128*B*({count})",), "float16")

    def first(*sources: str) -> tuple[Pass, ...]:
        measure = Pass("measure", reads=sources, writes={"ranges": "owned"})
        split = Pass("split", reads=(*sources, "ranges"), writes={"halves": "owned"})
        return measure, split

    columns = _column_pass(("halves", "ranges", "delta", "shift", "inverse"), "grad_q")
    common: dict[str, Any] = {
        "dtypes": ("float32",),
        "kept": {"halves": "scratch", "ranges": "measures"},
    }
    how = "Every operand as the sum of two float16 numbers, three products for one"
    _declare(
        *(attention, "cuda_split_half", SPLIT, ("measure", "split", "forward")),
        doc=f"{how}; keys past 128 queries.",
        passes=(*first("q", "k", "v"), _forward_pass(("halves", "ranges"), ("out", "lse"))),
        temporaries=(ranges, halves("H*Nq + 2*Hkv*Nk")),
        **common,
    )
    everything = first("q", "k", "v", "grad_out")
    both = (ranges, halves("2*H*Nq + 2*Hkv*Nk"))
    entries = ("measure", "split", "prepare", "backward_columns")
    _declare(
        *(attention_backward, "cuda_split_half", SPLIT, entries),
        doc=f"{how}; queries past 128 keys, GQ by atomics.",
        passes=(*everything, _prepare_pass(written, "ranges"), columns),
        temporaries=(*vectors, *both),
        **common,
    )
    forward = _forward_pass(("halves", "ranges", "grad_out"), ("out", *written))
    _declare(
        *(attention_train, "cuda_split_half", SPLIT),
        ("measure", "split", "forward_train", "backward_columns"),
        doc=f"{how}; keys past 128 queries, then queries past 128 keys, GQ by atomics.",
        passes=(*everything, forward, columns),
        temporaries=(*vectors, *both),
        **common,
    )


_declare_half()
_declare_split()
