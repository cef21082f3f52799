"""What is to be accepted: the problems, and on each the policy's choice or variants by name."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial

from autotune.candidates import candidate_of_variant, runnable_candidate, served_candidate
from autotune.device import Device
from autotune.model import Candidate, Operation, Problem
from autotune.model.space import concerns
from autotune.registry import registry
from autotune.store import load_snapshot

ALL = "all"
"""Stands for every variant that is made for the device and the dtype."""

ONLY_REFERENCE = "only the reference can run it here"


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

    A variant that is named and can run none of the problems raises UserError; otherwise what it
    cannot run is skipped. Every problem has a subject or something skipped: there is no judging
    the reference by itself.
    """
    found: list[Subject] = []
    skipped: list[Skipped] = []
    for problem in problems:
        if variants:
            choose = _among_all if ALL in variants else partial(_among_named, names=variants)
            running, left_out = choose(problem, device, mode)
            skipped += left_out
            found += [Subject(problem, candidate, False) for candidate in running]
        else:
            served = served_candidate(problem, device, mode)
            if served.variant in {each.name for each in registry.variants(problem.operation)}:
                found.append(Subject(problem, served, True))
            else:
                skipped.append(Skipped(problem, served.variant, ONLY_REFERENCE))
    judged = {each.candidate.variant for each in found}
    for left in skipped:
        if left.variant in variants and left.variant not in judged:
            candidate_of_variant(left.problem, device, left.variant, mode)  # says why, once
    return found, skipped


def _among_named(
    problem: Problem, device: Device, mode: str, *, names: Sequence[str]
) -> tuple[list[Candidate], list[Skipped]]:
    """Of the variants that are named those that run the problem, and those that do not."""
    running: list[Candidate] = []
    skipped: list[Skipped] = []
    for name in dict.fromkeys(names):
        candidate, why = runnable_candidate(problem, device, name, mode)
        if candidate is not None:
            running.append(candidate)
        else:
            skipped.append(Skipped(problem, name, why))
    return running, skipped


def _among_all(
    problem: Problem, device: Device, mode: str
) -> tuple[list[Candidate], list[Skipped]]:
    """Variants that run the problem, and those made for it that do not; if none runs, all."""
    running: list[Candidate] = []
    concerned: list[Skipped] = []
    others: list[Skipped] = []
    for variant in registry.variants(problem.operation):
        candidate, why = runnable_candidate(problem, device, variant.name, mode)
        if candidate is not None:
            running.append(candidate)
        elif concerns(variant, problem, device.kind):
            concerned.append(Skipped(problem, variant.name, why))
        else:
            others.append(Skipped(problem, variant.name, why))
    if running:
        return running, concerned
    return [], [*concerned, *others] or [Skipped(problem, "reference", ONLY_REFERENCE)]
