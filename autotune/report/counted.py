"""Hardware counters that `autotune profile` kept, beside the prediction for the same config."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from autotune import units
from autotune.model import Config, Problem, Variant, predict
from autotune.report.blocks import Table

COUNTS = ("bytes_read", "bytes_written", "atomics")


@dataclass(frozen=True, slots=True)
class Counted:
    """What one call of a variant did, as the profiler counted it, and the config it ran with."""

    config: Config
    counts: Mapping[str, float]

    @classmethod
    def of(cls, config: Config, counters: Mapping[str, Any]) -> Counted:
        """From the counters of a stored trial."""
        return cls(config, {name: float(counters[name]) for name in COUNTS})


def counted_document(
    problem: Problem, variant: Variant, counted: Counted | None
) -> dict[str, Any] | None:
    """Counters with their ratio to the prediction; None where nothing was counted."""
    if counted is None:
        return None
    predicted = predict(variant, problem, counted.config)
    ratios = {
        name: counted.counts[name] / expected if expected else None
        for name in COUNTS
        for expected in [getattr(predicted, name)]
    }
    return {"config": dict(counted.config), **counted.counts, "ratios": ratios}


def counted_table(variants: Sequence[Mapping[str, Any]]) -> Table | None:
    """A line for each variant with counters: what was counted, over what was predicted."""
    rows = tuple(
        (
            each["variant"],
            units.size(found["bytes_read"]),
            ratio(found["ratios"]["bytes_read"]),
            units.size(found["bytes_written"]),
            ratio(found["ratios"]["bytes_written"]),
            ratio(found["ratios"]["atomics"]),
        )
        for each in variants
        if (found := each["counted"])
    )
    titles = ("counted", ">read", ">ratio", ">written", ">ratio", ">atomics")
    return Table(titles, rows) if rows else None


def ratio(value: float | None) -> str:
    """1.23x, 549x; "-" where there is none."""
    if value is None:
        return "-"
    return f"{value:.2f}x" if value < 99.95 else f"{value:.0f}x"
