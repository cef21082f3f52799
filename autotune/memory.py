"""Where arrays live: what the gate and the inputs need of an array library, for NumPy's."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from autotune.arrays import Array, empty_aligned

_PIECE = 1 << 20
_SLACK = 1 << 20  # the kernel counts pages of each thread in lots


class Memory(Protocol):
    """Arrays of one device. What NumPy's functions do for its arrays is not repeated here."""

    @property
    def concurrent(self) -> bool:
        """Whether two threads computing on these arrays are faster than one."""
        ...

    def allocate(self, nbytes: int) -> Array:
        """Uninitialised bytes, aligned as kernels like them."""
        ...

    def asarray(self, value: Any, dtype: npt.DTypeLike | None = None) -> Array:
        """A value as an array in this memory, copied only if it has to be."""
        ...

    def copy(self, value: Any) -> Array:
        """A packed copy in this memory."""
        ...

    def witness(self, array: Array) -> Callable[[], bool]:
        """Remembers the values of an array; called, it tells whether they are the same still."""
        ...

    def random(self, rng: np.random.Generator) -> Any:
        """The generator, whose arrays come in this memory."""
        ...

    def release(self) -> None:
        """Give back what is not in use."""
        ...

    def left(self) -> int:
        """Bytes that can still be taken."""
        ...

    def confine(self) -> None:
        """Keep this process from taking all that others may need; what goes beyond fails."""
        ...

    def peak(self, call: Callable[[], Any]) -> tuple[Any, int | None]:
        """What a call returns, and the bytes it took at most at one moment, None if unknown."""
        ...


class HostMemory:
    """NumPy arrays."""

    concurrent = True

    def allocate(self, nbytes: int) -> Array:
        """Bytes from a cache line on."""
        return empty_aligned((nbytes,), np.uint8)

    def asarray(self, value: Any, dtype: npt.DTypeLike | None = None) -> Array:
        """As `numpy.asarray`."""
        return np.asarray(value, dtype)

    def copy(self, value: Any) -> Array:
        """As `numpy.array`."""
        return np.array(value)

    def witness(self, array: Array) -> Callable[[], bool]:
        """By a checksum, which takes no second copy of a large input."""
        before = _checksum(array)
        return lambda: _checksum(array) == before

    def random(self, rng: np.random.Generator) -> Any:
        """The generator itself."""
        return rng

    def release(self) -> None:
        """Nothing: freed memory is the system's at once."""

    def left(self) -> int:
        """By what the machine and this process's control groups have."""
        from autotune.device.room import memory_left

        return memory_left()

    def confine(self) -> None:
        """By a limit of the operating system."""
        from autotune.device.room import confine

        confine()

    def peak(self, call: Callable[[], Any]) -> tuple[Any, int | None]:
        """By the resident set, which Linux can be told to watch anew; within some MiB.

        Memory that was there before and is used again does not show.
        """
        try:
            Path("/proc/self/clear_refs").write_text("5")
        except OSError:
            return call(), None
        before = _status_bytes("VmRSS")
        if _status_bytes("VmHWM") - before > _SLACK:  # it was not told after all
            return call(), None
        result = call()
        return result, max(_status_bytes("VmHWM") - before, 0)


HOST = HostMemory()


def allowed_cpus() -> int:
    """CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _status_bytes(name: str) -> int:
    """A size of this process, as the system counts it."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) << 10
    return 0


def _checksum(array: Array) -> int:
    """CRC of the elements in memory order, by several threads; the guards see to the gaps."""
    order = sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis]))
    packed = np.ascontiguousarray(array.transpose(order)).reshape(-1).view(np.uint8)
    parts = [packed[start : start + _PIECE].data for start in range(0, packed.size, _PIECE)]
    if len(parts) < 2:
        return sum(map(zlib.crc32, parts))
    with ThreadPoolExecutor(allowed_cpus()) as pool:
        return hash(tuple(pool.map(zlib.crc32, parts)))
