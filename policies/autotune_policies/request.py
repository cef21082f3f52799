"""What is asked of the policies, and what the answer looks like."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from autotune_policies.interpolate import Axes
from autotune_policies.policy import Choice, Policy
from autotune_tuning_db import ProblemKey, Scalar

Config = tuple[tuple[str, Scalar], ...]
Admits = Callable[[str, Config], str | None]
"""Why a variant with a config cannot serve this request at this size; None when it can.

An empty config stands for the variant's default.
"""

Fingerprints = Callable[[str], str | None]
"""The fingerprint a variant's source has now; None for a variant that is not registered."""

Origin = Literal["pinned", "tuned", "interpolated", "family"]
Obstacle = Literal["missing", "stale", "inadmissible", "constraint"]


@dataclass(frozen=True, slots=True)
class Constraints:
    """What the caller insists on; `max_workspace` in bytes, `max_error` as the gate measures it."""

    deterministic: bool = False
    max_workspace: int | None = None
    max_error: float | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """What is asked for: a problem on a device, how it was to be measured, and the constraints.

    `axes` are the operation's: the dims that make up its size first, then other dims along which
    neighbours may differ, such as `(("Nq", "Nk"), ("B", "H", "Hkv"))`; or an empty one first, where
    any of the others may be the size.
    """

    problem: ProblemKey
    device: str
    family: str
    mode: str = "cold"
    axes: Axes = ()
    constraints: Constraints = Constraints()


@dataclass(frozen=True, slots=True)
class Grade:
    """How far a policy can still be trusted.

    `fresh`: nothing changed. `revalidate`: the toolchain or device differs; it is served, and
    raced again at the next tuning. `stale`: the source that was measured is not the source there
    is; it is not served. `changed` names each field with what it was and is.
    """

    level: Literal["fresh", "revalidate", "stale"]
    changed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Skipped:
    """A choice that was considered and not taken; `excess` is by what factor a limit is passed."""

    variant: str
    config: Config
    obstacle: Obstacle
    reason: str
    excess: float = 1.0


@dataclass(frozen=True, slots=True)
class Resolution:
    """The answer, or the lack of one when `origin` is None.

    `config` is None when a pin leaves it open and nothing was measured: take the variant's
    default. `choice` is the evidence the answer rests on, None for such a pin. `policy` is where
    it comes from; for an interpolated answer that is the nearest neighbour, and `beyond` is by
    what factor the size asked for lies outside the tuned ones (1: it does not). `notes` tell what
    was passed over and why, in order; `skipped` is the same as data.
    """

    origin: Origin | None = None
    variant: str = ""
    config: Config | None = None
    choice: Choice | None = None
    policy: Policy | None = None
    grade: Grade = Grade("fresh")
    notes: tuple[str, ...] = ()
    skipped: tuple[Skipped, ...] = ()
    beyond: float = 1.0

    def applies(self, mode: str) -> bool:
        """Whether it rests on what the user pinned, or on measurements in this mode."""
        return self.origin is not None and (self.policy is None or self.policy.mode == mode)
