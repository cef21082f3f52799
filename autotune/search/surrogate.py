"""What the search believes of candidates it has not measured: two models, and the gain they expect.

The quantity modelled is the log of the time over the best one, saturated: how slow a hopeless
candidate is, is of no interest, and would bend a smooth model where it matters.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from autotune.search.gaussian import GaussianProcess
from autotune.search.table import Table

if TYPE_CHECKING:
    from autotune.search.forest import Forest

SATURATED = 1.0
"""Log of the ratio to the best time beyond which all are equally slow."""

_REFITTED = 8
"""Measurements between fits of the Gaussian process's lengths."""

_FITTED, _KNOWN = 200, 256
"""Points that the process's lengths are fitted to, and that both models are given, at most."""

_LEAST, _SURE = 1e-6, 1e-9


class Surrogate:
    """A Gaussian process and extremely randomised trees over the rows of a table.

    They fail in different places: the process is smooth and sure of itself near what it knows, the
    trees find steps and are unsure where they split; taken in turn, neither one's blind spot
    decides alone.
    """

    def __init__(self, table: Table, seed: int) -> None:
        self._table = table
        self._process = GaussianProcess(table.groups)
        self._draw = np.random.default_rng([seed, 1])
        self._fitted = 0
        self._rows = np.zeros(0, dtype=np.int64)
        self._values = np.zeros(0)
        self._best = self._scale = 1.0
        self._conditioned = False

    def learn(
        self, rows: Sequence[int], seconds: Sequence[float | None], pending: Sequence[int]
    ) -> None:
        """Take in what was measured (None: it failed) and what is still to be told of.

        A failed candidate counts as the slowest seen. A pending one is believed to come out as
        expected, which leaves little to be gained beside it.
        """
        values = relative(seconds)
        self._scale = max(float(values.std()), _LEAST)
        self._values = (values - values.mean()) / self._scale
        self._rows = np.array(rows, dtype=np.int64)
        self._best = float(self._values.min())
        self._conditioned = False
        if pending:
            waiting = np.array(pending, dtype=np.int64)
            believed, _ = self._smooth().predict(self._table.smooth[waiting])
            self._rows = np.concatenate([self._rows, waiting])
            self._values = np.concatenate([self._values, believed])
            self._conditioned = False

    def smooth_gain(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Expected improvement of log time at rows, by the Gaussian process."""
        mean, deviation = self._smooth().predict(self._table.smooth[rows])
        return self._scale * _expected_improvement(mean, deviation, self._best)

    def stepped_gain(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """The same by the trees."""
        mean, deviation = self._grown().predict(self._table.steps[rows])
        return self._scale * _expected_improvement(mean, deviation, self._best)

    def _smooth(self) -> GaussianProcess:
        """The process, conditioned on what is known; its lengths are fitted now and then."""
        if not self._conditioned:
            chosen = self._representative(_KNOWN)
            points, values = self._table.smooth[self._rows].astype(float), self._values
            if not self._fitted or len(values) >= self._fitted + max(_REFITTED, len(values) // 8):
                some = self._representative(_FITTED)
                self._process.fit(points[some], values[some])
                self._fitted = len(values)
            self._process.condition(points[chosen], values[chosen])
            self._conditioned = True
        return self._process

    def _representative(self, count: int) -> NDArray[np.intp]:
        """So many of the known points: half of them the best, the others drawn."""
        order = np.argsort(self._values, kind="stable")
        if len(order) <= count:
            return order
        best, others = order[: count // 2], order[count // 2 :]
        return np.concatenate([best, self._draw.choice(others, count - len(best), replace=False)])

    def _grown(self) -> Forest:
        from autotune.search.forest import Forest

        chosen = self._representative(_KNOWN)
        seed = int(self._draw.integers(2**31))
        return Forest.grown(self._table.steps[self._rows[chosen]], self._values[chosen], seed)


def relative(seconds: Sequence[float | None]) -> NDArray[np.float64]:
    """Saturated log of every time over the best; zeros where nothing has a time."""
    times = np.array([np.nan if each is None else each for each in seconds], dtype=float)
    if np.isnan(times).all():
        return np.zeros(len(times))
    logs = np.log(times)
    logs = np.where(np.isnan(logs), np.nanmax(logs), logs) - np.nanmin(logs)
    saturated: NDArray[np.float64] = np.minimum(logs, SATURATED)
    return saturated


def _expected_improvement(
    mean: NDArray[np.float64], deviation: NDArray[np.float64], best: float
) -> NDArray[np.float64]:
    """Of a normal variable below `best` (Jones, Schonlau, Welch, 1998, equation 15)."""
    ahead = (best - mean) / np.maximum(deviation, _SURE)
    density = np.exp(-0.5 * ahead**2) / np.sqrt(2.0 * np.pi)
    gain: NDArray[np.float64] = np.maximum(deviation * (ahead * _normal(ahead) + density), 0.0)
    return gain


def _normal(at: NDArray[np.float64]) -> NDArray[np.float64]:
    """The normal distribution function, to 1e-7 (Abramowitz, Stegun, 26.2.17)."""
    t = 1.0 / (1.0 + 0.2316419 * np.abs(at))
    powers = t * (
        0.319381530 + t * (-0.356563782 + t * (1.781477937 + t * (-1.821255978 + t * 1.330274429)))
    )
    upper = np.exp(-0.5 * at**2) / np.sqrt(2.0 * np.pi) * powers
    below: NDArray[np.float64] = np.where(at >= 0.0, 1.0 - upper, upper)
    return below
