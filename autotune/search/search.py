"""The search: which candidate to measure next, knowing only what the earlier ones took."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from autotune.device.blas import blas_libraries
from autotune.model.problem import Candidate
from autotune.search.space import Space, VariantSpace
from autotune.search.strategy import Origin, Strategy
from autotune.search.surrogate import Surrogate
from autotune.search.table import Table

if TYPE_CHECKING:
    from optuna.trial import Trial

    from autotune.search.engine import Engine

_SCORED = 4096
"""Candidates that a model looks at for one proposal; of more, so many are drawn."""

_DRAWN = 512
_GRACE = 2


@contextmanager
def _single_thread() -> Iterator[None]:
    """Matrices of a few hundred rows gain nothing from threads that wait for each other."""
    requests = [(library, library.request(1)) for library in blas_libraries()]
    try:
        yield
    finally:
        for library, request in requests:
            library.release(request)


class Search:
    """Proposes candidates; sees no device, no process and no clock.

    `ask` never returns the same candidate twice and never one outside the space; None means that
    nothing is left that is worth a trial. `tell` takes the median in seconds, or None for a
    candidate that failed; it also accepts candidates that were never asked for, which is how a
    campaign resumes. The order: the default of every variant, the `seeds` (winners of neighbouring
    problems and related devices) that are in the space, the config with the least predicted time
    of every variant still in the race, a few points far from all others, then what models and the
    neighbourhood of the best suggest. Several may be asked for before the first is told of. The
    same space, seed, seeds and answers, in the same order, give the same proposals.
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
        self._seed = seed
        self._table = Table(space)
        self._owners = {home.variant: owner for owner, home in enumerate(space.variants)}
        self._surrogate = Surrogate(self._table, seed)
        self._draw = np.random.default_rng([seed, 0])
        self._seen = np.zeros(len(self._table), dtype=bool)
        self._rows: list[int] = []
        self._seconds: list[float | None] = []
        self._pending: dict[int, Trial | None] = {}
        self._best = math.inf
        self._since = 0
        self._turn = 0
        self._origin: Origin = "sampler"
        self._origins: dict[Candidate, Origin] = {}
        self._opening = self._openings(tuple(seeds))
        places = [home.predicted for home in space.variants]
        self._unpredicted = {n: place for n, place in enumerate(places) if place is not None}

    def ask(self) -> Candidate | None:
        """The next candidate to measure, or None when the search is over."""
        for row, origin in self._opening:
            if not self._seen[row]:
                return self._take(row, origin, None)
        predicted = self._predicted()
        if predicted is not None:
            return self._take(predicted, "prediction", None)
        # Asked of an endless search too: its models then learn at the same points.
        if self.settled and (self._seen.all() or not self.strategy.endless):
            return None
        with _single_thread():
            trial, home, point = self._engine.ask()
        row = self._nearest(home, point)
        if self._place(row) != (home, tuple(point)):
            self._engine.tell(trial, None)
            return self._take(row, self._origin, None)
        return self._take(row, self._origin, trial)

    def tell(self, candidate: Candidate, seconds: float | None) -> None:
        """Record what a candidate took in seconds (None: it failed)."""
        row = self._row(candidate)
        if row is None:
            return
        self._seen[row] = True
        if row in self._rows:  # measured anew
            self._seconds[self._rows.index(row)] = seconds
        else:
            self._rows.append(row)
            self._seconds.append(seconds)
        self._since += 1
        if seconds is not None:
            if seconds < self._best * (1.0 - self.strategy.band):
                self._since = 0
            self._best = min(self._best, seconds)
        self._record(row, self._pending.pop(row, None), seconds)

    def origin(self, candidate: Candidate) -> Origin | None:
        """Why a candidate was proposed, or None if it was not."""
        return self._origins.get(candidate)

    @property
    def settled(self) -> bool:
        """Whether no gain worth a trial is expected any more, in a space too large to try whole."""
        if self._seen.all():
            return True
        if len(self.space) <= self.strategy.enumerate_up_to:
            return False
        if math.isinf(self._best):
            return len(self._rows) >= max(self.strategy.start, 2 * len(self.space.variants))
        if self._since < self._patience or len(self._around(1)):
            return False
        unknown = self._unknown()
        rows = unknown[:: math.ceil(len(unknown) / _SCORED)]
        with _single_thread():
            self._surrogate.learn(self._rows, self._seconds, list(self._pending))
            gains = np.sort(self._surrogate.smooth_gain(rows))
        return float(gains[-self._patience :].sum()) < self.strategy.band

    @property
    def _patience(self) -> int:
        return max(self.strategy.patience, min(len(self.space) // 20, self.strategy.longest))

    def _take(self, row: int, origin: Origin, trial: Trial | None) -> Candidate:
        home = self.space.variants[int(self._table.owner[row])]
        candidate = home.candidate(int(self._table.place[row]))
        self._seen[row] = True
        self._pending[row] = trial
        self._origins[candidate] = origin
        return candidate

    def _record(self, row: int, trial: Trial | None, seconds: float | None) -> None:
        """Keep Optuna's study up to date: log times, a failed one as the slowest seen."""
        slowest = max((math.log(each) for each in self._seconds if each is not None), default=None)
        value = slowest if seconds is None else math.log(seconds)
        if trial is not None:
            self._engine.tell(trial, value)
        elif self.strategy.method != "model":
            self._engine.add(*self._place(row), value)

    def _row(self, candidate: Candidate) -> int | None:
        owner = self._owners.get(candidate.variant)
        if owner is None:
            return None
        place = self.space.variants[owner].row(candidate.config)
        return None if place is None else self._at(owner, place)

    def _at(self, owner: int, place: int) -> int:
        """The row of a place; `seen` grows with the table."""
        row = self._table.row(owner, place)
        self._widen()
        return row

    def _widen(self) -> None:
        fresh = len(self._table) - len(self._seen)
        if fresh:
            self._seen = np.concatenate([self._seen, np.zeros(fresh, dtype=bool)])

    def _place(self, row: int) -> tuple[VariantSpace, tuple[int, ...]]:
        home = self.space.variants[int(self._table.owner[row])]
        return home, tuple(home.points[int(self._table.place[row])].tolist())

    def _openings(self, seeds: tuple[Candidate, ...]) -> Iterator[tuple[int, Origin]]:
        for owner, home in enumerate(self.space.variants):
            yield self._at(owner, home.default), "default"
        for candidate in seeds:
            row = self._row(candidate)
            if row is not None:
                yield row, "transfer"

    def _predicted(self) -> int | None:
        """The row with the least predicted time of a variant within `hopeless` times the best.

        Variants that are yet to be told of wait: the times of their defaults come first.
        """
        for owner, place in list(self._unpredicted.items()):
            if any(self._table.owner[row] == owner for row in self._pending):
                continue
            del self._unpredicted[owner]
            row = self._at(owner, place)
            if not self._seen[row] and min(self._own(owner), default=math.inf) <= self._limit:
                return row
        return None

    def _own(self, owner: int) -> list[float]:
        """The times of a variant; a failed candidate took forever."""
        pairs = zip(self._rows, self._seconds, strict=True)
        return [s or math.inf for row, s in pairs if self._table.owner[row] == owner]

    @property
    def _limit(self) -> float:
        return self.strategy.hopeless * self._best

    def _unknown(self) -> NDArray[np.int64]:
        """Rows not asked for; those of hopeless variants only when nothing else is left."""
        rows = np.flatnonzero(~self._seen)
        times = [self._own(owner) for owner in range(len(self._table.homes))]
        hopeless = np.array([len(own) >= _GRACE and min(own) > self._limit for own in times])
        others = rows[~hopeless[self._table.owner[rows]]]
        return others if len(others) else rows

    @cached_property
    def _engine(self) -> Engine:
        from autotune.search import engine

        samplers = {"tpe": engine.tpe, "random": engine.random}
        make = samplers.get(self.strategy.method)
        sampler = make(self._seed) if make else engine.Choosing(self._choose)
        return engine.Engine(self.space, sampler)

    def _choose(self) -> tuple[VariantSpace, tuple[int, ...]]:
        """A point far from all others at first, then in turn by a model or near the best."""
        told = len(self._rows)
        if told + len(self._pending) < self.strategy.start or told < 2:
            row, self._origin = self._far(), "spread"
            return self._place(row)
        self._surrogate.learn(self._rows, self._seconds, list(self._pending))
        self._turn += 1
        row = -1
        if self._turn % self.strategy.local == 0:
            row, self._origin = self._near(), "neighbour"
        if row < 0:
            row, self._origin = self._promising(), "model"
        return self._place(row)

    def _far(self) -> int:
        """Of some points drawn, the one farthest from all that were asked for."""
        drawn = self._some(_DRAWN)
        known = np.array([*self._rows, *self._pending], dtype=np.int64)
        if not len(known):
            return int(drawn[0])
        smooth = self._table.smooth
        apart = np.abs(smooth[drawn][:, None, :] - smooth[known][None]).sum(axis=2).min(axis=1)
        return int(drawn[np.argmax(apart)])

    def _near(self) -> int:
        """The most promising unknown neighbour of one of the leaders, or -1."""
        around = self._around(self.strategy.leaders)
        if not len(around):
            return -1
        gain = self._surrogate.stepped_gain(around)
        return int(around[np.argmax(gain)])

    def _around(self, count: int) -> NDArray[np.int64]:
        """The unknown neighbours of the best few."""
        pairs = zip(self._seconds, self._rows, strict=True)
        timed = sorted((seconds, row) for seconds, row in pairs if seconds is not None)
        found: dict[int, None] = {}
        for _, leader in timed[:count]:
            found.update(dict.fromkeys(self._table.neighbours(leader)))
        self._widen()
        return np.array([row for row in sorted(found) if not self._seen[row]], dtype=np.int64)

    def _promising(self) -> int:
        """The unknown point with the greatest expected gain, by one model and the other in turn."""
        rows = self._some(_SCORED)
        if len(rows) == _SCORED:
            rows = np.union1d(rows, self._around(self.strategy.leaders))
        smooth = (self._turn - self._turn // self.strategy.local) % 2 == 1
        gain = (self._surrogate.smooth_gain if smooth else self._surrogate.stepped_gain)(rows)
        return int(rows[np.argmax(gain)])

    def _some(self, count: int) -> NDArray[np.int64]:
        """Unknown points: all of them, or so many drawn evenly."""
        rows = self._unknown()
        return self._draw.choice(rows, count, replace=False) if len(rows) > count else rows

    def _nearest(self, home: VariantSpace, point: Sequence[int]) -> int:
        """The unknown row nearest to a point of the product: itself, where it is one."""
        owner = self._owners[home.variant]
        place = home.place(point)
        if place is not None and not self._seen[self._at(owner, place)]:
            return self._at(owner, place)
        rows = self._table.rows(owner)
        apart = np.where(self._seen[rows], math.inf, home.distances(point)[: len(rows)])
        if np.isinf(apart).all():
            return int(np.flatnonzero(~self._seen)[0])
        return int(rows[np.argmin(apart)])
