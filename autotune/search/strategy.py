"""How a search chooses and when it ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Origin = Literal["default", "transfer", "prediction", "spread", "model", "neighbour", "sampler"]
"""Why a candidate was proposed."""

METHODS = ("model", "tpe", "random")


@dataclass(frozen=True, slots=True)
class Strategy:
    """How a search chooses, and when it ends.

    `method` is what proposes after the start: "model" (two models in turn, every `local`-th
    proposal a neighbour of the `leaders`), or one of Optuna's samplers, "tpe" or "random", of
    which the nearest admissible unknown point is taken. The start is the defaults, transfers and
    predictions, then points far from all others until there are `start`.

    A space of at most `enumerate_up_to` points is tried whole. In a larger one the search ends
    once `patience` trials in a row (a twentieth of the space if that is more, up to `longest`)
    have not gained `band` on the best time, as many more are not expected to by the Gaussian
    process, and the neighbours of the best are known; or when the start was tried, and every
    variant twice, and nothing ran. An `endless` one goes on until nothing is left. A variant whose
    best of two trials or more is more than `hopeless` times slower than the best of all gets no
    more, as long as others have any.
    """

    method: str = "model"
    start: int = 8
    local: int = 4
    leaders: int = 3
    enumerate_up_to: int = 32
    band: float = 0.01
    patience: int = 24
    longest: int = 100
    hopeless: float = 5.0
    endless: bool = False
