"""Ceilings of a CPU: memory and arithmetic by all cores that this process may use."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from autotune.arrays import Array, empty_aligned
from autotune.device import CpuDevice, Device
from autotune.device.placement import place
from autotune.device.threads import ThreadSettings, prepare
from autotune.errors import UserError
from autotune.eviction import UNKNOWN_CACHE_BYTES, one_thread
from autotune.roofline.loops import CHAIN, loops
from autotune.roofline.quiet import better

EXCESS = 2.0
"""Bytes swept over bytes of last-level cache."""

ROUNDS = 3
BURST_SECONDS = 0.08
"""Of samples in a row, the best of which counts: a virtual CPU that has slept takes up to 0.1 s
until it runs beside the others, and threads of OpenBLAS spin for some 30 ms after their work."""

SAMPLE_SECONDS = 0.03
"""Of arithmetic: short samples meet clocks that have not risen yet."""

SQUARE = 1536
"""Rows of the matrices that BLAS multiplies."""

DTYPES = ("float32", "float64")

Work = Callable[[int], object]
Probe = Callable[[], float]
"""Takes one sample of a rate."""


def measure_cpu(device: Device) -> dict[str, float]:
    """Rates per second: see `Ceilings`. The best of some rounds, each a burst of every rate.

    In rounds, what disturbs for a moment spoils one burst of a few rates, not all samples of one.
    Arithmetic comes first, so that all CPUs are awake when the memory is measured.
    """
    if not isinstance(device, CpuDevice):
        raise UserError(f"{device.label} is no CPU of this machine.")
    team = _Team(place(device.topology, device.max_threads, "spread"))
    found: dict[str, float] = {}
    try:
        probes: dict[str, Probe] = {}
        for dtype in DTYPES:
            probes |= _loops(team, dtype)
        probes |= _memory(team, device.last_level_cache_bytes or UNKNOWN_CACHE_BYTES)
        for dtype in DTYPES:
            probes[f"matrix {dtype}"] = _product(dtype, device.max_threads)
        for _ in range(ROUNDS):
            found = better(found, {name: _burst(sample) for name, sample in probes.items()})
    finally:
        team.close()
    return found


def _burst(sample: Probe) -> float:
    """The best of samples in a row."""
    until = time.perf_counter() + BURST_SECONDS
    best = sample()
    while time.perf_counter() < until:
        best = max(best, sample())
    return best


class _Team:
    """One thread on each CPU."""

    def __init__(self, cpus: Sequence[int]) -> None:
        self._pools: list[ThreadPoolExecutor] = [one_thread(cpu) for cpu in cpus]
        self.size = len(self._pools)

    def run(self, work: Work) -> float:
        """Seconds that all threads take for `work(number of the thread)`, from first to last."""
        started = time.perf_counter()
        for each in [pool.submit(work, i) for i, pool in enumerate(self._pools)]:
            each.result()
        return time.perf_counter() - started

    def first(self, work: Callable[[], object]) -> float:
        """Seconds that the first thread takes alone."""
        started = time.perf_counter()
        self._pools[0].submit(work).result()
        return time.perf_counter() - started

    def close(self) -> None:
        for pool in self._pools:
            pool.shutdown()


def _memory(team: _Team, cache_bytes: int) -> dict[str, Probe]:
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
        "read": lambda: swept / team.run(lambda i: total(parts[i])),
        "copy": lambda: swept / team.run(copy),
        "read alone": lambda: swept / team.first(read_all),
    }


def _loops(team: _Team, dtype: str) -> dict[str, Probe]:
    """Multiply-adds with operands from the nearest cache, and in registers."""
    made = loops(dtype)
    rows = [(np.ones(512, dtype), np.ones(512, dtype)) for _ in range(team.size)]
    return {
        f"loop {dtype}": _in_rounds(team, made.multiply_add, rows, 2.0 * 512),
        f"vector {dtype}": _in_rounds(team, made.chain, rows, 2.0 * 512 * CHAIN),
    }


def _in_rounds(
    team: _Team, kernel: Callable[..., Any], rows: Sequence[Any], operations: float
) -> Probe:
    """Operations per second of a loop by all threads; so many rounds that a sample takes its time.

    `operations` are those of one thread in one round.
    """
    kernel(*rows[0], 1)  # compiles
    rounds = 1
    while team.first(partial(kernel, *rows[0], rounds)) < SAMPLE_SECONDS:
        rounds *= 2
    work = operations * team.size * rounds
    return lambda: work / team.run(lambda i: kernel(*rows[i], rounds))


def _product(dtype: str, threads: int) -> Probe:
    """Operations per second of a product of square matrices by NumPy's BLAS."""
    random: Any = np.random.default_rng(0)
    left, right = (random.standard_normal((SQUARE, SQUARE)).astype(dtype) for _ in range(2))
    out = np.empty_like(left)

    def sample() -> float:
        with prepare(ThreadSettings(threads, blas="parallel", numba=False)):
            started = time.perf_counter()
            np.matmul(left, right, out=out)
            return 2.0 * SQUARE**3 / (time.perf_counter() - started)

    sample()  # wakes its threads
    return sample
