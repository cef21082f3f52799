"""Candidates that need not be tried, since others have shown what would become of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from autotune import units
from autotune.campaign.events import MEASURED
from autotune.campaign.evidence import candidate_of
from autotune.campaign.records import ran_out_of_memory
from autotune.model.problem import Candidate, Problem
from autotune.model.traits import fault, workspace_bytes
from autotune.model.variant import Variant
from autotune.worker.protocol import PREPARING
from autotune_tuning_db import TrialRow

UNPREPARED = 2
"""Candidates in a row for which not even the problem could be prepared: then none can be tried."""


@dataclass(slots=True)
class Exclusion:
    """What the trials of a problem say about candidates still to come."""

    problem: Problem
    variants: Mapping[str, Variant]
    _lacking: dict[str, int] = field(default_factory=dict)
    _unprepared: int = 0
    _why: str = ""

    def learn(self, row: TrialRow) -> None:
        """Take a trial in."""
        if ran_out_of_memory(row):
            needed = self.workspace(candidate_of(row))
            self._lacking[row.variant] = min(self._lacking.get(row.variant, needed), needed)
        prepared = row.status in MEASURED or row.circumstances.get("phase") != PREPARING
        self._unprepared = 0 if prepared else self._unprepared + 1
        self._why = row.reason

    def why_not(self, candidate: Candidate) -> str | None:
        """Why a candidate cannot run: it has no sizes, or another lacked memory with less."""
        variant = self.variants[candidate.variant]
        undeclared = fault(variant, self.problem, candidate.config)
        if undeclared is not None:
            return undeclared
        lacking = self._lacking.get(candidate.variant)
        if lacking is None or self.workspace(candidate) <= lacking:
            return None
        needed, less = (units.size(n) for n in (self.workspace(candidate), lacking))
        return f"not tried: it needs {needed} of workspace, and {less} ran out of memory"

    def workspace(self, candidate: Candidate) -> int:
        """Bytes that a candidate declares to need besides inputs and outputs."""
        variant = self.variants[candidate.variant]
        return workspace_bytes(variant, self.problem, candidate.config)

    @property
    def hopeless(self) -> str | None:
        """Why nothing of this problem can be tried, or None."""
        return self._why if self._unprepared >= UNPREPARED else None
