"""`autotune accept` as a team's continuous integration runs it, with the real measuring process."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest
from accept_bench import PLUGIN, FakeWorker, candidate, keep, keep_policy, problem
from command_line import Run

from autotune import trials
from autotune.accept import subjects, tuned_problems
from autotune.device import local_cpu
from autotune.store import open_tuning_db

FAST = "[correctness]\nedge_shapes = false\n[performance]\nslowdown = 0.5\nseconds = 0.2\n"
NUMPY = ("--variant", "numpy")
TOY = ("accept", "toy_sum", "--plugin", PLUGIN, "--shape", "4x9")


@pytest.fixture
def thresholds(tmp_path: Path) -> Path:
    file = tmp_path / "acceptance.toml"
    file.write_text(FAST + "[memory]\nover_compulsory = 2.0\n")
    return file


def test_each_test_has_its_verdict_its_bit_and_its_case(
    run: Run, thresholds: Path, tmp_path: Path
) -> None:
    keep(1.0, "thrice", config={"repeats": 20})  # the fastest that is known, and slow
    words = ("--variant", "all", "--thresholds", thresholds, "--against", "numpy")
    ended = run(*TOY, *words, "--junit", tmp_path / "accept.xml", "--json")
    verdicts = {
        each["variant"]: tuple(
            each[test]["verdict"] for test in ("correctness", "memory", "performance")
        )
        for each in ended.document["results"]
    }
    assert verdicts["numpy"] == ("pass", "pass", "pass")
    assert verdicts["thrice"][:2] == ("pass", "fail")
    assert verdicts["thrice"][2] in ("fail", "cannot tell")  # a test machine need not be quiet
    assert verdicts["clipped"] == ("fail", "pass", "not measured")
    assert verdicts["even"] == ("fail", "not measured", "not measured")
    assert ended.document["skipped"][0]["reason"] == "no unicorn"
    assert ended.code == ended.document["exit_code"]
    assert ended.code & (8 | 16 | 64) == 8 | 16 | 64
    suite = ElementTree.parse(tmp_path / "accept.xml").getroot()[0]
    assert (suite.get("tests"), suite.get("skipped")) == ("15", "3")
    failed = {(c.get("classname"), c.get("name")) for c in suite if c.find("failure") is not None}
    assert {("toy_sum.thrice", "memory"), ("toy_sum.even", "correctness")} <= failed
    (clipped,) = (
        c
        for c in suite
        if (c.get("classname") or "").endswith("clipped")
        and len(c) == 1
        and c.find("failure") is not None
    )
    assert "inputs times 16" in str(clipped[0].get("message"))


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> FakeWorker:
    """Answers in place of the measuring process."""
    worker = FakeWorker({"numpy": 1e-3, "thrice": 1e-3})
    monkeypatch.setattr(trials, "worker_for", lambda device: worker)
    return worker


def test_a_table_of_80_columns_and_reasons_for_people(
    run: Run, thresholds: Path, fake: FakeWorker
) -> None:
    fake.wrong = lambda job: "wrong y is off by 0.5" if job.variant == "even" else ""
    ended = run(*TOY, "--variant", "numpy", "--variant", "even", "--thresholds", thresholds)
    assert ended.code == 8 | 64
    assert max(map(len, ended.out.splitlines())) <= 80
    assert "numpy" in ended.out
    assert "even correctness fail: M=4,N=9: y is off by" in ended.flat
    assert "failed: correctness (8); questions are open (64). Exit code 72." in ended.flat
    assert "[1/2] toy_sum M=4,N=9 float32: numpy" in ended.err


def test_a_label_is_kept_and_a_later_version_is_compared_with_it(
    run: Run, thresholds: Path, fake: FakeWorker
) -> None:
    keep(1e-4, fingerprint="0123456789abcdef", label="v1")
    words = ("--variant", "numpy", "--thresholds", thresholds, "--against")
    slower = run(*TOY, *words, "v1", "--label", "v2", "--json").document["results"][0]
    assert slower["performance"]["verdict"] == "fail"
    assert slower["performance"]["ratio"] == pytest.approx(10.0, rel=0.01)
    again = run(*TOY, *words, "v2")
    assert again.code == 0
    assert "everything asked is passed." in again.out
    keep(1e-3, fingerprint="f" * 16, label="v0", device="cpu-other-1")
    forced = run(*TOY, *words, "v0", "--force")
    assert f"of numpy v0, allowed 1.5; device cpu-other-1 (here {local_cpu().identity})" in (
        forced.flat
    )
    with open_tuning_db(readonly=True) as store:
        labels = [row.circumstances.get("label") for row in store.trials(problem().key)]
    assert {"v1", "v2"} <= set(labels)


@pytest.mark.usefixtures("fake")
def test_without_a_shape_the_thresholds_list_the_problems(run: Run, thresholds: Path) -> None:
    with thresholds.open("a") as file:
        file.write('[[problem]]\noperation = "toy_sum"\nshape = "M=2,N=3"\n')
    words = ("--variant", "numpy", "--thresholds", thresholds)
    ended = run("accept", "--plugin", PLUGIN, *words)
    assert ended.code == 0
    assert "toy_sum M=2,N=3 float32" in ended.out
    assert "everything asked is passed." in ended.out


def test_without_a_list_it_is_what_is_tuned_here_and_what_dispatch_serves(run: Run) -> None:
    none = run("accept", "toy_sum", "--plugin", PLUGIN)
    assert none.code == 2
    assert "no problem of toy_sum is tuned on this device" in none.err
    keep_policy("thrice", repeats=20)
    (tuned,) = tuned_problems(local_cpu(), "cold")
    assert tuned == problem()
    assert tuned_problems(local_cpu(), "hot") == ()
    (served,), _ = subjects([tuned], local_cpu(), "cold")
    assert (served.candidate, served.served) == (candidate("thrice", repeats=20), True)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["toy_sun"], "did you mean 'toy_sum'"),
        (["toy_sum", "--shape", "4x9", "--variant", "numpi"], "did you mean 'numpy'"),
        (["toy_sum", "--shape", "4x9", "--variant", "absent"], "absent cannot run"),
        (["toy_sum", "--shape", "4x9", *NUMPY, "--against", "numpi"], "unknown baseline 'numpi'"),
        (["toy_sum", "--shape", "4x9", *NUMPY, "--against", "no.json"], "no.json"),
        (["toy_sum", "--shape", "4x9", "--mode", "warm"], "unknown mode 'warm'"),
        (["toy_sum", "--shape", "4x9", "--mode", "graph"], "needs a GPU"),
        (["toy_sum", "--shape", "4x9", "--junit", "/nowhere/a.xml"], "folder /nowhere"),
        (["toy_sum", "--dtype", "float32"], "give the sizes too: --shape M=...,N=..."),
        (["--shape", "4x9"], "name just one"),
        (["--thresholds", "/nowhere.toml"], "/nowhere.toml"),
    ],
)
def test_a_mistake_costs_one_sentence_and_no_measurement(
    run: Run, words: list[str], told: str
) -> None:
    ended = run("accept", "--plugin", PLUGIN, *words)
    assert (ended.code, ended.out) == (2, "")
    assert told in ended.err
    assert len(ended.err.splitlines()) == 1


def test_a_foreign_baseline_is_refused_before_anything_is_measured(run: Run) -> None:
    keep(1e-3, fingerprint="0123456789abcdef", device="cpu-other-1")
    ended = run(*TOY, "--variant", "numpy", "--against", "previous")
    assert ended.code == 2
    assert f"device cpu-other-1 (here {local_cpu().identity})" in ended.err
    assert "[1/1]" not in ended.err
