"""What samples say: the interval of a median, of a ratio of two, and whether they agree."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence

from autotune_policies import Interval, median_interval

__all__ = [
    "Interval",
    "fastest_quarter",
    "median_interval",
    "ratio_interval",
    "spread",
    "two_levels",
    "unpaired_ratio",
]


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


def unpaired_ratio(
    one: Sequence[float],
    other: Sequence[float],
    *,
    disturbed: tuple[bool, bool] = (False, False),
) -> Interval:
    """Ratio of the medians of two samples that were taken apart, one/other, with its interval.

    The ends are those of two intervals, each of 97.5%, so that both hold together with 95%
    (Bonferroni); the coverage says less when there are too few samples for that. A disturbance
    only ever adds time: the interval of a `disturbed` one reaches down to its fastest sample.
    Raises ValueError without samples or for times <= 0.
    """
    if not one or not other or min(*one, *other) <= 0.0:
        raise ValueError("a ratio needs times of both, all above zero.")
    above, below = (median_interval(samples, 0.975) for samples in (one, other))
    return Interval(
        above.median / below.median,
        (min(one) if disturbed[0] else above.low) / below.high,
        above.high / (min(other) if disturbed[1] else below.low),
        max(0.0, above.coverage + below.coverage - 1.0),
    )


def fastest_quarter(samples: Sequence[float]) -> tuple[float, ...]:
    """The fastest quarter of the samples, in the order taken, one more rather than less.

    Other programs only ever add time, and not to every sample: beside one that keeps one of two
    CPUs busy, many calls of a kernel on both take several times as long, the others nothing more.
    The median of this quarter is what an eighth of the samples do not reach.
    """
    places = sorted(range(len(samples)), key=samples.__getitem__)[: -(-len(samples) // 4)]
    return tuple(samples[place] for place in sorted(places))


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
