"""What `autotune scale` and `autotune threads` do: choose, sweep, and show."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from autotune.campaign.budget import parse_budget
from autotune.candidates import candidate_of_variant, runnable_config
from autotune.cli.answer import Answer, say
from autotune.cli.selection import find_operation, flag_values
from autotune.device import Device
from autotune.errors import CampaignError, UserError
from autotune.model import Candidate, Operation, Problem, Variant
from autotune.model.space import concerns
from autotune.modes import require_mode
from autotune.registry import registry
from autotune.report.scaling import (
    not_measured,
    scale_blocks,
    scale_document,
    setting_text,
    threads_blocks,
    threads_document,
)
from autotune.scaling import Curve, SweepStopped, Swept, sweep_sizes, sweep_threads, varied
from autotune.scaling.sweep import settings_of
from autotune.scaling.threaded import threaded_candidate
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
    variants = _variants(operation, [problem for _, problem in sized], how)
    code = 0
    with _trials(how, "scale") as trials:
        try:
            curves = sweep_sizes(
                trials, sized, variants, budget=budget, say=lambda text: say(f"{dim}={text}")
            )
        except SweepStopped as stopped:
            curves, code = stopped.curves, 130
    if not any(point.samples for curve in curves for point in curve.points):
        raise KeyboardInterrupt if code else _nothing_measured(operation, curves)
    if code:
        say("stopped by Ctrl-C; what was measured until then is shown and kept.")
    document = scale_document(dim, sized, curves, how.mode)
    return Answer(scale_blocks(dim, sized, curves, how.mode), document, code)


def _nothing_measured(operation: Operation, curves: Sequence[Curve]) -> CampaignError:
    """With the reason of each variant at the smallest size."""
    reasons = [f"{curve.variant} at {text}" for curve in curves for text in not_measured(curve)[:1]]
    return CampaignError(
        f"no variant of {operation.name} could be measured at any size: {'; '.join(reasons)}."
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
        raise CampaignError(
            f"{candidate.variant} could not be measured with any thread count: {_first(swept)}."
        )
    return Answer(
        threads_blocks(problem, swept, how.mode), threads_document(problem, swept, how.mode)
    )


def _first(swept: Swept) -> str:
    """Why the first of the settings has no time."""
    failed = [f"{setting_text(at)}: {p.status}, {p.reason}" for at, p in swept.points]
    left_out = [f"{setting_text(at)}: left out, {why}" for at, why in swept.left_out]
    return (*failed, *left_out)[0].rstrip(".")


def _trials(how: How, command: str) -> AbstractContextManager[Trials]:
    mode: Mode = how.mode  # type: ignore[assignment]
    return trials_on(how.device, command=command, mode=mode, waiting=say)


def _variants(operation: Operation, problems: Sequence[Problem], how: How) -> Sequence[Variant]:
    """Those that were named, or all for the device and the dtype.

    Raises UserError, with the reason, for one that is named and can run at no size.
    """
    if how.variants:
        return [_named(operation, name, problems, how) for name in dict.fromkeys(how.variants)]
    every, smallest = registry.variants(operation), problems[0]
    found = [each for each in every if concerns(each, smallest, how.device.kind)]
    if not found:
        raise UserError(
            f"{operation.name} has no variant for {how.device.kind} and {smallest.dtype}."
        )
    return found


def _named(operation: Operation, name: str, problems: Sequence[Problem], how: How) -> Variant:
    variant = registry.variant(operation, name)
    if all(runnable_config(variant, each, how.device)[0] is None for each in problems):
        _, why = runnable_config(variant, problems[0], how.device)
        raise UserError(f"{name} cannot run {problems[0]} on {how.device.label}: {why}.")
    return variant


def _candidate(problem: Problem, how: How) -> Candidate:
    """The variant that was named, or the one whose threads tell most, which is said."""
    if how.variants:
        return candidate_of_variant(problem, how.device, how.variants[0], how.mode)
    candidate, grounds = threaded_candidate(problem, how.device, how.mode)
    say(f"{grounds}.")
    return candidate
