"""How problems are written: what is read, and that what is written is read back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import autotune
from autotune.errors import ShapeError, UserError
from autotune.model import Problem
from autotune.spelling import (
    dispatch_call,
    parse_settings,
    parse_shapes,
    short_problem,
    short_shape,
    tune_command,
)


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        ("B=2,H=1,N=512:4096,D=64", [512, 1024, 2048, 4096]),
        ("2x1x512:3000x64", [512, 1024, 2048, 3000]),
        ("2, 1, 100:300:100, 64", [100, 200, 300]),
        ("B=2,H=1,N=100:250:100,D=64", [100, 200, 250]),
        ("B=2,H=1,N=7:7,D=64", [7]),
        ("B=2,H=1,N=0,D=64", [0]),
    ],
)
def test_ranges(text: str, sizes: list[int]) -> None:
    found = parse_shapes(autotune.attention, text)
    assert [each["Nq"] for each in found] == sizes
    assert all(each["B"] == 2 and each["D"] == each["Dv"] == 64 for each in found)


def test_ranges_multiply() -> None:
    assert len(parse_shapes(autotune.attention, "B=1:4,H=1,N=8:32,D=64")) == 9


@pytest.mark.parametrize("text", ["", "N", "B=1,4", "B=1,H=1,N=1.5,D=4", "B=1,H=1,N=-4,D=4", "1xx"])
def test_what_cannot_be_read(text: str) -> None:
    with pytest.raises(ShapeError):
        parse_shapes(autotune.attention, text)


@pytest.mark.parametrize(
    "text",
    [
        f"B=1,H=1,N={'9' * 5000},D=4",
        f"1x1x{'9' * 5000}x4",
        "B=1:100000000:1,H=1,N=8,D=4",
        "B=1:200:1,H=1:200:1,N=8,D=4",
        "1x" * 50_000 + "1",
    ],
)
def test_too_much_is_refused_in_a_sentence(text: str) -> None:
    with pytest.raises(ShapeError) as refused:
        parse_shapes(autotune.attention, text)
    assert len(str(refused.value)) < 300


def test_the_most_that_a_shape_may_stand_for() -> None:
    assert len(parse_shapes(autotune.attention, "B=1:100:1,H=1:100:1,N=8,D=4")) == 10_000


def test_digits_beyond_any_number_are_no_infinity() -> None:
    assert parse_settings((f"n={'9' * 5000}", "x=inf")) == {"n": "9" * 5000, "x": float("inf")}


def test_settings() -> None:
    given = parse_settings(("causal=true", "n=3", "x=0.5", "name=abc", "off=No"))
    assert given == {"causal": True, "n": 3, "x": 0.5, "name": "abc", "off": False}
    with pytest.raises(UserError):
        parse_settings(("causal",))
    with pytest.raises(UserError, match="the flag causal is given twice"):
        parse_settings(("causal=true", "causal = false"))


@given(
    st.fixed_dictionaries(
        {
            "B": st.integers(0, 3),
            "H": st.sampled_from([1, 2, 4]),
            "Hkv": st.sampled_from([1, 2, 4]),
            "Nq": st.integers(0, 3),
            "Nk": st.integers(0, 3),
            "D": st.integers(1, 3),
            "Dv": st.integers(1, 3),
        }
    )
)
def test_the_short_shape_is_read_back(sizes: dict[str, int]) -> None:
    attention = autotune.attention
    try:
        full = attention.complete(sizes)
    except ShapeError:
        return
    assert parse_shapes(attention, short_shape(attention, full)) == [full]


def test_problems_are_written_as_short_as_they_can_be() -> None:
    problem = Problem.of(autotune.attention, (2, 1, 2048, 64), "float64", causal=True)
    assert short_problem(problem) == "attention B=2,H=1,N=2048,D=64 float64 causal=True"
    command = (
        "autotune tune attention --shape B=2,H=1,N=2048,D=64 --dtype float64 --set causal=true"
    )
    assert tune_command(problem) == command
    assert tune_command(problem, mode="hot") == f"{command} --mode hot"


@pytest.mark.parametrize(
    "sizes",
    [
        {"B": 2, "H": 1, "N": 32, "D": 8},
        {"B": 2, "H": 4, "Hkv": 2, "N": 32, "D": 8},
        {"B": 1, "H": 1, "Nq": 1, "Nk": 32, "D": 8, "Dv": 4},
    ],
)
def test_the_line_of_python_serves_that_problem(sizes: dict[str, int]) -> None:
    problem = Problem.of(autotune.attention, sizes, "float64", causal=True)
    scope: dict[str, Any] = {"dispatch": autotune.dispatch}
    assert eval(dispatch_call(problem), scope).problem == problem
