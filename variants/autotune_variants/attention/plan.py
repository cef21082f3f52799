"""What every kernel of the study's arrangements takes: its arrays and its run-time choices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import IntFlag
from typing import Any, NamedTuple

import numpy as np


class Step(IntFlag):
    """What a sweep over blocks of query rows or of keys does with each block.

    Passes are composed at run time, so that all arrangements share a handful of compiled kernels.
    """

    SOFTMAX = 1  # A and lse from Q and K
    PROBABILITIES = 2  # A from Q, K and lse
    OUTPUT = 4  # Out = A V
    SCORE_GRADIENTS = 8  # GS from A, Out, dO and V
    GRAD_Q = 16  # GQ = GS K
    GRAD_K = 32  # GK = GS^T Q: its owner in a column sweep, a worker's part in a row sweep
    GRAD_V = 64  # GV = A^T dO: the same
    A_STORED = 128  # A is an array of the whole problem, not a temporary of the block
    GS_STORED = 256  # so is GS


class Plan(NamedTuple):
    """Run-time choices: workers, tile sizes, mask, scale, what to do (a `Step`), order of tasks."""

    threads: int
    block_q: int
    block_k: int
    causal: bool
    scale: float
    steps: int
    consecutive: bool


class Tensors(NamedTuple):
    """Inputs and outputs of all three operations; one without an array passes an empty one.

    Out and lse appear twice: as what a kernel reads and as what it writes.
    """

    q: Any
    k: Any
    v: Any
    grad_out: Any
    out: Any
    lse: Any
    new_out: Any
    new_lse: Any
    grad_q: Any
    grad_k: Any
    grad_v: Any


class Temporaries(NamedTuple):
    """All temporaries that any arrangement has; the others are empty.

    One type for all arrangements, so that their kernels are compiled once.
    """

    a: Any
    gs: Any
    corrections: Any
    key_parts: Any
    value_parts: Any
    a_rows: Any
    gs_rows: Any
    q_tile: Any
    g_tile: Any
    k_tile: Any
    v_tile: Any
    k_transposed: Any
    v_transposed: Any
    scores: Any
    gradients: Any
    acc_out: Any
    acc_q: Any
    acc_k: Any
    acc_v: Any
    row_stats: Any
    line: Any


Stage = tuple[Callable[..., None], Step]

READ = ("q", "k", "v", "grad_out", "out", "lse")
DIMS = {
    **dict.fromkeys(Tensors._fields, 4),
    **dict.fromkeys(Temporaries._fields, 3),
    **{"lse": 3, "new_lse": 3, "a": 4, "gs": 4, "key_parts": 5, "value_parts": 5, "line": 2},
}


def staged(
    problem: Any, config: Mapping[str, Any], temporaries: Sequence[str], stages: Sequence[Stage]
) -> Callable[..., None]:
    """`run(*inputs, *outputs, *temporaries, scale)`: every stage in turn, each by all workers."""
    from autotune_variants.attention.sweeps import sweep

    operation = problem.operation
    given = (*(t.name for t in (*operation.inputs, *operation.outputs)), *temporaries)
    empty = {name: np.empty((0,) * dims, problem.dtype) for name, dims in DIMS.items()}
    written = [name for name in ("out", "lse") if name not in (t.name for t in operation.inputs)]
    fixed = (int(config["threads"]), int(config["block_q"]), int(config["block_k"]))
    causal = bool(problem.flags["causal"])
    consecutive = config["order"] == "consecutive"
    parallel = [(sweep(kernel, problem.dtype), int(steps)) for kernel, steps in stages]

    def run(*arguments: Any) -> None:
        arrays = {**empty, **dict(zip(given, arguments, strict=False))}
        for name in written:
            arrays[f"new_{name}"] = arrays[name]
        t = [arrays[name] for name in Tensors._fields]
        s = Temporaries(*[arrays[name] for name in Temporaries._fields])
        for run_stage, steps in parallel:
            run_stage(*t, s, Plan(*fixed, causal, arguments[-1], steps, consecutive))

    return run
