"""Ceilings of a CPU: memory and arithmetic by all cores that this process may use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from autotune.arrays import Array, empty_aligned
from autotune.device import CpuDevice, Device
from autotune.device.placement import place
from autotune.device.threads import ThreadSettings, prepare
from autotune.errors import UserError
from autotune.eviction import UNKNOWN_CACHE_BYTES, one_thread
from autotune.roofline.loops import CHAIN, loops

EXCESS = 2.0
"""Bytes swept over bytes of last-level cache."""

SAMPLES = 5
SAMPLE_SECONDS = 0.03
"""Of arithmetic: short samples meet clocks that have not risen yet."""

SQUARE = 1536
"""Rows of the matrices that BLAS multiplies."""

DTYPES = ("float32", "float64")

Work = Callable[[int], object]


def measure_cpu(device: Device) -> dict[str, float]:
    """Rates per second: see `Ceilings`. The best of some samples, each by one thread per core."""
    if not isinstance(device, CpuDevice):
        raise UserError(f"{device.label} is no CPU of this machine.")
    team = _Team(place(device.topology, device.max_threads, "spread"))
    try:
        found = _memory(team, device.last_level_cache_bytes or UNKNOWN_CACHE_BYTES)
        for dtype in DTYPES:
            found |= _loops(team, dtype)
    finally:
        team.close()
    for dtype in DTYPES:
        found[f"matrix {dtype}"] = _products(dtype, device.max_threads)
    return found


class _Team:
    """One thread on each CPU."""

    def __init__(self, cpus: Sequence[int]) -> None:
        self._pools: list[ThreadPoolExecutor] = [one_thread(cpu) for cpu in cpus]
        self.size = len(self._pools)

    def run(self, work: Work) -> float:
        """Seconds that all threads take for `work(number of the thread)`, from first to last."""
        started = perf_counter()
        for each in [pool.submit(work, i) for i, pool in enumerate(self._pools)]:
            each.result()
        return perf_counter() - started

    def first(self, work: Callable[[], object]) -> float:
        """Seconds that the first thread takes alone."""
        started = perf_counter()
        self._pools[0].submit(work).result()
        return perf_counter() - started

    def best(self, work: Work) -> float:
        return min(self.run(work) for _ in range(SAMPLES))

    def close(self) -> None:
        for pool in self._pools:
            pool.shutdown()


def _memory(team: _Team, cache_bytes: int) -> dict[str, float]:
    """Reading and copying arrays that no cache holds; each thread its own part, touched by it."""
    share = int(EXCESS * cache_bytes) // team.size // 16 * 16
    parts: list[Array] = [np.empty(0)] * team.size
    total = loops("float64").total

    def touch(i: int) -> None:
        parts[i] = empty_aligned((share // 8,), np.float64)
        parts[i][...] = 1.0

    def copy(i: int) -> None:
        half = len(parts[i]) // 2
        np.copyto(parts[i][half : 2 * half], parts[i][:half])

    def read_all() -> None:
        for part in parts:
            total(part)

    team.run(touch)
    total(parts[0][:64])  # compiles
    swept = share * team.size
    return {
        "read": swept / team.best(lambda i: total(parts[i])),
        "copy": swept / team.best(copy),
        "read alone": swept / min(team.first(read_all) for _ in range(SAMPLES - 2)),
    }


def _loops(team: _Team, dtype: str) -> dict[str, float]:
    """Multiply-adds with operands from the nearest cache, and in registers."""
    made = loops(dtype)
    rows = [(np.ones(512, dtype), np.ones(512, dtype)) for _ in range(team.size)]
    return {
        f"loop {dtype}": 2 * 512 * _rounds_per_second(team, made.multiply_add, rows),
        f"vector {dtype}": 2 * 512 * CHAIN * _rounds_per_second(team, made.chain, rows),
    }


def _rounds_per_second(team: _Team, kernel: Callable[..., Any], rows: Sequence[Any]) -> float:
    """Rounds of a loop by all threads; so many in a row that a sample takes its time."""
    kernel(*rows[0], 1)  # compiles
    rounds = 1
    while team.first(partial(kernel, *rows[0], rounds)) < SAMPLE_SECONDS:
        rounds *= 2
    return team.size * rounds / team.best(lambda i: kernel(*rows[i], rounds))


def _products(dtype: str, threads: int) -> float:
    """Operations per second of a product of square matrices by NumPy's BLAS."""
    random: Any = np.random.default_rng(0)
    left, right = (random.standard_normal((SQUARE, SQUARE)).astype(dtype) for _ in range(2))
    out = np.empty_like(left)
    times = []
    with prepare(ThreadSettings(threads, blas="parallel", numba=False)):
        for _ in range(SAMPLES + 1):
            started = perf_counter()
            np.matmul(left, right, out=out)
            times.append(perf_counter() - started)
    return 2.0 * SQUARE**3 / min(times)
