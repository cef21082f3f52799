"""Whose threads are varied where no variant was named."""

from __future__ import annotations

import math

from autotune.candidates import (
    fastest_measured,
    fastest_seconds,
    runnable_config,
    served_candidate,
)
from autotune.device import Device
from autotune.errors import UserError
from autotune.estimate import estimate_seconds
from autotune.model import Candidate, Problem, Variant
from autotune.registry import registry
from autotune.roofline import device_rates
from autotune.scaling.sweep import config_at, settings_of


def threaded_candidate(problem: Problem, device: Device, mode: str) -> tuple[Candidate, str]:
    """The candidate whose threads tell most, and in words on what grounds it was taken.

    It is the one that dispatch serves, if that runs the problem with several thread counts; else
    the fastest of the variants that do: as measured or, where none of them was, as predicted.
    Raises UserError where no variant does.
    """
    variants = {each.name: each for each in registry.variants(problem.operation)}
    served = served_candidate(problem, device, mode)
    if served.variant in variants and _varies(problem, variants[served.variant], served, device):
        return served, f"{served.variant} is what dispatch serves"
    others = [each for each in variants.values() if each.name != served.variant]
    found = [
        (variant, candidate)
        for variant in others
        if (candidate := _candidate(problem, variant, device, mode)) is not None
        and _varies(problem, variant, candidate, device)
    ]
    if not found:
        raise UserError(
            f"no variant of {problem.operation.name} runs {problem} with more than one thread count"
            f" on {device.label}; give another shape, or name one: --variant NAME."
        )
    times = [fastest_seconds(problem, device, variant, mode) or math.inf for variant, _ in found]
    grounds = "measured" if min(times) < math.inf else "predicted"
    if grounds == "predicted":
        rates = device_rates(device)
        times = [estimate_seconds(each, problem, chosen.config, rates) for each, chosen in found]
    _, candidate = found[times.index(min(times))]
    return candidate, (
        f"{candidate.variant} is the fastest {grounds} variant whose threads can vary here; "
        f"dispatch serves {served.variant}, whose cannot"
    )


def _candidate(problem: Problem, variant: Variant, device: Device, mode: str) -> Candidate | None:
    config, _ = runnable_config(variant, problem, device)
    if config is None:
        return None
    return Candidate(variant.name, fastest_measured(problem, device, variant, mode) or config)


def _varies(problem: Problem, variant: Variant, candidate: Candidate, device: Device) -> bool:
    """Whether the candidate runs the problem with more than one thread count."""
    counts: set[int] = set()
    for setting in settings_of(variant, device) if "threads" in variant.tunable_names else ():
        config, _ = config_at(problem, variant, candidate.config, setting, device)
        if config is not None:
            counts.add(setting.threads)
        if len(counts) > 1:
            return True
    return False
