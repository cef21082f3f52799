"""From measurements to a policy: who wins, how surely, and which choices are worth keeping."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from autotune_policies.intervals import median_interval
from autotune_policies.policy import Choice, Policy, PolicyError, Verdict
from autotune_tuning_db import ProblemKey, Scalar

Candidate = tuple[str, tuple[tuple[str, Scalar], ...]]


@dataclass(frozen=True, slots=True)
class Subject:
    """What a policy is about, and under which toolchain and when it was measured."""

    problem: ProblemKey
    device: str
    family: str
    mode: str
    toolchain: Mapping[str, str]
    created: str


@dataclass(frozen=True, slots=True)
class Race:
    """The leaders, timed in turn: sample i of every candidate was taken in round i (seconds).

    Of a race beside other programs they may be those that each was left alone in, paired anyhow.

    Raises:
        PolicyError: the candidates have different numbers of rounds or none, or a time is not
            positive.
    """

    rounds: Mapping[Candidate, tuple[float, ...]]

    def __post_init__(self) -> None:
        if len({len(times) for times in self.rounds.values()}) > 1:
            raise PolicyError("A race needs the same number of rounds for every candidate.")
        if not all(self.rounds.values()):
            raise PolicyError("A race has a candidate without a time.")
        if not all(time > 0 for times in self.rounds.values() for time in times):
            raise PolicyError("A race has a time that is not above zero.")

    def ratio(self, other: Candidate, first: Candidate) -> tuple[float, float, float]:
        """Median and 95% interval of other's time over first's, round by round.

        Too few rounds to cover 95% leave it open: from 0 to infinity.
        """
        pairs = zip(self.rounds[other], self.rounds[first], strict=True)
        found = median_interval([slow / fast for slow, fast in pairs])
        return (
            (found.median, found.low, found.high) if found.covers else (found.median, 0.0, math.inf)
        )


@dataclass(frozen=True, slots=True)
class Rules:
    """How a winner is declared.

    `band`: relative difference below which two times count as equal. `simplicity`: a number for
    each variant, smaller for a simpler declaration; a variant without one counts as least simple.
    """

    band: float = 0.01
    simplicity: Mapping[str, float] = field(default_factory=dict)


def build_policy(
    subject: Subject,
    results: Sequence[Choice],
    *,
    race: Race | None = None,
    previous: Policy | None = None,
    rules: Rules | None = None,
) -> Policy:
    """The policy that these measurements support.

    A winner is clear only when the interval of the ratio to every other variant, taken round by
    round in the race, excludes the band. Candidates whose median ratio to the fastest is within
    the band are tied with it, and the tie goes, in order, to deterministic, less workspace, the
    variant that was the policy before, the simpler declaration; then to the same config as
    before, and last to the smaller time. Where a median is outside the band but its interval is
    not, the measurements were too noisy to tell: the verdict is `undecided`, and the smaller
    median serves, since a preference must not overrule what was seen, however unsurely.

    Args:
        subject: what was measured.
        results: every candidate that was measured and passed the gate.
        race: the leaders' race. Raced candidates take their times from it, and the winner is one
            of them. Without a race the intervals of the single measurements are compared.
        previous: the policy this one follows.
        rules: band and simplicity.

    Raises:
        PolicyError: there are no results, or the race is about a candidate without one.
    """
    choices = _with_race_times(results, race)
    raced = [choice for choice in choices if race is None or choice.candidate in race.rounds]
    if not raced:
        raise PolicyError(f"No candidate was measured for {subject.problem}.")
    judge = _Judge(race, previous.winner.candidate if previous else None, rules or Rules())
    winner, tied = judge.winner(raced)
    others = [choice for choice in non_dominated(choices) if choice.candidate != winner.candidate]
    return Policy(
        problem=subject.problem,
        device=subject.device,
        family=subject.family,
        mode=subject.mode,
        ranking=(winner, *others),
        variants=best_of_each_variant(choices, winner),
        verdict=judge.verdict(winner, tied, choices),
        toolchain=dict(subject.toolchain),
        created=subject.created,
    )


def non_dominated(choices: Sequence[Choice]) -> list[Choice]:
    """The choices that no other beats or equals in time, workspace, error and determinism at once.

    Sorted by time; of choices equal in all four, the first stays.
    """
    kept: list[Choice] = []
    for choice in sorted(choices, key=_order):
        if not any(_at_least_as_good(other, choice) for other in kept):
            kept.append(choice)
    return kept


def best_of_each_variant(choices: Sequence[Choice], winner: Choice) -> tuple[Choice, ...]:
    """The fastest choice of every variant, by time; the winner stands for its own variant."""
    best = {choice.variant: choice for choice in sorted(choices, key=_order, reverse=True)}
    best[winner.variant] = winner
    return tuple(sorted(best.values(), key=_order))


def _costs(choice: Choice) -> tuple[float, int, float, bool]:
    return choice.seconds, choice.workspace_bytes, choice.error, not choice.deterministic


def _order(choice: Choice) -> tuple[object, ...]:
    """By time, and never by the order in which the results came."""
    return *_costs(choice), choice.variant, repr(choice.config)


def _at_least_as_good(one: Choice, other: Choice) -> bool:
    return all(mine <= theirs for mine, theirs in zip(_costs(one), _costs(other), strict=True))


def _with_race_times(results: Sequence[Choice], race: Race | None) -> list[Choice]:
    """One choice per candidate, the fastest it was seen; raced ones with their race times."""
    best: dict[Candidate, Choice] = {}
    for choice in sorted(results, key=_order, reverse=True):
        best[choice.candidate] = choice
    for candidate, times in (race.rounds if race else {}).items():
        if candidate not in best:
            raise PolicyError(f"The race has {candidate[0]}, which has no result.")
        found = median_interval(times)
        best[candidate] = replace(
            best[candidate],
            seconds=found.median,
            low=found.low,
            high=found.high,
            samples=len(times),
        )
    return sorted(best.values(), key=_order)


_TIE_REASONS = (
    "it is deterministic",
    "it needs less workspace",
    "it was the policy before",
    "its declaration is simpler",
    "its config is the one from before",
    "its median is the smallest",
)


@dataclass(frozen=True, slots=True)
class _Judge:
    """Applies the rules to candidates that were measured."""

    race: Race | None
    before: Candidate | None
    rules: Rules

    def winner(self, raced: Sequence[Choice]) -> tuple[Choice, list[Choice]]:
        """The winner, and all that are within the band of the fastest."""
        first = min(raced, key=lambda choice: choice.seconds)
        tied = [choice for choice in raced if self._within_band(choice, first)]
        return min(tied, key=lambda choice: (self._preference(choice), _order(choice))), tied

    def verdict(self, winner: Choice, tied: Sequence[Choice], choices: Sequence[Choice]) -> Verdict:
        band = self.rules.band
        rivals = [choice for choice in choices if choice.variant != winner.variant]
        if not rivals:
            reason = f"{winner.variant} is the only variant that was measured"
            return Verdict("single", 0.0, band, reason)
        rival = min(rivals, key=lambda choice: choice.seconds)
        lead = self._ratio(rival, winner)[0] - 1
        close = [choice for choice in tied if choice.variant != winner.variant]
        if close:
            reason = self._tie_reason(winner, min(close, key=self._preference))
            return Verdict("tie", lead, band, reason)
        if rival.seconds < winner.seconds:
            reason = f"{rival.variant} was measured faster, and was not in the race"
            return Verdict("undecided", lead, band, reason)
        unsure = [choice for choice in rivals if self._ratio(choice, winner)[1] <= 1 + band]
        if unsure:
            reason = f"too noisy to tell {winner.variant} from {unsure[0].variant}"
            return Verdict("undecided", lead, band, reason)
        reason = f"{winner.variant} is faster than {rival.variant} by more than the band"
        return Verdict("clear", lead, band, reason)

    def _raced(self, choice: Choice) -> bool:
        return self.race is not None and choice.candidate in self.race.rounds

    def _ratio(self, choice: Choice, winner: Choice) -> tuple[float, float]:
        """Median of choice's time over winner's, and the lower end of its interval."""
        if self.race is not None and self._raced(choice):
            return self.race.ratio(choice.candidate, winner.candidate)[:2]
        return choice.seconds / winner.seconds, choice.low / winner.high

    def _within_band(self, choice: Choice, first: Choice) -> bool:
        same = choice.candidate == first.candidate
        return same or self._ratio(choice, first)[0] <= 1 + self.rules.band

    def _preference(self, choice: Choice) -> tuple[bool, int, bool, float, bool, float]:
        return (
            not choice.deterministic,
            choice.workspace_bytes,
            self.before is None or choice.variant != self.before[0],
            self.rules.simplicity.get(choice.variant, math.inf),
            choice.candidate != self.before,
            choice.seconds,
        )

    def _tie_reason(self, winner: Choice, other: Choice) -> str:
        pairs = zip(self._preference(winner), self._preference(other), strict=True)
        decided = next((number for number, (a, b) in enumerate(pairs) if a != b), -1)
        return f"{winner.variant} and {other.variant} are within the band; {_TIE_REASONS[decided]}"
