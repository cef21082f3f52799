"""Scope parts for kernels with OpenMP regions of their own: the team, pinned and put back.

The caller is thread 0 of a team and gets the same threads for the same team size. In a region of
its own every thread saves its mask, sets the new one and tells its id; afterwards the caller
restores the masks by id. The region is built by the compiler on whose runtime the kernel runs,
since every OpenMP runtime in a process has threads of its own. Nothing else of OpenMP is changed:
kernels ask for their threads in a `num_threads` clause.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.device.masks import mask_of, out_of_reach
from autotune.device.parts import Pinned
from autotune.device.scope import Plan
from autotune.native.kernel import note_threads
from autotune.native.library import library
from autotune.native.source import NativeSource

Masks = npt.NDArray[np.uint64]

_SOURCE = NativeSource(Path(__file__).parent / "threads.c")
_PATIENCE = 100_000  # yields before a thread stops waiting for the rest of its team
_PAGE = 4096


class TeamPinned:
    """The threads of the caller's team, each on its CPU; thread 0 is the caller.

    Left where they are if the caller may not run on all of the CPUs, as with `Pinned`.
    """

    def __init__(self, cpus: tuple[int, ...], compiler: str) -> None:
        self._cpus, self._team = cpus, _team(compiler)
        self._masks: Masks = np.array([list(mask_of((cpu,))) for cpu in cpus], np.uint64)

    def enter(self) -> Any:
        note_threads(len(self._cpus))
        count, words = self._masks.shape
        entry = np.zeros((count, words + 2), np.uint64)
        masks, rows = self._masks.ctypes.data, entry.ctypes.data
        if self._team.enter_team(count, words, masks, rows) > 0:
            self.exit(entry)
            raise out_of_reach(self._cpus)
        return entry

    def exit(self, found: Any) -> None:
        self._team.exit_team(*self._masks.shape, found.ctypes.data)


def openmp_plan(threads: int, cpus: tuple[int, ...], compiler: str) -> Plan:
    """Placement of OpenMP threads; `compiler` is the C compiler on whose runtime they run.

    Raises OSError when the runtime does not hand out as many threads, AutotuneError when the
    compiler is not here.
    """

    def survey() -> tuple[int, ...]:
        return meet(threads, compiler)[1] if hasattr(os, "sched_setaffinity") else ()

    if not cpus:
        return Plan((), "free", survey, "openmp")
    if threads == 1:
        return Plan((Pinned(cpus),), "exact", survey, "openmp")
    distinct = len(set(meet(threads, compiler)[0]))
    if distinct < threads:
        raise OSError(
            f"OpenMP runs only {distinct} of {threads} threads; "
            f"raise OMP_THREAD_LIMIT or unset OMP_DYNAMIC."
        )
    return Plan((TeamPinned(cpus, compiler),), "exact", survey, "openmp")


def meet(count: int, compiler: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Run `count` threads at the same time: their ids, and the CPU each is on.

    Of a team that OpenMP cut short, only the threads that there are.
    """
    note_threads(count)
    ids, cpus = (np.full(count, -1, np.int64) for _ in range(2))
    _team(compiler).meet(count, _PATIENCE, ids.ctypes.data, cpus.ctypes.data)
    ran = ids >= 0
    return tuple(ids[ran].tolist()), tuple(cpus[ran].tolist())


def touch(memory: npt.NDArray[np.uint8], count: int, compiler: str) -> None:
    """Write to every page of a flat array, the i-th of `count` equal parts by thread i."""
    note_threads(count)
    _team(compiler).touch(count, memory.size, _PAGE, memory.ctypes.data)


@cache
def _team(compiler: str) -> Any:
    """The functions of threads.c as `compiler` builds them."""
    loaded = library(_SOURCE, compiler, "float64", {"optimize": "O2", "native": False})
    number, address = ctypes.c_int64, ctypes.c_void_p
    kinds = {
        "enter_team": [number, number, address, address],
        "exit_team": [number, number, address],
        "meet": [number, number, address, address],
        "touch": [number, number, number, address],
    }
    for name, arguments in kinds.items():
        getattr(loaded, name).argtypes = arguments  # kept by the library, unlike loaded[name]
    loaded.enter_team.restype = number
    return loaded
