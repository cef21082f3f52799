"""From the measurements of a problem to its policy: who races, and what the race says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from autotune.campaign.beside import fair_race
from autotune.campaign.events import RaceStarted
from autotune.campaign.evidence import Evidence
from autotune.campaign.records import Circumstances
from autotune.campaign.session import Session, Settings
from autotune.model.problem import Candidate, Config, Problem
from autotune.model.variant import Variant
from autotune.worker.protocol import RaceJob
from autotune_policies import Choice, Policy, Race, Rules, Subject, build_policy
from autotune_tuning_db import utc_now


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

    An entrant that fails in the race loses its result, and the others race again.
    """
    where = Circumstances(
        session.campaign, problem.key, session.device.identity, session.settings.mode
    )
    race: Race | None = None
    while len(entrants := leaders(evidence.choices(), session.settings)) > 1:
        outcome = session.worker.race(_job(session, problem, entrants, share))
        if outcome.samples:
            for row in where.race(entrants, outcome, session.toolchain):
                session.store.add_trial(row)
            race = fair_race(entrants, outcome)
            break
        if outcome.culprit is None:
            break
        failed = entrants[outcome.culprit]
        row = where.disqualified(failed, outcome, session.toolchain)
        session.store.add_trial(row)
        evidence.add(row)
    return _build(session, problem, evidence, race)


def _job(session: Session, problem: Problem, entrants: Sequence[Choice], share: float) -> RaceJob:
    candidates = tuple(Candidate(c.variant, Config(dict(c.config))) for c in entrants)
    session.emit(RaceStarted(candidates))
    settings = session.settings
    return RaceJob(
        problem=problem.key.text,
        entrants=tuple((c.variant, dict(c.config)) for c in candidates),
        mode=settings.mode,
        seed=settings.seed,
        band=settings.band,
        budget=settings.race_seconds(share),
        time_limit=2.0 * settings.time_limit,
    )


def _build(
    session: Session, problem: Problem, evidence: Evidence, race: Race | None
) -> Policy | None:
    choices = evidence.choices()
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
