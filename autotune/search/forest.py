"""Extremely randomised trees: a model of times that finds steps and cliffs.

Geurts, Ernst, Wehenkel, "Extremely randomized trees", Machine Learning 63 (2006): every tree sees
all points; a node draws one threshold per feature and keeps the best of them. Mean and variance
over trees are taken with the variance inside leaves, as Hutter et al., "Algorithm runtime
prediction", Artificial Intelligence 206 (2014), section 4.3.2.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

TREES = 32
_LEAF = -1
_SMALLEST = 1e-12


def _compiled(function: Callable[..., Any]) -> Any:
    """njit, kept on disk where numba finds a place to write."""
    try:
        return numba.njit(cache=True)(function)
    except RuntimeError:
        return numba.njit(function)


@dataclass(frozen=True, slots=True)
class Forest:
    """Trees as arrays [trees, nodes]: the children of a node are `left` and `left` + 1.

    `feature` is -1 in leaves; a point goes left where its feature is at most `threshold`.
    """

    feature: NDArray[np.int32]
    threshold: NDArray[np.float32]
    left: NDArray[np.int32]
    mean: NDArray[np.float64]
    variance: NDArray[np.float64]

    @classmethod
    def grown(cls, points: NDArray[np.float32], values: NDArray[np.float64], seed: int) -> Forest:
        """Fit trees to `values` [points] at `points` [points, features]."""
        shape = TREES, 2 * len(values)
        forest = cls(
            np.full(shape, _LEAF, dtype=np.int32),
            np.zeros(shape, dtype=np.float32),
            np.zeros(shape, dtype=np.int32),
            np.zeros(shape),
            np.zeros(shape),
        )
        for tree in range(TREES):
            _grow(
                points,
                values,
                seed + tree,
                forest.feature[tree],
                forest.threshold[tree],
                forest.left[tree],
                forest.mean[tree],
                forest.variance[tree],
            )
        return forest

    def predict(
        self, points: NDArray[np.float32]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Mean and standard deviation at every point."""
        mean, deviation = np.empty(len(points)), np.empty(len(points))
        _predict(
            points,
            self.feature,
            self.threshold,
            self.left,
            self.mean,
            self.variance,
            mean,
            deviation,
        )
        return mean, deviation


@_compiled
def _grow(
    points: Any,
    values: Any,
    seed: int,
    feature: Any,
    threshold: Any,
    left: Any,
    mean: Any,
    variance: Any,
) -> None:
    """One tree; the nodes still to be split are parts of `order`."""
    np.random.seed(seed)
    count, features = points.shape
    order = np.arange(count)
    stack = np.empty((2 * count + 2, 3), np.int64)
    stack[0, 0], stack[0, 1], stack[0, 2] = 0, 0, count
    waiting, used = 1, 1
    while waiting > 0:
        waiting -= 1
        node, first, last = stack[waiting, 0], stack[waiting, 1], stack[waiting, 2]
        size, total, squares = last - first, 0.0, 0.0
        for i in range(first, last):
            total += values[order[i]]
            squares += values[order[i]] ** 2
        mean[node] = total / size
        variance[node] = max(squares / size - mean[node] ** 2, 0.0)
        if variance[node] < _SMALLEST:
            continue
        best, chosen, cut = 0.0, _LEAF, 0.0
        for f in range(features):
            low = high = points[order[first], f]
            for i in range(first + 1, last):
                low, high = min(low, points[order[i], f]), max(high, points[order[i], f])
            if low == high:
                continue
            drawn = low + np.random.random() * (high - low)
            below, below_total = 0, 0.0
            for i in range(first, last):
                if points[order[i], f] <= drawn:
                    below += 1
                    below_total += values[order[i]]
            if below == size:
                continue
            gain = below_total**2 / below + (total - below_total) ** 2 / (size - below)
            if chosen == _LEAF or gain > best:
                best, chosen, cut = gain, f, drawn
        if chosen == _LEAF:
            continue
        i, j = first, last - 1
        while i <= j:
            if points[order[i], chosen] <= cut:
                i += 1
            else:
                order[i], order[j] = order[j], order[i]
                j -= 1
        feature[node], threshold[node], left[node] = chosen, cut, used
        for child, begin, end in ((used, first, i), (used + 1, i, last)):
            stack[waiting, 0], stack[waiting, 1], stack[waiting, 2] = child, begin, end
            waiting += 1
        used += 2


@_compiled
def _predict(
    points: Any,
    feature: Any,
    threshold: Any,
    left: Any,
    means: Any,
    variances: Any,
    mean: Any,
    deviation: Any,
) -> None:
    """Law of total variance over the trees; tree by tree, so that each stays in the cache."""
    trees = feature.shape[0]
    squares = np.zeros(points.shape[0])
    mean[:] = 0.0
    for tree in range(trees):
        for i in range(points.shape[0]):
            node = 0
            while feature[tree, node] >= 0:
                right = points[i, feature[tree, node]] > threshold[tree, node]
                node = left[tree, node] + (1 if right else 0)
            mean[i] += means[tree, node]
            squares[i] += means[tree, node] ** 2 + variances[tree, node]
    for i in range(points.shape[0]):
        mean[i] /= trees
        deviation[i] = np.sqrt(max(squares[i] / trees - mean[i] ** 2, _SMALLEST))
