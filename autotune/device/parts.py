"""Scope parts that need no numba: the calling thread's affinity and BLAS."""

from __future__ import annotations

import ctypes
import functools
import os
import threading
from collections.abc import Callable
from typing import Any

from autotune.device.blas import BlasLibrary
from autotune.device.masks import cpus_in, mask_of, out_of_reach
from autotune.device.scope import Part, Plan, ThreadSettings, leave


class _Pools:
    """The lock of what all Python threads share; a forked child starts with a fresh one."""

    lock = threading.RLock()

    @classmethod
    def renew(cls) -> None:
        cls.lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_Pools.renew)


class Exclusive:
    """One Python thread at a time in a pool that several cannot share."""

    def enter(self) -> Any:
        lock = _Pools.lock
        lock.acquire()
        return lock

    def exit(self, found: Any) -> None:
        found.release()


class Pinned:
    """The calling thread kept on some CPUs, or on the first few of them, and others with it.

    Nothing is moved where the calling thread may not run on all of them: whoever narrowed its mask
    since this machine was read meant it.
    """

    def __init__(self, cpus: tuple[int, ...], *others: Part, caller: int | None = None) -> None:
        self._cpus, self._caller = frozenset(cpus), frozenset(cpus[:caller])
        self._others = others

    def enter(self) -> Any:
        found = os.sched_getaffinity(0)
        if not self._cpus <= found:
            return None
        entered: list[tuple[Part, Any]] = []
        try:
            for part in self._others:
                entered.append((part, part.enter()))
            if found != self._caller and self._caller:
                _move(self._caller)
        except BaseException:
            leave(entered)
            raise
        return found, entered

    def exit(self, found: Any) -> None:
        if found is not None:
            mask, entered = found
            if mask != self._caller and self._caller:
                os.sched_setaffinity(0, mask)
            leave(entered)


def _move(cpus: frozenset[int]) -> None:
    try:
        os.sched_setaffinity(0, cpus)
    except OSError:
        raise out_of_reach(cpus) from None


class BlasCount:
    """The thread count of one BLAS library."""

    def __init__(self, library: BlasLibrary, count: int) -> None:
        self._library, self._count = library, count

    def enter(self) -> Any:
        return self._library.request(self._count)

    def exit(self, found: Any) -> None:
        self._library.release(found)


class BlasPinned:
    """The workers of one OpenBLAS, each on its CPU; the caller has the first."""

    def __init__(self, library: BlasLibrary, cpus: tuple[int, ...]) -> None:
        self._library, self._masks = library, [mask_of((cpu,)) for cpu in cpus[1:]]

    def enter(self) -> Any:
        return self._library.pin(self._masks)

    def exit(self, found: Any) -> None:
        self._library.unpin(found)


def blas_counts(libraries: tuple[BlasLibrary, ...], count: int) -> tuple[Part, ...]:
    """Parts that give every library `count` threads.

    Raises ValueError when one was built for fewer.
    """
    for library in libraries:
        most = library.most(count)
        if most < count:
            raise ValueError(f"{library.name} runs at most {most} threads; {count} are asked for.")
    return tuple(BlasCount(library, count) for library in libraries)


def blas_pins(libraries: tuple[BlasLibrary, ...], cpus: tuple[int, ...]) -> tuple[Part, ...]:
    """Parts that pin the workers of the libraries that can be pinned."""
    return tuple(BlasPinned(library, cpus) for library in libraries if library.pinnable)


def plain_plan(settings: ThreadSettings, libraries: tuple[BlasLibrary, ...]) -> Plan:
    """Placement of a kernel that runs on the calling thread and, if parallel, in BLAS."""
    cpus = settings.cpus
    workers = settings.blas == "parallel" and settings.threads > 1
    if not cpus:
        return Plan((), "free", _caller_cpu)
    if not workers:
        return Plan((Pinned(cpus),), "exact", _caller_cpu)
    if not libraries or not all(library.pinnable for library in libraries):
        return Plan((Pinned(cpus),), "caller", _caller_cpu)
    parts = (Exclusive(), Pinned(cpus, *blas_pins(libraries, cpus), caller=1))
    return Plan(parts, "exact", _blas_survey(libraries[0], settings.threads - 1))


def _blas_survey(library: BlasLibrary, workers: int) -> Callable[[], tuple[int, ...]]:
    """The caller's CPU and the workers'; -1 for a worker that is not on one CPU."""

    def survey() -> tuple[int, ...]:
        masks = [cpus_in(mask) for mask in library.worker_masks(workers)]
        return (*_caller_cpu(), *(min(mask) if len(mask) == 1 else -1 for mask in masks))

    return survey


def _caller_cpu() -> tuple[int, ...]:
    current = _sched_getcpu()
    return () if current is None else (int(current()),)


@functools.cache
def _sched_getcpu() -> Any:
    try:
        return ctypes.CDLL(None).sched_getcpu
    except (AttributeError, OSError, TypeError):  # not Linux
        return None
