"""`autotune tune`, with a toy operation and the real measuring process."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from command_line import Run
from filled import PLUGIN

from autotune import dispatch
from autotune.serving import refresh
from autotune.store import open_tuning_db

DOOMED = PLUGIN.with_name("toy_doomed.py")
ENTRY = "import sys; from autotune.cli import main; sys.exit(main())"
TUNE = [sys.executable, "-c", ENTRY, "tune", "toy_scale", "--plugin", str(PLUGIN)]


def test_a_winner_is_found_shown_and_served(run: Run, toy: str) -> None:
    ended = run("tune", "toy_scale", "--shape", 4096, "--budget", "2s", "--trials", 6)
    assert ended.code == 0
    assert "toy_scale float32 cold cache" in ended.flat
    assert "plain NumPy" in ended.out
    assert "toy_scale/broken failed: raised RuntimeError: this one never works" in ended.flat
    assert "toy_scale/halves wrong: y has 2048 of 4096 elements unwritten" in ended.flat
    assert "noisy" not in ended.flat  # a variant for another dtype is no loss
    assert "kernel = dispatch('toy_scale', (4096,), dtype='float32')" in ended.out
    assert "[1/1] toy_scale N=4096 float32:" in ended.err
    assert "\x1b" not in ended.out + ended.err
    (entry,) = run("show", "--json").document
    assert entry["state"] == "fresh"
    assert entry["compile_seconds"] is not None
    assert {(each["variant"], each["status"]) for each in entry["out"]} == {
        ("broken", "failed"),
        ("halves", "wrong"),
    }
    refresh()
    kernel = dispatch("toy_scale", (4096,))
    assert (kernel.variant, kernel.origin) == (entry["winner"]["variant"], "tuned")


def test_json_is_one_document_even_with_a_variant_that_prints(tmp_path: Path) -> None:
    done = subprocess.run(
        [*TUNE, "--shape", "64", "--dtype", "float64", "--budget", "2s", "--json"],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    (problem,) = json.loads(done.stdout)["problems"]
    assert problem["winner"]["seconds"] > 0
    assert problem["tried"] >= 5
    assert problem["failed"] == 1
    assert problem["wrong"] == 1
    assert "noisy" in _measured("toy_scale")


def _measured(operation: str) -> list[str]:
    with open_tuning_db(readonly=True) as store:
        rows = store.trials(operation=operation)
    return [row.variant for row in rows if row.samples]


def test_when_everything_fails_the_code_is_3_and_nothing_wins(run: Run) -> None:
    words = ("tune", "toy_doomed", "--shape", 8, "--budget", "2s", "--plugin", DOOMED)
    ended = run(*words, "--json")
    assert ended.code == 3
    assert "no candidate could be measured for toy_doomed" in ended.err
    (problem,) = ended.document["problems"]
    assert problem["winner"] is None
    assert {(each["variant"], each["status"]) for each in problem["failures"]} == {
        ("first", "failed"),
        ("second", "wrong"),
    }
    (entry,) = run("show", "toy_doomed", "--json").document
    assert entry["winner"] is None
    shown = run("show", "toy_doomed")
    assert "first failed: raised ValueError: the first never works" in shown.flat


def test_ctrl_c_is_130_and_says_what_was_kept(private_home: Path) -> None:
    process = subprocess.Popen(
        [*TUNE, "--shape", "8:1048576", "--budget", "40s"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    for line in process.stderr:
        if line.startswith("[2/"):
            break
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert out == ""
    assert "Traceback" not in err
    told = re.search(
        r"kept (\d+) measurements and the policies of (\d) of 18", err.splitlines()[-1]
    )
    assert told is not None
    assert int(told[1]) >= 4
    assert int(told[2]) in (1, 2)  # 1: the signal came before the campaign had counted the second
    assert len(_measured("toy_scale")) >= 2


def test_a_plan_gives_problems_and_settings_and_options_win(run: Run, tmp_path: Path) -> None:
    plan = tmp_path / "my.toml"
    plan.write_text(
        '[settings]\nbudget = "1h"\nmode = "hot"\ntrials = 1\n'
        '[[problem]]\noperation = "toy_scale"\nshape = "64:128"\n'
        '[[problem]]\noperation = "toy_scale"\nshape = [64]\nreverse = true\n'
    )
    words = ("tune", "--plan", plan, "--plugin", PLUGIN, "--budget", "1s", "--json")
    document = run(*words).document
    assert document["mode"] == "hot"
    assert [p["problem"]["dims"]["N"] for p in document["problems"]] == [64, 128, 64]
    assert [p["problem"]["flags"]["reverse"] for p in document["problems"]] == [False, False, True]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--device", "h200"], "no device 'h200' on this machine"),
        (["--shape", "8"], "need an operation"),
        (["toy_scale"], "--shape N=..."),
        (["toy_scale", "--shape", "8", "--plan", "x.toml"], "not both"),
        (["toy_scale", "--shape", "8", "--budget", "soon"], "60s, 5m or 1h"),
        (["toy_scale", "--shape", "8", "--budget", "-3s"], "60s, 5m or 1h"),
        (["toy_scale", "--shape", "8", "--mode", "warm"], "unknown mode 'warm'"),
        (["toy_scale", "--shape", "8", "--trials", "0"], "at least 1"),
        (["toy_scale", "--shape", "8", "--trials", "few"], "--trials"),
        (["toy_scale", "--shape", "N=8:"], "8:"),
        (["toy_scale", "--shape", "N=8:4"], "empty"),
        (["toy_scale", "--shape", "N=0:4"], "no end"),
        (["toy_scale", "--shape", "N=8,N=9"], "twice"),
        (["toy_scal", "--shape", "8"], "did you mean 'toy_scale'"),
        (["--plan", "/nowhere.toml"], "/nowhere.toml"),
    ],
)
def test_a_mistake_costs_one_sentence(run: Run, toy: str, words: list[str], told: str) -> None:
    ended = run("tune", *words)
    assert ended.code == 2
    assert ended.out == ""
    assert told in ended.err
    assert len(ended.err.splitlines()) == 1


def test_a_dtype_that_no_variant_is_made_for_is_a_mistake(run: Run) -> None:
    ended = run("tune", "attention", "--shape", "1x1x8x8", "--dtype", "float16")
    assert ended.code == 2
    assert ended.err.count("\n") == 1
    assert "No variant of attention is made for float16 on a CPU" in ended.err
