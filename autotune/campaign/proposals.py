"""Candidates asked for ahead of their turn, and compiled while others are measured."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass

from autotune.campaign.session import Measurer
from autotune.model.problem import Candidate
from autotune.worker.protocol import Job, Outcome

Ask = Callable[[], Candidate | None]


@dataclass(frozen=True, slots=True)
class Proposal:
    """A candidate to measure; `compiled` is what became of compiling it, if that was done apart."""

    candidate: Candidate
    compiled: Outcome | None = None


@dataclass(frozen=True, slots=True)
class _Pending:
    candidate: Candidate
    future: Future[Outcome] | None

    @property
    def ready(self) -> bool:
        return self.future is None or self.future.done()

    def proposal(self) -> Proposal:
        return Proposal(self.candidate, self.future.result() if self.future else None)


class Proposals:
    """Keeps as many candidates in flight as the worker wants; the first that is ready comes first.

    With a depth of one, or when all are compiled already, that is the order of the search.
    """

    def __init__(self, worker: Measurer, ask: Ask, job: Callable[[Candidate], Job]) -> None:
        self._worker, self._ask, self._job = worker, ask, job
        self._pending: list[_Pending] = []

    @property
    def pending(self) -> int:
        """How many are in flight."""
        return len(self._pending)

    def next(self, patience: Callable[[], float | None] = lambda: None) -> Proposal | None:
        """The next to measure, waiting for one to be compiled; None when there are no more.

        Also None when none is ready after `patience` seconds (None: however long it takes).
        """
        while len(self._pending) < self._worker.depth:
            candidate = self._ask()
            if candidate is None:
                break
            self._pending.append(_Pending(candidate, self._worker.start(self._job(candidate))))
        if self._pending and not any(each.ready for each in self._pending):
            futures = [each.future for each in self._pending if each.future]
            wait(futures, patience(), FIRST_COMPLETED)
        ready = (n for n, each in enumerate(self._pending) if each.ready)
        position = next(ready, None)
        return None if position is None else self._pending.pop(position).proposal()

    def any(self, wanted: Callable[[Candidate], bool]) -> bool:
        """Whether one of those in flight is wanted."""
        return any(wanted(each.candidate) for each in self._pending)

    def keep(self, wanted: Callable[[Candidate], bool]) -> list[Candidate]:
        """Let go of what is not wanted now, and return it; what is being compiled goes on."""
        others = [each for each in self._pending if not wanted(each.candidate)]
        for each in others:
            if each.future is not None:
                each.future.cancel()
        self._pending = [each for each in self._pending if wanted(each.candidate)]
        return [each.candidate for each in others]
