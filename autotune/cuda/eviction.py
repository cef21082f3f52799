"""Evicts a GPU's L2 cache by writing more than twice its size."""

from __future__ import annotations

import math
from importlib import import_module
from typing import Any

import numpy as np

EXCESS = 2.5
"""Bytes written over bytes of L2: the cache is split in two halves that may hold the same lines."""

UNKNOWN_CACHE_BYTES = 128 << 20
MOST_SWEEPS = 64


class CacheEvictor:
    """A buffer to write before each cold sample.

    Writing it also keeps the device busy while the host launches what is to be timed, so that
    the launch itself is not part of the device's time: `evict(seconds)` writes for at least that
    long. `rate` is the bandwidth of a copy in bytes per second, reads and writes counted.
    """

    def __init__(self, cache_bytes: int) -> None:
        self._cupy: Any = import_module("cupy")
        self.nbytes = math.ceil(EXCESS * (cache_bytes or UNKNOWN_CACHE_BYTES) / 4096) * 4096
        self._buffer = self._cupy.zeros(self.nbytes // 8, np.uint64)
        self._count = 0
        self.evict()  # compiles CuPy's kernel
        self.seconds = min(self._timed(self.evict) for _ in range(5))
        half = self._buffer.size // 2
        first, second = self._buffer[:half], self._buffer[half : 2 * half]
        copied = min(self._timed(lambda: self._cupy.copyto(second, first)) for _ in range(5))
        self.rate = 2.0 * first.nbytes / copied

    def evict(self, seconds: float = 0.0) -> None:
        """Write the buffer once, or as often as takes so many seconds, within reason."""
        for _ in range(self.sweeps(seconds)):
            self._count += 1
            self._buffer.fill(self._count)

    def sweeps(self, seconds: float) -> int:
        """How often the buffer is written to keep the device busy for so many seconds."""
        if not seconds:
            return 1
        return min(max(1, math.ceil(seconds / self.seconds)), MOST_SWEEPS)

    def _timed(self, work: Any) -> float:
        cuda = self._cupy.cuda
        started, ended = cuda.Event(), cuda.Event()
        started.record()
        work()
        ended.record()
        ended.synchronize()
        return max(float(cuda.get_elapsed_time(started, ended)) * 1e-3, 1e-7)
