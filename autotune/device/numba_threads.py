"""Numba's threads: how many a call uses, and pinning them. Importing this imports numba.

How a worker gets pinned depends on numba's threading layer:

omp        The caller is thread 0 of a team, gets the same threads for the same team size, and
           iteration i of n runs on thread i. In a region of its own every thread saves its mask,
           sets the new one and tells its id. Exact. Afterwards the caller restores the masks by
           id: a second region would wait for threads that have nothing to do.
workqueue  One pool for the process; task i always runs on worker i, the caller only waits.
           The caller sets and restores the workers' masks by id. Exact. The pool ends the
           process when two Python threads use it at once, so a scope holds a lock.
tbb        Work is stolen: which thread runs what is decided anew in every region. The caller
           keeps all the pool's threads on the set of CPUs. One thread on each CPU is likely,
           not guaranteed.
"""

from __future__ import annotations

import os
import platform
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
from numba import prange, types

from autotune.device.masks import mask_of, mask_words

_numba: Any = numba  # its type hints leave out what is set at run time
Masks = npt.NDArray[np.uint64]
Numbers = npt.NDArray[np.int64]

# C functions are found by name, so that the compiled code can be kept on disk. The last two are
# names that numba's own compiled regions use for the calling thread's thread count.
_get_mask: Any = types.ExternalFunction(
    "sched_getaffinity", types.int32(types.int32, types.uintp, types.uintp)
)
_set_mask: Any = types.ExternalFunction(
    "sched_setaffinity", types.int32(types.int32, types.uintp, types.uintp)
)
_syscall: Any = types.ExternalFunction("syscall", types.int64(types.int64))
_current_cpu: Any = types.ExternalFunction("sched_getcpu", types.int32())
_yield: Any = types.ExternalFunction("sched_yield", types.int32())
_get_count: Any = types.ExternalFunction("get_num_threads", types.int32())
_set_count: Any = types.ExternalFunction("set_num_threads", types.void(types.int32))

# glibc has gettid only since 2.30; the number of the system call differs by architecture.
_GETTID = {"x86_64": 186, "ppc64le": 207, "s390x": 236}.get(platform.machine(), 178)

_PATIENCE = 100_000  # yields before a thread stops waiting for the rest of its team
_PAGE = 4096


