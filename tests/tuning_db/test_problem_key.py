"""The canonical text of a problem: one spelling, read back exactly, everything in it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from autotune_tuning_db import LAYOUTS, ProblemKey

names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_.:\-]{0,8}", fullmatch=True)
scalars = st.one_of(st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=8))
keys = st.builds(
    ProblemKey,
    operation=names,
    dims=st.dictionaries(names, st.integers(0, 2**40), max_size=5).map(lambda d: tuple(d.items())),
    dtype=st.sampled_from(("float32", "float64", "float8_e4m3fn")),
    flags=st.dictionaries(names, scalars, max_size=4).map(lambda d: tuple(d.items())),
    layout=st.sampled_from(LAYOUTS),
)


@given(keys)
def test_text_reads_back_as_the_same_key(key: ProblemKey) -> None:
    again = ProblemKey.parse(key.text)
    assert again == key
    assert (again.operation, again.dims, again.dtype, again.layout) == (
        key.operation,
        key.dims,
        key.dtype,
        key.layout,
    )
    assert repr(again.flags) == repr(key.flags)
    assert "\n" not in key.text


@given(keys, keys)
def test_keys_with_one_text_are_equal_in_every_part(one: ProblemKey, other: ProblemKey) -> None:
    assert (one.text == other.text) == (repr(one) == repr(other))


def test_the_text_is_readable(problem: ProblemKey) -> None:
    assert problem.text == "attention B=2,H=1,N=512 float32 causal=False,scale=0.125 packed"
    assert ProblemKey("noop", (), "float64").text == "noop - float64 packed"


def test_flags_have_no_order_and_keep_their_type() -> None:
    dims = (("N", 8),)
    one = ProblemKey("op", dims, "float32", (("a", 1), ("b", True)))
    assert one == ProblemKey("op", dims, "float32", (("b", True), ("a", 1)))
    assert one != ProblemKey("op", dims, "float32", (("b", 1), ("a", 1)))
    assert one != ProblemKey("op", dims, "float32", (("b", True), ("a", 1.0)))
    assert len({one, ProblemKey("op", dims, "float32", (("a", True), ("b", 1)))}) == 2


def test_numpy_scalars_are_the_plain_values_they_hold() -> None:
    key = ProblemKey(
        "op", (("N", np.int64(8)),), "float32", (("c", np.bool_(True)), ("s", np.float64(0.5)))
    )
    assert key.text == "op N=8 float32 c=True,s=0.5 packed"


def test_dims_are_found(problem: ProblemKey) -> None:
    assert problem.dim("N") == 512
    with pytest.raises(KeyError):
        problem.dim("M")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"operation": "two words"}, "two words"),
        ({"dims": (("N", -1),)}, "N"),
        ({"dims": (("N", 1.5),)}, "N"),
        ({"dims": (("N", 1), ("N", 2))}, "twice"),
        ({"dtype": "<f4"}, "<f4"),
        ({"flags": (("scale", float("nan")),)}, "scale"),
        ({"flags": (("mask", None),)}, "mask"),
        ({"layout": "weird"}, "weird"),
    ],
)
def test_a_key_that_cannot_be_spelled_is_refused(changes: dict[str, object], named: str) -> None:
    good: dict[str, object] = {"operation": "op", "dims": (("N", 8),), "dtype": "float32"}
    with pytest.raises(ValueError, match=named):
        ProblemKey(**(good | changes))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "op N=8 float32",
        "op N=08 float32 packed",
        "op N=8 float32 b=1,a=1 packed",
        "op N=8 float32 a='%' packed",
        "op N=8,float32 packed",
        "op N=8 float32 a=nan packed",
        "op N=8 float32 a=1  packed",
    ],
)
def test_only_the_canonical_spelling_is_read(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        ProblemKey.parse(text)
