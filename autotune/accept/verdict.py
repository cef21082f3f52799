"""What an acceptance test answers: three verdicts for each candidate, each with its own bit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from autotune.accept.subjects import Skipped
from autotune.model import Candidate, Problem

Status = Literal["pass", "fail", "cannot tell", "not measured", "not asked"]
"""`cannot tell` and `not measured` are open: neither a pass nor a failure."""

TESTS = ("correctness", "memory", "performance")

BITS: Mapping[str, int] = {"correctness": 8, "memory": 16, "performance": 32, "open": 64}
"""What each adds to the exit code; 1, 2 and 3 are taken by mistakes and broken stores."""


@dataclass(frozen=True, slots=True)
class Check:
    """The verdict of one test; `facts` are its numbers as plain values."""

    status: Status
    reason: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def open(self) -> bool:
        """Whether the question was asked and has no answer."""
        return self.status in ("cannot tell", "not measured")


@dataclass(frozen=True, slots=True)
class Acceptance:
    """The three verdicts on a candidate; `version` is the fingerprint of its source."""

    problem: Problem
    candidate: Candidate
    version: str
    correctness: Check
    memory: Check
    performance: Check

    @property
    def checks(self) -> dict[str, Check]:
        """By name, in the order of TESTS."""
        return {name: getattr(self, name) for name in TESTS}


def unjudged(found: Iterable[Acceptance], skipped: Iterable[Skipped]) -> list[Problem]:
    """The problems of which everything was skipped, each once: a question without an answer."""
    judged = {each.problem for each in found}
    return list(dict.fromkeys(e.problem for e in skipped if e.problem not in judged))


def exit_code(found: Sequence[Acceptance], skipped: Sequence[Skipped] = ()) -> int:
    """The bits of every test that some candidate fails, and of questions left open."""
    code = BITS["open"] if unjudged(found, skipped) else 0
    for each in found:
        for name, check in each.checks.items():
            code |= BITS[name] if check.status == "fail" else 0
            code |= BITS["open"] if check.open else 0
    return code
