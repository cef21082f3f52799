"""Tunables: what may be varied about a variant, and over which values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from autotune.errors import DeclarationError
from autotune.model.problem import Value

MOST_VALUES = 100_000
"""Of one tunable: all of them are listed."""


class Machine(Protocol):
    """What tunables and constraints may ask of a device."""

    @property
    def limits(self) -> Mapping[str, int]:
        """Values of the names in MACHINE_LIMITS for this kind of device; none for a CPU."""
        ...

    def thread_counts(self) -> tuple[int, ...]:
        """Thread counts worth trying, ascending."""
        ...

    def placements(self) -> tuple[str, ...]:
        """Thread placements that differ on this device; the first is the default."""
        ...


class Tunable(Protocol):
    """A named, typed choice; `ordered` values have neighbours."""

    @property
    def name(self) -> str: ...

    @property
    def ordered(self) -> bool: ...

    def values(self, machine: Machine) -> tuple[Value, ...]: ...

    def start(self, machine: Machine) -> Value: ...


@dataclass(frozen=True, slots=True)
class Choice:
    """One of some unordered values."""

    name: str
    options: Sequence[Value]
    default: Value | None = None
    ordered: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        if not self.options or (self.default is not None and self.default not in self.options):
            raise DeclarationError(f"tunable {self.name}: the default is not among its options.")

    def values(self, machine: Machine) -> tuple[Value, ...]:
        return tuple(self.options)

    def start(self, machine: Machine) -> Value:
        return self.options[0] if self.default is None else self.default


@dataclass(frozen=True, slots=True)
class Range:
    """Whole numbers from `low` to `high`, both included, `step` apart."""

    name: str
    low: int
    high: int
    step: int = field(default=1, kw_only=True)
    default: int | None = field(default=None, kw_only=True)
    ordered: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        if not all(isinstance(each, int) for each in (self.low, self.high, self.step)):
            raise DeclarationError(f"tunable {self.name}: low, high and step are whole numbers.")
        options = range(self.low, self.high + 1, max(self.step, 1))
        start = self.low if self.default is None else self.default
        if self.step < 1 or not options or start not in options:
            raise DeclarationError(f"tunable {self.name}: empty range or a default outside it.")
        if (self.high - self.low) // self.step >= MOST_VALUES:
            raise DeclarationError(
                f"tunable {self.name}: a range has at most {MOST_VALUES:,} values; give a larger "
                "step, or declare PowerOfTwo."
            )

    def values(self, machine: Machine) -> tuple[Value, ...]:
        return tuple(range(self.low, self.high + 1, self.step))

    def start(self, machine: Machine) -> Value:
        return self.low if self.default is None else self.default


@dataclass(frozen=True, slots=True)
class PowerOfTwo:
    """Powers of two from `low` to `high`, both included."""

    name: str
    low: int
    high: int
    default: int | None = field(default=None, kw_only=True)
    ordered: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        powers = self._powers()
        if (
            self.low not in powers
            or self.high not in powers
            or (self.low if self.default is None else self.default) not in powers
        ):
            raise DeclarationError(f"tunable {self.name}: low, high and default are powers of two.")

    def _powers(self) -> tuple[int, ...]:
        return tuple(1 << n for n in range(63) if self.low <= 1 << n <= self.high)

    def values(self, machine: Machine) -> tuple[Value, ...]:
        return self._powers()

    def start(self, machine: Machine) -> Value:
        return self.low if self.default is None else self.default


@dataclass(frozen=True, slots=True)
class Threads:
    """Number of CPU threads; never more than mask, quota and NUMBA_NUM_THREADS allow."""

    name: str = "threads"
    ordered: bool = field(default=True, init=False)

    def values(self, machine: Machine) -> tuple[Value, ...]:
        return tuple(machine.thread_counts())

    def start(self, machine: Machine) -> Value:
        return max(machine.thread_counts())


@dataclass(frozen=True, slots=True)
class Placement:
    """Where CPU threads are pinned: free, compact, spread, node:k."""

    name: str = "placement"
    ordered: bool = field(default=False, init=False)

    def values(self, machine: Machine) -> tuple[Value, ...]:
        return tuple(machine.placements())

    def start(self, machine: Machine) -> Value:
        return machine.placements()[0]
