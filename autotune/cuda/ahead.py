"""Compiling for a GPU that need not be there: what a builder asks for is compiled at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_target: ContextVar[str | None] = ContextVar("autotune_cuda_target", default=None)


@contextmanager
def compiling_for(arch: str) -> Iterator[None]:
    """Inside, `CudaSource.kernel(...)` compiles for `arch` ("sm_90a") into the cache on disk.

    Outside it compiles at the kernel's first use, for the current device. So a variant's builder,
    run inside, tells which compilations its candidate needs, and has them done.
    """
    before = _target.set(arch)
    try:
        yield
    finally:
        _target.reset(before)


def target() -> str | None:
    """What is compiled for at once, or None."""
    return _target.get()
