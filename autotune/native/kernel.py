"""NativeKernel: a function of a built library, called on NumPy arrays."""

from __future__ import annotations

import ctypes
import os
import struct
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autotune.errors import DeclarationError, LaunchError
from autotune.native.compilers import OPENMP_C

if TYPE_CHECKING:
    from autotune.native.source import NativeSource

DIMS = 6
"""Room for so many dims in the description of an array; as in include/arrays.h and arrays.inc."""

_PADDING = tuple((0,) * (DIMS - dims) for dims in range(DIMS + 1))


class _Threads:
    """Whether a parent of this process ran OpenMP threads, which a fork does not copy."""

    started = False
    lost = False


def _after_fork() -> None:
    _Threads.lost |= _Threads.started


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def note_threads(count: int) -> None:
    """Before OpenMP runs `count` threads. Raises LaunchError where it would wait for ever."""
    if count > 1:
        if _Threads.lost:
            raise LaunchError(
                "this process was forked from one that ran OpenMP threads, which are gone here; "
                "start it afresh (multiprocessing: spawn) or use one thread."
            )
        _Threads.started = True


@dataclass(frozen=True, slots=True, eq=False)
class NativeKernel:
    """`kernel(*arrays, *scalars)` on NumPy arrays of any strides; the GIL is released meanwhile.

    The C function, void (const struct array *arrays, const int64_t *settings, const double
    *scalars), gets a description of each array in the order given; see docs/compilers.md.
    """

    source: NativeSource
    compiler: str
    function: Any
    settings: tuple[int, ...]
    scalars: int

    @property
    def openmp(self) -> str:
        """The C compiler on whose OpenMP runtime it runs."""
        return OPENMP_C[self.compiler]

    def __call__(self, *arguments: Any) -> None:
        """Run to the end."""
        note_threads(self.settings[0])
        count = len(arguments) - self.scalars
        words: list[int] = []
        for array in arguments[:count]:
            if array.ndim > DIMS:
                raise DeclarationError(
                    f"kernels in C and Fortran take arrays of up to {DIMS} dims, got {array.ndim}."
                )
            rest = _PADDING[array.ndim]
            words.append(array.__array_interface__["data"][0])
            words += (*array.shape, *rest, *array.strides, *rest)
        self.function(
            ctypes.c_char_p(struct.pack(f"{len(words)}q", *words)),
            ctypes.c_char_p(struct.pack(f"{len(self.settings)}q", *self.settings)),
            ctypes.c_char_p(struct.pack(f"{self.scalars}d", *arguments[count:])),
        )
