"""What samples say: the interval of a median, of a ratio of two, and whether they agree."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

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

    def settled(self, precision: float) -> bool:
        """Whether the bounds hold at the 95% level and lie within `precision` of each other."""
        return self.coverage >= CONFIDENCE and self.width <= precision


@lru_cache(maxsize=4096)
def order_ranks(count: int, confidence: float = CONFIDENCE) -> tuple[int, float]:
    """Rank k (from 1) and coverage of the interval [x_(k), x_(count+1-k)] of a median.

    The number of samples below the median is binomial(count, 1/2) whatever their distribution, so
    the coverage is exact for independent samples (David and Nagaraja, Order Statistics, 2003,
    section 7.1). k is the largest rank that covers `confidence`; fewer than 6 samples cannot
    cover 95%, and then k = 1 and the coverage says so.
    """
    tail = 2.0**-count
    below = tail
    rank = 1
    while rank < (count + 1) // 2:
        tail += math.comb(count, rank) * 2.0**-count
        if 1.0 - 2.0 * tail < confidence:
            break
        below = tail
        rank += 1
    return rank, max(0.0, 1.0 - 2.0 * below)


def median_interval(samples: Sequence[float], confidence: float = CONFIDENCE) -> Interval:
    """Median with its distribution-free interval; raises ValueError without samples or for NaN."""
    if not samples or any(math.isnan(sample) for sample in samples):
        raise ValueError("a median needs at least one sample and none that is not a number.")
    ordered = sorted(samples)
    rank, coverage = order_ranks(len(ordered), confidence)
    return Interval(
        median=statistics.median(ordered),
        low=ordered[rank - 1],
        high=ordered[-rank],
        coverage=coverage,
    )


def ratio_interval(one: Sequence[float], other: Sequence[float]) -> Interval:
    """Median of one/other over pairs taken together, with its interval; 1 means equally fast.

    Pairing cancels what slows both halves of a round alike, and the logarithm makes the answer
    for other/one the exact reciprocal. Raises ValueError for unequal lengths or times <= 0.
    """
    if len(one) != len(other) or min((*one, *other), default=0.0) <= 0.0:
        raise ValueError("a ratio needs equally many times of both, all above zero.")
    logs = [math.log(a / b) for a, b in zip(one, other, strict=True)]
    found = median_interval(logs)
    return Interval(
        math.exp(found.median), math.exp(found.low), math.exp(found.high), found.coverage
    )


def spread(samples: Sequence[float]) -> float:
    """Distance between the quartiles over the median; 0 for fewer than four samples."""
    if len(samples) < 4:
        return 0.0
    first, middle, third = statistics.quantiles(samples, n=4, method="inclusive")
    return (third - first) / middle if middle else math.inf


def two_levels(samples: Sequence[float], gap: float = 0.1) -> float | None:
    """The middle of a gap that parts the samples into two populations, or None.

    Both sides hold at least a fifth of the samples, the gap is wider than `gap` of the median, and
    wider than three times what neighbouring samples on either side are apart at most.
    """
    ordered = sorted(samples)
    count = len(ordered)
    fewest = max(3, -(-count // 5))
    if count < 2 * fewest:
        return None
    steps = [after - before for before, after in itertools.pairwise(ordered)]
    widest = max(range(fewest - 1, count - fewest), key=steps.__getitem__)
    others = max(steps[:widest] + steps[widest + 1 :])
    if steps[widest] <= max(gap * statistics.median(ordered), 3.0 * others):
        return None
    return (ordered[widest] + ordered[widest + 1]) / 2.0
