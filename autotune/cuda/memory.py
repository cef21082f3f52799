"""Arrays on the current GPU, through CuPy and its memory pool."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.arrays import Array

SHARE = 0.95
"""Of the free memory: a process that is at work on the same device may need some more."""


_WORD = 8
_PIECE = 1 << 21
_ODD = 0x9E3779B97F4A7C15


class DeviceMemory:
    """CuPy arrays. NumPy's functions hand such arrays on to CuPy's of the same name."""

    concurrent = False

    def __init__(self) -> None:
        self._cupy: Any = import_module("cupy")
        # CuPy's first arithmetic imports modules, one of which keeps the frames that led to it and
        # the arrays in them: here there are none yet.
        self._known_factors: Array = self.asarray(np.ones(1, np.uint64)) * np.uint64(1)

    def allocate(self, nbytes: int) -> Array:
        """Bytes from the pool, which aligns to 512."""
        return self._array(self._cupy.empty(nbytes, np.uint8))

    def asarray(self, value: Any, dtype: npt.DTypeLike | None = None) -> Array:
        """As `cupy.asarray`: host arrays are copied to the device."""
        return self._array(self._cupy.asarray(value, dtype))

    def copy(self, value: Any) -> Array:
        """As `cupy.array`."""
        return self._array(self._cupy.array(value))

    def witness(self, array: Array) -> Callable[[], bool]:
        """By a sum of all words, each times an odd number of its own: no second copy of an input
        that may take half of the device."""
        before = self._digest(array)
        return lambda: self._digest(array) == before

    def _digest(self, array: Array) -> int:
        order = sorted(range(array.ndim), key=lambda axis: -abs(array.strides[axis]))
        packed = self._cupy.ascontiguousarray(array.transpose(order)).reshape(-1).view(np.uint8)
        first = -int(packed.data.ptr) % _WORD  # as an array may lie that is a view of a longer one
        last = first + max(packed.size - first, 0) // _WORD * _WORD
        words, digest = packed[first:last].view(np.uint64), 0
        factors = self._factors(min(words.size, _PIECE))
        for start in range(0, words.size, _PIECE):
            part = words[start : start + _PIECE]
            digest = (digest * _ODD + int((part * factors[: part.size]).sum())) % 2**64
        edges = (packed[:first], packed[last:])
        return hash((digest, *(bytes(self._cupy.asnumpy(edge)) for edge in edges)))

    def _factors(self, count: int) -> Array:
        """Odd, so that no change of a single word goes unseen."""
        if self._known_factors.size < count:
            numbers = np.random.default_rng(0).integers(2**63, size=count, dtype=np.uint64)
            self._known_factors = self.asarray(2 * numbers + np.uint64(1))
        return self._known_factors

    def random(self, rng: np.random.Generator) -> Any:
        """The host's generator, so that values are the same as on a CPU; arrays are moved."""
        return _Random(rng, self)

    def release(self) -> None:
        """Give the pool's free blocks back to the driver."""
        self._pool.free_all_blocks()

    def left(self) -> int:
        """What is free on the device, and what the pool holds unused."""
        free, _ = self._cupy.cuda.runtime.memGetInfo()
        return int(free) + int(self._pool.free_bytes())

    def confine(self) -> None:
        """By a limit of the pool: a share of what is free on the device now."""
        free, _ = self._cupy.cuda.runtime.memGetInfo()
        self._pool.set_limit(size=int(SHARE * free))

    def peak(self, call: Callable[[], Any]) -> tuple[Any, int | None]:
        """Of what the pool hands out and takes back, in this thread, beyond what it had given."""
        with _watching(self._cupy) as seen:
            result = call()
        return result, seen.most

    @property
    def _pool(self) -> Any:
        return self._cupy.get_default_memory_pool()

    def _array(self, value: Any) -> Array:
        array: Array = value
        return array


def _watching(cupy: Any) -> Any:
    """A hook of CuPy's pool that counts; its growth would tell less, which has parts of its own."""

    class Watching(cupy.cuda.MemoryHook):  # type: ignore[misc]
        name = "autotune's peak"
        used = most = 0

        def malloc_postprocess(self, **facts: int) -> None:
            self.used += facts["mem_size"] if facts["mem_ptr"] else 0
            self.most = max(self.most, self.used)

        def free_postprocess(self, **facts: int) -> None:
            self.used -= facts["mem_size"]

    return Watching()


class _Random:
    """A generator of the host whose arrays are moved to the device."""

    def __init__(self, rng: np.random.Generator, memory: DeviceMemory) -> None:
        self._rng, self._memory = rng, memory

    def __getattr__(self, name: str) -> Any:
        draw = getattr(self._rng, name)
        if not callable(draw):
            return draw

        def moved(*arguments: Any, **options: Any) -> Any:
            found = draw(*arguments, **options)
            return self._memory.asarray(found) if isinstance(found, np.ndarray) else found

        return moved
