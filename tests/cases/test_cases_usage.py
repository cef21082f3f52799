"""Cases CLI-1 to CLI-4: what commands print, what they leave out, say and carry."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest
from command_line import Run
from filled import PLUGIN, choice, keep, lose, toy_problem
from programs import python

from autotune import dispatch, serving
from autotune.device import local_cpu
from autotune.lookup import forget
from autotune.model import Problem
from autotune.registry import registry
from autotune.settings import settings
from autotune.store import open_tuning_db
from autotune_tuning_db import StoreWarning

ENTRY = "import sys; from autotune.cli import main; sys.exit(main())"
DOCUMENTS = (
    ("show",),
    ("show", "--why"),
    ("show", "--failures"),
    ("show", "toy_scale", "--shape", "64", "--explain"),
    ("show", "--device", "all"),
    ("variants", "toy_scale"),
    ("devices",),
    ("history", "toy_scale"),
    ("path",),
    ("db", "path"),
)


def fresh() -> None:
    serving._server = None
    forget()


@pytest.mark.parametrize("filled", ["empty", "filled"])
def test_cli_1_stdout_is_one_document(run: Run, toy: str, filled: str) -> None:
    """`run(...).document` fails for anything else than one document, and for NaN or Infinity."""
    if filled == "filled":
        keep(toy_problem(64), choice("numpy", 1e-3), choice("flipped", 2e-3))
        lose(
            toy_problem(64), "broken", "failed", "RuntimeError: \x1b[31mred\x1b[0m, \u00b5, \ud800"
        )
    for words in DOCUMENTS:
        if filled == "empty" and words[0] == "history":
            assert run(*words, "--json").code in (0, 2)
            continue
        ended = run(*words, "--json")
        assert ended.code == 0, (words, ended.err)
        assert isinstance(ended.document, list | dict), words
    if filled == "empty":
        assert run("show", "--json").document == []


LOUD = """
import numpy as np
from autotune import operation, variant
print("loud on import")

@operation(inputs="x[N]", outputs="y[N]")
def loud(x):
    return 2 * x

@variant(loud, "works")
def works(x, y):
    print("loud at work")
    np.multiply(x, 2, out=y)

@variant(loud, "fails")
def fails(x, y):
    raise RuntimeError("no such instruction")

@variant(loud, "large", constraints=["N >= 1000"])
def large(x, y):
    np.multiply(x, 2, out=y)
