"""`autotune profile`: counters beside the prediction."""

from __future__ import annotations

import math
from dataclasses import asdict
from typing import Any

from autotune import units
from autotune.model import Candidate, Prediction, Problem
from autotune.profile import KernelCounters, Profile
from autotune.report.blocks import Block, Heading, Table
from autotune.spelling import candidate_text, short_problem


def profile_blocks(
    problem: Problem, candidate: Candidate, found: Profile, prediction: Prediction
) -> list[Block]:
    """Totals with their ratio to the prediction, then every launch."""
    rows = (
        _total("bytes read", found.bytes_read, prediction.bytes_read, units.size),
        _total("bytes written", found.bytes_written, prediction.bytes_written, units.size),
        _total("atomic additions", found.atomics, prediction.atomics, "{:,.0f}".format),
        _total("launches", len(found.kernels), prediction.launches, "{:,.0f}".format),
    )
    return [
        Heading(f"{short_problem(problem)}  {candidate_text(candidate.variant, candidate.config)}"),
        "",
        Table(("", ">counted", ">predicted", ">ratio"), rows),
        "",
        Table(
            ("launch", ">read", ">written", ">atomics", ">occupancy", ">time"),
            tuple(_launch(each) for each in found.kernels),
        ),
        "",
        "Times are the profiler's, with caches flushed before every launch. Atomics count every "
        "lane of a warp, an addition of two or four numbers at once as one.",
    ]


def profile_document(
    problem: Problem, candidate: Candidate, found: Profile, prediction: Prediction
) -> dict[str, Any]:
    """The same as plain values."""
    return {
        "problem": problem.key.text,
        "variant": candidate.variant,
        "config": dict(candidate.config),
        "counters": found.document(),
        "prediction": asdict(prediction),
    }


def _total(name: str, counted: float, predicted: float, show: Any) -> tuple[str, ...]:
    ratio = f"{counted / predicted:.2f}" if predicted else "-"
    return name, show(counted), show(predicted), ratio


def _launch(each: KernelCounters) -> tuple[str, ...]:
    occupancy = "-" if math.isnan(each.occupancy) else f"{each.occupancy:.0%}"
    return (
        each.kernel,
        units.size(each.bytes_read),
        units.size(each.bytes_written),
        units.count(32 * each.atomic_warp_instructions),
        occupancy,
        units.seconds(each.seconds),
    )
