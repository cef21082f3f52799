"""The first test: is it right, also at the edges and for large numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from autotune.accept.edges import edge_problems
from autotune.accept.thresholds import Limits
from autotune.accept.verdict import Check
from autotune.candidates import runnable_config
from autotune.device import Device
from autotune.expected import loud_gain
from autotune.model import Candidate, Problem
from autotune.model.space import inadmissible
from autotune.registry import registry
from autotune.spelling import short_shape
from autotune.trials import Trials
from autotune.worker.protocol import Outcome

_WRONG = ("wrong", "failed", "crashed")


@dataclass(frozen=True, slots=True)
class Case:
    """A problem to be right on, inputs multiplied by `gain`, and the config to use there."""

    problem: Problem
    candidate: Candidate
    gain: float = 1.0

    def __str__(self) -> str:
        words = [short_shape(self.problem.operation, self.problem.sizes)]
        words += [f"inputs times {self.gain:g}"] if self.gain != 1.0 else []
        words += [self.problem.layout] if self.problem.layout != "packed" else []
        return ", ".join(words)


def check_correctness(
    trials: Trials, problem: Problem, candidate: Candidate, limits: Limits
) -> Check:
    """Put the candidate through the gate at its own size, with large numbers, and at the edges.

    Away from its own size and numbers, where one plain implementation's luck is no measure, the
    gate is `conditioned`. It fails at the first case that it does not get right. A case that its
    declaration does not admit, or that the operation's own reference cannot judge, is left out; at
    its own size the verdict is then open. So it is after running out of time, which says nothing
    about the result.
    """
    passed, left_out, closest = 0, [], 0.0
    for case in _cases(trials.device, problem, candidate, limits):
        own = case == Case(problem, candidate)
        outcome = trials.check(case.problem, case.candidate, gain=case.gain, conditioned=not own)
        blamed = outcome.reason.startswith(f"the reference of {problem.operation.name} ")
        if outcome.status == "failed" and blamed and case.problem != problem:
            left_out.append(str(case))
            continue
        facts = {"cases": passed, "left_out": left_out, "case": str(case)}
        if outcome.status == "failed" and blamed:
            return Check("not measured", f"{case}: {outcome.reason}", facts)
        if outcome.status in _WRONG:
            return Check("fail", f"{case}: {outcome.reason}", facts | _errors(outcome))
        if outcome.status != "ok":
            return Check("cannot tell", f"{case}: {outcome.reason}", facts)
        passed += 1
        closest = max(closest, _share(outcome))
    return Check(
        "pass",
        f"{passed} cases, errors up to {closest:.0%} of what is allowed",
        {"cases": passed, "left_out": left_out, "largest_error_over_bound": closest},
    )


def _cases(
    device: Device, problem: Problem, candidate: Candidate, limits: Limits
) -> Iterator[Case]:
    yield Case(problem, candidate)
    gain = loud_gain(problem.dtype) if limits.gain is None else limits.gain
    if gain != 1.0:
        yield Case(problem, candidate, gain)
    if limits.edge_shapes:
        for edge in edge_problems(problem):
            there = _at(edge, candidate, device)
            if there is not None and edge != problem:
                yield Case(edge, there)


def _at(problem: Problem, candidate: Candidate, device: Device) -> Candidate | None:
    """The candidate at another size: with its own config if that is admitted, else the default."""
    variant = registry.variant(problem.operation, candidate.variant)
    config, _ = runnable_config(variant, problem, device)
    if config is None:
        return None
    if inadmissible(variant, problem, candidate.config, device) is None:
        return candidate
    return Candidate(candidate.variant, config)


def _errors(outcome: Outcome) -> dict[str, float | None]:
    return {"error": outcome.error, "error_bound": outcome.error_bound}


def _share(outcome: Outcome) -> float:
    return (outcome.error or 0.0) / outcome.error_bound if outcome.error_bound else 0.0
