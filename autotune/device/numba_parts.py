"""Scope parts for kernels with numba parallel regions. Importing this imports numba."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from autotune.device import numba_threads as nt
from autotune.device.masks import out_of_reach
from autotune.device.parts import Exclusive, Pinned
from autotune.device.scope import Plan


class NumbaCount:
    """The number of threads the calling thread's parallel regions use."""

    def __init__(self, count: int) -> None:
        self._count = count

    def enter(self) -> Any:
        return nt.swap_count(self._count)

    def exit(self, found: Any) -> None:
        nt.swap_count(found)


class TeamPinned:
    """omp: count and masks of the caller's team, thread 0 (the caller) included.

    Only the count where the caller may not run on all of the CPUs, as with `Pinned`.
    """

    def __init__(self, cpus: tuple[int, ...]) -> None:
        self._cpus = cpus
        self._masks = nt.masks_of([(cpu,) for cpu in cpus])
        self._entry = (len(cpus), self._masks.shape[1] + 2)

    def enter(self) -> Any:
        entry = np.zeros(self._entry, np.uint64)
        before, failed = nt.enter_team(self._masks, entry)
        if failed > 0:
            nt.exit_team(entry, before)
            raise out_of_reach(self._cpus)
        return entry[:0] if failed else entry, before

    def exit(self, found: Any) -> None:
        nt.exit_team(*found)


class PoolPinned:
    """workqueue and tbb: masks of the pool's workers.

    With `exact` worker i gets the i-th CPU, otherwise every worker gets all of them.
    """

    def __init__(self, cpus: tuple[int, ...], *, exact: bool) -> None:
        self._cpus = cpus
        workers = len(cpus) if exact else len(nt.pool_threads())
        self._masks = nt.masks_of([(cpu,) for cpu in cpus] if exact else [cpus] * workers)

    def enter(self) -> Any:
        threads = nt.pool_threads()[: len(self._masks)]
        found = np.zeros(self._masks.shape, np.uint64)
        if nt.pin_threads(threads, self._masks, found):
            nt.unpin_threads(threads, found)
            raise out_of_reach(self._cpus)
        return threads, found

    def exit(self, found: Any) -> None:
        nt.unpin_threads(*found)


def numba_plan(threads: int, cpus: tuple[int, ...]) -> Plan:
    """Thread count and placement for numba regions, by the threading layer in use.

    Raises ValueError for more threads than numba was started with, OSError when the layer does
    not hand out as many.
    """
    if threads > nt.most_threads():
        raise ValueError(
            f"numba was started with {nt.most_threads()} threads and {threads} are asked for; "
            f"set NUMBA_NUM_THREADS to at least that."
        )
    layer, count = nt.threading_layer(), NumbaCount(threads)
    # The workqueue layer ends the process when two Python threads run regions at once.
    lock = (Exclusive(),) if layer == "workqueue" or (layer == "tbb" and cpus) else ()

    def survey() -> tuple[int, ...]:
        return nt.meet(threads)[1] if hasattr(os, "sched_setaffinity") else ()

    if not cpus:
        return Plan((*lock, count), "free", survey, layer)
    if layer == "workqueue":
        pins = Pinned(cpus, PoolPinned(cpus, exact=True))
        return Plan((*lock, count, pins), "exact", survey, layer)
    if threads == 1:
        return Plan((count, Pinned(cpus)), "exact", survey, layer)
    if layer == "tbb":
        if len(nt.pool_threads()) + 1 < threads:
            raise OSError(f"tbb runs only {len(nt.pool_threads()) + 1} of {threads} threads.")
        group = Pinned(cpus, PoolPinned(cpus, exact=False))
        return Plan((*lock, count, group), "group", survey, layer)
    distinct = len(set(nt.meet(threads)[0].tolist()))
    if distinct < threads:
        raise OSError(
            f"OpenMP runs only {distinct} of {threads} threads; "
            f"raise OMP_THREAD_LIMIT or unset OMP_DYNAMIC."
        )
    return Plan((TeamPinned(cpus),), "exact", survey, layer)
