"""What a trial took in turn with a candidate whose time is known, as its circumstances tell it."""

from __future__ import annotations

from autotune_tuning_db import TrialRow

PACED = "paced"
"""The circumstance: `seconds` with `low` and `high`, and by how much the machine was slower."""


def told_in_turn(row: TrialRow) -> tuple[float, float, float] | None:
    """Median and its interval by the ratios to that candidate; None for one timed by itself."""
    told = row.circumstances.get(PACED)
    return (told["seconds"], told["low"], told["high"]) if told else None
