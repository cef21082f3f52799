"""Recordings as they are read: tables, their index, and what is wrong with them."""

from __future__ import annotations

import gzip
import json
import math
from pathlib import Path
from typing import Any

import pytest
from tables import ABOUT, HEADER, ROWS, write

from autotune.errors import UserError
from autotune.model.problem import Candidate, Config
from autotune.replay import Recording, read_recordings


def read(path: Path) -> Recording:
    (found,) = read_recordings(path)
    return found


def seconds(recording: Recording, **config: Any) -> float | None:
    return recording.answer(Candidate("recorded", Config(config)))


def test_a_table_with_an_index(tmp_path: Path) -> None:
    found = read(write(tmp_path))
    assert (found.name, found.device, len(found), found.failed) == ("toy", "a card", 6, 2)
    assert found.best == pytest.approx(1e-3)
    assert seconds(found, tile=2, unroll=1, kind="b") == pytest.approx(2e-3)
    assert seconds(found, tile=4, unroll=0, kind="b") is None
    ordered = {axis.name: axis.ordered for axis in found.space.variants[0].axes}
    assert ordered == {"tile": True, "unroll": False, "kind": False}
    assert found.missing == 4
    assert found.fastest(2)[0].config == {"tile": 4, "unroll": 1, "kind": "b"}


def test_a_table_alone_a_folder_and_compressed(tmp_path: Path) -> None:
    table = write(tmp_path)
    (one,) = read_recordings(tmp_path)
    assert one.name == "toy"
    assert len(read(tmp_path / "index.json")) == 6
    alone = tmp_path / "alone.csv.gz"
    alone.write_bytes(gzip.compress(table.read_bytes()))
    found = read(alone)
    assert (found.name, len(found), found.missing) == ("alone", 6, 0)
    assert seconds(found, tile=1, unroll=0, kind="a") == pytest.approx(4e-3)


def test_a_config_that_was_not_recorded_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"toy has no config tile=1 unroll=1 kind=b"):
        seconds(read(write(tmp_path)), tile=1, unroll=1, kind="b")


@pytest.mark.parametrize(
    ("row", "what"),
    [
        ("1,0,a,ok,4.0", "line 8: the same config as in line 2"),
        ("4,1,a,ok,nan", "line 8: nan ms is no time"),
        ("4,1,a,ok,inf", "line 8: inf ms is no time"),
        ("4,1,a,ok,-1", "line 8: -1 ms is no time"),
        ("4,1,a,ok,0", "line 8: 0 ms is no time"),
        ("4,1,a,ok,", "line 8: '' is no time"),
        ("4,1,a,fine,1", "line 8: status 'fine'"),
        ("4,1,a,ok", "line 8: 4 cells under 5 columns"),
        ("4,1,c,ok,1", "line 8: kind has no value 'c'"),
        ("3,1,a,ok,1", "line 8: tile has no value '3'"),
        ("1,0,b,ok,1", "line 8: breaks the constraint \"kind == 'a'"),
    ],
)
def test_a_wrong_line_is_named(tmp_path: Path, row: str, what: str) -> None:
    table = write(tmp_path, [*ROWS, row])
    with pytest.raises(UserError) as caught:
        read(table)
    assert f"{table}, {what}" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("header", "rows", "what"),
    [
        ("tile,unroll,kind,status", ROWS, "line 1: the column 'time_ms' is missing"),
        ("tile,unroll,kind,state,time_ms", ROWS, "line 1: the column 'status' is missing"),
        ("tile,kind,status,time_ms", ["1,a,ok,4.0"], "line 1: the column 'unroll' is missing"),
        ("tile,tile,kind,status,time_ms", ROWS, "line 1: two columns are named 'tile'"),
        ("tile,unroll,other,status,time_ms", ROWS, "line 1: the column 'other' is not among"),
        (HEADER, [], "line 1: no config follows"),
        (HEADER, ["1,0,a,compile,"], "line 2: no config has a time"),
    ],
)
def test_a_wrong_table_is_named(tmp_path: Path, header: str, rows: list[str], what: str) -> None:
    table = write(tmp_path, rows, header=header)
    with pytest.raises(UserError) as caught:
        read(table)
    assert f"{table}, {what}" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"params": {**ABOUT["params"], "tile": []}}, "the tunable 'tile' has no value"),
        (
            {"params": {**ABOUT["params"], "tile": [1, 2, 4, 4.0]}},
            "two values of the tunable 'tile' are the same, 4 and 4.0",
        ),
        (
            {"params": {**ABOUT["params"], "unroll": [0, False]}},
            "two values of the tunable 'unroll' are the same, 0 and False",
        ),
        (
            {"params": {**ABOUT["params"], "kind": ["a", "b", None]}},
            "the tunable 'kind' has the value None",
        ),
        ({"params": [1]}, "'params' is no mapping"),
        ({"constraints": "tile > 1"}, "'constraints' is no list"),
        ({"constraints": ["tile > 9"]}, "line 2: breaks the constraint 'tile > 9'"),
        ({"constraints": ["open('x')"]}, "may call only"),
        ({"constraints": ["tile < depth"]}, "names 'depth', which is no param"),
        ({"constraints": ["tile / unroll > 0"]}, "breaks the constraint 'tile / unroll > 0'"),
    ],
)
def test_a_wrong_index_is_named(tmp_path: Path, change: dict[str, Any], what: str) -> None:
    write(tmp_path, about={**ABOUT, **change})
    with pytest.raises(UserError, match="toy") as caught:
        read_recordings(tmp_path)
    assert what in str(caught.value)
    assert "\n" not in str(caught.value)


