"""Local exponents of measured times, beside those of the predicted bytes and flops."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from autotune.model import Config, Prediction
from autotune.statistics import Interval, median_interval, unpaired_ratio

JUMP = 1.5
"""Time that has grown for sure so many times more than both bytes and flops is a jump."""


@dataclass(frozen=True, slots=True)
class Point:
    """A candidate at one size; times in seconds, all samples kept.

    `first_call` is what the first call took beyond compiling, `compiling` what building did; no
    sample has them in it. Without samples, `status` and `reason` say why.
    """

    size: int
    config: Config
    samples: tuple[float, ...]
    prediction: Prediction
    compulsory_bytes: int
    status: str = "ok"
    reason: str = ""
    first_call: float | None = None
    compiling: float | None = None

    @property
    def interval(self) -> Interval | None:
        """The median with its interval."""
        return median_interval(self.samples) if self.samples else None


@dataclass(frozen=True, slots=True)
class Step:
    """From one size to the next: growth of the time, and exponents over the size.

    `disturbed` tells whether one of the times was: then no jump is sure.

    `low` and `high` bound the exponent with 95% where there are enough samples (`covers`).
    `bytes_exponent` and `flops_exponent` are those of the prediction; None where it has none.
    """

    before: int
    after: int
    growth: float
    exponent: float
    low: float
    high: float
    covers: bool
    bytes_exponent: float | None
    flops_exponent: float | None
    jump: float | None
    disturbed: bool = False

    @property
    def predicted(self) -> float | None:
        """The steeper of the two predicted exponents."""
        return max((e for e in (self.bytes_exponent, self.flops_exponent) if e), default=None)


def steps(points: Sequence[Point]) -> list[Step]:
    """A step for each two neighbouring sizes that both have times, in order of size."""
    timed = [point for point in points if point.samples]
    return [_step(one, other) for one, other in itertools.pairwise(timed)]


def _step(one: Point, other: Point) -> Step:
    spoilt = other.status == "disturbed", one.status == "disturbed"
    ratio = unpaired_ratio(other.samples, one.samples, disturbed=spoilt)
    doublings = math.log(other.size / one.size)
    moved = _growth(_bytes(one), _bytes(other))
    worked = _growth(one.prediction.flops, other.prediction.flops)
    return Step(
        before=one.size,
        after=other.size,
        growth=ratio.median,
        exponent=math.log(ratio.median) / doublings,
        low=math.log(ratio.low) / doublings,
        high=math.log(ratio.high) / doublings,
        covers=ratio.covers,
        bytes_exponent=math.log(moved) / doublings if moved else None,
        flops_exponent=math.log(worked) / doublings if worked else None,
        jump=_jump(ratio, [each for each in (moved, worked) if each]),
        disturbed=any(spoilt),
    )


def _bytes(point: Point) -> int:
    """Predicted bytes; of a variant that declares no passes, what no arrangement avoids."""
    return point.prediction.bytes_moved or point.compulsory_bytes


def _growth(before: int, after: int) -> float | None:
    return after / before if before > 0 and after > 0 else None


def _jump(ratio: Interval, predicted: Sequence[float]) -> float | None:
    """How many times more the time has grown than predicted, if by JUMP within its interval."""
    if not predicted or not ratio.covers:
        return None
    most = max(1.0, *predicted)
    return ratio.median / most if ratio.low > JUMP * most else None
