"""A scope: thread settings applied around a kernel call, then put back as they were."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

Pinning = Literal["free", "exact", "group", "caller"]


@dataclass(frozen=True, slots=True)
class ThreadSettings:
    """What a kernel call runs with.

    `cpus` holds the CPU of each thread, or nothing when the operating system may choose.
    `blas` is `serial` (BLAS stays on the thread that calls it), `parallel` (BLAS itself uses
    `threads`) or None (left alone). `numba` says that the kernel has numba parallel regions;
    without it numba is neither touched nor imported. `openmp` says that it has OpenMP regions, and
    names the C compiler on whose runtime they run; numba has none then.
    """

    threads: int
    cpus: tuple[int, ...] = ()
    blas: Literal["serial", "parallel"] | None = None
    numba: bool = True
    openmp: str = ""

    def __post_init__(self) -> None:
        if self.threads < 1:
            raise ValueError(f"threads is {self.threads}; a kernel runs with at least one.")
        if self.cpus and len(self.cpus) != self.threads:
            raise ValueError(f"{self.threads} threads were given {len(self.cpus)} CPUs.")


@dataclass(frozen=True, slots=True)
class ThreadRecord:
    """Where threads were asked to run and where they ran, for a measurement's circumstances.

    `pinning` is `exact` (thread i on CPU i), `group` (all threads within the CPUs: numba's tbb
    layer), `caller` (only the calling thread is within them: a BLAS whose own threads cannot be
    reached) or `free`, where `used` only says where the threads happened to be.
    """

    threads: int
    asked: tuple[int, ...]
    used: tuple[int, ...]
    pinning: Pinning
    layer: str | None
    blas: tuple[str, ...]


class Part(Protocol):
    """One setting a scope changes; `enter` returns what `exit` needs to put it back."""

    def enter(self) -> Any: ...

    def exit(self, found: Any) -> None: ...


@dataclass(frozen=True, slots=True)
class Plan:
    """The parts for some settings, how firmly they pin, and how to see the CPUs in use."""

    parts: tuple[Part, ...]
    pinning: Pinning
    survey: Callable[[], tuple[int, ...]]
    layer: str | None = None
    blas: tuple[str, ...] = ()


class _Entered(threading.local):
    """What this thread has entered and not yet left, innermost last."""

    def __init__(self) -> None:
        self.stack: list[list[tuple[Part, Any]]] = []


@dataclass(frozen=True, slots=True, eq=False)
class Scope:
    """Settings ready to be applied around a call: `with scope:`, or `enter()` and `exit()`.

    Usable again and again, nested, and by several Python threads at once. What belongs to a
    thread (numba's mask, affinity) is saved for each entry; what belongs to the process (BLAS
    counts, the pools of numba's workqueue and tbb layers) is counted or locked.
    """

    settings: ThreadSettings
    plan: Plan
    _entered: _Entered = field(default_factory=_Entered, repr=False)

    def enter(self) -> None:
        """Apply the settings. Raises OSError, with nothing changed, if a CPU is out of reach."""
        entered: list[tuple[Part, Any]] = []
        try:
            for part in self.plan.parts:
                entered.append((part, part.enter()))
        except BaseException:
            leave(entered)
            raise
        self._entered.stack.append(entered)

    def exit(self) -> None:
        """Put back what the latest `enter` of this thread found."""
        leave(self._entered.stack.pop())

    def __enter__(self) -> Scope:
        self.enter()
        return self

    def __exit__(self, *_: object) -> None:
        self.exit()

    def record(self) -> ThreadRecord:
        """Run the threads once, idle, and see which CPUs they are on."""
        with self:
            used = self.plan.survey()
        settings, plan = self.settings, self.plan
        return ThreadRecord(
            threads=settings.threads,
            asked=settings.cpus,
            used=used,
            pinning=plan.pinning,
            layer=plan.layer,
            blas=plan.blas,
        )


def leave(entered: list[tuple[Part, Any]]) -> None:
    """Leave in reverse order, all of them even if one fails."""
    while entered:
        part, found = entered.pop()
        try:
            part.exit(found)
        except BaseException:
            leave(entered)
            raise
