"""The parallel region in which every sweep of the study's arrangements runs."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
from numba import njit, prange, types

from autotune_variants.attention.plan import DIMS, READ, Plan, Temporaries, Tensors
from autotune_variants.signatures import Pointer, array_kind, compile_only


@njit(parallel=True, nogil=True)
def in_parallel(
    work: Any,
    q: Any,
    k: Any,
    v: Any,
    grad_out: Any,
    out: Any,
    lse: Any,
    new_out: Any,
    new_lse: Any,
    grad_q: Any,
    grad_k: Any,
    grad_v: Any,
    s: Any,
    plan: Any,
) -> None:
    """`work(worker, Tensors(q, ...), s, plan)` for each of `plan.threads` workers.

    `work` is a pointer: what a parallel region calls directly numba compiles three times over, and
    once more for every region.
    """
    t = Tensors(q, k, v, grad_out, out, lse, new_out, new_lse, grad_q, grad_k, grad_v)
    for index in prange(plan.threads):
        work(np.int64(index), t, s, plan)


@cache
def sweep(work: Callable[..., None], dtype: str) -> Callable[..., None]:
    """`sweep(work, dtype)(*tensors, temporaries, plan)` runs a worker function by all workers."""
    tensors = [
        array_kind(dtype, DIMS[name], any_layout=True, readonly=name in READ)
        for name in Tensors._fields
    ]
    temporaries = [array_kind(dtype, DIMS[name]) for name in Temporaries._fields]
    choices = [types.int64] * 3 + [types.boolean, types.float64, types.int64, types.boolean]
    named: Any = types.NamedTuple
    t, rest = named(tensors, Tensors), (named(temporaries, Temporaries), named(choices, Plan))
    pointer = Pointer(work, types.void(types.int64, t, *rest))
    compile_only(in_parallel, (types.FunctionType(pointer.signature()), *tensors, *rest))

    def run(*arguments: Any) -> None:
        in_parallel(pointer, *arguments)

    return run
