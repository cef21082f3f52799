"""`autotune export`, `import` and `path`: taking results to another machine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from command_line import Run
from filled import choice, keep, lose, toy_problem

from autotune.device import local_cpu
from autotune.store import open_tuning_db
from autotune_policies import load_shipped


@pytest.fixture
def exported(run: Run, toy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An export of two policies, one of them foreign; the store is then another, empty one."""
    keep(toy_problem(512), choice("numpy", 1e-3))
    keep(toy_problem(512), choice("numpy", 1e-3), device="cpu-other-1", family="cpu-other")
    lose(toy_problem(512), "broken", "failed", "RuntimeError: no")
    file = tmp_path / "t.json"
    ended = run("export", file)
    assert ended.code == 0
    assert "2 policies" in ended.flat
    monkeypatch.setenv("AUTOTUNE_HOME", str(tmp_path / "second-home"))
    return file


def kept(run: Run) -> list[dict[str, Any]]:
    """All entries of the database, without those that come with the package."""
    everything = run("show", "--device", "all", "--json").document
    return [each for each in everything if each["origin"] != "shipped"]


def test_same_device_is_used_at_once_and_foreign_is_kept(run: Run, exported: Path) -> None:
    ended = run("import", exported)
    assert ended.code == 0
    assert "policies 2 0" in ended.flat
    assert "1 policy of cpu-other-1, which is not on this machine" in ended.flat
    (entry,) = run("show", "--json").document
    assert entry["state"] == "fresh"
    assert entry["origin"] == "imported"
    assert [each["state"] for each in kept(run)] == ["fresh", "foreign"]


def test_importing_twice_adds_nothing(run: Run, exported: Path) -> None:
    run("import", exported)
    again = run("import", exported, "--json").document
    assert again["added"] == {}
    assert again["skipped"]["policies"] == 2
    assert again["skipped"]["trials"] == 1


def test_newer_local_entries_stay(run: Run, exported: Path) -> None:
    keep(toy_problem(512), choice("flipped", 1e-6))
    run("import", exported)
    (entry,) = run("show", "--json").document
    assert entry["winner"]["variant"] == "flipped"


def test_a_cut_off_file_changes_nothing(run: Run, exported: Path) -> None:
    exported.write_text(exported.read_text()[:-200])
    ended = run("import", exported)
    assert ended.code == 2
    assert "not a complete export" in ended.err
    assert kept(run) == []


def test_a_rejected_entry_is_named(run: Run, exported: Path) -> None:
    document = json.loads(exported.read_text())
    document["policies"][0]["payload"]["ranking"] = []
    exported.write_text(json.dumps(document))
    ended = run("import", exported)
    assert ended.code == 0
    assert "rejected: 1" in ended.flat
    assert "has no choices" in ended.flat


def test_only_one_operation(run: Run, toy: str, tmp_path: Path) -> None:
    from dataclasses import replace

    policy = keep(toy_problem(512), choice("numpy", 1e-3))
    with open_tuning_db() as store:
        other = replace(policy, problem=replace(policy.problem, operation="other"))
        store.put_policy(other.to_row())
    assert run("export", tmp_path / "t.json", "toy_scale").code == 0
    (only,) = json.loads((tmp_path / "t.json").read_text())["policies"]
    assert only["problem"].startswith("toy_scale ")
    missing = run("export", tmp_path / "u.json", "toy_scal")
    assert missing.code == 2
    assert "did you mean 'toy_scale'" in missing.err
    assert not (tmp_path / "u.json").exists()


def test_policies_are_written_as_the_package_ships_them(run: Run, toy: str, tmp_path: Path) -> None:
    file = tmp_path / "toy.json"
    keep(toy_problem(512), choice("numpy", 1e-3))
    keep(toy_problem(512), choice("numpy", 2e-3), device="cpu-other-1", family="cpu-other")
    ended = run("export", file, "--shipped")
    assert ended.code == 0
    assert "2 policies of 2 devices" in ended.flat
    policies, notes = load_shipped(tmp_path)
    assert notes == []
    assert {policy.device for policy in policies} == {"cpu-other-1", local_cpu().identity}
    assert {policy.origin for policy in policies} == {"shipped"}
    assert run("export", file, "--shipped", "toy_scale").code == 0
    assert run("export", file).code == 2
    missing = run("export", file, "toy_scal", "--shipped")
    assert (missing.code, "did you mean 'toy_scale'" in missing.err) == (2, True)


def test_no_policy_to_ship(run: Run, toy: str, tmp_path: Path) -> None:
    lose(toy_problem(512), "broken", "failed", "RuntimeError: no")
    ended = run("export", tmp_path / "toy.json", "--shipped")
    assert (ended.code, ended.err) == (
        2,
        "autotune: the store has no policy to ship; tune first.\n",
    )
    assert not list(tmp_path.glob("*toy*"))


def test_only_an_export_is_ever_overwritten(run: Run, toy: str, tmp_path: Path) -> None:
    keep(toy_problem(512), choice("numpy", 1e-3))
    precious = tmp_path / "precious.txt"
    precious.write_text("mine")
    assert run("export", precious).code == 2
    assert precious.read_text() == "mine"
    assert run("export", tmp_path / "t.json").code == 0
    assert run("export", tmp_path / "t.json").code == 0
    assert run("export", tmp_path / "missing" / "t.json").code == 2


def test_export_without_a_store(run: Run, tmp_path: Path) -> None:
    ended = run("export", tmp_path / "t.json")
    assert ended.code == 1
    assert "does not exist yet" in ended.err


def test_path_names_the_places_and_what_moves_them(run: Run, private_home: Path) -> None:
    document = run("path", "--json").document
    assert document["database"] == str(private_home / "tuning.db")
    assert document["variables"]["AUTOTUNE_HOME"] == str(private_home)
    assert "AUTOTUNE_DB" in run("path").out
