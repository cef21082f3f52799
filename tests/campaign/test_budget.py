"""Reading a budget, and sharing it."""

from __future__ import annotations

import pytest

from autotune.campaign.budget import Expected, Shares, parse_budget
from autotune.campaign.session import Settings
from autotune.errors import UserError


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("60s", 60.0), ("5m", 300.0), ("1.5h", 5400.0), ("90", 90.0), ("2 min", 120.0), (3, 3.0)],
)
def test_budgets(text: str | int, seconds: float) -> None:
    assert parse_budget(text) == seconds


@pytest.mark.parametrize("text", ["", "fast", "-1s", "0", "inf", "nan", 0, -3, "1d"])
def test_budgets_that_make_no_sense(text: str | int) -> None:
    with pytest.raises(UserError, match="budget"):
        parse_budget(text)


def test_each_problem_searches_for_its_part_of_what_fixed_costs_leave() -> None:
    shares = Shares([Expected(2.0, 1.0), Expected(4.0, 1.0), Expected(1.0, 2.0)])
    assert shares.share(0, 28.0) == pytest.approx(2.0 + (26.0 - 6.0) / 4)
    assert shares.searching(0, 26.0, 2.0) == pytest.approx(20.0 / 4)
    assert shares.share(1, 20.2) == pytest.approx(4.0 + 15.0 / 3)
    assert shares.share(2, 12.0) == 12.0
    assert shares.searching(2, 10.0, 2.0) == 10.0


def test_too_little_for_the_fixed_costs_is_shared_by_them() -> None:
    shares = Shares([Expected(2.0, 1.0), Expected(4.0, 1.0)])
    assert shares.share(0, 3.0) == 1.0
    assert shares.searching(0, 3.0, 2.0) == 0.0
    assert shares.share(1, -1.0) == 0.0


@pytest.mark.parametrize(
    ("spent", "usual"),
    [
        ([], 2.0),
        ([4.0] * 8, 4.0),
        ([1.0] * 8, 1.0),
        ([300.0, *[2.0] * 8], 2.0),
        ([2.0, 2.0, 2.0, 300.0, 2.0, 2.0], 2.0),
    ],
)
def test_what_problems_cost_is_learned_and_one_outlier_changes_little(
    spent: list[float], usual: float
) -> None:
    shares = Shares([Expected(2.0, 1.0)] * 20)
    for seconds in spent:
        shares.learn(0, seconds)
    # A tenth of what is left when the others' fixed costs are set aside, with some caution.
    aside = 1000.0 - 10.0 * shares.searching(10, 1000.0, usual)
    assert aside / 9 == pytest.approx(1.2 * usual, rel=0.3)


@pytest.mark.parametrize(
    ("has", "expected", "limit"),
    [(2.0, 0.0, 30.0), (45.0, 0.0, 45.0), (600.0, 0.0, 60.0), (2.0, 0.5, 280.0)],
)
def test_a_candidate_may_take_what_the_budget_and_its_prediction_give(
    has: float, expected: float, limit: float
) -> None:
    assert Settings().candidate_seconds(has, expected) == limit


@pytest.mark.parametrize(
    ("share", "fixed", "left", "race"),
    [
        (20.0, 5.0, 0.0, 6.0),
        (40.0, 36.0, 0.0, 2.0),
        (40.0, 50.0, 0.0, 0.3),
        (100.0, 5.0, 80.0, 60.0),
    ],
)
def test_a_race_takes_half_of_what_fixed_costs_leave_at_most(
    share: float, fixed: float, left: float, race: float
) -> None:
    assert Settings().race_seconds(share, fixed=fixed, left=left) == race
