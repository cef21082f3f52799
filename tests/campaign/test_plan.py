"""Plans: what a file may say, and what a mistake in it gets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import FakeDevice

from autotune.campaign.budget import parse_budget, share
from autotune.campaign.plan import default_plan, load_plan, parse_plan
from autotune.errors import ShapeError, UnknownNameError, UserError
from autotune.model import Operation, Problem
from autotune.model.operation import parse_tensors
from autotune.registry import Registry, registry


def reference(x: object, *, causal: bool) -> object:
    """A reference that is never run."""
    return x


@pytest.fixture(autouse=True)
def toy() -> Iterator[Operation]:
    operation = Operation(
        name="fake_rows",
        dims=("M", "N"),
        inputs=parse_tensors("x[M,N]"),
        outputs=parse_tensors("y[M,N]"),
        reference=reference,
        plain=reference,
        flags={"causal": False},
    )
    registry.add_operation(operation)
    yield operation
    registry._operations.pop("fake_rows")
    registry._variants.pop("fake_rows")


def test_a_plan_lists_all_combinations() -> None:
    plan = parse_plan("""
        [settings]
        budget = "5m"
        mode = "hot"
        trials = 40

        [[problem]]
        operation = "fake_rows"
        shape = "M=2,N=512:2048"
        dtype = ["float32", "float64"]

        [[problem]]
        operation = "fake_rows"
        dims = {M = [1, 3], N = "8:16"}
        causal = true

        [[problem]]
        operation = "fake_rows"
        shape = ["4x4", "5x5"]
        """)
    assert (plan.budget, plan.mode, plan.trials, plan.seed) == (300.0, "hot", 40, None)
    sizes = [(p.sizes["M"], p.sizes["N"], p.dtype, p.flags["causal"]) for p in plan.problems]
    assert sizes == [
        (2, 512, "float32", False),
        (2, 512, "float64", False),
        (2, 1024, "float32", False),
        (2, 1024, "float64", False),
        (2, 2048, "float32", False),
        (2, 2048, "float64", False),
        (1, 8, "float32", True),
        (1, 16, "float32", True),
        (3, 8, "float32", True),
        (3, 16, "float32", True),
        (4, 4, "float32", False),
        (5, 5, "float32", False),
    ]


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("[[problem]\n", UserError, "is not TOML: .*line 1"),
        ("", UserError, "has no"),
        ("[problem]\noperation='fake_rows'", UserError, "double brackets"),
        ("[[problems]]", UnknownNameError, "'problems'; did you mean 'problem'"),
        ("[[problem]]\nshape='2x2'", UserError, "lacks its operation"),
        ("[[problem]]\noperation='fake_row'", UnknownNameError, "did you mean 'fake_rows'"),
        (
            "[[problem]]\noperation='fake_rows'\nshapes='2x2'",
            UnknownNameError,
            "did you mean 'shape'",
        ),
        (
            "[[problem]]\noperation='fake_rows'\nshape='2x2'\ncasual=true",
            UnknownNameError,
            "did you mean 'causal'",
        ),
        (
            "[[problem]]\noperation='fake_rows'\nshape='2x2'\ncausal='no'",
            UserError,
            "true or false",
        ),
        ("[[problem]]\noperation='fake_rows'", ShapeError, "either shape or dims"),
        ("[[problem]]\noperation='fake_rows'\nshape='2x2x2'", ShapeError, "2 numbers"),
        ("[[problem]]\noperation='fake_rows'\nshape='2xfour'", ShapeError, "'four'"),
        ("[[problem]]\noperation='fake_rows'\ndims={M=2}", ShapeError, "also needs the dim N"),
        ("[[problem]]\noperation='fake_rows'\ndims={M=2,K=2,N=1}", UnknownNameError, "'K'"),
        ("[[problem]]\noperation='fake_rows'\ndims='2x2'", ShapeError, "table"),
        (
            "[[problem]]\noperation='fake_rows'\nshape='2x2'\ndtype='float23'",
            UnknownNameError,
            "float32",
        ),
        ("[settings]\nbudgett='1s'", UnknownNameError, "did you mean 'budget'"),
        (
            "[[problem]]\noperation='fake_rows'\nshape='2x2'\n[settings]\nmode='warm'",
            UserError,
            "mode",
        ),
        (
            "[[problem]]\noperation='fake_rows'\nshape='2x2'\n[settings]\nbudget='x'",
            UserError,
            "60s",
        ),
        (
            "[[problem]]\noperation='fake_rows'\nshape='2x2'\n[settings]\ntrials=0",
            UserError,
            "trials",
        ),
    ],
)
def test_a_mistake_gets_one_sentence(text: str, error: type[UserError], message: str) -> None:
    with pytest.raises(error, match=message) as caught:
        parse_plan(text)
    assert "\n" not in str(caught.value)


def test_a_plan_file_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="No such file"):
        load_plan(tmp_path / "absent.toml")
    (tmp_path / "binary.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="cannot read the plan"):
        load_plan(tmp_path / "binary.toml")


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


def test_plugins_propose_the_default_plan(toy: Operation, monkeypatch: pytest.MonkeyPatch) -> None:
    empty = Registry()
    monkeypatch.setattr("autotune.campaign.plan.registry", empty)
    with pytest.raises(UserError, match="no plugin proposes"):
        default_plan(FakeDevice())
    empty.add_proposal(lambda device: [Problem.of(toy, (2, 2)), Problem.of(toy, (2, 2))])
    assert default_plan(FakeDevice()).problems == (Problem.of(toy, (2, 2)),)
