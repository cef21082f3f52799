"""What was seen of a candidate: no figure of a policy lies below its fastest sample.

Times that are inferred from ratios put candidates in order. What is stored, served and shown is
held to the samples: a disturbance only ever adds time, and a ratio is wrong where it added more to
the other candidate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from autotune.in_turn import grounded
from autotune_policies import Choice, Policy
from autotune_tuning_db import Scalar

Named = tuple[str, tuple[tuple[str, Scalar], ...]]
"""A candidate as `Choice.candidate` names it."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The fastest sample of a candidate, and the upper end of the interval of its own median.

    `disturbed` tells whether what its time rests on was.
    """

    fastest: float
    high: float
    disturbed: bool = False

    def also(self, samples: Sequence[float]) -> Seen:
        """With what it took in a race."""
        return replace(self, fastest=min(self.fastest, *samples))


def grounded_policy(policy: Policy, seen: Mapping[Named, Seen]) -> Policy:
    """The policy with figures that hold to what was seen, its order by them but for the winner.

    Where that was disturbed, the interval reaches down to the fastest sample.
    """

    def figures(choice: Choice) -> Choice:
        known = seen.get(choice.candidate)
        if known is None:
            return choice
        span = grounded((choice.seconds, choice.low, choice.high), known.fastest, known.high)
        low = min(span[1], known.fastest) if known.disturbed else span[1]
        return replace(choice, seconds=span[0], low=low, high=span[2])

    winner, *others = map(figures, policy.ranking)
    return replace(
        policy,
        ranking=(winner, *sorted(others, key=_seconds)),
        variants=tuple(sorted(map(figures, policy.variants), key=_seconds)),
    )


def _seconds(choice: Choice) -> float:
    return choice.seconds
