"""The configs that constraints admit, without building the product they are taken from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from autotune.search.constraints import Column, Constraint

Points = NDArray[np.int32]
"""One row per config, one column per tunable: the index of the value."""

_PARTIAL = 200_000
"""Partial configs that are kept, and looked at, in one step; of 15 tunables 12 MB."""

_TRIES = 3
_ENOUGH = 20
_BLOCK = 20_000


class Rules:
    """Constraints on some tunables, each known by the column after which it can be checked.

    `options` are the values of each tunable, `facts` the values that are the same for all configs
    (sizes, limits of a device).
    """

    def __init__(
        self,
        options: Mapping[str, Sequence[object]],
        constraints: Sequence[Constraint],
        facts: Mapping[str, object] | None = None,
    ) -> None:
        self.sizes = [len(values) for values in options.values()]
        self._values = {name: _column(values) for name, values in options.items()}
        self._facts = {
            name: np.array([value])
            for name, value in (facts or {}).items()
            if name not in options and isinstance(value, bool | int | float | str)
        }
        order = list(options)
        self._at: list[list[Constraint]] = [[] for _ in range(len(order) + 1)]
        for each in constraints:
            depth = max((order.index(n) + 1 for n in each.names if n in options), default=0)
            self._at[depth].append(each)

    def admits(self, points: Points) -> NDArray[np.bool_]:
        """Which full configs satisfy every constraint."""
        kept = np.ones(len(points), dtype=bool)
        for depth in range(len(self._at)):
            kept[kept] = self.holds(points[kept], depth)
        return kept

    def holds(self, points: Points, depth: int) -> NDArray[np.bool_]:
        """Which configs satisfy the constraints that the first `depth` tunables complete."""
        kept = np.ones(len(points), dtype=bool)
        columns = dict(self._facts)
        for index, (name, values) in enumerate(self._values.items()):
            if index < depth:
                columns[name] = values[points[:, index]]
        for each in self._at[depth]:
            kept &= each(columns, len(points))
        return kept

    def broken(self, points: Points) -> list[tuple[int, str]]:
        """For every constraint that is broken somewhere, the first config and the text."""
        columns = {n: v[points[:, i]] for i, (n, v) in enumerate(self._values.items())}
        found = []
        for each in (each for level in self._at for each in level):
            wrong = np.flatnonzero(~each({**self._facts, **columns}, len(points)))
            if len(wrong):
                found.append((int(wrong[0]), each.text))
        return found


def legal_points(rules: Rules, limit: int, seed: int = 0) -> tuple[Points, bool]:
    """Admissible configs in the order of the product, and whether these are all there are.

    Of more than `limit`, so many are drawn, each with the same probability: tunable by tunable,
    partial configs that break a constraint are left out and the others thinned evenly. Where that
    leads to too few (tight constraints on the last tunables), the first `limit` are found depth
    first.
    """
    for attempt in range(_TRIES):
        draw = np.random.default_rng([seed, attempt])
        found, complete = _layers(rules, draw)
        if len(found) > limit:
            return _thinned(found, limit, draw), False
        if complete or len(found) > limit // _ENOUGH:
            return found, complete
    return _depth_first(rules, limit)


def _layers(rules: Rules, draw: np.random.Generator) -> tuple[Points, bool]:
    """Partial configs of one tunable, then of two, and so on."""
    points, complete = _start(rules), True
    for depth, size in enumerate(rules.sizes, start=1):
        total = len(points) * size
        if total > _PARTIAL:
            pairs, complete = np.unique(draw.integers(0, total, _PARTIAL)), False
        else:
            pairs = np.arange(total)
        points = np.column_stack([points[pairs // size], (pairs % size).astype(np.int32)])
        points = points[rules.holds(points, depth)]
    return points, complete


def _depth_first(rules: Rules, limit: int) -> tuple[Points, bool]:
    """The first `limit` admissible configs: blocks of partial ones, the deepest goes on first."""
    blocks = [_start(rules)]
    found: list[Points] = []
    while blocks and sum(map(len, found)) < limit:
        block = blocks.pop()
        depth = block.shape[1]
        if depth == len(rules.sizes):
            found.append(block)
            continue
        size = rules.sizes[depth]
        grown = np.repeat(block, size, axis=0)
        column = np.tile(np.arange(size, dtype=np.int32), len(block))
        grown = np.column_stack([grown, column])
        grown = grown[rules.holds(grown, depth + 1)]
        blocks += [grown[start : start + _BLOCK] for start in range(0, len(grown), _BLOCK)][::-1]
    if not found:
        return np.zeros((0, len(rules.sizes)), dtype=np.int32), True
    return np.concatenate(found)[:limit], not blocks


def _thinned(points: Points, count: int, draw: np.random.Generator) -> Points:
    """`count` of them, in their order."""
    return points[np.sort(draw.choice(len(points), count, replace=False))]


def _start(rules: Rules) -> Points:
    """The partial config without a tunable, if constraints on facts alone admit it."""
    points = np.zeros((1, 0), dtype=np.int32)
    return points[rules.holds(points, 0)]


def _column(values: Sequence[object]) -> Column:
    """The values as an array; of several kinds (numbers and text) as objects."""
    kinds = {str if isinstance(value, str) else float for value in values}
    return np.array(list(values), dtype=object if len(kinds) > 1 else None)
