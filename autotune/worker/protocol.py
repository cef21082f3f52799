"""What the campaign and the measuring process say to each other; plain data, sent as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from autotune.model.problem import Value

Mode = Literal["cold", "hot", "graph"]
Status = Literal[
    "ok",  # measured to the wanted precision, or until its time was up
    "dropped",  # measured, but stopped early because it could no longer win
    "disturbed",  # measured, but the machine was not quiet even after retries
    "wrong",  # failed the correctness gate, before or after timing
    "failed",  # raised an exception while building or running
    "crashed",  # took its process down
    "timeout",  # exceeded its time limit and was killed
    "unavailable",  # cannot run here; never started
]


@dataclass(frozen=True, slots=True)
class Job:
    """One candidate to build, check and time; times in seconds.

    `problem` is the text of a ProblemKey. `incumbent` is the median to beat: the candidate is
    dropped once it can no longer come within `margin` of it. `time_limit` holds for each phase
    (preparing the problem, building, checking, timing); a disturbed measurement of a candidate
    that may win is repeated up to `retries` times. Inputs are multiplied by `gain`; `conditioned`
    allows for what rounding alone can do to the result (see `expected_outputs`).
    """

    problem: str
    variant: str
    config: Mapping[str, Value]
    mode: Mode = "cold"
    seed: int = 0
    incumbent: float | None = None
    margin: float = 0.05
    precision: float = 0.01
    min_samples: int = 5
    max_samples: int = 200
    budget: float = 2.0
    time_limit: float = 60.0
    retries: int = 2
    gain: float = 1.0
    conditioned: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a job; `samples` in the order taken, `low` and `high` bound the median."""

    status: Status
    reason: str = ""
    samples: tuple[float, ...] = ()
    median: float | None = None
    low: float | None = None
    high: float | None = None
    compile_seconds: float | None = None
    first_call_seconds: float | None = None
    error: float | None = None
    error_bound: float | None = None
    workspace_bytes: int | None = None
    fingerprint: str = ""
    wall_seconds: float = 0.0
    circumstances: Mapping[str, Any] = field(default_factory=dict)
    toolchain: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RaceJob:
    """Candidates (variant, config) to re-measure interleaved, in rounds, order varied.

    Rounds end when each entrant's ratio to the fastest is known: its interval lies outside of
    the equivalence `band`, or inside, or is narrower than `precision`.
    """

    problem: str
    entrants: tuple[tuple[str, Mapping[str, Value]], ...]
    mode: Mode = "cold"
    seed: int = 0
    precision: float = 0.005
    band: float = 0.01
    min_rounds: int = 10
    max_rounds: int = 200
    budget: float = 10.0
    time_limit: float = 120.0


@dataclass(frozen=True, slots=True)
class RaceOutcome:
    """Samples per entrant, the r-th of each taken in the same round; or why there are none.

    `culprit` is the position of the entrant to blame for a race that failed.
    """

    status: Status
    reason: str = ""
    samples: tuple[tuple[float, ...], ...] = ()
    wall_seconds: float = 0.0
    circumstances: Mapping[str, Any] = field(default_factory=dict)
    toolchain: Mapping[str, str] = field(default_factory=dict)
    culprit: int | None = None
