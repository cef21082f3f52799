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


PREPARING = "preparing the problem"
"""The phase in which nothing is a candidate's fault."""

NOBODY = 255
"""The mark of a process that is at work on no entrant of a race."""

LEAST_CALL_SECONDS = 10.0
SLOWER = 20.0
"""A call that takes so many times as long as the first one did is taken to hang."""


def call_limit(time_limit: float, first_call: float) -> float:
    """Seconds that a call may take of a candidate whose first call took so many."""
    return min(time_limit, max(LEAST_CALL_SECONDS, SLOWER * first_call))


@dataclass(frozen=True, slots=True)
class Job:
    """One candidate to build, check and time; times in seconds.

    `problem` is the text of a ProblemKey. `incumbent` is the median to beat: the candidate is
    dropped once it can no longer come within `margin` of it. `time_limit` holds for preparing the
    problem and for building with the first call; then a call may take what `call_limit` says.
    `reference` is a candidate whose time is known, (variant, config, seconds), to take samples in
    turn with where a machine's pace changes unseen.
    A disturbed measurement of a candidate that may win is repeated up to `retries` times. Inputs
    are multiplied by `gain`; `conditioned` allows for what rounding alone can do to the result
    (see `expected_outputs`).
    """

    problem: str
    variant: str
    config: Mapping[str, Value]
    mode: Mode = "cold"
    seed: int = 0
    incumbent: float | None = None
    reference: tuple[str, Mapping[str, Value], float] | None = None
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
    """What became of a job; `samples` in the order taken, `low` and `high` bound the median.

    `phase` is where a job ended that was not measured; `out_of_memory` tells a candidate that
    needed more than there is.
    """

    status: Status
    reason: str = ""
    phase: str = ""
    out_of_memory: bool = False
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
