"""Where the leaders of a problem race: heats for many, a final for few."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from statistics import median

from autotune.campaign.beside import fair_samples
from autotune.campaign.events import RaceStarted
from autotune.campaign.evidence import Evidence
from autotune.campaign.records import Circumstances
from autotune.campaign.session import Session, Settings
from autotune.disturbance import busy
from autotune.model.problem import Candidate, Config, Problem
from autotune.statistics import Interval, ratio_interval
from autotune.worker.protocol import RaceJob, RaceOutcome
from autotune_policies import Choice, Race

HEAT_SHARE = 0.2
"""Of the time for racing, for one heat; the rest is the final's."""

SEMIFINALISTS = 10
"""Entrants beyond which there are two heats: what is slower by little is lost among many."""

HEAT_LEAST, HEAT_MOST, FINAL_LEAST, FINAL_MOST = 6, 100, 10, 3000
"""Rounds."""

LEG_SECONDS, LEGS_AT_MOST = 2.0, 5
"""A final that has the time is run in several processes: where the memory of a process happens to
lie moves short kernels by a percent or two, the same way in all of its rounds."""

FAR_APART = 5.0
"""Bands between the fastest and the others, beyond which one process is enough."""

_ROUND_OVERHEAD = 0.01  # seconds per entrant and round: eviction, synchronisation


@dataclass(frozen=True, slots=True)
class Raced:
    """Entrants and how they did."""

    entrants: list[Choice]
    outcome: RaceOutcome

    @property
    def disturbed(self) -> bool:
        """Whether anything spoilt it; an undisturbed race makes up for disturbed trials."""
        return self.outcome.status == "disturbed" or busy(self.outcome.circumstances)

    def ratios(self) -> list[Interval]:
        """Every entrant's time over that of the fastest, round by round."""
        fair = fair_samples(self.outcome)
        fastest = min(fair, key=median)
        return [ratio_interval(samples, fastest) for samples in fair]

    def best(self, places: int, settings: Settings) -> list[Choice]:
        """The fastest that are not known to be slower, and the best of another variant."""
        pairs = zip(self.entrants, self.ratios(), strict=True)
        ranked = sorted(pairs, key=lambda pair: pair[1].median)
        first = ranked[0][0]
        rival = next((choice for choice, _ in ranked if choice.variant != first.variant), None)
        limit = 1.0 + settings.band
        close = [choice for choice, ratio in ranked if _may_reach(ratio, limit)]
        chosen = close[:places]
        if rival is not None and rival not in chosen:
            return [*chosen[: places - 1], rival]
        return chosen if len(chosen) > 1 else [choice for choice, _ in ranked[:2]]

    def far_apart(self, settings: Settings) -> bool:
        """Whether nothing that differs between processes can make another the winner."""
        limit = 1.0 + FAR_APART * settings.band
        return sum(_may_reach(ratio, limit) for ratio in self.ratios()) == 1

    def carried_over(self, choices: Sequence[Choice], race: Race) -> list[Choice]:
        """The choices, those that fell out in this heat with what it says of them.

        Their times relative to a finalist's, on the scale of the final.
        """
        ratios = self.ratios()
        anchor = next(n for n, c in enumerate(self.entrants) if c.candidate in race.rounds)
        seconds = median(race.rounds[self.entrants[anchor].candidate]) / ratios[anchor].median
        fallen = {
            choice.candidate: replace(
                choice, seconds=seconds * r.median, low=seconds * r.low, high=seconds * r.high
            )
            for choice, r in zip(self.entrants, ratios, strict=True)
            if choice.candidate not in race.rounds
        }
        return [fallen.get(choice.candidate, choice) for choice in choices]


@dataclass(frozen=True, slots=True)
class Track:
    """The leaders of a problem, timed in turn."""

    session: Session
    problem: Problem
    evidence: Evidence

    def affordable(self, entrants: Sequence[Choice], seconds: float) -> list[Choice]:
        """As many of them as a heat within so much time can give its least rounds."""
        left, count = HEAT_SHARE * seconds / HEAT_LEAST, 0
        for entrant in entrants:
            left -= entrant.seconds + _ROUND_OVERHEAD
            count += left >= 0.0
        return list(entrants[: max(count, self.session.settings.finalists)])

    def heat(self, entrants: list[Choice], seconds: float) -> Raced | None:
        """A few rounds that tell who is worth a longer look."""
        return self._race(entrants, self._job(HEAT_LEAST, HEAT_MOST, HEAT_SHARE * seconds))

    def final(self, entrants: list[Choice], seconds: float) -> Raced | None:
        """The race that decides, in as many processes as the time allows."""
        legs = min(max(int(seconds // LEG_SECONDS), 1), LEGS_AT_MOST)
        job = self._job(FINAL_LEAST, FINAL_MOST // legs, seconds / legs)
        if len(entrants) > 1:
            self.session.emit(RaceStarted(tuple(map(_candidate, entrants))))
        run = self._race(entrants, job)
        for _ in range(1, legs):
            if run is None or run.far_apart(self.session.settings):
                break
            self.session.worker.renew()
            more = self._race(list(run.entrants), job)
            if more is None or more.entrants != run.entrants:
                return more
            run = Raced(run.entrants, _joined(run.outcome, more.outcome))
        return run

    def _race(self, entrants: list[Choice], job: RaceJob) -> Raced | None:
        """Time them in turn and store it; None when there was no race.

        An entrant that fails loses its result, and the others race again.
        """
        session = self.session
        where = Circumstances(
            session.campaign, self.problem.key, session.device.identity, session.settings.mode
        )
        while len(entrants) > 1:
            named = tuple((c.variant, dict(c.config)) for c in entrants)
            outcome = session.worker.race(replace(job, entrants=named))
            if outcome.samples:
                for row in where.race(entrants, outcome, session.toolchain):
                    session.store.add_trial(row)
                return Raced(entrants, outcome)
            if outcome.culprit is None:
                break
            row = where.disqualified(entrants[outcome.culprit], outcome, session.toolchain)
            session.store.add_trial(row)
            self.evidence.add(row)
            entrants = [c for n, c in enumerate(entrants) if n != outcome.culprit]
        return None

    def _job(self, least: int, most: int, seconds: float) -> RaceJob:
        settings = self.session.settings
        return RaceJob(
            problem=self.problem.key.text,
            entrants=(),
            mode=settings.mode,
            seed=settings.seed,
            band=settings.band,
            min_rounds=least,
            max_rounds=most,
            budget=seconds,
            time_limit=2.0 * settings.time_limit,
        )


def _may_reach(ratio: Interval, limit: float) -> bool:
    """Whether a ratio may be so small; too few rounds for 95% do not say that it is not."""
    return ratio.low <= limit or not ratio.covers


def _candidate(choice: Choice) -> Candidate:
    return Candidate(choice.variant, Config(dict(choice.config)))


def _joined(one: RaceOutcome, other: RaceOutcome) -> RaceOutcome:
    """The rounds of both, and the worse of the circumstances."""
    facts = {**one.circumstances, **other.circumstances}
    for name in ("foreign_load", "steal"):
        if name in facts:
            facts[name] = max(each.circumstances.get(name, 0.0) for each in (one, other))
    rounds = zip(one.samples, other.samples, strict=True)
    return replace(
        other, samples=tuple(tuple(chain(*pair)) for pair in rounds), circumstances=facts
    )
