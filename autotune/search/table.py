"""All candidates of a space in one table: what models see of them, and which were asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from autotune.model.problem import Value
from autotune.search.space import Axis, Space, VariantSpace

_ABSENT = -1.0
"""What trees see of a tunable that a variant does not have: below every value."""


class Table:
    """One row per candidate of every variant.

    Tunables of the same name are one feature for all variants: what is learnt of `threads` in one
    arrangement is expected of the others. Ordered values stand at their rank among all values of
    that name, from 0 to 1, so that powers of two are on a log scale; unordered ones are a feature
    for each value, and so are the variants. Where it says more than the rank, how often a value can
    be halved is a feature too: warps, cache lines and unrolled loops care what divides a size.

    `smooth` [rows, features] is what a Gaussian process sees: two unordered values that differ are
    as far apart as the ends of an ordered tunable, and so are two variants; `groups` tells which
    features are one tunable. `steps` [rows, features] is what trees see.
    """

    def __init__(self, space: Space) -> None:
        self.homes = space.variants
        self._columns = _columns(space)
        widths = [each.width for each in self._columns]
        if len(self.homes) > 1:
            widths.append(len(self.homes))
        self.groups = np.repeat(np.arange(len(widths)), widths)
        self.smooth = np.zeros((0, len(self.groups)), dtype=np.float32)
        self.steps = np.zeros((0, len(self.groups)), dtype=np.float32)
        self.owner = np.zeros(0, dtype=np.int32)
        self.place = np.zeros(0, dtype=np.int32)
        self._rows: list[NDArray[np.int64]] = [np.zeros(0, dtype=np.int64) for _ in self.homes]
        self.grow()

    def __len__(self) -> int:
        return len(self.owner)

    def row(self, owner: int, place: int) -> int:
        """The row of what stands at a place of a variant's space."""
        if place >= len(self._rows[owner]):
            self.grow()
        return int(self._rows[owner][place])

    def rows(self, owner: int) -> NDArray[np.int64]:
        """The rows of a variant, in the order of its space."""
        return self._rows[owner]

    def neighbours(self, row: int) -> list[int]:
        """Rows one step away, see VariantSpace.neighbours."""
        owner = int(self.owner[row])
        near = self.homes[owner].neighbours(int(self.place[row]))
        return [self.row(owner, place) for place in near]

    def grow(self) -> None:
        """Take in the points that joined a variant's space."""
        for owner, home in enumerate(self.homes):
            known = len(self._rows[owner])
            if len(home) > known:
                points = home.points[known:]
                fresh = np.arange(len(self.owner), len(self.owner) + len(points))
                self._rows[owner] = np.concatenate([self._rows[owner], fresh])
                self.owner = np.append(self.owner, np.full(len(points), owner, dtype=np.int32))
                self.place = np.append(self.place, np.arange(known, len(home), dtype=np.int32))
                smooth, steps = self._features(owner, home, points)
                self.smooth = np.concatenate([self.smooth, smooth])
                self.steps = np.concatenate([self.steps, steps])

    def _features(
        self, owner: int, home: VariantSpace, points: NDArray[np.int32]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        smooth, steps = [], []
        for column in self._columns:
            own = next((i for i, a in enumerate(home.axes) if column.holds(a)), None)
            if own is None:
                both = column.absent(len(points))
            else:
                both = column.features(home.axes[own], points[:, own])
            smooth.append(both[0])
            steps.append(both[1])
        if len(self.homes) > 1:
            which = np.zeros((len(points), len(self.homes)), dtype=np.float32)
            which[:, owner] = 1.0
            smooth.append(which * np.float32(np.sqrt(0.5)))
            steps.append(which)
        return _joined(smooth, len(points)), _joined(steps, len(points))


class _Column:
    """A tunable by its name, with where each of its values in any variant stands.

    One of numbers or of two values is a single feature; otherwise there is one for each value.
    """

    def __init__(self, name: str, declared: bool, marks: Mapping[Value, float], width: int) -> None:
        self._name, self._declared = name, declared
        self._marks = marks
        self.width = width

    def holds(self, axis: Axis) -> bool:
        return axis.name == self._name and axis.ordered == self._declared

    def features(
        self, axis: Axis, indices: NDArray[np.int32]
    ) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """For the Gaussian process and for trees, of one config each."""
        marks = np.array([self._marks[value] for value in axis.values], dtype=np.float32)[indices]
        if self.width == 1:
            return marks[:, None], marks[:, None]
        which = (marks[:, None] == np.arange(self.width)).astype(np.float32)
        return which * np.float32(np.sqrt(0.5)), which

    def absent(self, count: int) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """Where the tunable is absent: in the middle, or none of the values."""
        middle = 0.5 if self.width == 1 else 0.0
        smooth = np.full((count, self.width), middle, dtype=np.float32)
        return smooth, np.full_like(smooth, _ABSENT)


def _columns(space: Space) -> list[_Column]:
    """Every tunable of any variant that has more than one value."""
    found: dict[tuple[str, bool], dict[Value, None]] = {}
    for home in space.variants:
        for axis in home.axes:
            found.setdefault((axis.name, axis.ordered), {}).update(dict.fromkeys(axis.values))
    columns = []
    for (name, ordered), values in found.items():
        numbers = all(isinstance(value, int | float) for value in values)
        single = ordered or len(values) == 2
        listed = sorted(values) if single and numbers else list(values)
        if len(listed) > 1:
            scale = 1.0 / (len(listed) - 1) if single else 1.0
            marks = {value: rank * scale for rank, value in enumerate(listed)}
            columns.append(_Column(name, ordered, marks, 1 if single else len(listed)))
        if ordered and numbers:
            twos = [_twos(value) for value in listed]
            if twos != sorted(twos):
                marks = {v: count / max(twos) for v, count in zip(listed, twos, strict=True)}
                columns.append(_Column(name, ordered, marks, 1))
    return columns


def _twos(value: Value) -> int:
    """How often a whole number can be halved; none for zero and what is no whole number."""
    number = int(value) if float(value).is_integer() else 0
    return (number & -number).bit_length() - 1 if number else 0


def _joined(parts: Sequence[NDArray[np.float32]], count: int) -> NDArray[np.float32]:
    if not parts:
        return np.zeros((count, 0), dtype=np.float32)
    return np.concatenate(parts, axis=1)
