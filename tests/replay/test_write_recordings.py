"""Campaigns as recordings: what is written is what was measured, and is read back."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from autotune.errors import UserError
from autotune.model.problem import Candidate, Config
from autotune.replay import read_recordings, replay
from autotune.replay.write import write_recordings
from autotune_tuning_db import ProblemKey, TrialRow

KEY = ProblemKey("rows", (("N", 4096),), "float32")
FIRST = TrialRow(
    campaign=1,
    problem=KEY,
    device="cpu-a",
    mode="cold",
    stage="search",
    variant="tiled",
    fingerprint="one",
    config={"tile": 64, "order": "rows"},
    status="ok",
    started="2026-11-30T00:00:00+00:00",
    samples=(2e-3, 3e-3, 4e-3),
    median=3e-3,
    low=2e-3,
    high=4e-3,
    compile_seconds=0.5,
    toolchain={},
    circumstances={},
    id=1,
)


def trials() -> Iterator[TrialRow]:
    yield FIRST
    yield replace(FIRST, id=2, variant="plain", config={}, median=5e-3)
    yield replace(FIRST, id=3, config={"tile": 8, "order": "rows"}, status="dropped", median=9e-3)
    failed = replace(FIRST, status="failed", samples=(), median=None, low=None, high=None)
    yield replace(failed, id=4, config={"tile": 16, "order": "rows"}, status="wrong")
    yield replace(failed, id=5, config={"tile": 32, "order": "columns"}, status="crashed")
    yield replace(FIRST, id=6, median=2e-3)
    yield replace(FIRST, id=7, stage="race", median=1e-3)
    yield replace(FIRST, id=8, mode="hot", median=1e-4)


def test_what_was_measured_is_read_back(tmp_path: Path) -> None:
    counts = write_recordings(trials(), tmp_path / "new")
    assert sorted(counts.values()) == [1, 5]
    cold, hot = read_recordings(tmp_path / "new")
    assert (len(cold), len(hot)) == (5, 1)
    assert cold.device == "cpu-a"
    assert cold.failed == 2
    assert cold.answer(Candidate("plain", Config())) == pytest.approx(5e-3)
    first = Config(FIRST.config)
    assert cold.answer(Candidate("tiled", first)) == pytest.approx(2e-3)
    assert cold.answer(Candidate("tiled", Config(tile=8, order="rows"))) == pytest.approx(9e-3)
    assert cold.answer(Candidate("tiled", Config(tile=16, order="rows"))) is None
    tiled = cold.space.variant("tiled")
    assert tiled is not None
    assert tiled.candidate(tiled.default).config == first
    assert replay(cold, budget=9, seeds=1).mean(9) == 1.0


def test_tunables_that_are_true_or_false_are_read_back(tmp_path: Path) -> None:
    yes, no = {"tile": 64, "fast_math": True}, {"tile": 64, "fast_math": False}
    rows = [replace(FIRST, config=yes), replace(FIRST, id=2, config=no, median=9e-3)]
    write_recordings(rows, tmp_path / "new")
    (found,) = read_recordings(tmp_path / "new")
    assert found.answer(Candidate("tiled", Config(yes))) == pytest.approx(3e-3)
    assert found.answer(Candidate("tiled", Config(no))) == pytest.approx(9e-3)
    (best,) = found.fastest(1)
    assert best.config["fast_math"] is True


def test_the_table_has_the_columns_of_a_recording(tmp_path: Path) -> None:
    write_recordings([FIRST], tmp_path / "new")
    index = json.loads((tmp_path / "new" / "index.json").read_text())
    ((name, about),) = index.items()
    assert name == "rows_N=4096_float32_packed__cpu-a__cold"
    assert about["variants"] == {"tiled": ["tile", "order"]}
    lines = (tmp_path / "new" / about["file"]).read_text().splitlines()
    assert lines == [
        "variant,tile,order,status,time_ms,std_ms,first_ms,compile_ms",
        "tiled,64,rows,ok,3.0,1.0,2.0,500.0",
    ]


def test_only_the_latest_sources_of_a_variant_count(tmp_path: Path) -> None:
    edited = replace(FIRST, id=9, fingerprint="two", config={"tile": 8, "order": "rows"})
    write_recordings([FIRST, edited], tmp_path / "new")
    (found,) = read_recordings(tmp_path / "new")
    assert len(found) == 1


def test_a_second_export_adds_to_the_folder(tmp_path: Path) -> None:
    write_recordings([FIRST], tmp_path / "new")
    write_recordings([replace(FIRST, device="cpu-b")], tmp_path / "new")
    assert [each.device for each in read_recordings(tmp_path / "new")] == ["cpu-a", "cpu-b"]


def test_a_place_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UserError, match="file is a file"):
        write_recordings([FIRST], tmp_path / "file")
    with pytest.raises(UserError, match="holds something else"):
        write_recordings([FIRST], tmp_path)
    with pytest.raises(UserError, match="does not exist; make it first"):
        write_recordings([FIRST], tmp_path / "a" / "b")
    assert (tmp_path / "file").read_text() == "mine"


def test_where_nothing_ran_there_is_nothing_to_write(tmp_path: Path) -> None:
    failed = replace(FIRST, status="failed", samples=(), median=None, low=None, high=None)
    with pytest.raises(UserError, match="no measured search"):
        write_recordings([failed], tmp_path / "new")
    assert not (tmp_path / "new").exists()
