"""Variant and Pass: one arrangement of an operation's computation, declared once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from autotune.errors import DeclarationError
from autotune.model.expression import expression
from autotune.model.operation import Operation, check_name
from autotune.model.tunable import Tunable

Accumulation = Literal["owned", "atomic", "reduction"]
Size = str | int
Run = Callable[..., Any]
Axes = Mapping[str, Size] | Sequence[str]

MACHINE_LIMITS: Mapping[str, tuple[str, ...]] = {
    "cuda": (
        "compute",
        "sms",
        "shared_per_block",
        "shared_per_sm",
        "registers_per_sm",
        "max_threads_per_block",
        "max_threads_per_sm",
        "warp",
        "device_memory",
        "l2_bytes",
    )
}
"""By kind of device: what constraints may ask of it. Bytes, counts, and `compute` (90 for 9.0)."""


@dataclass(frozen=True, slots=True)
class Pass:
    """One kernel or sweep.

    `parallel` and `sequential` map an axis to the tile that one worker (one step) takes; a plain
    sequence of axes means tiles of one. `reads` maps an array to how many times the pass reads the
    whole of it (a plain sequence: once). `writes` maps an array to how its elements accumulate:
    `owned` by one worker, `atomic` across workers, or a `reduction` into a copy per worker that a
    later pass sums. `launches` is 0 where another pass's kernel does this one's work as well.
    """

    name: str
    parallel: Axes = ()
    sequential: Axes = ()
    reads: Axes = ()
    writes: Mapping[str, Accumulation] = field(default_factory=dict)
    flops: Size = 0
    launches: Size = 1

    def __post_init__(self) -> None:
        for array, how in self.writes.items():
            if how not in ("owned", "atomic", "reduction"):
                raise DeclarationError(
                    f"pass {self.name}: {array} is {how!r}; use owned, atomic or reduction."
                )

    @property
    def expressions(self) -> tuple[Size, ...]:
        """Every expression in the declaration."""
        maps = (spread(self.parallel), spread(self.sequential), spread(self.reads))
        sizes = (size for each in maps for size in each.values())
        return (self.flops, self.launches, *sizes)


def spread(axes: Axes) -> Mapping[str, Size]:
    """The mapping form of axes or arrays: a plain sequence stands for one each."""
    return axes if isinstance(axes, Mapping) else dict.fromkeys(axes, 1)


@dataclass(frozen=True, slots=True)
class Intermediate:
    """A temporary array in memory; the engine allocates it and passes it to the kernel."""

    name: str
    dims: tuple[Size, ...]
    dtype: str | None = None


@dataclass(frozen=True, slots=True)
class Unit:
    """What does a variant's arithmetic, for predictions.

    `kind` is "loop" for operands that come from a cache each time, "vector" for registers,
    "matrix" for matrix units and vendors' matrix products. `dtype` is what the unit multiplies
    (None: the problem's; "tf32" is a name of this place only), `times` how many of its operations
    stand for one of the declared ones.
    """

    kind: Literal["loop", "vector", "matrix"] = "loop"
    dtype: str | None = None
    times: int = 1

    def __post_init__(self) -> None:
        if self.kind not in ("loop", "vector", "matrix") or self.times < 1:
            raise DeclarationError(
                f"unit {self.kind!r} times {self.times}: a unit is loop, vector or matrix, "
                "times 1 or more."
            )


@dataclass(frozen=True, slots=True)
class Requirement:
    """Something the machine must offer; `missing()` says why not, or None."""

    name: str
    missing: Callable[[], str | None] = field(repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Variant:
    """One arrangement of an operation.

    `build(problem, config)` returns `run(*inputs, *fresh outputs, *intermediates, *scalars)`,
    which fills the outputs. With `returns=True` run takes inputs and scalars only and returns the
    outputs. `constraints` are expressions over dims, flags, itemsize, tunables and the limits of
    the kind of device (MACHINE_LIMITS). `unit` is what does its arithmetic, for predictions.
    `parts` are the variants of other operations that may serve a step of it, by `dispatch`: they
    count in its fingerprint.
    """

    name: str
    operation: Operation
    build: Callable[..., Run] = field(repr=False)
    device: str = "cpu"
    dtypes: tuple[str, ...] = ()
    passes: tuple[Pass, ...] = ()
    intermediates: tuple[Intermediate, ...] = ()
    tunables: tuple[Tunable, ...] = ()
    constraints: tuple[str, ...] = ()
    requires: tuple[Requirement, ...] = ()
    blas: Literal["serial", "parallel"] | None = None
    unit: Unit | None = None
    parts: tuple[Variant, ...] = field(default=(), repr=False)
    returns: bool = False
    deterministic: bool | None = None
    source: Callable[..., Any] | None = field(default=None, repr=False)
    doc: str = ""

    def __post_init__(self) -> None:
        operation = self.operation
        check_name(f"variant of {operation.name}", self.name)
        for tunable in self.tunables:
            if not hasattr(tunable, "name"):
                raise DeclarationError(
                    f"variant {self.name}: {tunable!r} is no tunable; declare Choice(name, values) "
                    "or one of the others."
                )
        names = [tunable.name for tunable in self.tunables]
        known = {*operation.dims, *operation.flags, "itemsize", "threads", *names}
        arrays = {t.name for t in (*operation.inputs, *operation.outputs)}
        arrays |= {array.name for array in self.intermediates}
        where = f"variant {operation.name}/{self.name}"
        limits = MACHINE_LIMITS.get(self.device, ())
        taken = {*operation.dims, *operation.flags, *limits}
        if len(set(names)) != len(names) or set(names) & taken:
            raise DeclarationError(f"{where}: two things share a name among {names}.")
        sizes = [size for each in self.passes for size in each.expressions]
        sizes += [size for array in self.intermediates for size in array.dims]
        wanted = [(size, known) for size in sizes]
        wanted += [(text, known | set(limits)) for text in self.constraints]
        for text, allowed in wanted:
            missing = expression(text).names - allowed
            if missing:
                raise DeclarationError(f"{where}: {text!r} uses the unknown name {min(missing)}.")
        for each in self.passes:
            for array in (*each.reads, *each.writes):
                if array not in arrays:
                    raise DeclarationError(f"{where}: pass {each.name} names no array {array!r}.")
            for axis in (*each.parallel, *each.sequential):
                if axis not in operation.dims:
                    raise DeclarationError(f"{where}: pass {each.name} has no axis {axis!r}.")

    @property
    def tunable_names(self) -> tuple[str, ...]:
        """Names of the tunables in declared order."""
        return tuple(tunable.name for tunable in self.tunables)

    @property
    def arithmetic(self) -> Unit:
        """The declared unit; BLAS is a matrix unit, and else there are loops."""
        return self.unit or Unit("matrix" if self.blas else "loop")

    def unavailable(self) -> str | None:
        """Why this machine cannot run it (first missing requirement), or None."""
        return next((why for r in self.requires if (why := r.missing())), None)
