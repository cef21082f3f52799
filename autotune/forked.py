"""What a forked child has lost: threads of OpenMP, and CUDA."""

from __future__ import annotations

import sys
import threading
from typing import Any

from autotune.errors import DeviceLostError, LaunchError
from autotune.locks import after_fork

_lost: set[str] = set()
_used_cuda = False


def require_openmp(what: str) -> None:
    """Raise LaunchError where a parallel region would end or hang this process.

    GNU's OpenMP keeps its threads; a child has none of them, and no way to start others. numba
    ends a process that tries (SIGTERM), C and Fortran wait for ever.
    """
    if "openmp" in _lost:
        raise LaunchError(
            f"{what} runs on OpenMP's threads, which a forked process has not; start processes "
            f"with the method spawn, or fork before the first call."
        )


def require_cuda(what: str) -> None:
    """Raise DeviceLostError in a child whose parent used CUDA before."""
    global _used_cuda
    if not _used_cuda:
        return
    cupy: Any = sys.modules["cupy"]
    try:
        cupy.cuda.runtime.free(0)
    except Exception as error:
        raise DeviceLostError(
            f"{what}: CUDA does not work in a process that was forked from one that uses it; "
            f"start it with the method spawn."
        ) from error
    _used_cuda = False


def _look_back() -> None:
    """In the child: what did its parent use, and what was it compiling?"""
    global _used_cuda
    _open_compilers()
    _used_cuda = "cupy" in sys.modules
    if _numba_used_openmp() or "autotune.native.team" in sys.modules:
        _lost.add("openmp")


def _open_compilers() -> None:
    """Locks of numba and LLVM that another thread of the parent held while it compiled."""
    numba: Any = sys.modules.get("numba.core.compiler_lock")
    llvm: Any = sys.modules.get("llvmlite.binding.ffi")
    holders: list[Any] = [getattr(numba, "global_compiler_lock", None)]
    holders.append(getattr(getattr(llvm, "lib", None), "_lock", None))
    for holder in holders:
        lock = getattr(holder, "_lock", None)
        if lock is not None and not lock._is_owned():
            holder._lock = threading.RLock()


def _numba_used_openmp() -> bool:
    parallel: Any = sys.modules.get("numba.np.ufunc.parallel")
    if parallel is None or not getattr(parallel, "_is_initialized", False):
        return False
    return str(parallel.threading_layer()) == "omp"


after_fork(_look_back)
