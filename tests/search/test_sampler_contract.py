"""What every way of proposing must keep, whoever's sampler is behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice

import numpy as np
import pytest
from search_spaces import conditional, grid

from autotune.model.problem import Candidate
from autotune.search import METHODS, Search, Space, Strategy, VariantSpace

Answer = Callable[[Candidate], float | None]


def holed() -> Space:
    """A flat space of which constraints admit a third."""
    whole = grid(
        "flat",
        (0, 0, 0),
        tile=(True, (1, 2, 4, 8, 16)),
        unroll=(True, (1, 2, 3, 4)),
        kind=(False, ("a", "b", "c")),
    )
    points = whole.points[(whole.points.sum(axis=1) % 3) == 0]
    return Space((VariantSpace("flat", whole.axes, points),))


def several() -> Space:
    """Variants with tunables of their own, one with none."""
    return Space(
        (
            grid("tiled", (1, 0), tile=(True, (8, 16, 32)), threads=(True, (1, 2, 4))),
            grid("plain", ()),
            grid("placed", (0, 0), placement=(False, ("free", "spread")), threads=(True, (1, 2))),
        )
    )


SPACES = {"holed": holed, "several": several}


@pytest.fixture(params=METHODS)
def strategy(request: pytest.FixtureRequest) -> Strategy:
    return Strategy(method=request.param, endless=True)


@pytest.fixture(params=SPACES)
def space(request: pytest.FixtureRequest) -> Space:
    return SPACES[request.param]()


def proposals(search: Search, answer: Answer) -> Iterator[Candidate]:
    """Each is told of before the next is asked for."""
    while (candidate := search.ask()) is not None:
        yield candidate
        search.tell(candidate, answer(candidate))


def seconds(candidate: Candidate) -> float | None:
    """Some time; every fifth fails."""
    value = sum(map(ord, str(candidate))) % 97
    return None if value % 5 == 0 else 1.0 + value


def failing(candidate: Candidate) -> float | None:
    return None


@pytest.mark.parametrize("answer", [seconds, failing])
def test_all_are_in_the_space_none_comes_twice_and_it_ends(
    space: Space, strategy: Strategy, answer: Answer
) -> None:
    asked = list(proposals(Search(space, strategy=strategy), answer))
    assert all(candidate in space for candidate in asked)
    assert len(asked) == len(set(asked)) == len(space)


def test_the_same_seed_proposes_the_same(space: Space, strategy: Strategy) -> None:
    runs = [list(proposals(Search(space, seed=7, strategy=strategy), seconds)) for _ in range(2)]
    assert runs[0] == runs[1]


def test_another_seed_proposes_another_order(strategy: Strategy) -> None:
    space = conditional(0, variants=2).space
    orders = [
        list(islice(proposals(Search(space, seed=seed, strategy=strategy), seconds), 12))
        for seed in (1, 2)
    ]
    assert orders[0] != orders[1]


def test_many_may_be_pending(space: Space, strategy: Strategy) -> None:
    search = Search(space, strategy=strategy)
    waiting: list[Candidate] = []
    asked: list[Candidate] = []
    while True:
        while len(waiting) < 5 and (candidate := search.ask()) is not None:
            waiting.append(candidate)
            asked.append(candidate)
        if not waiting:
            break
        done = waiting.pop(len(waiting) // 2)
        search.tell(done, seconds(done))
    assert len(asked) == len(set(asked)) == len(space)


def test_all_may_be_pending_before_anything_is_told(space: Space, strategy: Strategy) -> None:
    search = Search(space, strategy=strategy)
    asked = list(iter(search.ask, None))
    assert len(asked) == len(set(asked)) == len(space)


def test_what_was_told_unasked_is_not_proposed(space: Space, strategy: Strategy) -> None:
    home = space.variants[0]
    told = [home.candidate(row) for row in range(0, len(home), 2)]
    search = Search(space, strategy=strategy)
    for candidate in told:
        search.tell(candidate, seconds(candidate))
    asked = list(proposals(search, seconds))
    assert not set(asked) & set(told)
    assert len(asked) == len(space) - len(told)


def test_a_space_of_one_config(strategy: Strategy) -> None:
    space = Space((grid("only", ()),))
    assert len(list(proposals(Search(space, strategy=strategy), seconds))) == 1


def test_equal_times_and_huge_ones_do_no_harm(strategy: Strategy) -> None:
    space = holed()
    for answer in (lambda candidate: 1.0, lambda candidate: 1e300 ** (len(str(candidate)) % 2)):
        asked = list(proposals(Search(space, strategy=strategy), answer))
        assert len(asked) == len(space)


def test_of_a_batch_no_two_are_side_by_side_on_a_smooth_slope() -> None:
    """What is pending is believed to come out as expected, so that the rest is drawn elsewhere."""
    replay = conditional(3, variants=1, hopeless=0)
    search = Search(replay.space, seed=1)
    for _ in range(24):
        candidate = search.ask()
        assert candidate is not None
        search.tell(candidate, replay.seconds(candidate))
    batch = [search.ask() for _ in range(8)]
    home = replay.space.variants[0]
    rows = [home.row(candidate.config) for candidate in batch if candidate is not None]
    points = home.points[rows]
    steps = np.abs(points[:, None, :] - points[None]).sum(axis=2)
    assert len(np.unique(points[:, :2], axis=0)) >= 4
    assert np.median(steps[np.triu_indices(8, 1)]) >= 2
