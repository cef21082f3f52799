"""A recording: a space of which the time of every config is known, or that it failed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from autotune.errors import UserError
from autotune.model.problem import Candidate, Value
from autotune.search.space import Axis, Space, VariantSpace

ALONE = "recorded"
"""The name of the variant where a recording knows of no variants."""


@dataclass(frozen=True, eq=False)
class Recording:
    """Times in seconds of all configs of a space; NaN for one that failed.

    `seconds` has a vector for each variant, in the order of the rows of its space. `missing` is
    how many admissible configs were not recorded; they are not part of the space.
    """

    name: str
    space: Space
    seconds: Mapping[str, NDArray[np.float64]]
    device: str = ""
    missing: int = 0
    notes: Sequence[str] = field(default=())

    @cached_property
    def best(self) -> float:
        """The least time of all, in seconds."""
        return float(min(np.nanmin(times) for times in self.seconds.values() if timed(times)))

    @property
    def failed(self) -> int:
        """How many configs have no time."""
        return sum(int(np.isnan(times).sum()) for times in self.seconds.values())

    def __len__(self) -> int:
        return len(self.space)

    def answer(self, candidate: Candidate) -> float | None:
        """What measuring a candidate gives: its time in seconds, or None where it failed."""
        home = self.space.variant(candidate.variant)
        row = None if home is None else home.row(candidate.config)
        if row is None:
            raise UserError(f"{self.name} has no config {candidate.config} of {candidate.variant}.")
        seconds = float(self.seconds[candidate.variant][row])
        return None if np.isnan(seconds) else seconds

    def fastest(self, count: int) -> tuple[Candidate, ...]:
        """The best candidates, fastest first."""
        ranked = sorted(
            (float(self.seconds[home.variant][row]), place, row)
            for place, home in enumerate(self.space.variants)
            for row in np.argsort(self.seconds[home.variant], kind="stable")[:count].tolist()
            if not np.isnan(self.seconds[home.variant][row])
        )
        return tuple(self.space.variants[place].candidate(row) for _, place, row in ranked[:count])


def timed(times: NDArray[np.float64]) -> bool:
    """Whether any config has a time."""
    return bool((~np.isnan(times)).any())


def axis(name: str, values: Sequence[object], *, where: str, ordered: bool | None = None) -> Axis:
    """A tunable of a recording; UserError names one that is empty or whose values are unclear.

    Numbers are ordered where there are more than two, unless said otherwise; text and values of
    mixed types are not.
    """
    if not values:
        raise UserError(f"{where}: the tunable {name!r} has no value.")
    for place, value in enumerate(values):
        if not isinstance(value, int | float | str):
            raise UserError(
                f"{where}: the tunable {name!r} has the value {value!r}; write a number or text."
            )
        if isinstance(value, float) and not np.isfinite(value):
            raise UserError(f"{where}: the tunable {name!r} has the value {value}.")
        twin = next((other for other in values[:place] if other == value), None)
        if twin is not None:
            raise UserError(
                f"{where}: two values of the tunable {name!r} are the same, {twin!r} and {value!r}."
            )
    numbers = all(isinstance(v, int | float) and not isinstance(v, bool) for v in values)
    sorts = numbers and len(values) > 2 if ordered is None else ordered and numbers
    chosen: tuple[Value, ...] = tuple(values)  # type: ignore[arg-type]
    return Axis(name, tuple(sorted(chosen)) if sorts else chosen, sorts)


def home_of(
    variant: str, axes: Sequence[Axis], configs: Sequence[Sequence[Value]], default: int | None
) -> VariantSpace:
    """The space of a variant from its configs, one value for each axis; all are known values.

    Without a `default` that is the config nearest to the middle of all axes.
    """
    known = [{value: index for index, value in enumerate(each.values)} for each in axes]
    points = np.array(
        [[index[value] for index, value in zip(known, config, strict=True)] for config in configs],
        dtype=np.int32,
    ).reshape(len(configs), len(axes))
    home = VariantSpace(variant, tuple(axes), points, default or 0)
    if default is None:
        middle = [(len(each.values) - 1) // 2 for each in axes]
        home.default = int(np.argmin(home.distances(middle)))
    return home
