"""What a trial took in turn with a candidate whose time is known, as its circumstances tell it.

That is what candidates are put in order by, and no time. A disturbance only ever adds time, but it
may add more to the other candidate, which has other threads or other CPUs: then the ratio is too
small. A time never lies below the fastest sample there is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.disturbance import busy
from autotune_tuning_db import TrialRow

PACED = "paced"
"""The circumstance: `seconds` with `low` and `high`, and by how much the machine was slower."""

CREDIBLE = 3.0
"""Times that a neighbour who leaves no trace may slow a machine: ratios that say more are wrong."""

Span = tuple[float, float, float]
"""A time with the ends of its interval; seconds."""


def grounded(span: Span, fastest: float, high: float) -> Span:
    """A time by ratios, not below the fastest sample of its own.

    Where ratios say less, all that is known lies between that sample and `high`, the upper end of
    the interval by the candidate's own samples.
    """
    seconds, low, most = span
    if seconds < fastest:
        return fastest, fastest, max(most, high, fastest)
    return seconds, max(low, fastest), most


def credible(seconds: float, fastest: float) -> bool:
    """Whether a machine can have been so much slower than its own clocks tell."""
    return CREDIBLE * seconds >= fastest


def alike(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether other programs slow both configs alike: with as many threads, placed the same way."""
    return all(one.get(name) == other.get(name) for name in ("threads", "placement"))


def told_in_turn(row: TrialRow) -> Span | None:
    """Median and its interval by the ratios to that candidate; None for one timed by itself.

    None too where they cannot be believed. Beside other programs that the clocks have seen, they
    tell nothing below the fastest sample: those slow some samples, and leave the rest alone.
    """
    told = row.circumstances.get(PACED)
    if not told:
        return None
    span, fastest = (told["seconds"], told["low"], told["high"]), min(row.samples, default=0.0)
    if not credible(span[0], fastest):
        return None
    return grounded(span, fastest, row.high or 0.0) if busy(row.circumstances) else span
