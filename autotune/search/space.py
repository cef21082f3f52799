"""The finite space a search walks: for each variant its admissible configs as index vectors."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from autotune.estimate import estimate_seconds
from autotune.model import space as admissible
from autotune.model.problem import Candidate, Config, Problem, Value
from autotune.model.tunable import Machine
from autotune.model.variant import Variant
from autotune.rates import Rates

ENUMERATED = 20_000
"""Configs per variant up to which all are listed; beyond it, as many are drawn at random."""

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


@dataclass(frozen=True, slots=True, eq=False)
class VariantSpace:
    """The admissible configs of one variant.

    `points` has one row per config and one column per axis: the index of the value on that axis.
    `default` is the row of the variant's default config; `predicted` the row that the declaration
    expects to be the fastest, if that is clearly another one.
    """

    variant: str
    axes: tuple[Axis, ...]
    points: NDArray[np.int32]
    default: int = 0
    predicted: int | None = None
    _rows: dict[tuple[int, ...], int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        rows = {tuple(point): row for row, point in enumerate(self.points.tolist())}
        object.__setattr__(self, "_rows", rows)

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
        return self._rows.get(key)

    def distances(self, point: NDArray[Any]) -> NDArray[np.float64]:
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
        """Rows that differ in one axis only: the next admissible value up and down, or any other.

        Axes in declared order, so that the result is the same every time.
        """
        point = self.points[row]
        differs = self.points != point
        single = differs.sum(axis=1) == 1
        found: list[int] = []
        for column, axis in enumerate(self.axes):
            rows = np.flatnonzero(single & differs[:, column])
            if axis.ordered:
                steps = self.points[rows, column] - point[column]
                up, down = rows[steps > 0], rows[steps < 0]
                found += [int(up[np.argmin(steps[steps > 0])])] if up.size else []
                found += [int(down[np.argmax(steps[steps < 0])])] if down.size else []
            else:
                found += rows.tolist()
        return found


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
    device or other dtypes are not part of the question, and not listed as skipped. `rates` are the
    machine's; without them predictions go by nominal ones.
    """
    admitted: list[tuple[float, VariantSpace]] = []
    skipped: dict[str, str] = {}
    for variant in variants:
        if not admissible.concerns(variant, problem, device_kind):
            continue
        reason = admissible.why_not(variant, problem, device_kind, machine.limits)
        home = None if reason else _variant_space(variant, problem, machine, limit, rates)
        if home is None:
            skipped[variant.name] = reason or "no config satisfies its constraints"
        else:
            default = home.candidate(home.default).config
            admitted.append((estimate_seconds(variant, problem, default, rates), home))
    admitted.sort(key=lambda pair: pair[0])
    return Space(tuple(home for _, home in admitted), skipped)


def _variant_space(
    variant: Variant, problem: Problem, machine: Machine, limit: int, rates: Rates | None
) -> VariantSpace | None:
    axes = tuple(Axis(t.name, t.values(machine), t.ordered) for t in variant.tunables)
    default = admissible.default_config(variant, problem, machine)
    if default is None:
        return None
    listed = _listed(variant, problem, machine, limit)
    if default not in listed:
        listed.append(default)
    indices = [{value: i for i, value in enumerate(axis.values)} for axis in axes]
    points = np.array(
        [
            [index[config[axis.name]] for axis, index in zip(axes, indices, strict=True)]
            for config in listed
        ],
        dtype=np.int32,
    ).reshape(len(listed), len(axes))
    start = listed.index(default)
    return VariantSpace(
        variant.name, axes, points, start, _predicted(variant, problem, listed, start, rates)
    )


def _listed(variant: Variant, problem: Problem, machine: Machine, limit: int) -> list[Config]:
    """Every admissible config, or `limit` of them drawn evenly when there are more."""
    found = list(itertools.islice(admissible.configs(variant, problem, machine), limit + 1))
    if len(found) > limit:
        found = _drawn(variant, problem, machine, found[:limit])
    if isinstance(machine, _Placing) and {"threads", "placement"} <= set(variant.tunable_names):
        room = {
            (threads, placement): machine.fits(int(threads), str(placement))
            for threads, placement in {(c["threads"], c["placement"]) for c in found}
        }
        found = [config for config in found if room[config["threads"], config["placement"]]]
    return found


def _drawn(
    variant: Variant, problem: Problem, machine: Machine, fallback: list[Config]
) -> list[Config]:
    """As many distinct admissible configs as `fallback` has, drawn evenly over the product."""
    draw = random.Random(0)
    options = {tunable.name: tunable.values(machine) for tunable in variant.tunables}
    found: dict[Config, None] = {}
    for _ in range(5 * len(fallback)):
        config = Config({name: draw.choice(values) for name, values in options.items()})
        if admissible.violated(variant, problem, config, machine) is None:
            found[config] = None
        if len(found) == len(fallback):
            break
    return list({**found, **dict.fromkeys(fallback)})[: len(fallback)]


def _predicted(
    variant: Variant,
    problem: Problem,
    listed: Sequence[Config],
    default: int,
    rates: Rates | None,
) -> int | None:
    """The row with the least predicted time, if it is 2% below the default's; else None.

    Threads and placement stay the default's: the prediction knows nothing of either.
    """

    def cost(row: int) -> float:
        return estimate_seconds(variant, problem, listed[row], rates)

    if not variant.passes:
        return None
    kept = {name: listed[default].get(name) for name in ("threads", "placement")}
    rows = [
        row
        for row, config in enumerate(listed)
        if all(config.get(name) == value for name, value in kept.items())
    ]
    rows = random.Random(0).sample(rows, min(_PREDICTED, len(rows)))
    best = min(rows, key=lambda row: (cost(row), row), default=default)
    return best if cost(best) < 0.98 * cost(default) else None
