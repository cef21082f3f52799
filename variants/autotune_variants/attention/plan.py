"""What every kernel of the study's arrangements takes: its arrays and its run-time choices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np


class Plan(NamedTuple):
    """Run-time choices: workers, tile sizes, mask, scale."""

    threads: int
    block_q: int
    block_k: int
    causal: bool
    scale: float


class Arrays(NamedTuple):
    """All arrays that any arrangement has; one without an array passes an empty one.

    One type for all arrangements means that a pass they share is compiled once.
    """

    q: Any
    k: Any
    v: Any
    grad_out: Any
    out: Any
    lse: Any
    grad_q: Any
    grad_k: Any
    grad_v: Any
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


_DIMS = {
    **dict.fromkeys(Arrays._fields, 3),
    **dict.fromkeys(("q", "k", "v", "grad_out", "out", "grad_q", "grad_k", "grad_v", "a", "gs"), 4),
    **{"key_parts": 5, "value_parts": 5, "line": 2},
}


def staged(
    problem: Any,
    config: Mapping[str, Any],
    temporaries: Sequence[str],
    stages: Sequence[Callable[..., None]],
) -> Callable[..., None]:
    """`run(*inputs, *outputs, *temporaries, scale)`: every stage in turn, each by all workers."""
    from autotune_variants.parallel import Workers

    operation = problem.operation
    given = (*(t.name for t in (*operation.inputs, *operation.outputs)), *temporaries)
    absent = {
        name: np.empty((0,) * _DIMS[name], problem.dtype)
        for name in Arrays._fields
        if name not in given
    }
    fixed = (int(config["threads"]), int(config["block_q"]), int(config["block_k"]))
    causal = bool(problem.flags["causal"])
    parallel = [Workers(stage) for stage in stages]

    def run(*arguments: Any) -> None:
        t = Arrays(**dict(zip(given, arguments, strict=False)), **absent)
        plan = Plan(*fixed, causal, arguments[-1])
        for workers in parallel:
            workers(t, plan)

    return run
