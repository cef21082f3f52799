"""From the measurements of a problem to its policy: who races, and what the race says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from autotune.campaign.beside import fair_race
from autotune.campaign.evidence import Evidence
from autotune.campaign.seen import Named, Seen, grounded_policy
from autotune.campaign.session import Session, Settings
from autotune.campaign.track import HEAT_SHARE, SEMIFINALISTS, Raced, Track
from autotune.model.problem import Problem
from autotune.model.variant import Variant
from autotune_policies import Choice, Policy, Race, Rules, Subject, build_policy
from autotune_tuning_db import utc_now


def leaders(
    choices: Sequence[Choice], settings: Settings, champion: Choice | None = None
) -> list[Choice]:
    """Who may be the fastest: the best of each variant first, then other configs.

    A candidate counts while the lower end of its interval is within reach of the upper end of
    the fastest one's. The runner-up, of another variant if there is one, counts in any case: a
    time that is too good to be true, of a disturbed machine, would leave the field to itself. So
    does the champion, who won the race before: what its own trial says, of a worse moment perhaps,
    is not what it won by.
    """
    ranked = sorted(choices, key=lambda choice: choice.seconds)
    if not ranked:
        return []
    reach = ranked[0].high * (1.0 + settings.leaders_within)
    near = [choice for choice in ranked if choice.low <= reach]
    first = {choice.variant: choice for choice in reversed(near)}
    best = sorted(first.values(), key=lambda choice: choice.seconds)
    others = [choice for choice in near if first[choice.variant] is not choice]
    if len(first) == 1:
        rivals = [choice for choice in ranked if choice.variant != ranked[0].variant]
        if rivals:
            others = [rivals[0], *others]
        elif len(near) == 1:
            others = ranked[1:2]
    found = [*best, *others][: settings.leaders]
    if champion is not None and champion not in found:
        found[1:] = [champion, *found[1 : settings.leaders - 1]]
    return found


def decide(
    session: Session, problem: Problem, evidence: Evidence, *, seconds: float
) -> Policy | None:
    """Race the leaders for about so long and build the policy; None when nothing was measured.

    More leaders than there are places in the final run heats for them first: on a noisy machine
    the smallest of many single measurements is the luckiest, and the best may be the tenth.
    """
    settings = session.settings
    track = Track(session, problem, evidence)
    choices = evidence.choices()
    previous = stored_policy(session, problem)
    champion = _champion(choices, previous)
    entrants = track.affordable(leaders(choices, settings, champion), seconds)
    heats: list[Raced] = []
    for places in (SEMIFINALISTS, settings.finalists):
        if len(entrants) > places:
            heat = track.heat(entrants, seconds)
            entrants = heat.best(places, settings) if heat else []
            heats += [heat] if heat else []
    final = track.final(entrants, (1.0 - HEAT_SHARE * len(heats)) * seconds)
    choices, seen = evidence.choices(), _seen(evidence, heats, final)
    race = fair_race(final.entrants, final.outcome, seen) if final else None
    if race is not None:
        for heat in heats:
            choices = heat.carried_over(choices, race)
    policy = _build(session, problem, evidence, choices, race, previous)
    if policy is None:
        return None
    policy = grounded_policy(policy, seen)
    session.store.put_policy(policy.to_row())
    return policy


def _seen(evidence: Evidence, heats: Iterable[Raced], final: Raced | None) -> dict[Named, Seen]:
    """What the times of candidates are held to: their own trials, and how they did in races."""
    seen = evidence.seen()
    for run in (*heats, *([final] if final else [])):
        for choice, samples in zip(run.entrants, run.outcome.samples, strict=True):
            if choice.candidate in seen:
                seen[choice.candidate] = seen[choice.candidate].also(samples)
    if final is not None:
        for choice in final.entrants:
            seen[choice.candidate] = replace(seen[choice.candidate], disturbed=final.disturbed)
    return seen


def _champion(choices: Iterable[Choice], policy: Policy | None) -> Choice | None:
    """The winner of the policy there is, as what was measured of it since still holds."""
    if policy is None:
        return None
    return next((each for each in choices if each.candidate == policy.winner.candidate), None)


def _build(
    session: Session,
    problem: Problem,
    evidence: Evidence,
    choices: Sequence[Choice],
    race: Race | None,
    previous: Policy | None,
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
    return build_policy(subject, choices, race=race, previous=previous, rules=rules)


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
