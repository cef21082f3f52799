"""The search against spaces whose every time is known."""

from __future__ import annotations

import statistics
import subprocess
import sys

import pytest
from search_spaces import Replay, conditional, grid

from autotune.model.problem import Candidate, Config
from autotune.search import Search, Space, Strategy


@pytest.fixture
def replay() -> Replay:
    return conditional(0)


def test_every_proposal_is_in_the_space_and_none_comes_twice(replay: Replay) -> None:
    asked, _ = replay.run(0, budget=120, strategy=Strategy(endless=True))
    assert len(asked) == 120
    assert len(set(asked)) == 120


def test_the_default_of_every_variant_comes_first(replay: Replay) -> None:
    asked, _ = replay.run(0, budget=6)
    defaults = [home.candidate(home.default) for home in replay.space.variants]
    assert asked == defaults


def test_the_same_seed_gives_the_same_proposals_and_another_seed_others(replay: Replay) -> None:
    first, _ = replay.run(3, budget=40)
    again, _ = replay.run(3, budget=40)
    other, _ = replay.run(4, budget=40)
    assert first == again
    assert first != other


def test_a_small_space_is_tried_whole() -> None:
    space = Space(
        (
            grid("a", (0,), tile=(True, (1, 2, 4, 8))),
            grid("b", ()),
            grid("c", (1,), tile=(False, (1, 2))),
        )
    )
    search = Search(space)
    asked = []
    while (candidate := search.ask()) is not None:
        asked.append(candidate)
        search.tell(candidate, 100.0 if candidate.variant == "c" else 1.0 + len(asked))
    assert len(asked) == len(set(asked)) == len(space) == 7


def test_a_space_in_which_everything_fails_ends() -> None:
    space = conditional(1).space
    search = Search(space)
    asked = []
    while (candidate := search.ask()) is not None:
        asked.append(candidate)
        search.tell(candidate, None)
    assert {candidate.variant for candidate in asked} == {home.variant for home in space.variants}
    assert len(asked) == len(set(asked)) == 2 * len(space.variants) == 12


def test_hopeless_variants_get_little_more_than_their_default(replay: Replay) -> None:
    asked, _ = replay.run(0, budget=200)
    for name in ("variant0", "variant1"):
        assert sum(candidate.variant == name for candidate in asked) <= 5


def test_predictions_wait_for_what_the_defaults_take() -> None:
    replay = conditional(0)
    for home in replay.space.variants:
        home.predicted = home.default - 1
    search = Search(replay.space)
    flying = [search.ask() for _ in range(10)]  # as while all are being compiled
    assert [search.origin(each) for each in flying if each].count("default") == 6
    for each in flying:
        assert each is not None
        assert search.origin(each) != "prediction"
        search.tell(each, 10.0 if each.variant in ("variant0", "variant1") else 1.0)
    asked = [search.ask() for _ in range(6)]
    favoured = [each.variant for each in asked if each and search.origin(each) == "prediction"]
    assert favoured == ["variant2", "variant3", "variant4", "variant5"]


def test_seeds_follow_the_defaults_and_strangers_among_them_are_left_out(replay: Replay) -> None:
    good = Candidate("variant3", Config(tile_q=64, tile_k=64, threads=2, placement="free"))
    strangers = [
        Candidate("gone", Config()),
        Candidate("variant3", Config(tile_q=64)),
        Candidate("variant3", Config(tile_q=65, tile_k=64, threads=2, placement="free")),
    ]
    search = Search(replay.space, seeds=[*strangers, good])
    asked = []
    for _ in range(7):
        candidate = search.ask()
        assert candidate is not None
        asked.append(candidate)
        search.tell(candidate, 1.0)
    assert asked[6] == good


def test_what_was_told_before_is_not_asked_again(replay: Replay) -> None:
    before, _ = replay.run(0, budget=60)
    search = Search(replay.space, seed=0)
    for candidate in before:
        search.tell(candidate, replay.seconds(candidate))
    for _ in range(40):
        candidate = search.ask()
        if candidate is None:
            break
        assert candidate not in before
        search.tell(candidate, replay.seconds(candidate))


def test_a_stranger_told_is_ignored(replay: Replay) -> None:
    search = Search(replay.space)
    search.tell(Candidate("gone", Config()), 1e-9)
    assert search.ask() == replay.space.variants[0].candidate(replay.space.variants[0].default)


@pytest.mark.parametrize("strength", [1.0, 1.6])
def test_within_two_percent_of_the_best_with_a_third_of_the_evaluations(strength: float) -> None:
    misses = []
    for seed in range(2):
        replay = conditional(seed, strength=strength)
        _, best = replay.run(seed, budget=len(replay.space) // 3)
        misses.append(best / replay.optimum - 1)
    assert statistics.median(misses) <= 0.01
    assert max(misses) <= 0.02


def test_it_ends_early_when_nothing_gets_better(replay: Replay) -> None:
    asked, _ = replay.run(0, budget=10_000)
    assert len(asked) < len(replay.space) / 3


def test_importing_the_search_loads_no_optuna() -> None:
    code = "import autotune.search, sys; print('optuna' in sys.modules)"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "False"
