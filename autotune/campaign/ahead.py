"""Before the first measurement: compile what the problems need, by several processes at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autotune.campaign.events import Waiting
from autotune.campaign.session import Session
from autotune.model.problem import Problem
from autotune.model.space import default_config, why_not
from autotune.registry import registry
from autotune.worker.protocol import Job


def compile_needed(session: Session, problems: Sequence[Problem]) -> None:
    """Put every variant's compiled code on disk, once for each operation and dtype.

    On a CPU nothing may be compiled while something is timed: both would use the same cores.
    """

    def starting(count: int) -> None:
        noun = "variant" if count == 1 else "variants"
        session.emit(Waiting(f"compiling {count} {noun}; they are kept on disk"))

    session.worker.compile_ahead(_jobs(session, problems), starting=starting)


def _jobs(session: Session, problems: Sequence[Problem]) -> Iterator[Job]:
    """The default of each variant, for the first problem of each operation and dtype."""
    device = session.device
    kinds = {(problem.operation.name, problem.dtype): problem for problem in reversed(problems)}
    for problem in kinds.values():
        for variant in registry.variants(problem.operation):
            if why_not(variant, problem, device.kind) is None:
                config = default_config(variant, problem, device)
                if config is not None:
                    yield Job(
                        problem.key.text,
                        variant.name,
                        dict(config),
                        time_limit=session.settings.time_limit,
                    )
