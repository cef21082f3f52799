"""Times calls by events on the current stream: device time, with the host's beside it."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from importlib import import_module
from time import perf_counter
from typing import Any

from autotune.cuda.eviction import CacheEvictor
from autotune.errors import AutotuneError
from autotune.timing import checked

SHORTEST_SECONDS = 1e-3
"""A hot sample takes at least so long: events resolve about half a microsecond."""

MOST_CALLS = 1000
COVER = 1.5
"""Eviction keeps the device busy for so many times the host time of a call."""


class CaptureError(AutotuneError):
    """A candidate that cannot be captured in a CUDA graph."""


class EventTimer:
    """Takes one sample: prepares on the stream, then `batch` calls between two events.

    `cover` seconds of eviction before each sample, or None to leave the caches alone; then a
    call outside of the events goes ahead, for which the device need not wait.
    """

    def __init__(
        self,
        call: Callable[[], Any],
        reset: Callable[[], None],
        evictor: CacheEvictor | None,
        *,
        lead: bool = False,
    ) -> None:
        self._cuda: Any = import_module("cupy").cuda
        self.call, self.batch, self.result = call, 1, None
        self._reset, self._evictor, self._lead = reset, evictor, lead
        self._events = self._cuda.Event(), self._cuda.Event()
        self._host: list[float] = []

    def __call__(self) -> float:
        self.result = None
        self._prepare()
        call, (started, ended) = self.call, self._events
        repeats = range(self.batch - 1)
        started.record()
        before = perf_counter()
        for _ in repeats:
            call()
        self.result = call()
        host = perf_counter() - before
        ended.record()
        ended.synchronize()
        self._host.append(host / self.batch)
        elapsed = float(self._cuda.get_elapsed_time(started, ended)) * 1e-3
        return checked(elapsed / self.batch)

    def facts(self) -> dict[str, Any]:
        """Calls per sample, bytes evicted, and the host's median seconds for a call."""
        found: dict[str, Any] = {"batch": self.batch}
        if self._evictor is not None:
            found["evicted_bytes"] = self._evictor.nbytes
        if self._host:
            found["host_seconds"] = round(statistics.median(self._host), 9)
        return found

    def _prepare(self) -> None:
        self._reset()
        if self._evictor is not None:
            self._evictor.evict(COVER * self._host[-1] if self._host else 0.0)
        elif self._lead:
            self.call()


def hot_timer(
    call: Callable[[], Any], reset: Callable[[], None], *, repeatable: bool
) -> EventTimer:
    """Calls back to back; short ones many times in a row, unless they must not be repeated."""
    timer = EventTimer(call, reset, None, lead=repeatable)
    if repeatable:
        seconds = min(timer(), timer())
        timer.batch = min(MOST_CALLS, max(1, math.ceil(SHORTEST_SECONDS / seconds)))
    return timer


def graph_timer(
    call: Callable[[], Any], reset: Callable[[], None], evictor: CacheEvictor
) -> EventTimer:
    """Captures the call once on the current stream and times replays, cold.

    Raises CaptureError for a call that cannot be captured.
    """
    stream = import_module("cupy").cuda.get_current_stream()
    result: Any = None
    stream.begin_capture()
    try:
        try:
            result = call()
        finally:
            graph = stream.end_capture()
    except Exception as error:
        text = next(iter(str(error).splitlines()), type(error).__name__)
        raise CaptureError(f"cannot be captured in a CUDA graph ({text})") from error

    def replay() -> Any:
        graph.launch()
        return result

    return EventTimer(replay, reset, evictor)
