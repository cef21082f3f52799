"""The search: which candidate to measure next, knowing only what the earlier ones took."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from autotune.model.problem import Candidate
from autotune.search.space import Space, VariantSpace
from autotune.search.tpe import Model

_REFINED = 6
_STUCK = 12
_EXPLORED = 3


@dataclass(frozen=True, slots=True)
class Strategy:
    """How a search divides its trials.

    A space of at most `enumerate_up_to` points is tried whole. In a larger one a variant whose
    best of `grace` trials or more is `hopeless` times slower than the best of all gets no more;
    the others are weighed against each other with `curiosity` for those tried little. Within a
    variant, neighbours of its best point and of those within `close` of it take turns with the
    model. When nothing improves any more, variants within `rival` times the best get `audition`
    trials each: their defaults may just be worse chosen. The search ends once that is done, the
    neighbours of the best are known, and `patience` trials in a row (or a fifth of the space if
    that is more, up to `longest`) have not improved on the best by `band`: as a rule it is the
    budget that ends a search.
    """

    enumerate_up_to: int = 32
    hopeless: float = 5.0
    grace: int = 2
    close: float = 1.25
    band: float = 0.01
    patience: int = 24
    longest: int = 400
    curiosity: float = 0.8
    rival: float = 3.0
    audition: int = 20


@dataclass(slots=True, eq=False)
class _Known:
    """What is known of one variant: which rows were asked for, and the time of each.

    `pending` are those asked for and not told of: several may be on their way.
    """

    home: VariantSpace
    model: Model
    seen: NDArray[np.bool_]
    seconds: NDArray[np.float64]
    best: int | None = None
    told: int = 0
    steps: int = 0
    pending: set[int] = field(default_factory=set)

    @property
    def best_seconds(self) -> float:
        return math.inf if self.best is None else float(self.seconds[self.best])

    @property
    def tried(self) -> int:
        """Points told of, and those asked for that will be."""
        return self.told + len(self.pending)

    @property
    def open(self) -> bool:
        return not self.seen.all()


@dataclass(slots=True)
class _Progress:
    """The best time so far, and how many trials ago it last improved by the band."""

    best: float = math.inf
    since: int = 0
    told: int = 0


class Search:
    """Proposes candidates; sees no device, no process and no clock.

    `ask` never returns the same candidate twice and never one outside the space; None means that
    nothing is left that is worth a trial. `tell` takes the median in seconds, or None for a
    candidate that failed; it also accepts candidates that were never asked for, which is how a
    campaign resumes. The order: the default of every variant, the `seeds` (winners of
    neighbouring problems) that are in the space, the config with the least predicted traffic of
    every variant still in the race, then neighbours of the best and the model's suggestions.
    Several may be asked for before the first is told of. The same space, seed, seeds and answers,
    in the same order, give the same proposals.
    """

    def __init__(
        self,
        space: Space,
        *,
        seed: int = 0,
        seeds: Sequence[Candidate] = (),
        strategy: Strategy | None = None,
    ) -> None:
        self.space = space
        self.strategy = strategy or Strategy()
        self._known = {
            home.variant: _Known(
                home,
                Model(home.axes, seed + index),
                np.zeros(len(home), dtype=bool),
                np.full(len(home), np.nan),
            )
            for index, home in enumerate(space.variants)
        }
        self._random = np.random.default_rng(seed)
        self._progress = _Progress()
        self._whole = len(space) <= self.strategy.enumerate_up_to
        self._patience = max(self.strategy.patience, min(len(space) // 5, self.strategy.longest))
        self._opening = self._openings(tuple(seeds))

    def ask(self) -> Candidate | None:
        """The next candidate to measure, or None when the search is over."""
        for known, row in self._opening:
            if not known.seen[row]:
                return self._take(known, row)
        if self._finished():
            return None
        step = self._step()
        return None if step is None else self._take(*step)

    def tell(self, candidate: Candidate, seconds: float | None) -> None:
        """Record what a candidate took in seconds (None: it failed)."""
        known = self._known.get(candidate.variant)
        row = known.home.row(candidate.config) if known else None
        if known is None or row is None:
            return
        known.seen[row] = True
        known.pending.discard(row)
        known.told += 1
        known.model.add(known.home.points[row], seconds)
        self._progress.told += 1
        self._progress.since += 1
        if seconds is None:
            return
        known.seconds[row] = seconds
        if seconds < known.best_seconds:
            known.best = row
        if seconds < self._progress.best * (1.0 - self.strategy.band):
            self._progress.since = 0
        self._progress.best = min(self._progress.best, seconds)

    def _take(self, known: _Known, row: int) -> Candidate:
        known.seen[row] = True
        known.pending.add(row)
        return known.home.candidate(row)

    def _openings(self, seeds: tuple[Candidate, ...]) -> Iterator[tuple[_Known, int]]:
        for known in self._known.values():
            yield known, known.home.default
        for candidate in seeds:
            known_or_none = self._known.get(candidate.variant)
            row = known_or_none.home.row(candidate.config) if known_or_none else None
            if known_or_none is not None and row is not None:
                yield known_or_none, row
        for known in self._known.values():
            if known.home.predicted is not None and self._alive(known):
                yield known, known.home.predicted

    def _alive(self, known: _Known) -> bool:
        if self._whole:
            return True
        if known.tried < self.strategy.grace or (known.best is None and known.pending):
            return True
        limit = self.strategy.hopeless * self._progress.best
        return known.best is not None and known.best_seconds <= limit

    def _finished(self) -> bool:
        """Whether nothing got better, the best's neighbours are known and rivals had their turn."""
        if self._whole or self._progress.since < self._patience:
            return False
        leader = min(self._known.values(), key=lambda known: known.best_seconds)
        if leader.best is None:
            return True
        return self._untried_rival() is None and not self._around(leader, only_best=True)

    def _step(self) -> tuple[_Known, int] | None:
        """A point of the most promising variant: in turn one near its best and one of its model."""
        alive = [known for known in self._known.values() if known.open and self._alive(known)]
        if not alive:
            return None
        known = min(alive, key=self._promise)
        if self._progress.since >= _STUCK:
            known = self._untried_rival() or known
        known.steps += 1
        if known.steps % 2:
            around = self._around(known)
            if around:
                return known, around[int(self._random.integers(len(around)))]
        return known, self._suggested(known)

    def _untried_rival(self) -> _Known | None:
        """The fastest variant within `rival` of the best that had fewer trials than its due."""
        limit = self.strategy.rival * self._progress.best
        rivals = [
            known
            for known in self._known.values()
            if known.open and known.best_seconds <= limit and known.told < self.strategy.audition
        ]
        return min(rivals, key=lambda known: known.best_seconds, default=None)

    def _promise(self, known: _Known) -> float:
        """Lower is better: log time of the best, less a bonus for variants tried little."""
        if known.best is None:
            return -math.inf if known.tried < self.strategy.grace else math.inf
        bonus = math.sqrt(math.log(1.0 + self._progress.told) / known.tried)
        return math.log(known.best_seconds) - self.strategy.curiosity * bonus

    def _around(self, known: _Known, only_best: bool = False) -> list[int]:
        """Unseen neighbours of the best point, or of the best of its good points that has any."""
        limit = known.best_seconds * (1.0 if only_best else self.strategy.close)
        good = np.flatnonzero(known.seconds <= limit)
        for row in good[np.argsort(known.seconds[good], kind="stable")][:_REFINED]:
            near = [other for other in known.home.neighbours(int(row)) if not known.seen[other]]
            if near:
                return near
        return []

    def _suggested(self, known: _Known) -> int:
        """The unseen point nearest to what the model suggests.

        While nothing improves, now and then any unseen point: a model stays in its valley.
        """
        if self._progress.since >= _STUCK and known.steps % _EXPLORED == 0:
            return int(self._random.choice(np.flatnonzero(~known.seen)))
        distances = known.home.distances(known.model.suggest())
        distances[known.seen] = math.inf
        return int(np.argmin(distances))
