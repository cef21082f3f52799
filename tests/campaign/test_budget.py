"""Reading a budget, and sharing it."""

from __future__ import annotations

import pytest

from autotune.campaign.budget import parse_budget, share
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


def test_the_last_problem_gets_all_that_is_left() -> None:
    assert share(30.0, [1.0, 2.0, 3.0]) == 5.0
    assert share(7.0, [2.0]) == 7.0
    assert share(-1.0, [2.0]) == 0.0


@pytest.mark.parametrize(
    ("has", "expected", "limit"),
    [(2.0, 0.0, 30.0), (45.0, 0.0, 45.0), (600.0, 0.0, 60.0), (2.0, 0.5, 280.0)],
)
def test_a_candidate_may_take_what_the_budget_and_its_prediction_give(
    has: float, expected: float, limit: float
) -> None:
    assert Settings().candidate_seconds(has, expected) == limit
