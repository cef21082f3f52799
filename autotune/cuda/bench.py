"""A GPU as the measuring process uses it: a stream of its own, events, eviction, clocks."""

from __future__ import annotations

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
from autotune.worker.protocol import Mode

FASTEST_MEMORY = 2.0
"""A call that moves its compulsory bytes so many times faster than a copy is impossible."""

HEAT_SECONDS = 1.5
_HEATED_SIZE = 4096


class CudaBench:
    """Everything runs on one stream that does not wait for the default one.

    Its own, so that calls can be captured in a graph, and so that nothing that a candidate
    forgot on another stream is waited for by accident.
    """

    def __init__(self, device: Any) -> None:
        self.device = device
        self._cupy: Any = import_module("cupy")
        self._cupy.cuda.Device(device.index).use()
        self._stream = self._cupy.cuda.Stream(non_blocking=True)
        self._stream.use()
        self.memory = DeviceMemory()
        self._settled = False

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
        """Heat the card with products of matrices, once, until its clock is steady."""
        if self._settled:
            return
        self._settled = True
        matrix = self._cupy.full((_HEATED_SIZE, _HEATED_SIZE), 0.5, "float32")
        started = time.monotonic()
        while time.monotonic() - started < HEAT_SECONDS:
            for _ in range(10):
                matrix @ matrix
            self._stream.synchronize()
        del matrix
        self.memory.release()

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
        return None

    def conditions(self, before: Any, after: Any, samples: Sequence[float]) -> Conditions:
        """Clocks, temperature, throttling and other processes between two readings."""
        return Conditions()

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
