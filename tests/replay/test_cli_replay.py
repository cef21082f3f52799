"""`autotune replay` and `autotune export --recording`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from command_line import Run
from tables import ABOUT, ROWS, write


def test_it_tells_ratio_evaluations_and_own_time(run: Run, tmp_path: Path) -> None:
    shown = run("replay", write(tmp_path), "--budget", 6, "--seeds", 2)
    assert shown.code == 0
    assert "model, 2 seeds: best found over optimum" in shown.flat
    assert "toy" in shown.out
    assert "1.000" in shown.out
    assert "own time" in shown.flat
    assert "toy: 4 admissible configs not recorded" in shown.flat
    assert "autotune: toy: 6 configs" in shown.err


def test_the_document_has_every_curve(run: Run, tmp_path: Path) -> None:
    (tmp_path / "two").mkdir()
    write(tmp_path)
    write(tmp_path / "two")
    shown = run("replay", tmp_path, tmp_path / "two" / "toy.csv", "--budget", 30, "--json")
    document = shown.document
    assert document["method"] == "model"
    assert document["geometric_mean"] == {"10": 1.0, "25": 1.0, "30": 1.0}
    assert [each["name"] for each in document["recordings"]] == ["toy", "toy"]
    first = document["recordings"][0]
    assert (first["configs"], first["failed"], first["missing"]) == (6, 2, 4)
    assert len(first["seeds"]) == 5
    assert first["seeds"][0]["over_optimum"][-1] == 1.0


def test_a_file_that_cannot_be_read_is_named_and_the_others_are_searched(
    run: Run, tmp_path: Path
) -> None:
    write(tmp_path)
    index = json.loads((tmp_path / "index.json").read_text())
    index |= {"bad": {**index["toy"], "file": "bad.csv"}}
    (tmp_path / "index.json").write_text(json.dumps(index))
    (tmp_path / "bad.csv").write_text("depth,status,time_ms\n1,ok,soon\n")
    gone = tmp_path / "gone.csv"
    shown = run("replay", tmp_path, gone, "--budget", 6, "--seeds", 1, "--json")
    assert shown.code == 0
    assert [each["name"] for each in shown.document["recordings"]] == ["toy"]
    named = [line for line in shown.err.splitlines() if "left out: " in line]
    assert [("bad.csv" in line, "gone.csv" in line) for line in named] == [
        (True, False),
        (False, True),
    ]
    assert len(shown.document["left_out"]) == 2
    (tmp_path / "toy.csv").unlink()
    refused = run("replay", tmp_path, gone)
    assert refused.code == 2
    assert all(name in refused.err for name in ("toy.csv", "bad.csv", "gone.csv"))


def test_a_folder_without_recordings_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "index.json").write_text("{}")
    refused = run("replay", tmp_path)
    assert refused.code == 2
    assert "names no recording" in refused.err


def test_where_nothing_ran_there_is_no_ratio(run: Run, tmp_path: Path) -> None:
    rows = ["1,0,a,compile,", "2,0,a,compile,", "4,0,a,runtime,", "4,1,a,ok,1.0"]
    shown = run("replay", write(tmp_path, rows), "--budget", 1, "--seeds", 1)
    assert shown.code == 0
    assert "none ran" in shown.out
    document = run("replay", tmp_path, "--budget", 1, "--seeds", 1, "--json").document
    assert document["recordings"][0]["over_optimum"] == {"1": None}


@pytest.mark.parametrize("method", ["tpe", "random"])
def test_other_strategies(run: Run, tmp_path: Path, method: str) -> None:
    shown = run("replay", write(tmp_path), "--strategy", method, "--seeds", 1)
    assert f"{method}, 1 seed" in shown.flat


def test_winners_from_elsewhere(run: Run, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = write(tmp_path / "other", ["4,1,b,ok,1.5", "2,1,b,ok,1.0", "1,0,a,ok,3.0"])
    table = write(tmp_path)
    shown = run("replay", table, "--from", other, "--budget", 3, "--json")
    assert shown.document["recordings"][0]["over_optimum"] == {"3": 1.0}
    stranger = write(tmp_path / "other", ["1,ok,1.5"], header="depth,status,time_ms", about=None)
    (tmp_path / "other" / "index.json").unlink()
    refused = run("replay", table, "--from", stranger)
    assert refused.code == 2
    assert "toy has none of the configs that are fastest in toy" in refused.err


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--strategy", "annealing"), "unknown strategy 'annealing'"),
        (("--budget", "0"), "--budget"),
        (("--seeds", "x"), "--seeds"),
    ],
)
def test_a_mistake_is_one_sentence(
    run: Run, tmp_path: Path, words: tuple[str, ...], what: str
) -> None:
    refused = run("replay", write(tmp_path), *words)
    assert refused.code == 2
    assert what in refused.err
    assert refused.err.count("\n") == 1


def test_a_wrong_file_is_one_sentence_with_its_line(run: Run, tmp_path: Path) -> None:
    refused = run("replay", write(tmp_path, [*ROWS, "1,0,a,ok,nan"], about=ABOUT))
    assert refused.code == 2
    assert refused.err == f"autotune: {tmp_path}/toy.csv, line 8: the same config as in line 2.\n"


def test_nothing_measured_is_no_recording(run: Run, tmp_path: Path) -> None:
    refused = run("export", tmp_path / "new", "--recording")
    assert refused.code != 0
    assert refused.err.count("\n") == 1
    both = run("export", tmp_path / "new", "--recording", "--shipped")
    assert (both.code, both.err) == (
        2,
        "autotune: export takes either --shipped or --recording.\n",
    )
