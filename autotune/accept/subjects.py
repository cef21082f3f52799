"""What is to be accepted: the problems, and on each the policy's choice or variants by name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from autotune.candidates import candidate_of_variant, runnable_config, served_candidate
from autotune.device import Device
from autotune.model import Candidate, Operation, Problem
from autotune.model.space import concerns
from autotune.registry import registry
from autotune.store import load_snapshot

ALL = "all"
"""Stands for every variant that is made for the device and the dtype."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A candidate to judge on a problem; `served`: because it is what dispatch serves."""

    problem: Problem
    candidate: Candidate
    served: bool


@dataclass(frozen=True, slots=True)
class Skipped:
    """A variant that cannot be judged on a problem here, and why."""

    problem: Problem
    variant: str
    reason: str


def tuned_problems(
    device: Device, mode: str, operations: Sequence[Operation] = ()
) -> tuple[Problem, ...]:
    """The problems that have a policy of this device and mode, of these operations or of all."""
    snapshot, _ = load_snapshot()
    wanted = {each.name: each for each in operations or registry.operations()}
    found = []
    for policy in snapshot.policies:
        key = policy.problem
        if (policy.device, policy.mode) == (device.identity, mode) and key.operation in wanted:
            with contextlib.suppress(ValueError):  # the operation has changed since
                found.append(Problem.from_key(wanted[key.operation], key))
    return tuple(dict.fromkeys(found))


def subjects(
    problems: Iterable[Problem], device: Device, mode: str, variants: Sequence[str] = ()
) -> tuple[list[Subject], list[Skipped]]:
    """The candidates to judge: what dispatch serves, or the variants named (`all`: each).

    A variant that is named and cannot run raises UserError; one among all is skipped.
    """
    found: list[Subject] = []
    skipped: list[Skipped] = []
    for problem in problems:
        if not variants:
            found.append(Subject(problem, served_candidate(problem, device, mode), True))
        for name in _names(problem, device, variants):
            variant = registry.variant(problem.operation, name)
            config, why = runnable_config(variant, problem, device)
            if config is None and ALL in variants:
                skipped.append(Skipped(problem, name, why))
            else:
                candidate = candidate_of_variant(problem, device, name)
                found.append(Subject(problem, candidate, False))
    return found, skipped


def _names(problem: Problem, device: Device, variants: Sequence[str]) -> Sequence[str]:
    if ALL not in variants:
        return tuple(dict.fromkeys(variants))
    every = registry.variants(problem.operation)
    return [each.name for each in every if concerns(each, problem, device.kind)]
