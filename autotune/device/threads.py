"""Runs a kernel with its own thread count and placement, and leaves everything as it was."""

from __future__ import annotations

import mmap
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.device.masks import out_of_reach
from autotune.device.parts import Exclusive, Pinned, blas_counts, blas_pins, plain_plan
from autotune.device.scope import Part, Scope, ThreadRecord, ThreadSettings
from autotune.device.sysfs import format_cpu_list, read_cpu_list

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from autotune.device.blas import BlasLibrary

_LOOKS = 3
_ONLINE = Path("/sys/devices/system/cpu/online")

__all__ = ["Scope", "ThreadRecord", "ThreadSettings", "first_touch", "prepare"]


def prepare(settings: ThreadSettings) -> Scope:
    """Make a scope: find the libraries, start the threads, check that pinning holds.

    Numba and threadpoolctl are imported only when the settings call for them. Raises ValueError
    for what cannot be had here (more threads than numba or BLAS run, pinning on a system without
    it) and OSError when the system refuses a CPU or does not keep threads where they are put.
    """
    if settings.cpus:
        if not hasattr(os, "sched_setaffinity"):
            raise ValueError("this system cannot pin threads; use the placement 'free'.")
        _refuse_offline(settings.cpus)
    counts: tuple[Part, ...] = ()
    libraries: tuple[BlasLibrary, ...] = ()
    if settings.blas:
        from autotune.device.blas import blas_libraries

        libraries = blas_libraries()
        counts = blas_counts(libraries, settings.threads if settings.blas == "parallel" else 1)
    if settings.openmp:
        from autotune.native.team import openmp_plan

        plan = openmp_plan(settings.threads, settings.cpus, settings.openmp)
    elif settings.numba:
        from autotune.device.numba_parts import numba_plan

        plan = numba_plan(settings.threads, settings.cpus)
        if settings.cpus and settings.blas == "parallel" and settings.threads > 1:
            pins = Pinned(settings.cpus, *blas_pins(libraries, settings.cpus), caller=0)
            counts = (Exclusive(), *counts, pins)
            if not all(library.pinnable for library in libraries):
                plan = replace(plan, pinning="caller")
    else:
        plan = plain_plan(settings, libraries)
    names = tuple(library.name for library in libraries)
    scope = Scope(settings, replace(plan, parts=(*counts, *plan.parts), blas=names))
    if settings.cpus and set(settings.cpus) <= os.sched_getaffinity(0):
        _check(scope)
    return scope


def _refuse_offline(cpus: tuple[int, ...]) -> None:
    """Raise OSError for CPUs that there are not; those that only a mask leaves out may be."""
    online = read_cpu_list(_ONLINE)
    if online and not online.issuperset(cpus):
        raise out_of_reach(set(cpus) - online)


def _check(scope: Scope) -> None:
    """Raise OSError unless the threads are seen where they were put.

    A busy machine may be slow to start a team's threads, so that is looked at more than once.
    """
    asked = scope.settings.cpus
    used: tuple[int, ...] = ()
    for _ in range(_LOOKS):
        used = scope.record().used
        if used == asked or (scope.plan.pinning != "exact" and set(used) <= set(asked)):
            return
    raise OSError(
        f"this system does not keep threads on CPUs {format_cpu_list(asked)}: "
        f"they ran on {format_cpu_list(used)}."
    )


def first_touch(array: npt.NDArray[np.generic], scope: Scope) -> npt.NDArray[np.generic]:
    """A copy of the array, of the same shape and order of axes, in memory near its users.

    Linux puts a page on the NUMA node of the thread that first writes to it. The copy has fresh
    pages, cut into as many equal parts as the scope has threads, and thread i writes first to
    part i, which is how a parallel loop over the outermost axes divides the work.
    """
    import numpy as np

    if array.nbytes == 0:
        return array.copy()
    strides = np.empty_like(array).strides
    memory = np.frombuffer(mmap.mmap(-1, array.nbytes), np.uint8)
    with scope:
        if scope.settings.openmp:
            from autotune.native.team import touch as touch_by_team

            touch_by_team(memory, scope.settings.threads, scope.settings.openmp)
        elif scope.settings.numba:
            from autotune.device.numba_threads import touch

            touch(memory, scope.settings.threads)
        else:
            memory[:: mmap.PAGESIZE] = 0
    fresh = np.ndarray(array.shape, array.dtype, memory.data, strides=strides)
    np.copyto(fresh, array)
    return fresh
