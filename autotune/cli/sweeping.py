"""What `autotune scale` and `autotune threads` do: choose, sweep, and show."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from autotune.campaign.budget import parse_budget
from autotune.candidates import candidate_of_variant, served_candidate
from autotune.cli.answer import Answer, say
from autotune.cli.selection import find_operation, flag_values
from autotune.device import Device
from autotune.errors import CampaignError, UserError
from autotune.model import Candidate, Operation, Problem, Variant
from autotune.model.space import concerns
from autotune.modes import require_mode
from autotune.registry import registry
from autotune.report.scaling import (
    scale_blocks,
    scale_document,
    threads_blocks,
    threads_document,
)
from autotune.scaling import sweep_sizes, sweep_threads, varied
from autotune.scaling.sweep import settings_of
from autotune.trials import Trials, trials_on
from autotune.worker.protocol import Mode


@dataclass(frozen=True, slots=True)
class How:
    """Where and how to measure, and the variants that were named."""

    device: Device
    mode: str
    budget: str
    variants: tuple[str, ...] = ()


def scale(
    how: How,
    name: str,
    vary: str,
    shape: str | None,
    dtype: str | None,
    settings: tuple[str, ...],
) -> Answer:
    """Every variant over every size."""
    operation = find_operation(name)
    require_mode(how.mode, how.device.kind)
    budget = parse_budget(how.budget)
    dim, sized = varied(
        operation,
        vary,
        shape,
        dtype=dtype or operation.dtypes[0],
        flags=flag_values(operation, settings),
    )
    variants = _variants(operation, sized[0][1], how)
    with _trials(how, "scale") as trials:
        curves = sweep_sizes(
            trials, sized, variants, budget=budget, say=lambda text: say(f"{dim}={text}")
        )
    if not any(point.samples for curve in curves for point in curve.points):
        raise CampaignError(f"no variant of {operation.name} could be measured at any size.")
    return Answer(
        scale_blocks(dim, sized, curves, how.mode), scale_document(dim, sized, curves, how.mode)
    )


def threads(how: How, problem: Problem) -> Answer:
    """One candidate over the settings of its threads."""
    require_mode(how.mode, how.device.kind)
    budget = parse_budget(how.budget)
    candidate = _candidate(problem, how)
    settings_of(registry.variant(problem.operation, candidate.variant), how.device)
    with _trials(how, "threads") as trials:
        swept = sweep_threads(trials, problem, candidate, budget=budget, say=say)
    if swept.best is None:
        raise CampaignError(f"{candidate.variant} could not be measured with any thread count.")
    return Answer(
        threads_blocks(problem, swept, how.mode), threads_document(problem, swept, how.mode)
    )


def _trials(how: How, command: str) -> AbstractContextManager[Trials]:
    mode: Mode = how.mode  # type: ignore[assignment]
    return trials_on(how.device, command=command, mode=mode, waiting=say)


def _variants(operation: Operation, problem: Problem, how: How) -> Sequence[Variant]:
    """Those that were named, or all for the device and the dtype."""
    if how.variants:
        return [registry.variant(operation, name) for name in dict.fromkeys(how.variants)]
    every = registry.variants(operation)
    found = [each for each in every if concerns(each, problem, how.device.kind)]
    if not found:
        raise UserError(
            f"{operation.name} has no variant for {how.device.kind} and {problem.dtype}."
        )
    return found


def _candidate(problem: Problem, how: How) -> Candidate:
    if how.variants:
        return candidate_of_variant(problem, how.device, how.variants[0])
    return served_candidate(problem, how.device, how.mode)
