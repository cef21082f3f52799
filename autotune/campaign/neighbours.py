"""Winners of neighbouring problems and related devices, as starts for a search."""

from __future__ import annotations

from autotune.campaign.session import Session
from autotune.model.problem import Candidate, Config, Problem
from autotune_policies import Request, load_shipped, nearest, snapshot_of

_NEIGHBOURS = 4
_WINNERS = 6


def winners_nearby(session: Session, problem: Problem) -> tuple[Candidate, ...]:
    """The best choices of the policies nearest to the problem, each candidate once.

    They are starts and never trusted unmeasured; the search leaves out what is not admissible.
    """
    request = Request(
        problem.key,
        session.device.identity,
        session.device.family,
        session.settings.mode,
        problem.operation.varying,
    )
    found: dict[Candidate, None] = {}
    shipped, _ = load_shipped()
    known = snapshot_of(session.store.policies(operation=problem.operation.name), (), shipped)
    for near in nearest(known, request, _NEIGHBOURS):
        for choice in near.policy.ranking[:2]:
            found[Candidate(choice.variant, Config(dict(choice.config)))] = None
    return tuple(found)[:_WINNERS]