def test_one_value_and_mixed_types_are_handled(tmp_path: Path) -> None:
    rows = ["1,auto,ok,3.0", "1,2,ok,2.0", "1,4,ok,1.0"]
    found = read(write(tmp_path, rows, header="one,mixed,status,time_ms", about=None))
    axes = {axis.name: (axis.values, axis.ordered) for axis in found.space.variants[0].axes}
    assert axes == {"one": ((1,), False), "mixed": (("auto", "2", "4"), False)}
    about = {"file": "toy.csv", "params": {"one": [1], "mixed": ["auto", 2, 4]}}
    found = read(write(tmp_path, rows, header="one,mixed,status,time_ms", about=about))
    assert seconds(found, one=1, mixed=4) == pytest.approx(1e-3)


def test_variants_with_tunables_of_their_own(tmp_path: Path) -> None:
    about = {
        "file": "toy.csv",
        "params": {"tile": [8, 16], "split": [1, 2]},
        "variants": {"tiled": ["tile"], "split": ["tile", "split"], "plain": []},
        "defaults": {"tiled": {"tile": 16}},
        "ordered": {"tile": True},
    }
    rows = ["plain,,,ok,9", "tiled,8,,ok,3", "tiled,16,,ok,2", "split,8,1,ok,4", "split,8,2,ok,1"]
    found = read(write(tmp_path, rows, header="variant,tile,split,status,time_ms", about=about))
    sizes = {home.variant: len(home) for home in found.space.variants}
    assert sizes == {"plain": 1, "tiled": 2, "split": 2}
    tiled = found.space.variant("tiled")
    assert tiled is not None
    assert tiled.candidate(tiled.default).config == {"tile": 16}
    assert found.answer(Candidate("split", Config(tile=8, split=2))) == pytest.approx(1e-3)
    with pytest.raises(UserError, match=r"line 2: no variant 'other'"):
        read(
            write(
                tmp_path, ["other,,,ok,9"], header="variant,tile,split,status,time_ms", about=about
            )
        )


@pytest.mark.parametrize("name", ["gone.csv", "gone.json", "gone.txt", "gone"])
def test_a_file_that_is_none_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match="gone"):
        read_recordings(tmp_path / name)


