"""`autotune history`: versions, labels, toolchains, devices."""

from __future__ import annotations

from pathlib import Path

import pytest
from accept_bench import PLUGIN, keep, problem
from command_line import Run

from autotune.accept import versions
from autotune.device import local_cpu
from autotune.store import device_row, open_tuning_db

OLD = "0123456789abcdef"
WORDS = ("history", "toy_sum", "--plugin", PLUGIN)


def fill() -> None:
    """Two sources, two toolchains, two devices, one failure."""
    with open_tuning_db() as store:
        store.add_device(device_row(local_cpu()))
    keep(2e-3, fingerprint=OLD, label="v1")
    keep(1e-3)
    keep(1.5e-3)
    keep(1.2e-3, toolchain={"numba": "0.2", "driver": "580"})
    keep(5e-4, device="cpu-other-1", mode="hot")
    failed = {"status": "failed", "samples": (), "median": None, "low": None, "high": None}
    keep(1.0, "thrice", reason="broken", **failed)
    keep(3e-3, stage="profile")


def test_a_version_is_a_source_on_a_problem_a_device_and_a_toolchain(run: Run) -> None:
    fill()
    found = run(*WORDS, "--json").document
    mine = [
        (each["variant"], each["labels"], each["current"], each["trials"], each["best"])
        for each in found
        if each["device"] == local_cpu().identity
    ]
    assert [row[:4] for row in mine] == [
        ("numpy", ["v1"], False, 1),
        ("numpy", [], True, 2),
        ("numpy", [], True, 1),
        ("thrice", [], True, 1),
    ]
    assert [row[4] and round(row[4]["seconds"], 6) for row in mine] == [2e-3, 1e-3, 1.2e-3, None]
    (other,) = (each for each in found if each["device"] == "cpu-other-1")
    assert (other["mode"], other["fingerprint"]) == ("hot", found[1]["fingerprint"])


def test_the_table_shows_changes_and_what_the_letters_mean(run: Run) -> None:
    fill()
    shown = run(*WORDS)
    assert max(map(len, shown.out.splitlines())) <= 80
    assert "numpy 01234567 v1 a" in shown.flat
    assert "1 2.00 ms -" in shown.flat
    assert "2 1.00 ms -50%" in shown.flat
    assert "1 1.20 ms +20%" in shown.flat
    assert "a numba 0.1 b driver 580, numba 0.2" in shown.flat
    assert "cpu-other-1" in shown.out
    assert "toy_sum M=4,N=9 float32 hot cache" in shown.flat


def test_it_can_be_narrowed(run: Run) -> None:
    fill()
    assert {e["mode"] for e in run(*WORDS, "--mode", "hot", "--json").document} == {"hot"}
    assert {e["variant"] for e in run(*WORDS, "--variant", "thrice", "--json").document} == {
        "thrice"
    }
    here = run(*WORDS, "--device", "cpu", "--json").document
    assert {each["device"] for each in here} == {local_cpu().identity}
    nothing = run(*WORDS, "--shape", "4x10")
    assert (nothing.code, "nothing of this was measured" in nothing.out) == (0, True)
    wrong = run(*WORDS, "--variant", "numpi")
    assert (wrong.code, "did you mean 'numpy'" in wrong.err) == (2, True)


def test_a_label_given_later_names_all_of_a_source() -> None:
    rows = [keep(1e-3, fingerprint=OLD), keep(1e-3, fingerprint=OLD, mode="hot", label="v1")]
    rows.append(keep(1e-3, fingerprint=OLD, problem=problem(64).key))
    assert [each.labels for each in versions(rows)] == [("v1",)] * 3


def test_every_label_of_a_source_is_shown(run: Run) -> None:
    for label in ("c1", "c2", "c1"):
        keep(1e-3, label=label)
    (found,) = run(*WORDS, "--json").document
    assert found["labels"] == ["c2", "c1"]
    assert "c2, c1" in run(*WORDS).flat
    keep(1e-3, label="c3", problem=problem(64).key)
    (narrowed,) = run(*WORDS, "--shape", "4x9", "--json").document
    assert narrowed["labels"] == ["c2", "c1", "c3"]


def test_nothing_is_made_where_nothing_was_measured(run: Run, private_home: Path) -> None:
    ended = run(*WORDS)
    assert (ended.code, ended.err) == (0, "")
    assert "nothing of this was measured" in ended.out
    assert not private_home.exists()


def test_a_database_that_cannot_be_used_is_said_in_one_sentence(
    run: Run, private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    private_home.write_text("not a folder")
    ended = run(*WORDS)
    assert (ended.code, ended.out) == (1, "")
    assert f"The tuning database {private_home / 'tuning.db'} cannot be opened" in ended.err
    assert "AUTOTUNE_HOME=FOLDER names another place." in ended.err
    assert len(ended.err.splitlines()) == 1
    private_home.unlink()
    private_home.mkdir()
    (private_home / "tuning.db").write_text("no database at all, but long enough to be read" * 9)
    damaged = run(*WORDS)
    assert (damaged.code, damaged.out) == (1, "")
    assert "is damaged" in damaged.err
    assert len(damaged.err.splitlines()) == 1
    if Path("/proc/self").exists():
        monkeypatch.setenv("AUTOTUNE_HOME", "/proc/nope")
        assert run(*WORDS).code == 1
