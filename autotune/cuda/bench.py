"""A GPU as the measuring process uses it: a stream of its own, events, eviction, clocks."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import cached_property
from importlib import import_module
from typing import Any

from autotune.bench import Conditions, Timer
from autotune.cuda.eviction import CacheEvictor
from autotune.cuda.memory import DeviceMemory
from autotune.cuda.timing import EventTimer, graph_timer, hot_timer
from autotune.cuda.watch import CardState, CardWatch
from autotune.disturbance import scatter, slept_between
from autotune.worker.protocol import Mode

FASTEST_MEMORY = 2.0
"""A call that moves its compulsory bytes so many times faster than a copy is impossible."""

HEAT_SECONDS = 1.0
"""Of work before the first measurement; more until clock and temperature are steady."""

LONGEST_HEAT = 5.0
IDLE_SECONDS = 0.5
"""After so long without work clocks have fallen, and a moment of work raises them."""

WAKE_SECONDS = 0.05
_STEADY_CLOCK, _STEADY_DEGREES = 0.02, 1
_HEATED_SIZE = 4096

OCCUPIED_SECONDS = 2e-4
"""Longer than the host takes from one launch to the next."""

JITTER_SECONDS = 2e-6
"""Differences between short times that events cannot resolve are no sign of a disturbance."""


class CudaBench:
    """Everything runs on one stream that does not wait for the default one.

    Its own, so that calls can be captured in a graph, and so that nothing that a candidate
    forgot on another stream is waited for by accident.
    """

    stall_seconds: float = 0.0
    """Events time what the device does; nothing takes that away from it."""

    def __init__(self, device: Any, nvml: Any = None) -> None:
        self.device = device
        self._cupy: Any = import_module("cupy")
        self._cupy.cuda.Device(device.index).use()
        self._stream = self._cupy.cuda.Stream(non_blocking=True)
        self._stream.use()
        self.memory = DeviceMemory()
        self._watch = CardWatch(device.card, nvml)
        self._worked = -math.inf

    @cached_property
    def evictor(self) -> CacheEvictor:
        """Made for the first measurement."""
        return CacheEvictor(self.device.last_level_cache_bytes)

    def timer(
        self, call: Callable[[], Any], reset: Callable[[], None], *, mode: Mode, repeatable: bool
    ) -> Timer:
        """Cold: the L2 evicted before each sample; hot: back to back; graph: replayed, cold."""
        if mode == "hot":
            return hot_timer(call, reset, repeatable=repeatable)
        if mode == "graph":
            return graph_timer(call, reset, self.evictor)
        return EventTimer(call, reset, self.evictor)

    def settle(self) -> None:
        """Heat the card until it is steady, the first time; wake it after a pause."""
        if self._worked == -math.inf:
            self._heat()
        elif time.monotonic() - self._worked > IDLE_SECONDS:
            self._work(WAKE_SECONDS)
        self._worked = time.monotonic()

    def change_over(self, timer: Timer) -> None:
        """Nothing: work on a stream is over before the next."""

    def _heat(self) -> None:
        """Real work until neither clock nor temperature changes much, as far as can be read."""
        started = time.monotonic()
        states = [self._watch.read()]
        while (spent := time.monotonic() - started) < LONGEST_HEAT:
            if spent >= HEAT_SECONDS and steady(states):
                break
            self._work(HEAT_SECONDS / 4.0)
            states.append(self._watch.read())
        self.memory.release()

    def _work(self, seconds: float) -> None:
        matrix = self._cupy.full((_HEATED_SIZE, _HEATED_SIZE), 0.5, "float32")
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            for _ in range(10):
                matrix @ matrix
            self._stream.synchronize()

    def occupy(self) -> None:
        """Sweeps on the stream: a call that uses another one comes before what it waits for."""
        self.evictor.evict(OCCUPIED_SECONDS)

    def synchronize(self) -> None:
        """Wait for the whole device: an error must not show later, beside another candidate."""
        self._cupy.cuda.runtime.deviceSynchronize()

    def broken(self) -> str | None:
        """The error that the device does not recover from, if there was one."""
        try:
            self._cupy.cuda.runtime.deviceSynchronize()
            self._cupy.cuda.runtime.deviceSynchronize()  # the first may just report the last call
        except Exception as error:
            return next(iter(str(error).splitlines()), type(error).__name__)
        return None

    def explain(self, error: BaseException) -> str | None:
        """Memory that ran out, however it was asked for."""
        text = next(iter(str(error).splitlines()), "")
        if isinstance(error, MemoryError) or "OUT_OF_MEMORY" in text:
            return f"ran out of device memory ({text})" if text else "ran out of device memory"
        return None

    def compile_clock(self) -> AbstractContextManager[Callable[[], float]]:
        """Seconds NVRTC has spent."""
        from autotune.cuda.nvrtc import compile_clock

        return compile_clock()

    def read(self) -> Any:
        """The state of the card."""
        return self._watch.read()

    def conditions(self, before: Any, after: Any, samples: Sequence[float]) -> Conditions:
        """Clocks, temperature, throttling, other processes, and scatter of the samples."""
        self._worked = time.monotonic()
        facts = {"sm_clock_before_mhz": before.sm_mhz} if before.sm_mhz is not None else {}
        wide = max(samples) - min(samples) > JITTER_SECONDS
        slept = slept_between(before.asleep, after.asleep)
        found = (*after.spoils(), *slept, *(scatter(samples) if wide else ()))
        return Conditions(facts | after.facts(), found)

    def physical_limit(self, compulsory: int, mode: Mode) -> float:
        """What does not fit the L2 at twice the rate of a copy; none when hot."""
        beyond = compulsory - self.device.last_level_cache_bytes
        if mode == "hot" or beyond <= 0:
            return 0.0
        return float(beyond / (FASTEST_MEMORY * self.evictor.rate))

    def toolchain(self) -> dict[str, str]:
        """Versions of driver, CUDA, NVRTC and CuPy."""
        from autotune.fingerprint import toolchain

        return toolchain("cuda")


def steady(states: Sequence[CardState]) -> bool:
    """Whether the last three readings agree in clock and temperature, where there are any."""
    last = states[-3:]
    clocks = [state.sm_mhz for state in last if state.sm_mhz is not None]
    degrees = [state.temperature_c for state in last if state.temperature_c is not None]
    even = not clocks or max(clocks) - min(clocks) <= _STEADY_CLOCK * max(clocks)
    return even and (not degrees or max(degrees) - min(degrees) <= _STEADY_DEGREES)
