"""The median of a sample and how well it is known: the one rule for all that is timed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import median

CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Interval:
    """A median and the bounds that hold it with probability `coverage`."""

    median: float
    low: float
    high: float
    coverage: float

    @property
    def width(self) -> float:
        """Relative width, (high - low) / |median|; infinite for a median of 0 unless exact."""
        spread = self.high - self.low
        if not spread:
            return 0.0
        return spread / abs(self.median) if self.median else math.inf

    @property
    def covers(self) -> bool:
        """Whether the bounds hold at the 95% level."""
        return self.coverage >= CONFIDENCE

    def settled(self, precision: float) -> bool:
        """Whether the bounds hold at the 95% level and lie within `precision` of each other."""
        return self.covers and self.width <= precision


@lru_cache(maxsize=4096)
def order_ranks(count: int, confidence: float = CONFIDENCE) -> tuple[int, float]:
    """Rank k (from 1) and coverage of the interval [x_(k), x_(count+1-k)] of a median.

    The number of samples below the median is binomial(count, 1/2) whatever their distribution, so
    the coverage is exact for independent samples (David and Nagaraja, Order Statistics, 2003,
    section 7.1). k is the largest rank that covers `confidence`; fewer than 6 samples cannot
    cover 95%, and then k = 1 and the coverage says so.
    """
    tail = below = term = 1  # of 2^count, in whole numbers: floats end at 2^1023
    rank, all_of_them = 1, 1 << count
    while rank < (count + 1) // 2:
        term = term * (count - rank + 1) // rank
        tail += term
        if 1.0 - 2.0 * (tail / all_of_them) < confidence:
            break
        below = tail
        rank += 1
    return rank, max(0.0, 1.0 - 2.0 * (below / all_of_them))


def median_interval(samples: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """Median with its distribution-free interval; raises ValueError without samples or for NaN."""
    if not samples or any(math.isnan(sample) for sample in samples):
        raise ValueError("a median needs at least one sample and none that is not a number.")
    ordered = sorted(samples)
    rank, coverage = order_ranks(len(ordered), confidence)
    return Interval(median(ordered), ordered[rank - 1], ordered[-rank], coverage)