def _compiled(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """njit, kept on disk where numba finds a place to write."""

    def decorate(function: Callable[..., Any]) -> Any:
        try:
            return numba.njit(cache=True, **options)(function)
        except RuntimeError:
            return numba.njit(**options)(function)

    return decorate


@_compiled()
def swap_count(count: int) -> Any:
    """Set the calling thread's number of numba threads and return the one before."""
    before = _get_count()
    _set_count(count)
    return before


@_compiled()
def _pin(thread: int, mask: Masks, found: Masks) -> Any:
    failed = _get_mask(thread, mask.size * 8, found.ctypes.data)
    if failed == 0:
        failed = _set_mask(thread, mask.size * 8, mask.ctypes.data)
    return failed


@_compiled(parallel=True)
def _pin_team(masks: Masks, entry: Masks) -> None:
    for i in prange(masks.shape[0]):
        entry[i, 0] = _syscall(_GETTID)
        entry[i, 1] = _pin(0, masks[i], entry[i, 2:]) != 0


@_compiled()
def _outside(masks: Masks, mine: Masks) -> Any:
    """Whether the masks have a CPU that the calling thread may not run on; its mask: `mine`."""
    outside = False
    if _get_mask(0, mine.size * 8, mine.ctypes.data) == 0:
        for i in range(masks.shape[0]):
            for j in range(mine.size):
                outside = outside or masks[i, j] & ~mine[j] != 0
    return outside


@_compiled()
def enter_team(masks: Masks, entry: Masks) -> tuple[int, int]:
    """Use as many threads as there are masks, the i-th for thread i.

    A row of `entry` takes the thread's id, whether it failed, and the mask it had. Returns the
    thread count before and the number of failures; -1 where the caller may not run on all of the
    CPUs, and no mask was changed.
    """
    before, failed = _get_count(), 0
    _set_count(masks.shape[0])
    if _outside(masks, entry[0, 2:]):
        return before, -1
    _pin_team(masks, entry)
    for i in range(masks.shape[0]):
        failed += entry[i, 1] != 0
    return before, failed


@_compiled()
def exit_team(entry: Masks, before: int) -> None:
    """Undo `enter_team`; a thread that has ended since needs nothing back."""
    for i in range(entry.shape[0]):
        _set_mask(entry[i, 0], (entry.shape[1] - 2) * 8, entry[i, 2:].ctypes.data)
    _set_count(before)


@_compiled()
def pin_threads(threads: Numbers, masks: Masks, found: Masks) -> int:
    """Set the masks of other threads, theirs go to `found`; returns how many failed."""
    failed = 0
    for i in range(threads.size):
        failed += _pin(threads[i], masks[i], found[i]) != 0
    return failed


@_compiled()
def unpin_threads(threads: Numbers, found: Masks) -> None:
    """Give threads back their masks."""
    for i in range(threads.size):
        _set_mask(threads[i], found.shape[1] * 8, found[i].ctypes.data)


@_compiled()
def _missing(arrived: Numbers) -> int:
    missing = 0
    for i in range(arrived.size):
        missing += arrived[i] == 0
    return missing


@_compiled(parallel=True)
def _meet(threads: Numbers, cpus: Numbers, arrived: Numbers, patience: int) -> None:
    for i in prange(threads.size):
        threads[i] = _syscall(_GETTID)
        arrived[i] = 1
        for _ in range(patience):
            if _missing(arrived) == 0:
                break
            _yield()
        cpus[i] = _current_cpu()


@_compiled(parallel=True, nogil=True)
def _touch(memory: npt.NDArray[np.uint8], count: int, page: int) -> None:
    share = (memory.size + count - 1) // count
    for i in prange(count):
        for at in range(i * share, min((i + 1) * share, memory.size), page):
            memory[at] = 0


def meet(count: int) -> tuple[Numbers, tuple[int, ...]]:
    """Run `count` threads at the same time: their ids, and the CPU each is on."""
    threads, cpus, arrived = (np.zeros(count, np.int64) for _ in range(3))
    before = swap_count(count)
    try:
        _meet(threads, cpus, arrived, _PATIENCE)
    finally:
        swap_count(before)
    return threads, tuple(cpus.tolist())


def touch(memory: npt.NDArray[np.uint8], count: int) -> None:
    """Write to every page of a flat array, the i-th of `count` equal parts by thread i."""
    before = swap_count(count)
    try:
        _touch(memory, count, _PAGE)
    finally:
        swap_count(before)


def threading_layer() -> str:
    """`omp`, `tbb` or `workqueue`, as numba chose it; starts its threads."""
    numba.get_num_threads()
    return str(_numba.threading_layer())


def most_threads() -> int:
    """The number of threads numba was started with."""
    return int(_numba.config.NUMBA_NUM_THREADS)


def masks_of(cpu_sets: Sequence[Sequence[int]]) -> Masks:
    """One row of 64-bit words for each set of CPUs."""
    rows = [list(mask_of(cpus)) for cpus in cpu_sets]
    return np.array(rows, np.uint64).reshape(len(rows), mask_words())


_pools: dict[int, Numbers] = {}


def pool_threads() -> Numbers:
    """Ids of the process-wide workers: workqueue's in task order, tbb's without the caller.

    tbb starts no more threads than the machine has CPUs, whatever numba asks for. The ids of a
    parent process would reach the parent's threads, so a forked child looks anew.
    """
    pid = os.getpid()
    if pid not in _pools:
        found = dict.fromkeys(meet(most_threads())[0].tolist())
        found.pop(threading.get_native_id(), None)
        _pools[pid] = np.array(list(found), np.int64)
    return _pools[pid]
