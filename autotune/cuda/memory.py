"""Arrays on the current GPU, through CuPy and its memory pool."""

from __future__ import annotations

import gc
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import numpy.typing as npt

from autotune.arrays import Array, same_bits


class DeviceMemory:
    """CuPy arrays. NumPy's functions hand such arrays on to CuPy's of the same name."""

    concurrent = False

    def __init__(self) -> None:
        self._cupy: Any = import_module("cupy")

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
        """By a second copy on the device."""
        pristine = array.copy()
        return lambda: same_bits(array, pristine)

    def random(self, rng: np.random.Generator) -> Any:
        """The host's generator, so that values are the same as on a CPU; arrays are moved."""
        return _Random(rng, self)

    def release(self) -> None:
        """Give the pool's free blocks back to the driver."""
        gc.collect()
        self._cupy.get_default_memory_pool().free_all_blocks()

    def _array(self, value: Any) -> Array:
        array: Array = value
        return array


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
