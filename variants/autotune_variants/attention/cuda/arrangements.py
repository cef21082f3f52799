"""The study's arrangements on CUDA: from stages to the launches of one call."""

from __future__ import annotations

import struct
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntFlag
from pathlib import Path
from typing import Any

from autotune import Pass
from autotune.cuda import CudaSource, pointer, strides_in_elements
from autotune.model.expression import evaluate
from autotune.model.traits import values

Run = Callable[..., None]
Layout = tuple[tuple[int, ...], ...]  # strides in elements; None: every tensor is packed
Macros = dict[str, int | float | str | bool]

_HERE = Path(__file__).parent
ROWS = CudaSource(_HERE / "arrangements_rows.cu")
COLUMNS = CudaSource(_HERE / "arrangements_columns.cu")
SUMS = CudaSource(_HERE / "arrangements_sums.cu")

_MOST_BLOCKS = 2**31 - 1  # of a grid along x; kernels loop over what is left
_STORAGE = {"bfloat16": 1, "float16": 2}

# The fields of struct Args in arrangements_base.cuh, in its order.
_TENSORS = ("q", "k", "v", "out", "grad_out", "grad_q", "grad_k", "grad_v")
_SUMS = {"lse": "lse", "sum_q": "grad_q", "sum_k": "grad_k", "sum_v": "grad_v"}
_POINTERS = ("a", "gs", "corrections", "scratch", "parts_k", "parts_v")
_WORDS = 72  # pointers, strides and sizes; behind them stands the scale
_SCALE = struct.Struct("<d")
_LAYOUTS = 64  # of which the struct is kept, without the addresses


class Step(IntFlag):
    """What a pass does with the rows or keys at hand; as in arrangements_base.cuh."""

    SOFTMAX = 1  # A from Q and K
    OUTPUT = 2  # Out = A V
    SCORE_GRADIENTS = 4  # GS from A, dO and V
    GRAD_Q = 8  # GQ = GS K
    GRAD_K = 16  # GK = GS^T Q
    GRAD_V = 32  # GV = A^T dO
    A_STORED = 64  # A is a matrix of the whole problem, not a temporary of the block
    GS_STORED = 128  # so is GS
    OWN_COPIES = 256  # a row pass adds GK and GV into copies of the block's split
    LSE = 512  # a row pass writes lse
    CORRECTIONS = 1024  # a row pass writes the corrections


@dataclass(frozen=True, slots=True)
class Stage:
    """One pass, and the kernel that performs it by `blocks` (an expression) blocks."""

    declared: Pass
    source: CudaSource
    entry: str
    steps: Step
    blocks: str


def macros(problem: Any, config: Mapping[str, Any], stage: Stage) -> Macros:
    """The macros of a stage's kernel; only those it depends on, so that variants share kernels."""
    chosen: Macros = {
        "ENTRY": stage.entry,
        "STEPS": int(stage.steps),
        "REAL": "double" if problem.dtype == "float64" else "float",
        "STORAGE": _STORAGE.get(problem.dtype, 0),
        "HEAD_DIM": problem.sizes["D"],
        "VALUE_DIM": problem.sizes["Dv"],
        "BLOCK": config["block"],
        "CAUSAL": bool(problem.flags["causal"]),
    }
    if stage.source is ROWS:
        chosen["ROWS"] = config["rows"]
    elif stage.source is COLUMNS:
        chosen["COLUMNS"] = config["columns"]
        chosen["ON_CHIP"] = config["sweep"] == "on_chip"
    return chosen


def arranged(
    problem: Any, config: Mapping[str, Any], stages: Sequence[Stage], temporaries: Sequence[str]
) -> Run:
    """`run(*inputs, *outputs, *temporaries, scale)`: every stage in turn, one launch each."""
    operation = problem.operation
    names = [*(t.name for t in (*operation.inputs, *operation.outputs)), *temporaries]
    pack = _packer(names, problem, config)
    launches = []
    for stage in stages:
        blocks = min(int(evaluate(stage.blocks, values(problem, config))), _MOST_BLOCKS)
        if blocks:
            kernel = stage.source.kernel(stage.entry, macros(problem, config, stage))
            launches.append(
                kernel.launcher(
                    grid=(blocks, 1, 1),
                    block=(config["block"], 1, 1),
                    arguments=f"S{8 * _WORDS + _SCALE.size}",
                )
            )

    def run(*arguments: Any) -> None:
        packed = pack(arguments)
        for launch in launches:
            launch(packed)

    return run


def _packer(
    names: Sequence[str], problem: Any, config: Mapping[str, Any]
) -> Callable[[Sequence[Any]], bytes]:
    """From the arguments of `run` to struct Args; what an arrangement lacks is null."""
    place = {name: i for i, name in enumerate(names)}
    strided = [place.get(name) for name in _TENSORS]
    # Sums in the dtype of the result go straight into it.
    strided += [place.get(name, place.get(result)) for name, result in _SUMS.items()]
    plain = [place.get(name) for name in _POINTERS]
    slots = [(5 * i, index) for i, index in enumerate(strided) if index is not None]
    slots += [(5 * len(strided) + i, index) for i, index in enumerate(plain) if index is not None]
    tensors = sorted({index for index in strided if index is not None})
    dims = [problem.sizes[dim] for dim in ("B", "H", "Hkv", "Nq", "Nk")]
    dims.append(config.get("splits", 1))

    known: dict[Layout | None, array[int]] = {}

    def without_addresses(arguments: Sequence[Any], layout: Layout | None) -> array[int]:
        words: list[int] = []
        for index in strided:
            strides = () if index is None else strides_in_elements(arguments[index])
            words += (0, *strides, *(0,) * (4 - len(strides)))
        if len(known) >= _LAYOUTS:
            known.clear()
        known[layout] = found = array("q", [*words, *(0 for _ in plain), *dims])
        return found

    def pack(arguments: Sequence[Any]) -> bytes:
        try:
            packed = False not in [arguments[index]._c_contiguous for index in tensors]
        except AttributeError:  # torch's tensors tell their strides as fast
            packed = False
        layout = None if packed else tuple([strides_in_elements(arguments[i]) for i in tensors])
        words = (known.get(layout) or without_addresses(arguments, layout))[:]
        for slot, index in slots:
            words[slot] = pointer(arguments[index])
        return words.tobytes() + _SCALE.pack(arguments[-1])

    return pack
