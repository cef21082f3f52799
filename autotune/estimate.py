"""A rough time from a prediction, to order candidates that nobody has measured yet."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autotune.model.problem import Problem
from autotune.model.traits import predict
from autotune.model.variant import Variant


@dataclass(frozen=True, slots=True)
class Rates:
    """Nominal rates: what orders candidates, never what is reported as a time.

    The numbers are round figures for one server core with AVX2 or AVX-512; only their ratios
    matter.
    """

    bytes_per_second: float = 6e9
    blas_flops_per_second: float = 60e9
    loop_flops_per_second: float = 8e9
    atomics_per_second: float = 5e7
    launch_seconds: float = 5e-6


GPU = Rates(
    bytes_per_second=4e12,
    blas_flops_per_second=4e13,
    loop_flops_per_second=2e13,
    atomics_per_second=2e11,
    launch_seconds=4e-6,
)
"""Round figures for a data-centre GPU of 2023."""


def estimate_seconds(
    variant: Variant, problem: Problem, config: Mapping[str, Any], rates: Rates | None = None
) -> float:
    """Roofline-style estimate in seconds: traffic or arithmetic, plus atomics and launches.

    By the rates of one core, or of a GPU, unless others are given.
    """
    rates = rates or (GPU if variant.device == "cuda" else Rates())
    counts = predict(variant, problem, config)
    threads = max(int(config.get("threads", 1)), 1)
    flops_rate = rates.blas_flops_per_second if variant.blas else rates.loop_flops_per_second
    if problem.itemsize == 4:
        flops_rate *= 2
    traffic = (counts.bytes_moved or sum(problem.compulsory_bytes)) / rates.bytes_per_second
    arithmetic = counts.flops / flops_rate
    launches = counts.launches * rates.launch_seconds * (1 if threads == 1 else 2)
    atomics = counts.atomics / rates.atomics_per_second
    return (max(traffic, arithmetic) + atomics) / threads + launches
