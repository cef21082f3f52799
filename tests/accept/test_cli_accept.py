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
TOY_NUMPY = (*TOY, *NUMPY)


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


def test_a_label_without_a_baseline_gives_one_to_come(
    run: Run, thresholds: Path, fake: FakeWorker
) -> None:
    words = (*TOY_NUMPY, "--thresholds", thresholds)
    first = run(*words, "--label", "v1")
    assert first.code == 0
    assert "not asked: no baseline is named; --against names one; 1.00 ms kept as v1" in first.flat
    assert len(fake.jobs) == 1
    fake.seconds["numpy"] = 3e-3
    slower = run(*words, "--label", "v2", "--against", "v1", "--json")
    (result,) = slower.document["results"]
    assert (slower.code, result["performance"]["verdict"]) == (32, "fail")
    assert run(*words).code == 0
    assert len(fake.jobs) == 2  # nothing is timed that neither has a label nor is compared


def test_the_same_label_can_be_given_and_asked_for_from_the_first_run(
    run: Run, thresholds: Path, fake: FakeWorker
) -> None:
    words = (*TOY_NUMPY, "--thresholds", thresholds, "--label", "main", "--against")
    first = run(*words, "main")
    assert first.code == 64
    assert "nothing had the label main before; 1.00 ms kept as main" in first.flat
    again = run(*words, "main")
    assert again.code == 0
    itself = run(*words, "numpy", "--json").document["results"][0]["performance"]
    assert (itself["verdict"], itself["note"]) == ("pass", "1.00 ms kept as main")
    fake.wrong = lambda job: "wrong y is off by 0.5"
    timed = len(fake.jobs)
    assert run(*words, "main").code == 8 | 64
    assert len(fake.jobs) == timed


@pytest.mark.usefixtures("fake")
def test_a_regression_under_a_reused_label_fails_again(run: Run, thresholds: Path) -> None:
    keep(1e-4, fingerprint="0123456789abcdef", label="main")
    words = (*TOY_NUMPY, "--thresholds", thresholds, "--label", "main", "--against", "main")
    assert [run(*words).code for _ in range(3)] == [32, 32, 32]


@pytest.mark.usefixtures("fake")
def test_no_earlier_version_is_said_so(run: Run, thresholds: Path) -> None:
    ended = run(*TOY_NUMPY, "--thresholds", thresholds, "--against", "previous")
    assert ended.code == 64
    assert "there is no earlier version of numpy with times of this problem" in ended.flat


@pytest.mark.usefixtures("fake")
def test_nothing_that_could_be_judged_is_an_open_question(run: Run, tmp_path: Path) -> None:
    words = ("accept", "toy_narrow", "--plugin", PLUGIN, "--shape", "9", "--dtype", "float64")
    ended = run(*words, "--variant", "all", "--junit", tmp_path / "a.xml")
    assert ended.code == 64
    assert "narrow is not judged: does not support float64." in ended.flat
    assert "on_cuda is not judged: runs on cuda, not on cpu." in ended.flat
    assert "questions are open (64). Exit code 64." in ended.flat
    (suite,) = ElementTree.parse(tmp_path / "a.xml").getroot()
    assert (suite.get("tests"), suite.get("skipped"), suite.get("errors")) == ("7", "6", "1")
    document = run(*words, "--variant", "all", "--json").document
    assert [each["variant"] for each in document["skipped"]] == ["narrow", "on_cuda"]
    assert (document["exit_code"], document["results"]) == (64, [])


def test_a_problem_that_only_the_reference_runs_is_open_and_the_others_go_on(
    run: Run, fake: FakeWorker
) -> None:
    fake.seconds["narrow"] = 1e-3
    words = ("accept", "toy_narrow", "--plugin", PLUGIN, "--shape", "9")
    ended = run(*words, "--dtype", "float64", "--dtype", "float32")
    assert ended.code == 64
    assert "reference is not judged: only the reference can run it here." in ended.flat
    assert "narrow pass" in ended.flat
    document = run(*words, "--dtype", "float64", "--json").document
    assert document["skipped"][0]["reason"] == "only the reference can run it here"


def test_a_named_variant_is_skipped_where_it_cannot_run_and_refused_if_nowhere(
    run: Run, fake: FakeWorker
) -> None:
    fake.seconds["narrow"] = 1e-3
    words = ("accept", "toy_narrow", "--plugin", PLUGIN, "--shape", "9", "--variant", "narrow")
    ended = run(*words, "--dtype", "float64", "--dtype", "float32")
    assert ended.code == 64
    assert "narrow is not judged: does not support float64." in ended.flat
    assert "narrow pass" in ended.flat
    nowhere = run(*words, "--dtype", "float64")
    assert nowhere.code == 2
    assert "narrow cannot run toy_narrow" in nowhere.err


def test_a_file_that_cannot_be_written_is_refused_before_and_none_is_left(
    run: Run, tmp_path: Path, fake: FakeWorker
) -> None:
    folder = run(*TOY_NUMPY, "--junit", tmp_path)
    assert (folder.code, len(folder.err.splitlines())) == (2, 1)
    assert f"{tmp_path} is a folder; name a file for --junit." in folder.err
    long = run(*TOY_NUMPY, "--junit", tmp_path / ("a" * 300))
    assert (long.code, len(long.err.splitlines())) == (2, 1)
    assert "File name too long; name another file." in long.err
    assert not fake.checks
    run("accept", "toy_sum", "--plugin", PLUGIN, "--junit", tmp_path / "b.xml")
    assert not (tmp_path / "b.xml").exists()
    (tmp_path / "c.xml").write_text("of the run before")
    run("accept", "toy_sum", "--plugin", PLUGIN, "--junit", tmp_path / "c.xml")
    assert (tmp_path / "c.xml").read_text() == "of the run before"


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
        (["toy_sum", "--shape", "4x9", "--label", "previous"], "give another --label."),
        (["toy_sum", "--shape", "4x9", "--label", "thrice"], "means a variant of that name"),
        (["toy_sum", "--shape", "4x9", "--label", "results.json"], "means a file of that name"),
        (["toy_sum", "--shape", "4x9", "--label", ""], "--label is empty"),
        (["toy_sum", "--shape", "4x9", "--against", " "], "--against is empty"),
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
