"""Launches of the tiled kernels (tiled.cu): which, with which macros, on how many blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.cuda import CudaSource
from autotune.cuda.structs import Launches
from autotune.model.expression import evaluate
from autotune.model.traits import values
from autotune_variants.attention.cuda import tiled_space as space
from autotune_variants.attention.cuda.arguments import ARGUMENTS, Run, bind

SOURCE = CudaSource(Path(__file__).parent / "tiled.cu")

Macros = dict[str, int | float | str | bool]

_BITS = {
    **{"forward": 1, "forward_train": 2, "backward_columns": 4, "backward_rows": 8},
    **{"backward_both": 16, "prepare": 32, "prepare_train": 32},
}
_STORAGE = {"bfloat16": 1, "float16": 2}
_BEFORE_BACKWARD = ("forward_train", "prepare", "prepare_train")
_ROWS_OF_PREPARE = 8  # rows per block: a warp each


@dataclass(frozen=True, slots=True)
class Form:
    """One arrangement: how GQ is summed, what is stored, which arithmetic."""

    atomic: bool = False
    stored: bool = False
    simt: bool = False


@dataclass(frozen=True, slots=True)
class Step:
    """One launch: a kernel, with the tunables of its pass."""

    entry: str
    own: space.Pass


def macros(problem: Any, config: Mapping[str, Any], step: Step, form: Form) -> Macros:
    """The macros of a step's kernel, the shared memory it must turn out to need among them."""
    names = values(problem, config)
    chosen: Macros = {
        "KERNELS": _BITS[step.entry],
        "REAL": "double" if problem.dtype == "float64" else "float",
        "STORAGE": _STORAGE.get(problem.dtype, 0),
        "SIMT": form.simt,
        "HEAD_DIM": problem.sizes["D"],
        "CAUSAL": bool(problem.flags["causal"]),
        "ROW_WARPS": config["rows"],
        "SPLIT_WARPS": config[step.own.split],
        "STEP": config[step.own.step],
        "STAGES": config["stages"],
        "D_CHUNK": int(evaluate(space.CHUNK, names)),
        "ATOMIC_GQ": form.atomic,
        "STORED": form.stored,
        "SPREAD_COPIES": bool(config.get("spread", False)),
    }
    for name, size in _shared(step, form).items():
        chosen[name] = int(evaluate(size, names))
    return chosen


def _shared(step: Step, form: Form) -> dict[str, str]:
    """The shared memory of the passes that a kernel consists of."""
    column, row = step.own.column_bytes(form.atomic), step.own.row_bytes()
    forward = {"FORWARD_SHARED": step.own.forward_bytes()}
    return {
        **{"forward": forward, "forward_train": forward},
        "backward_columns": {"COLUMN_SHARED": column},
        "backward_rows": {"ROW_SHARED": row},
        "backward_both": {"COLUMN_SHARED": column, "ROW_SHARED": row},
    }.get(step.entry, {})


def _blocks(problem: Any, config: Mapping[str, Any], entry: str) -> int:
    sizes, block, chunks = problem.sizes, 16 * int(config["rows"]), int(config["chunks"])
    queries = -(-sizes["Nq"] // block) * sizes["B"] * sizes["H"] * chunks
    keys = -(-sizes["Nk"] // block) * sizes["B"] * sizes["Hkv"] * chunks
    rows = sizes["B"] * sizes["H"] * sizes["Nq"]
    return {
        **{"forward": queries, "forward_train": queries, "backward_rows": queries},
        **{"backward_columns": keys, "backward_both": keys + queries},
    }.get(entry, -(-rows // _ROWS_OF_PREPARE))


def launches(
    problem: Any, config: Mapping[str, Any], steps: Sequence[Step], form: Form, *, aligned: bool
) -> Launches:
    """The launches of a call, without those that have nothing to do.

    The first of the backward passes starts early: it has tiles of its own to read.
    """
    made, ahead = [], ""
    for step in steps:
        blocks = _blocks(problem, config, step.entry)
        if not blocks:
            continue
        chosen = macros(problem, config, step, form)
        shared = max((int(v) for k, v in chosen.items() if k.endswith("_SHARED")), default=0)
        prepares = step.entry.startswith("prepare")
        threads = 256 if prepares else 32 * int(config["rows"]) * int(config[step.own.split])
        kernel = SOURCE.kernel(step.entry, {**chosen, "ALIGNED": aligned})
        made.append(
            kernel.launcher(
                grid=(blocks, 1, 1),
                block=(threads, 1, 1),
                shared=shared,
                arguments=ARGUMENTS,
                dependent=step.entry.startswith("backward") and ahead in _BEFORE_BACKWARD,
            )
        )
        ahead = step.entry
    return made


def tiled(
    problem: Any,
    config: Mapping[str, Any],
    steps: Sequence[Step],
    form: Form,
    temporaries: Sequence[str],
) -> Run:
    """`run(*inputs, *outputs, *temporaries, scale)`."""
    operation = problem.operation
    names = [tensor.name for tensor in (*operation.inputs, *operation.outputs)]

    def plan(aligned: bool) -> Launches:
        return launches(problem, config, steps, form, aligned=aligned)

    return bind(problem, [*names, *temporaries], plan, {"scores": "scratch"})
