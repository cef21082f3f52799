"""What models see of candidates, and spaces that grow."""

from __future__ import annotations

import numpy as np
from search_spaces import grid

from autotune.search import Axis, Search, Space, Strategy, VariantSpace
from autotune.search.table import Table


def test_ordered_values_stand_at_their_rank_and_share_it_among_variants() -> None:
    space = Space(
        (
            grid("a", (0,), tile=(True, (1, 2, 4))),
            grid("b", (0,), tile=(True, (4, 8, 16))),
            grid("c", ()),
        )
    )
    table = Table(space)
    assert table.smooth[:, 0].tolist() == [0.0, 0.25, 0.5, 0.5, 0.75, 1.0, 0.5]
    assert table.steps[:, 0].tolist() == [0.0, 0.25, 0.5, 0.5, 0.75, 1.0, -1.0]
    assert table.groups.tolist() == [0, 1, 1, 1]
    apart = ((table.smooth[:, None] - table.smooth[None]) ** 2)[:, :, 1:].sum(axis=2)
    assert np.allclose(apart[0], [0, 0, 0, 1, 1, 1, 1])


def test_unordered_values_are_as_far_apart_as_the_ends_of_an_ordered_tunable() -> None:
    table = Table(Space((grid("a", (0, 0), kind=(False, ("x", "y", "z")), two=(False, (0, 1))),)))
    apart = ((table.smooth[:, None] - table.smooth[None]) ** 2).sum(axis=2)
    assert np.allclose(apart[0], [0, 1, 1, 2, 1, 2])
    assert table.groups.tolist() == [0, 0, 0, 1]


def test_what_divides_a_size_is_a_feature_where_the_rank_does_not_say_it() -> None:
    powers = Table(Space((grid("a", (0,), tile=(True, (1, 2, 4, 8))),)))
    assert powers.smooth.shape == (4, 1)
    steps = Table(Space((grid("a", (0,), block=(True, (32, 48, 64, 80, 128))),)))
    assert np.allclose(steps.smooth[:, 1], [5 / 7, 4 / 7, 6 / 7, 4 / 7, 1.0])
    assert steps.groups.tolist() == [0, 1]
    odd = Table(Space((grid("a", (0,), scale=(True, (0, 0.5, 1))),)))
    assert odd.smooth.shape == (3, 1)


def test_half_and_twice_a_value_are_neighbours() -> None:
    home = grid("a", (2,), block=(True, (16, 32, 48, 64, 80, 96)))
    near = [home.candidate(row).config["block"] for row in home.neighbours(2)]
    assert near == [64, 32, 96]


def large() -> Space:
    """A sample of a product of which half is admissible."""
    axes = tuple(Axis(name, tuple(range(10)), True) for name in "abcdef")
    points = np.random.default_rng(0).integers(0, 10, (400, 6)).astype(np.int32)

    def admits(points: np.ndarray) -> np.ndarray:
        kept: np.ndarray = points.sum(axis=1) % 2 == 0
        return kept

    points = np.unique(points[admits(points)], axis=0)
    return Space((VariantSpace("large", axes, points, 0, None, admits),))


def test_neighbours_of_a_sample_join_it_and_all_are_admissible() -> None:
    space = large()
    (home,) = space.variants
    before = len(home)
    near = home.neighbours(0)
    assert len(home) > before
    assert len(near) >= 6
    assert (home.points.sum(axis=1) % 2 == 0).all()
    assert ((home.points[near] != home.points[0]).sum(axis=1) == 1).all()
    assert len(np.unique(home.points, axis=0)) == len(home)
    odd = home.points[0].copy()
    odd[0] += 1 if odd[0] < 9 else -1
    assert home.place(odd.tolist()) is None


def test_a_search_over_a_sample_refines_beyond_it() -> None:
    space = large()
    (home,) = space.variants
    home.admits = lambda points: np.ones(len(points), dtype=bool)
    sampled = len(home)
    search = Search(space, strategy=Strategy(endless=True))
    best, asked = np.inf, set()
    for _ in range(120):
        candidate = search.ask()
        assert candidate is not None
        assert candidate not in asked
        asked.add(candidate)
        distance = sum((int(value) - 3) ** 2 for value in candidate.config.values())
        search.tell(candidate, 1.0 + 0.05 * distance)
        best = min(best, distance)
    assert len(home) > sampled
    assert best <= 2
    known = min(((home.points[:sampled] - 3) ** 2).sum(axis=1))
    assert best < known


def test_every_proposal_says_why() -> None:
    space = Space((grid("a", (0, 0), x=(True, tuple(range(9))), y=(True, tuple(range(9)))),))
    start = space.variants[0].candidate(40)
    search = Search(space, seeds=[start], strategy=Strategy(endless=True))
    origins = []
    for number in range(16):
        candidate = search.ask()
        assert candidate is not None
        origins.append(search.origin(candidate))
        search.tell(candidate, 1.0 + number % 5)
    assert origins[:2] == ["default", "transfer"]
    assert origins[2:8] == ["spread"] * 6
    assert origins[8:] == ["model", "model", "model", "neighbour"] * 2
    assert search.origin(space.variants[0].candidate(80)) in {None, *origins}
