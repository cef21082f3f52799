"""Evicts the caches: sweeps more memory than the last-level cache holds, from every CPU."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import Any

import numpy as np

from autotune.arrays import Array, empty_aligned

EXCESS = 1.25
"""Swept bytes over last-level cache bytes: replacement is not strictly least-recently-used."""

UNKNOWN_CACHE_BYTES = 64 << 20

THREAD_NAME = "autotune-evict"


class Evictor:
    """Buffers larger than the last-level cache, one part for each CPU to rewrite.

    Each CPU sweeps its own part, so that private caches are evicted too, and on a machine with
    several sockets every one of them. Rewriting (not reading) makes sure that lines displace
    others in a victim cache as well.
    """

    def __init__(self, cache_bytes: int, cpus: tuple[int, ...]) -> None:
        self.nbytes = int(EXCESS * (cache_bytes or UNKNOWN_CACHE_BYTES))
        self.seconds = 0.0
        self.sweeps = 0
        self.best_rate = 0.0
        share = self.nbytes // len(cpus) // 8
        self._pools = [one_thread(cpu) for cpu in cpus]
        made = [pool.submit(_first_touch, share) for pool in self._pools]
        self._parts = [each.result() for each in made]

    def evict(self) -> None:
        """Sweep once; adds to `seconds` and `sweeps`, keeps the best rate in bytes per second."""
        started = perf_counter()
        pairs = zip(self._pools, self._parts, strict=True)
        for each in [pool.submit(_sweep, part) for pool, part in pairs]:
            each.result()
        elapsed = perf_counter() - started
        self.seconds += elapsed
        self.sweeps += 1
        self.best_rate = max(self.best_rate, 2.0 * self.nbytes / elapsed)

    def close(self) -> None:
        """Free the buffers and end the threads."""
        self._parts = []
        for pool in self._pools:
            pool.shutdown()


def one_thread(cpu: int) -> ThreadPoolExecutor:
    """A pool whose one thread stays on a CPU, where the system can pin."""
    return ThreadPoolExecutor(1, THREAD_NAME, initializer=_pin, initargs=(cpu,))


def _pin(cpu: int) -> None:
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, {cpu})


def _first_touch(count: int) -> Array:
    part = empty_aligned((count,), np.uint64)
    part[...] = 1
    return part


def _sweep(part: np.ndarray[Any, Any]) -> None:
    np.add(part, 1, out=part)