def test_a_folder_without_an_index_and_broken_files(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no index"):
        read_recordings(tmp_path)
    (tmp_path / "cut.csv.gz").write_bytes(gzip.compress(b"a,status,time_ms\n" * 99)[:30])
    with pytest.raises(UserError, match=r"cannot read the recording .*cut"):
        read_recordings(tmp_path / "cut.csv.gz")
    (tmp_path / "bad.json").write_text('{"cache":\n [}')
    with pytest.raises(UserError, match=r"bad.json, line 2: no JSON"):
        read_recordings(tmp_path / "bad.json")
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(UserError, match="neither 'results'"):
        read_recordings(tmp_path / "other.json")


def result(time: object, **config: object) -> dict[str, Any]:
    measured = [{"name": "time", "value": time, "unit": "ms"}]
    return {"configuration": config, "invalidity": "correct", "measurements": measured}


def test_results_in_the_t4_format(tmp_path: Path) -> None:
    results = [
        result(2.0, x=1, kind="a"),
        result(1.0, x=2, kind="a"),
        {"configuration": {"x": 4, "kind": "a"}, "invalidity": "compile"},
        {"configuration": {"x": 8, "kind": "a"}, "invalidity": "constraints"},
    ]
    path = tmp_path / "t4.json"
    path.write_text(json.dumps({"results": results, "schema_version": "1.0.0"}))
    found = read(path)
    assert (len(found), found.failed, found.best) == (3, 1, pytest.approx(1e-3))
    path.write_text(json.dumps({"results": [*results, result(3.0, x=1, kind="a")]}))
    with pytest.raises(UserError, match="result 5: the same config as in result 1"):
        read(path)
    path.write_text(json.dumps({"results": [*results, result(math.inf, x=9, kind="a")]}))
    with pytest.raises(UserError, match="result 5: inf is no time"):
        read(path)
    path.write_text(json.dumps({"results": [*results, result(1.0, x=9)]}))
    with pytest.raises(UserError, match="result 5: its tunables are not x, kind"):
        read(path)


def cache(**entries: object) -> dict[str, Any]:
    return {
        "device_name": "a card",
        "kernel_name": "toy",
        "tune_params_keys": ["x", "y"],
        "tune_params": {"x": [1, 2, 4], "y": [0, 1]},
        "objective": "time",
        "cache": entries,
    }


def test_a_cache_of_kernel_tuner_complete_or_open(tmp_path: Path) -> None:
    entries = {
        "1,0": {"x": 1, "y": 0, "time": 2.0},
        "2,0": {"x": 2, "y": 0, "time": 1.5},
        "4,0": {"x": 4, "y": 0, "time": "RuntimeFailedConfig"},
        "4,1": {"x": 4, "y": 1, "__error__": "CompilationFailedConfig"},
        "1,1": {"x": 1, "y": 1, "time": "InvalidConfig"},
    }
    path = tmp_path / "cache.json"
    whole = json.dumps(cache(**entries))
    path.write_text(whole)
    found = read(path)
    assert (len(found), found.failed, found.device) == (4, 2, "a card")
    assert found.best == pytest.approx(1.5e-3)
    path.write_text(whole[:-2] + ",")
    assert len(read(path)) == 4
    path.write_text(json.dumps(cache(**{"1,0": {"x": 1, "time": 2.0}})))
    with pytest.raises(UserError, match="entry '1,0': the value of a tunable is missing"):
        read(path)
    path.write_text(json.dumps(cache(**{"1,0": {"x": 1, "y": 0}})))
    with pytest.raises(UserError, match="entry '1,0': 'time' is missing"):
        read(path)


def test_the_recordings_of_others(shared: Path) -> None:
    found = {each.name: each for each in read_recordings(shared / "search_spaces")}
    index = json.loads((shared / "search_spaces" / "index.json").read_text())
    assert found.keys() == index.keys()
    for name, about in index.items():
        assert len(found[name]) == about["legal"]
        assert found[name].failed == about["legal"] - about["ok"]
        assert found[name].best == pytest.approx(about["best_ms"] / 1e3)
        assert found[name].missing == 0