"""


def test_cli_1_cli_2_a_campaign_is_one_document_with_every_candidate_in_it(
    run: Run, tmp_path: Path
) -> None:
    """Plugin and variant print; one works, one fails, one is excluded by its constraint."""
    plugin = tmp_path / "loud.py"
    plugin.write_text(LOUD)
    words = ("loud", "--plugin", plugin)
    done = python("-c", ENTRY, "tune", *words, "--shape", 64, "--budget", "1s", "--json")
    assert done.returncode == 0, done.stderr
    (problem,) = json.loads(done.stdout)["problems"]
    assert "loud on import" in done.stderr
    assert problem["winner"]["variant"] == "works"
    assert (problem["tried"], problem["failed"], problem["wrong"]) == (2, 1, 0)
    (failed,) = problem["failures"]
    assert failed["variant"] == "fails"
    assert "RuntimeError: no such instruction" in failed["reason"]
    assert "large" in problem["skipped"]
    assert "N >= 1000" in problem["skipped"]["large"]
    listed = run("show", *words, "--failures", "--json").document
    assert {each["variant"]: each["status"] for each in listed} == {
        "fails": "failed",
        "large": "skipped",
    }
    text = run("show", *words).flat
    assert "no such instruction" in text
    assert "N >= 1000" in text


def test_cli_1_an_encoding_without_a_letter_is_no_traceback(toy: str) -> None:
    lose(toy_problem(64), "broken", "failed", "needs 5 \u00b5s and \ud800")
    env = {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = python("-c", ENTRY, "show", "--failures", "--plugin", PLUGIN, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    assert "needs 5 \\xb5s" in done.stdout


def test_cli_3_a_default_is_said_once_with_the_remedy(
    run: Run, toy: str, caplog: pytest.LogCaptureFixture
) -> None:
    keep(toy_problem(512, reverse=True), choice("flipped", 1e-6))
    fresh()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            kernel = dispatch("toy_scale", (4096,), dtype="float64")
            assert kernel.origin == "predicted"
    (record,) = caplog.records
    told = record.getMessage()
    command = "autotune tune toy_scale --shape N=4096 --dtype float64"
    assert command in told
    assert "nearest is toy_scale N=512 float32" in told
    for field in ("dim N: 512 -> 4096", "dtype: float32 -> float64", "flag reverse"):
        assert field in told
    shown = run("show", "toy_scale", "--shape", "4096", "--dtype", "float64", "--explain")
    assert command in shown.flat
    assert "dtype: float32 -> float64" in shown.flat
    assert Problem.of(registry.operation("toy_scale"), (4096,), "float64").key.text in told or (
        "N=4096" in told
    )


def test_cli_4_results_on_an_equal_machine_and_on_another(
    run: Run, toy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep(toy_problem(512), choice("flipped", 1e-6))
    keep(toy_problem(512), choice("numpy", 1e-6), device="cpu-other-1", family="cpu-other")
    assert run("export", tmp_path / "t.json").code == 0
    monkeypatch.setenv("AUTOTUNE_HOME", str(tmp_path / "B"))
    first = run("import", tmp_path / "t.json", "--json").document
    assert (first["added"]["policies"], first["rejected"]) == (2, [])
    assert first["foreign"] == {"cpu-other-1": 1}
    fresh()
    kernel = dispatch("toy_scale", (512,))
    assert (kernel.variant, kernel.origin) == ("flipped", "tuned")
    states = {
        entry["device"]: entry["state"]
        for entry in run("show", "toy_scale", "--device", "all", "--json").document
    }
    assert states == {local_cpu().identity: "fresh", "cpu-other-1": "foreign"}
    again = run("import", tmp_path / "t.json", "--json").document
    assert again["added"] == {}
    newer = keep(toy_problem(512), choice("numpy", 1e-9))
    assert run("import", tmp_path / "t.json", "--json").document["added"] == {}
    fresh()
    assert dispatch("toy_scale", (512,)).variant == newer.winner.variant


def test_cli_4_a_cut_off_file_changes_nothing(run: Run, toy: str, tmp_path: Path) -> None:
    keep(toy_problem(512), choice("flipped", 1e-6))
    file = tmp_path / "t.json"
    run("export", file)
    whole = file.read_bytes()
    before = settings().database.read_bytes()
    for length in (0, 1, 40, len(whole) // 2, len(whole) - 3):
        file.write_bytes(whole[:length])
        ended = run("import", file)
        assert (ended.code, ended.out, len(ended.err.splitlines())) == (2, "", 1)
    assert settings().database.read_bytes() == before


def test_the_database_is_looked_after_from_the_command_line(
    run: Run, toy: str, tmp_path: Path
) -> None:
    missing = run("db", "check")
    assert (missing.code, "does not exist yet" in missing.err) == (1, True)
    assert run("db", "path").out == f"{settings().database}\n"
    keep(toy_problem(512), choice("flipped", 1e-6))
    assert "sound." in run("db", "check").out
    assert run("db", "check", "--json").document["sound"] is True
    assert "nothing was changed" in run("db", "repair").out
    assert run("db", "backup", tmp_path / "copy.db").code == 0
    taken = run("db", "backup", tmp_path / "copy.db")
    assert (taken.code, "exists; name another file" in taken.err) == (2, True)
    beside = run("db", "backup", "--json").document["file"]
    assert Path(beside).name.startswith("tuning.db.backup-")
    assert Path(beside).name in run("db", "gc", "--copies", "--dry-run").flat
    assert run("db", "gc", "--copies").code == 0
    assert not Path(beside).exists()
    settings().database.write_bytes(b"not a database at all" * 100)
    damaged = run("db", "check")
    assert (damaged.code, "damaged: " in damaged.out) == (1, True)
    assert run("db", "repair").code == 0
    assert run("db", "check").code == 0
    brought = run("db", "repair", tmp_path / "copy.db")
    assert "1 policy" in brought.flat
    fresh()
    assert dispatch("toy_scale", (512,)).origin == "tuned"
    for words in (("repair", tmp_path / "no.db"), ("gc", "--older", "-1"), ("chek",)):
        ended = run("db", *words)
        assert (ended.code, ended.out, len(ended.err.splitlines())) == (2, "", 1)


def test_a_damaged_store_is_one_warning_line_of_a_command(run: Run, toy: str) -> None:
    keep(toy_problem(512), choice("flipped", 1e-6))
    with open_tuning_db() as store:
        assert store._db is not None
        store._db.execute("UPDATE policies SET payload = '['")
    ended = run("show", "--json")
    assert ended.document == []
    assert len(ended.err.splitlines()) == 1
    assert "cannot be read" in ended.err
    with pytest.warns(StoreWarning, match="Skipped 1 entries"), open_tuning_db() as store:
        store.policies()
