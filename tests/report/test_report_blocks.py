"""Blocks as text, and documents as JSON."""

from __future__ import annotations

import json
from dataclasses import dataclass
from io import StringIO

import numpy as np
import pytest

from autotune.report.blocks import Facts, Heading, Table, Verbatim, render, to_text
from autotune.report.document import plain, to_json
from autotune_tuning_db import ProblemKey

LONG = "word " * 40


def test_paragraphs_wrap_and_keep_their_indentation() -> None:
    lines = to_text([f"    {LONG}"]).splitlines()
    assert len(lines) == 3
    assert all(line.startswith("    word") and len(line) <= 80 for line in lines)


def test_a_command_to_copy_is_never_wrapped() -> None:
    command = "autotune tune " + "x" * 100
    assert to_text([Verbatim(command)]) == command + "\n"


def test_markup_and_emoji_in_texts_are_left_alone() -> None:
    text = "[bold]x[/bold] :smile: [B,H,N,D] 'quoted' 12"
    assert to_text([text, Heading(text)]) == f"{text}\n{text}\n"


def test_facts_align_and_fold_long_values() -> None:
    lines = to_text([Facts((("a", "1"), ("longer", LONG), ("", "more")))]).splitlines()
    assert lines[0] == "  a       1"
    assert lines[-1] == "          more"
    assert max(map(len, lines)) <= 80


def test_numbers_are_right_aligned_and_never_folded() -> None:
    table = Table(("name", ">time"), (("a", "1.00 ms"), ("b" * 100, "12.0 us")))
    lines = to_text([table]).splitlines()
    assert lines[0].endswith("   time")
    assert lines[1].endswith("1.00 ms")
    assert "12.0 us" in lines[2]
    assert max(map(len, lines)) <= 80


def test_numbers_that_do_not_fit_come_closer_and_then_fold_but_lose_no_digit() -> None:
    numbers = ("1048576", "3.00 ms~", "4.65 (4.52 to 4.78)", "1.00", "1.00", "1.23 ms", "2.34 ms")
    titles = tuple(f">{title}" for title in ("N", "time", "exponent", "bytes", "flops", "a", "b"))
    close = to_text([Table((*titles, ">jumping"), ((*numbers, "12.5x~"),))])
    assert max(map(len, close.splitlines())) <= 80
    assert close.splitlines()[1].split() == [*" ".join(numbers).split(), "12.5x~"]
    row = (*numbers, *numbers)
    folded = to_text([Table((*titles, *titles), (row,))])
    assert max(map(len, folded.splitlines())) <= 80
    digits = sum(map(str.isdigit, "".join(row)))
    assert sum(map(str.isdigit, folded)) == digits


def test_empty_lines_stay_and_no_line_ends_in_spaces() -> None:
    assert to_text(["a", "", "b"]) == "a\n\nb\n"
    stream = StringIO()
    render([Table(("a", "b"), (("1", ""),))], stream)
    assert stream.getvalue() == "  a  b\n  1\n"


def test_documents_have_no_nan_and_no_odd_types() -> None:
    @dataclass
    class Row:
        key: ProblemKey
        value: float

    key = ProblemKey("op", (("N", 1),), "float32")
    document = {"rows": (Row(key, float("nan")), Row(key, 1.5)), "n": np.float32(2), 3: {2, 1}}
    assert plain(document) == {
        "rows": [
            {"key": "op N=1 float32 packed", "value": None},
            {"key": "op N=1 float32 packed", "value": 1.5},
        ],
        "n": 2.0,
        "3": [1, 2],
    }
    assert json.loads(to_json([float("inf"), float("-inf")])) == [None, None]


@pytest.mark.parametrize("value", [True, None, "x", 3])
def test_plain_values_stay(value: object) -> None:
    assert plain(value) is value
