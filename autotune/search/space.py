"""The finite space a search walks: for each variant its admissible configs as index vectors."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from autotune.device.room import memory_left
from autotune.errors import DeclarationError
from autotune.estimate import estimate_seconds
from autotune.model import space as admissible
from autotune.model.problem import Candidate, Config, Problem, Value
from autotune.model.traits import fault, values
from autotune.model.tunable import Machine
from autotune.model.variant import Variant
from autotune.rates import Rates
from autotune.room import no_room
from autotune.search.constraints import constraint
from autotune.search.legal import Rules, legal_points

ENUMERATED = 20_000
"""Configs per variant up to which all are listed; beyond it, so many are drawn at random."""

_PREDICTED = 128


@runtime_checkable
class _Placing(Protocol):
    """A machine on which not every placement has room for every thread count."""

    def fits(self, threads: int, placement: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class Axis:
    """One tunable and its values here; the values of an ordered one have neighbours."""

    name: str
    values: tuple[Value, ...]
    ordered: bool

    def doubled(self, index: int) -> list[int]:
        """The indices of half and of twice a value, where these are values."""
        value = self.values[index]
        if not isinstance(value, int | float) or value <= 0:
            return []
        return [i for i, other in enumerate(self.values) if other in (2 * value, value / 2)]


@dataclass(slots=True, eq=False)
class VariantSpace:
    """The admissible configs of one variant.

    `points` has one row per config and one column per axis: the index of the value on that axis.
    `default` is the row of the variant's default config; `predicted` the row that the declaration
    expects to be the fastest, if that is clearly another one. Of a space too large to list the
    points are a sample, and `admits` tells which others belong to it: those that are asked about,
    and neighbours of those that are asked for, join at the end.
    """

    variant: str
    axes: tuple[Axis, ...]
    points: NDArray[np.int32]
    default: int = 0
    predicted: int | None = None
    admits: Callable[[NDArray[np.int32]], NDArray[np.bool_]] | None = None
    _rows: dict[tuple[int, ...], int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self._rows = {tuple(point): row for row, point in enumerate(self.points.tolist())}

    def __len__(self) -> int:
        return len(self.points)

    def candidate(self, row: int) -> Candidate:
        """The candidate of a row."""
        indices = self.points[row].tolist()
        chosen = {a.name: a.values[i] for a, i in zip(self.axes, indices, strict=True)}
        return Candidate(self.variant, Config(chosen))

    def row(self, config: Mapping[str, Any]) -> int | None:
        """The row of a config, or None when it is not in the space."""
        if set(config) != {axis.name for axis in self.axes}:
            return None
        try:
            key = tuple(axis.values.index(config[axis.name]) for axis in self.axes)
        except ValueError:
            return None
        return self.place(key)

    def place(self, point: Sequence[int]) -> int | None:
        """The row of an index vector, or None when it is not in the space."""
        key = tuple(point)
        if key not in self._rows:
            self._admit(np.array([key], dtype=np.int32))
        return self._rows.get(key)

    def distances(self, point: Sequence[int]) -> NDArray[np.float64]:
        """How far every config is from an index vector, in units of whole axes.

        One step of an ordered axis counts its share of the axis, any change of an unordered one
        counts as half the axis.
        """
        total = np.zeros(len(self.points))
        for column, axis in enumerate(self.axes):
            apart = np.abs(self.points[:, column] - point[column])
            if axis.ordered:
                total += apart / max(len(axis.values) - 1, 1)
            else:
                total += 0.5 * (apart > 0)
        return total

    def neighbours(self, row: int) -> list[int]:
        """Rows that differ in one axis only, in the order of the axes.

        Of ordered values the next admissible one up and down, and half and twice the value; of
        others any.
        """
        point = self.points[row]
        if self.admits is not None:
            self._admit(_one_step(point, self.axes))
        found: list[int] = []
        for column, axis in enumerate(self.axes):
            at = {index: self._with(point, column, index) for index in range(len(axis.values))}
            here = int(point[column])
            if axis.ordered:
                up = next((at[i] for i in range(here + 1, len(at)) if at[i] is not None), None)
                down = next((at[i] for i in range(here - 1, -1, -1) if at[i] is not None), None)
                near = [up, down, *(at[i] for i in axis.doubled(here))]
            else:
                near = [other for index, other in at.items() if index != here]
            found += dict.fromkeys(place for place in near if place is not None)
        return found

    def _with(self, point: NDArray[np.int32], column: int, index: int) -> int | None:
        """The row of a point with another index on one axis."""
        key = point.tolist()
        key[column] = index
        return self._rows.get(tuple(key))

    def _admit(self, points: NDArray[np.int32]) -> None:
        """Let those of the points join that are admissible and not here yet."""
        if self.admits is None or not len(points):
            return
        fresh = [p for p in points[self.admits(points)].tolist() if tuple(p) not in self._rows]
        if fresh:
            for place, point in enumerate(fresh, start=len(self.points)):
                self._rows[tuple(point)] = place
            self.points = np.concatenate([self.points, np.array(fresh, dtype=np.int32)])


def _one_step(point: NDArray[np.int32], axes: Sequence[Axis]) -> NDArray[np.int32]:
    """Every change of one axis, admissible or not."""
    changed = []
    for column, axis in enumerate(axes):
        for index in range(len(axis.values)):
            if index != point[column]:
                other = point.copy()
                other[column] = index
                changed.append(other)
    return np.array(changed, dtype=np.int32).reshape(len(changed), len(axes))


@dataclass(frozen=True, slots=True, eq=False)
class Space:
    """All candidates for a problem, by variant, and why the other variants are left out."""

    variants: tuple[VariantSpace, ...]
    skipped: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return sum(len(each) for each in self.variants)

    def variant(self, name: str) -> VariantSpace | None:
        """The space of one variant, or None when it is left out."""
        return next((each for each in self.variants if each.variant == name), None)

    def __contains__(self, candidate: Candidate) -> bool:
        home = self.variant(candidate.variant)
        return home is not None and home.row(candidate.config) is not None


def build_space(
    problem: Problem,
    variants: Iterable[Variant],
    machine: Machine,
    *,
    device_kind: str = "cpu",
    limit: int = ENUMERATED,
    rates: Rates | None = None,
) -> Space:
    """Everything the declarations admit for a problem on a machine.

    The variant whose default is expected to be the fastest comes first. Variants for other kinds of
    device or other dtypes are not part of the question, and not listed as skipped. All others are
    where the problem does not fit the memory left. `rates` are the machine's, or nominal ones.
    """
    left = memory_left() if device_kind == "cpu" else machine.limits.get("device_memory")
    too_large = None if left is None else no_room(problem, left)
    admitted: list[tuple[float, VariantSpace]] = []
    skipped: dict[str, str] = {}
    for variant in variants:
        if not admissible.concerns(variant, problem, device_kind):
            continue
        reason = too_large or admissible.why_not(variant, problem, device_kind, machine.limits)
        try:
            home = None if reason else _variant_space(variant, problem, machine, limit, rates)
        except DeclarationError as error:  # a constraint that the search cannot read
            home, reason = None, str(error).removesuffix(".")
        if home is None:
            skipped[variant.name] = reason or admissible.no_config(variant, problem, machine)
        else:
            default = home.candidate(home.default).config
            admitted.append((estimate_seconds(variant, problem, default, rates), home))
    admitted.sort(key=lambda pair: pair[0])
    return Space(tuple(home for _, home in admitted), skipped)


def _variant_space(
    variant: Variant, problem: Problem, machine: Machine, limit: int, rates: Rates | None
) -> VariantSpace | None:
    axes = tuple(Axis(t.name, t.values(machine), t.ordered) for t in variant.tunables)
    rules = Rules(
        {axis.name: axis.values for axis in axes},
        [constraint(text) for text in variant.constraints],
        {**values(problem, {}), **machine.limits},
    )
    points, complete = legal_points(rules, limit)
    room = _Room.of(machine, axes)
    points = points[room(points)]
    if not len(points):
        return None
    home = VariantSpace(variant.name, axes, points)
    if not complete:
        home.admits = lambda points: rules.admits(points) & room(points)
    start = _default(variant, problem, machine, home)
    if start is None:
        return None
    home.default = start
    home.predicted = _predicted(variant, problem, home, rates)
    return home


def _default(
    variant: Variant, problem: Problem, machine: Machine, home: VariantSpace
) -> int | None:
    """The row of the default config; where that is not admissible, of the one nearest to it.

    None where the declaration gives no sizes for any that was looked at.
    """

    def declared(row: int | None) -> bool:
        return row is not None and not fault(variant, problem, home.candidate(row).config)

    start = {tunable.name: tunable.start(machine) for tunable in variant.tunables}
    row = home.row(start)
    if row is None and home.admits is None:
        config = admissible.default_config(variant, problem, machine)
        row = home.row(config) if config is not None else None
    if declared(row):
        return row
    point = [axis.values.index(start[axis.name]) for axis in home.axes]
    near = np.argsort(home.distances(point), kind="stable")[:_PREDICTED].tolist()
    return next(filter(declared, near), None)


@dataclass(frozen=True, slots=True)
class _Room:
    """Which placements have room for which thread counts, where a machine tells."""

    columns: tuple[int, int] | None
    fits: NDArray[np.bool_]

    @classmethod
    def of(cls, machine: Machine, axes: Sequence[Axis]) -> _Room:
        names = [axis.name for axis in axes]
        if not isinstance(machine, _Placing) or not {"threads", "placement"} <= set(names):
            return cls(None, np.zeros((0, 0), dtype=bool))
        columns = names.index("threads"), names.index("placement")
        threads, placements = (axes[column].values for column in columns)
        fits = [[machine.fits(int(t), str(p)) for p in placements] for t in threads]
        return cls(columns, np.array(fits, dtype=bool))

    def __call__(self, points: NDArray[np.int32]) -> NDArray[np.bool_]:
        if self.columns is None:
            return np.ones(len(points), dtype=bool)
        return self.fits[points[:, self.columns[0]], points[:, self.columns[1]]]


def _predicted(
    variant: Variant, problem: Problem, home: VariantSpace, rates: Rates | None
) -> int | None:
    """The row with the least predicted time, if it is 2% below the default's; else None.

    Threads and placement stay the default's: the prediction knows nothing of either.
    """

    def cost(row: int) -> float:
        return estimate_seconds(variant, problem, home.candidate(row).config, rates)

    if not variant.passes:
        return None
    kept = [i for i, axis in enumerate(home.axes) if axis.name in ("threads", "placement")]
    same = (home.points[:, kept] == home.points[home.default, kept]).all(axis=1)
    rows = np.flatnonzero(same).tolist()
    rows = random.Random(0).sample(rows, min(_PREDICTED, len(rows)))
    best = min(rows, key=lambda row: (cost(row), row), default=home.default)
    return best if cost(best) < 0.98 * cost(home.default) else None
