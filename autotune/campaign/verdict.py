"""From the measurements of a problem to its policy: who races, and what the race says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import median

from autotune.campaign.beside import fair_race
from autotune.campaign.events import RaceStarted
from autotune.campaign.evidence import Evidence
from autotune.campaign.records import Circumstances
from autotune.campaign.session import Session, Settings
from autotune.model.problem import Candidate, Config, Problem
from autotune.model.variant import Variant
from autotune.statistics import Interval, ratio_interval
from autotune.worker.protocol import RaceJob, RaceOutcome
from autotune_policies import Choice, Policy, Race, Rules, Subject, build_policy
from autotune_tuning_db import utc_now

HEAT_ROUNDS, FINAL_ROUNDS = 24, 200
FINAL_SHARE = 0.7
"""Of the time for racing; the rest is for the heat."""


def leaders(choices: Sequence[Choice], settings: Settings) -> list[Choice]:
    """Who may be the fastest: the best of each variant first, then other configs.

    A candidate counts while the lower end of its interval is within reach of the upper end of
    the fastest one's.
    """
    ranked = sorted(choices, key=lambda choice: choice.seconds)
    if not ranked:
        return []
    reach = ranked[0].high * (1.0 + settings.leaders_within)
    near = [choice for choice in ranked if choice.low <= reach]
    first = {choice.variant: choice for choice in reversed(near)}
    best = sorted(first.values(), key=lambda choice: choice.seconds)
    others = [choice for choice in near if first[choice.variant] is not choice]
    return [*best, *others][: settings.leaders]


def decide(
    session: Session, problem: Problem, evidence: Evidence, *, share: float
) -> Policy | None:
    """Race the leaders and build the policy; None when nothing was measured.

    More leaders than there are places in the final run a heat for them first: on a noisy machine
    the smallest of many single measurements is the luckiest, and the best may be the tenth.
    """
    track = _Track(session, problem, evidence, share)
    entrants = leaders(evidence.choices(), session.settings)
    heat: Raced | None = None
    if len(entrants) > session.settings.finalists:
        heat = track.race(entrants, final=False)
        entrants = heat.finalists(session.settings) if heat else []
    final = track.race(entrants, final=True)
    race = fair_race(final.entrants, final.outcome) if final else None
    choices = evidence.choices()
    if heat is not None and race is not None:
        choices = heat.carried_over(choices, race)
    return _build(session, problem, evidence, choices, race)


@dataclass(frozen=True, slots=True)
class Raced:
    """Entrants and how they did."""

    entrants: list[Choice]
    outcome: RaceOutcome

    def ratios(self) -> list[Interval]:
        """Every entrant's time over that of the fastest, round by round."""
        fastest = min(self.outcome.samples, key=median)
        return [ratio_interval(samples, fastest) for samples in self.outcome.samples]

    def finalists(self, settings: Settings) -> list[Choice]:
        """The fastest that are not known to be slower, and the best of another variant."""
        pairs = zip(self.entrants, self.ratios(), strict=True)
        ranked = sorted(pairs, key=lambda pair: pair[1].median)
        first = ranked[0][0]
        rival = next((choice for choice, _ in ranked if choice.variant != first.variant), None)
        close = [choice for choice, ratio in ranked if ratio.low <= 1.0 + settings.band]
        chosen = close[: settings.finalists]
        if rival is not None and rival not in chosen:
            return [*chosen[: settings.finalists - 1], rival]
        return chosen if len(chosen) > 1 else [choice for choice, _ in ranked[:2]]

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
class _Track:
    """Where the leaders of a problem race."""

    session: Session
    problem: Problem
    evidence: Evidence
    share: float

    def race(self, entrants: list[Choice], *, final: bool) -> Raced | None:
        """Time them in turn and store it; None when there was no race.

        An entrant that fails loses its result, and the others race again.
        """
        session = self.session
        where = Circumstances(
            session.campaign, self.problem.key, session.device.identity, session.settings.mode
        )
        while len(entrants) > 1:
            outcome = session.worker.race(self._job(entrants, final))
            if outcome.samples:
                for row in where.race(entrants, outcome, session.toolchain):
                    session.store.add_trial(row)
                return Raced(entrants, outcome)
            if outcome.culprit is None:
                break
            row = where.disqualified(entrants[outcome.culprit], outcome, session.toolchain)
            session.store.add_trial(row)
            self.evidence.add(row)
            del entrants[outcome.culprit]
        return None

    def _job(self, entrants: Sequence[Choice], final: bool) -> RaceJob:
        candidates = tuple(Candidate(c.variant, Config(dict(c.config))) for c in entrants)
        settings = self.session.settings
        if final:
            self.session.emit(RaceStarted(candidates))
        return RaceJob(
            problem=self.problem.key.text,
            entrants=tuple((c.variant, dict(c.config)) for c in candidates),
            mode=settings.mode,
            seed=settings.seed,
            band=settings.band,
            max_rounds=FINAL_ROUNDS if final else HEAT_ROUNDS,
            budget=settings.race_seconds(self.share)
            * (FINAL_SHARE if final else 1.0 - FINAL_SHARE),
            time_limit=2.0 * settings.time_limit,
        )


def _build(
    session: Session,
    problem: Problem,
    evidence: Evidence,
    choices: Sequence[Choice],
    race: Race | None,
) -> Policy | None:
    if not choices:
        return None
    subject = Subject(
        problem=problem.key,
        device=session.device.identity,
        family=session.device.family,
        mode=session.settings.mode,
        toolchain=dict(evidence.toolchain),
        created=utc_now(),
    )
    rules = Rules(band=session.settings.band, simplicity=simplicity(evidence.variants.values()))
    previous = stored_policy(session, problem)
    policy = build_policy(subject, choices, race=race, previous=previous, rules=rules)
    session.store.put_policy(policy.to_row())
    return policy


def simplicity(variants: Iterable[Variant]) -> dict[str, float]:
    """For the tie rule: how much each declaration declares; less is simpler."""
    return {
        variant.name: len(variant.passes) + len(variant.intermediates) + 0.1 * len(variant.tunables)
        for variant in variants
    }


def stored_policy(session: Session, problem: Problem) -> Policy | None:
    """The policy this problem has on this device, measured here in this mode; None without one."""
    rows = session.store.policies(session.device.identity, problem.operation.name)
    for row in rows:
        if row.problem == problem.key and row.mode == session.settings.mode:
            try:
                return Policy.from_row(row)
            except ValueError:
                return None
    return None
