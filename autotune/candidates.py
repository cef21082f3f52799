"""Which candidate stands for a variant, or for the policy, where one has to be named."""

from __future__ import annotations

import math

from autotune.asking import Wish
from autotune.device import Device
from autotune.errors import UserError
from autotune.in_turn import told_in_turn
from autotune.model import Candidate, Config, Problem, Variant
from autotune.model.space import default_config, inadmissible, no_config, why_not
from autotune.registry import registry
from autotune.settings import settings
from autotune.store import open_tuning_db
from autotune_tuning_db import TrialRow


def served_candidate(problem: Problem, device: Device, mode: str = "cold") -> Candidate:
    """What dispatch serves: the policy's choice or, without one, what stands in for it."""
    from autotune.serving import Server

    served = Server().serve(problem, device, Wish(mode=mode))
    return Candidate(served.variant, served.config)


def candidate_of_variant(
    problem: Problem, device: Device, name: str, mode: str = "cold"
) -> Candidate:
    """A variant with its fastest config measured here, or its default one.

    Raises UserError, with the reason, when it cannot run the problem on the device.
    """
    candidate, why = runnable_candidate(problem, device, name, mode)
    if candidate is None:
        raise UserError(f"{name} cannot run {problem} on {device.label}: {why}.")
    return candidate


def runnable_candidate(
    problem: Problem, device: Device, name: str, mode: str
) -> tuple[Candidate | None, str]:
    """The same; None and the reason for a variant that cannot run the problem there."""
    variant = registry.variant(problem.operation, name)
    config, why = runnable_config(variant, problem, device)
    if config is None:
        return None, why
    return Candidate(name, fastest_measured(problem, device, variant, mode) or config), ""


def runnable_config(
    variant: Variant, problem: Problem, device: Device
) -> tuple[Config | None, str]:
    """The default config; None and the reason for a variant that cannot run the problem there."""
    reason = why_not(variant, problem, device.kind, device.limits)
    config = None if reason else default_config(variant, problem, device)
    if config is None and reason is None:
        reason = no_config(variant, problem, device)
    return config, reason or ""


def fastest_measured(
    problem: Problem, device: Device, variant: Variant, mode: str
) -> Config | None:
    """The variant's fastest config among those measured here that can still be run, or None.

    Times of another mode decide only where there are none of this one.
    """
    row = _fastest(problem, device, variant, mode)
    return Config(dict(row.config)) if row is not None else None


def fastest_seconds(problem: Problem, device: Device, variant: Variant, mode: str) -> float | None:
    """What that config took; None for a variant that was not measured here."""
    row = _fastest(problem, device, variant, mode)
    return _seconds(row) if row is not None else None


def _fastest(problem: Problem, device: Device, variant: Variant, mode: str) -> TrialRow | None:
    if not settings().database.exists():
        return None
    with open_tuning_db(readonly=True) as store:
        rows = store.trials(problem.key, device.identity)
    counted = [row for row in rows if _counts(row, variant, problem, device)]
    so = [row for row in counted if row.mode == mode]
    return min(so or counted, key=_seconds, default=None)


def _counts(row: TrialRow, variant: Variant, problem: Problem, device: Device) -> bool:
    return (
        row.variant == variant.name
        and row.median is not None
        and row.stage != "profile"
        and inadmissible(variant, problem, row.config, device) is None
    )


def _seconds(row: TrialRow) -> float:
    """What it took, or what it takes by its ratio to a candidate whose time is known."""
    told = told_in_turn(row)
    return told[0] if told is not None else row.median or math.inf
