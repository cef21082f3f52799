"""Spaces to search without a device: synthetic conditional ones and recorded ones."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product

import numpy as np

from autotune.model.problem import Candidate
from autotune.search import Axis, Search, Space, Strategy, VariantSpace

Times = dict[str, list[float | None]]


@dataclass(frozen=True)
class Replay:
    """A space with the time of every point (None: it fails)."""

    space: Space
    times: Times

    @property
    def optimum(self) -> float:
        return min(t for times in self.times.values() for t in times if t is not None)

    def seconds(self, candidate: Candidate) -> float | None:
        home = self.space.variant(candidate.variant)
        assert home is not None
        row = home.row(candidate.config)
        assert row is not None, "the search left its space"
        return self.times[candidate.variant][row]

    def run(
        self, seed: int, *, budget: int, strategy: Strategy | None = None
    ) -> tuple[list[Candidate], float]:
        """Candidates in the order proposed, and the best time found."""
        search = Search(self.space, seed=seed, strategy=strategy)
        asked: list[Candidate] = []
        best = math.inf
        while len(asked) < budget and (candidate := search.ask()) is not None:
            asked.append(candidate)
            seconds = self.seconds(candidate)
            search.tell(candidate, seconds)
            best = min(best, math.inf if seconds is None else seconds)
        return asked, best


def grid(
    name: str, default: tuple[int, ...], **axes: tuple[bool, tuple[int | str, ...]]
) -> VariantSpace:
    """The whole product of some axes, given as name=(ordered, values)."""
    shapes = tuple(Axis(axis, values, ordered) for axis, (ordered, values) in axes.items())
    listed = list(product(*(range(len(axis.values)) for axis in shapes)))
    points = np.array(listed, dtype=np.int32).reshape(len(listed), len(shapes))
    return VariantSpace(name, shapes, points, listed.index(default))


def conditional(
    seed: int, *, variants: int = 6, hopeless: int = 2, strength: float = 1.0
) -> Replay:
    """Variants with two tile sizes, threads and a placement each; some far too slow.

    Every variant has its own best tile, a mild interaction between the tiles, its own scaling
    with threads, a placement that matters at high counts, and 1% of frozen noise. A few points
    fail. `strength` is the power to which the distance from a variant's own best is raised.
    """
    draw = np.random.default_rng(seed)
    homes, times = [], {}
    for index in range(variants):
        name = f"variant{index}"
        home = grid(
            name,
            (2, 2, 3, 0),
            tile_q=(True, (16, 32, 64, 128, 256)),
            tile_k=(True, (32, 64, 128, 256, 512)),
            threads=(True, (1, 2, 4, 8)),
            placement=(False, ("free", "compact", "spread")),
        )
        floor = draw.uniform(1.0, 2.0) * (draw.uniform(8.0, 20.0) if index < hopeless else 1.0)
        cost = _cost(draw, floor)
        homes.append(home)
        found = [cost(*point) for point in home.points.tolist()]
        least = min(seconds for seconds in found if seconds is not None)
        times[name] = [t and least * (t / least) ** strength for t in found]
    return Replay(Space(tuple(homes)), times)


def _cost(draw: np.random.Generator, floor: float) -> Callable[..., float | None]:
    best_q, best_k = draw.uniform(0, 4, 2)
    twist, scaling, spread = (
        draw.uniform(-0.3, 0.3),
        draw.uniform(0.3, 1.0),
        draw.uniform(-0.2, 0.2),
    )

    def cost(tile_q: int, tile_k: int, threads: int, placement: int) -> float | None:
        if tile_q + tile_k == 8 and placement == 2:
            return None
        off_q, off_k = tile_q - best_q, tile_k - best_k
        bowl = 0.08 * off_q**2 + 0.06 * off_k**2 + 0.08 * twist * off_q * off_k
        parallel = -scaling * math.log(2) * threads + 0.05 * threads**2
        pinned = spread * threads / 3 * (placement == 2) - 0.03 * (placement == 1)
        return float(floor * math.exp(bowl + parallel + pinned + draw.normal(0, 0.01)))

    return cost
