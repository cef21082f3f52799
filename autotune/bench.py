"""What measuring needs of a device, whatever it is; and how a CPU gives it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from autotune.device import CpuDevice, Device
from autotune.disturbance import Watch, disturbances, surroundings
from autotune.errors import UserError
from autotune.eviction import Evictor
from autotune.memory import HOST, Memory
from autotune.timing import Sampler, batch_size
from autotune.worker.protocol import Mode

SLOWEST_MEMORY = 10.0
"""A call that moves its compulsory bytes so many times faster than the sweep is impossible."""

LIMIT_BYTES = 16 << 20

REST_SECONDS = 0.003
"""Threads of GNU's OpenMP spin for about a millisecond after their work."""

STALL_SECONDS = 0.05
"""Scheduler ticks and hypervisors take a CPU away for milliseconds to tens of them."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What the machine did while something was timed: facts to keep, and what spoils the times."""

    facts: Mapping[str, Any] = field(default_factory=dict)
    reasons: tuple[str, ...] = ()


class Timer(Protocol):
    """Takes one sample per call, in seconds; `result` is what the last call returned."""

    batch: int
    result: Any

    def __call__(self) -> float: ...

    def facts(self) -> Mapping[str, Any]:
        """How the samples were taken, as plain values."""
        ...


class Bench(Protocol):
    """A device as the measuring process uses it."""

    @property
    def device(self) -> Device: ...

    @property
    def memory(self) -> Memory: ...

    @property
    def stall_seconds(self) -> float:
        """How long the machine may withhold its time: samples span more than that."""
        ...

    def timer(
        self, call: Callable[[], Any], reset: Callable[[], None], *, mode: Mode, repeatable: bool
    ) -> Timer:
        """A timer of `call`, before which `reset` restores the arrays.

        `repeatable` calls may be made several times in a row. Raises UserError for a mode that
        the device does not have.
        """
        ...

    def settle(self) -> None:
        """Bring the device to the state in which it is measured."""
        ...

    def change_over(self, timer: Timer) -> None:
        """Before a candidate on another runtime of threads than the one before: let those rest."""
        ...

    def occupy(self) -> None:
        """Give the device work that whatever is called next has to wait for."""
        ...

    def synchronize(self) -> None:
        """Wait for all that was started; raises what it ran into."""
        ...

    def broken(self) -> str | None:
        """Why nothing more can run in this process, or None."""
        ...

    def explain(self, error: BaseException) -> str | None:
        """A sentence for an error that only this kind of device raises."""
        ...

    def compile_clock(self) -> AbstractContextManager[Callable[[], float]]:
        """Seconds spent compiling so far, inside the context."""
        ...

    def read(self) -> Any:
        """The state of the machine now, for `conditions`."""
        ...

    def conditions(self, before: Any, after: Any, samples: Sequence[float]) -> Conditions:
        """What happened between two readings."""
        ...

    def physical_limit(self, compulsory: int, mode: Mode) -> float:
        """Seconds that no call can beat that has to move so many bytes; 0 if nothing is known."""
        ...

    def toolchain(self) -> dict[str, str]:
        """Versions of what candidates are built and run with."""
        ...


def bench_for(device: Device) -> Bench:
    """The bench of a local device; raises UserError for a kind that cannot be measured."""
    if isinstance(device, CpuDevice):
        return CpuBench(device)
    if device.kind == "cuda":
        from autotune.cuda.bench import CudaBench

        return CudaBench(device)
    raise UserError(f"{device.label} is a {device.kind} device, which cannot be measured here.")


class CpuBench:
    """Times by the system's clock, evicts with every CPU, watches the load of others."""

    memory: Memory = HOST
    stall_seconds: float = STALL_SECONDS

    def __init__(self, device: CpuDevice) -> None:
        self.device = device
        self.cpus = device.topology.allowed
        self._watch = Watch(self.cpus, device.topology.online)

    @cached_property
    def evictor(self) -> Evictor:
        """Made for the first cold measurement."""
        return Evictor(self.device.last_level_cache_bytes, self.cpus)

    def timer(
        self, call: Callable[[], Any], reset: Callable[[], None], *, mode: Mode, repeatable: bool
    ) -> Timer:
        """Cold evicts before each sample, hot batches what is too short."""
        if mode == "cold":
            return _ColdSampler(call, reset, self.evictor)
        if mode == "graph":
            raise UserError("CUDA graphs need a GPU; a CPU is measured cold or hot.")
        sampler = Sampler(call, reset)
        if repeatable:
            sampler.batch = batch_size(min(sampler(), sampler()))
        return sampler

    def settle(self) -> None:
        """Nothing: warming up a candidate wakes a CPU."""

    def change_over(self, timer: Timer) -> None:
        """Let the threads of the last candidate fall asleep, and wake those of the next.

        Threads of OpenMP spin for a while after their work, each runtime's on the CPUs that the
        other's need: one was seen to take 15 times as long in turn as alone. Evicting takes longer.
        """
        if not isinstance(timer, _ColdSampler):
            time.sleep(REST_SECONDS)
            timer()

    def occupy(self) -> None:
        """Nothing: there is no queue."""

    def synchronize(self) -> None:
        """Nothing: calls are over when they return."""

    def broken(self) -> str | None:
        """None: what breaks a process on a CPU ends it."""
        return None

    def explain(self, error: BaseException) -> str | None:
        """None: there are no such errors."""
        return None

    def compile_clock(self) -> AbstractContextManager[Callable[[], float]]:
        """Seconds numba has spent compiling."""
        return numba_clock()

    def read(self) -> Any:
        """Clocks of the CPUs."""
        return self._watch.read()

    def conditions(self, before: Any, after: Any, samples: Sequence[float]) -> Conditions:
        """Load of others, throttling, and scatter of the samples."""
        load = self._watch.load(before, after)
        facts = {
            "foreign_load": round(load.foreign, 4),
            "steal": round(load.steal, 4),
            "involuntary_switches": load.switches,
            "cpus": list(self.cpus),
            **surroundings(),
        }
        return Conditions(facts, disturbances(samples, load))

    def physical_limit(self, compulsory: int, mode: Mode) -> float:
        """The bytes at ten times the sweep's rate; none when hot, or when caches may hide them."""
        if mode != "cold" or compulsory < LIMIT_BYTES or not self.evictor.best_rate:
            return 0.0
        return compulsory / (SLOWEST_MEMORY * self.evictor.best_rate)

    def toolchain(self) -> dict[str, str]:
        """Versions of NumPy, its BLAS, numba and its threading layer."""
        from autotune.fingerprint import toolchain

        return toolchain()


class _ColdSampler(Sampler):
    """Evicts before each call, and knows what that took."""

    def __init__(
        self, call: Callable[[], Any], reset: Callable[[], None], evictor: Evictor
    ) -> None:
        def prepare() -> None:
            reset()
            evictor.evict()

        super().__init__(call, prepare)
        self._evictor, self._before = evictor, evictor.seconds

    def facts(self) -> dict[str, Any]:
        """With the bytes evicted before each sample, and the seconds for all of it."""
        spent = round(self._evictor.seconds - self._before, 6)
        return {**super().facts(), "evicted_bytes": self._evictor.nbytes, "evict_seconds": spent}


@contextmanager
def numba_clock() -> Iterator[Callable[[], float]]:
    """Seconds numba has spent compiling so far, inside the context."""
    if "numba" not in sys.modules:
        yield lambda: 0.0
        return
    from numba.core.event import install_timer

    with install_timer("numba:compile", lambda _: None) as timer:
        yield lambda: float(timer.duration) if timer.done else 0.0
