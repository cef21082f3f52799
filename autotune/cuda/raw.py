"""CuPy's own raw kernels in a variant: compiled anew in each process, never from CuPy's disk cache.

CuPy looks its compiled code up by the text of the source alone: a file that the text includes can
change without its noticing. (Kernels made by `CudaSource` are kept on disk by all they include.)
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

_SWITCH = "CUPY_CACHE_IN_MEMORY"


@contextmanager
def compiled_anew() -> Iterator[None]:
    """Inside, CuPy compiles sources itself and reads none of the code it kept on disk."""
    before = os.environ.get(_SWITCH)
    os.environ[_SWITCH] = "1"
    try:
        yield
    finally:
        if before is None:
            os.environ.pop(_SWITCH, None)
        else:
            os.environ[_SWITCH] = before


def compile_raw(run: Any) -> None:
    """Compile the raw kernels and modules of CuPy that a function uses, before its first call."""
    for value in _used(run):
        if type(value).__name__ in ("RawKernel", "RawModule") and _is_cupys(value):
            value.compile()


def _used(run: Any) -> Iterator[Any]:
    """What a function, a partial or a bound method refers to by name, and their functions."""
    if isinstance(run, partial):
        yield from (*run.args, *run.keywords.values())
        yield from _used(run.func)
        return
    yield run
    function: Callable[..., Any] | None = inspect.unwrap(getattr(run, "__func__", run))
    if inspect.isfunction(function):
        found = inspect.getclosurevars(function)
        yield from (*found.nonlocals.values(), *found.globals.values())
    yield from vars(getattr(run, "__self__", run)).values() if _has_fields(run) else ()


def _has_fields(run: Any) -> bool:
    return hasattr(getattr(run, "__self__", run), "__dict__")


def _is_cupys(value: Any) -> bool:
    return type(value).__module__.partition(".")[0] == "cupy"
