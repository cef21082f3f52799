"""Compiling what problems will need: before anything is measured, or on a GPU beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autotune.campaign.events import Waiting
from autotune.campaign.session import Session
from autotune.model.problem import Problem
from autotune.model.space import default_config, why_not
from autotune.registry import registry
from autotune.worker.protocol import Job


def compile_needed(session: Session, problems: Sequence[Problem]) -> None:
    """Put every variant's compiled code on disk, once for each operation, dtype and layout.

    On a CPU nothing may be compiled while something is timed: both would use the same cores. On a
    GPU, where each config is a compilation of its own, see `compile_openings`.
    """
    if session.device.kind != "cpu":
        return

    def starting(count: int) -> None:
        noun = "variant" if count == 1 else "variants"
        session.emit(Waiting(f"compiling {count} {noun}, once: the code is kept on disk"))

    session.worker.compile_ahead(_jobs(session, problems), starting=starting)


def compile_openings(session: Session, problems: Sequence[Problem]) -> None:
    """Begin to compile what is measured first of these problems, while another one is at work."""
    if session.worker.depth > 1:
        for problem in problems:
            session.worker.compile_ahead(_defaults(session, problem), starting=lambda count: None)


def _jobs(session: Session, problems: Sequence[Problem]) -> Iterator[Job]:
    """The default of each variant, for the first problem of each operation, dtype and layout."""
    kinds = {(p.operation.name, p.dtype, p.layout): p for p in reversed(problems)}
    for problem in kinds.values():
        yield from _defaults(session, problem)


def _defaults(session: Session, problem: Problem) -> Iterator[Job]:
    device, limit = session.device, session.settings.time_limit
    for variant in registry.variants(problem.operation):
        if why_not(variant, problem, device.kind, device.limits) is None:
            config = default_config(variant, problem, device)
            if config is not None:
                yield Job(problem.key.text, variant.name, dict(config), time_limit=limit)
