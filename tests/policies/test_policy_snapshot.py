"""Snapshots, policy JSON and shipped files: strict, stable, and never in the way."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy_values import DEVICE, policy_of, problem_of

from autotune_policies import (
    Policy,
    PolicyError,
    Snapshot,
    load_shipped,
    row_problem,
    snapshot_of,
    write_shipped,
)
from autotune_tuning_db import PinRow, Store

PINS = (
    PinRow("attention", None, DEVICE, "a"),
    PinRow("attention", problem_of(8), DEVICE, "b", {"block": 8}),
)

policies = st.lists(
    st.builds(
        lambda n, b, device, mode: policy_of(problem_of(n, b), device=device, mode=mode),
        st.integers(1, 9),
        st.integers(1, 2),
        st.sampled_from(("cpu:abc", "cpu:other")),
        st.sampled_from(("cold", "hot")),
    ),
    max_size=12,
    unique_by=lambda policy: (policy.problem.text, policy.device, policy.mode),
)


@given(policies, st.randoms())
def test_the_digest_does_not_depend_on_the_order(found: list[Policy], rng: random.Random) -> None:
    one = Snapshot(tuple(found), PINS)
    shuffled = list(found)
    rng.shuffle(shuffled)
    other = Snapshot(tuple(shuffled), PINS[::-1])
    assert other.digest == one.digest
    assert other == one


def test_the_digest_depends_on_everything_that_is_served() -> None:
    policy = policy_of(problem_of(8))
    faster = replace(policy.winner, seconds=policy.winner.low)
    digests = {
        snapshot.digest
        for snapshot in (
            Snapshot(),
            Snapshot((policy,)),
            Snapshot((policy,), PINS[:1]),
            Snapshot((policy,), PINS),
            Snapshot((replace(policy, device="cpu:other"),)),
            Snapshot((replace(policy, toolchain={"numba": "0.62"}),)),
            Snapshot((replace(policy, ranking=(faster,)),)),
        )
    }
    assert len(digests) == 7
    assert Snapshot((policy,), (), ("a note",)).digest == Snapshot((policy,)).digest


def test_a_snapshot_travels_as_json_and_is_checked() -> None:
    snapshot = Snapshot((policy_of(problem_of(8)), policy_of(problem_of(9))), PINS)
    text = json.dumps(snapshot.to_json(), allow_nan=False)
    assert Snapshot.from_json(json.loads(text)) == snapshot
    changed = json.loads(text.replace('"variant": "b"', '"variant": "c"'))
    with pytest.raises(PolicyError, match="digest"):
        Snapshot.from_json(changed)
    for broken in (None, [], {}, {"policies": 1}, {**snapshot.to_json(), "pins": [{"x": 1}]}):
        with pytest.raises(PolicyError):
            Snapshot.from_json(broken)


def test_a_snapshot_of_a_store_has_its_policies_over_the_shipped(tmp_path: Path) -> None:
    tuned = policy_of(problem_of(8), {"tuned": 1e-3})
    shipped = [
        policy_of(problem_of(8), {"shipped": 1e-3}, origin="shipped"),
        policy_of(problem_of(9), {"shipped": 1e-3}, origin="shipped"),
    ]
    with Store(tmp_path / "tuning.db") as store:
        store.put_policy(tuned.to_row())
        store.pin(PINS[1])
        snapshot = snapshot_of(store.policies(), store.pins(), shipped)
    assert [policy.winner.variant for policy in snapshot.policies] == ["tuned", "shipped"]
    assert snapshot.find(problem_of(8), DEVICE, "cold") == tuned
    assert snapshot.find(problem_of(8), DEVICE, "hot") is None
    assert snapshot.pins == (PINS[1],)
    assert snapshot.notes == ()


def test_imported_policies_are_labelled(tmp_path: Path) -> None:
    with Store(tmp_path / "here.db") as here, Store(tmp_path / "there.db") as there:
        there.put_policy(policy_of(problem_of(8)).to_row())
        there.put_policy(policy_of(problem_of(9)).to_row())
        broken = replace(there.policies()[0], payload={"ranking": []})
        there.put_policy(replace(broken, created="2027-01-01T00:00:00+00:00"))
        there.export_file(tmp_path / "file.json")
        report = here.import_file(tmp_path / "file.json", check=row_problem)
        (policy,) = snapshot_of(here.policies()).policies
    assert policy.origin == "imported"
    assert policy.problem == problem_of(9)
    assert len(report.rejected) == 1
    assert "missing or unknown fields" in report.rejected[0]


def test_entries_that_cannot_be_read_are_left_out_with_a_note() -> None:
    good = policy_of(problem_of(8)).to_row()
    bad = replace(policy_of(problem_of(9)).to_row(), payload={"family": "zen3"})
    snapshot = snapshot_of([bad, good])
    assert [policy.problem for policy in snapshot.policies] == [problem_of(8)]
    (note,) = snapshot.notes
    assert "N=9" in note
    assert "ranking" in note


def change(*where: Any) -> Callable[[dict[str, Any]], None]:
    *path, field, value = where

    def apply(data: Any) -> None:
        for step in path:
            data = data[step]
        data[field] = value

    return apply


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        (change("problem", "attention"), "attention"),
        (change("problem", None), "problem"),
        (change("created", "today"), "today"),
        (change("origin", "found"), "found"),
        (change("mode", "warm"), "warm"),
        (change("device", ""), "device"),
        (change("family", "\x1b[2J"), "family"),
        (change("ranking", []), "no choices"),
        (change("ranking", [1]), "int, not an object"),
        (change("extra", 1), "extra"),
        (change("toolchain", {"numba": 1}), "toolchain"),
        (change("verdict", "kind", "sure"), "sure"),
        (change("verdict", "lead", float("nan")), "lead"),
        (change("verdict", "band", float("inf")), "finite"),
        (change("ranking", 0, "seconds", 0.0), "impossible time"),
        (change("ranking", 0, "seconds", -1), "impossible time"),
        (change("ranking", 0, "seconds", float("inf")), "impossible time"),
        (change("ranking", 0, "seconds", True), "seconds"),
        (change("ranking", 0, "low", 5.0), "interval"),
        (change("ranking", 0, "high", float("inf")), "interval"),
        (change("ranking", 0, "error", -1.0), "error"),
        (change("ranking", 0, "workspace_bytes", -1), "workspace"),
        (change("ranking", 0, "workspace_bytes", 0.5), "workspace_bytes"),
        (change("ranking", 0, "samples", 0), "sample"),
        (change("ranking", 0, "deterministic", 1), "deterministic"),
        (change("ranking", 0, "variant", ""), "variant"),
        (change("ranking", 0, "config", {"block": [1]}), "block"),
        (change("ranking", 0, "config", {"scale": float("nan")}), "scale"),
    ],
)
def test_a_policy_that_makes_no_sense_is_refused_in_one_sentence(
    damage: Callable[[dict[str, Any]], None], named: str
) -> None:
    data = policy_of(problem_of(8)).to_json()
    assert Policy.from_json(data) == policy_of(problem_of(8))
    damage(data)
    with pytest.raises(PolicyError, match=named) as caught:
        Policy.from_json(data)
    assert str(caught.value).endswith(".")
    assert "\n" not in str(caught.value)


json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@given(data=st.data())
def test_no_policy_from_outside_raises_anything_else(data: st.DataObject) -> None:
    document = policy_of(problem_of(8)).to_json()
    target: Any = document
    for step in data.draw(st.sampled_from([(), ("verdict",), ("ranking", 0), ("variants", 1)])):
        target = target[step]
    target[data.draw(st.sampled_from(sorted(target)))] = data.draw(json_values)
    try:
        policy = Policy.from_json(document)
    except PolicyError:
        return
    assert Policy.from_json(json.loads(json.dumps(policy.to_json(), allow_nan=False))) == policy


def test_a_policy_is_the_same_after_the_store(tmp_path: Path) -> None:
    policy = policy_of(problem_of(8))
    with Store(tmp_path / "tuning.db") as store:
        store.put_policy(policy.to_row())
        (row,) = store.policies()
    assert Policy.from_row(row) == policy
    assert row_problem(row) is None


def test_shipped_files_are_read_and_bad_ones_noted(tmp_path: Path) -> None:
    policies = [policy_of(problem_of(n)) for n in (9, 8)]
    write_shipped(policies, tmp_path / "zen3.json")
    document = json.loads((tmp_path / "zen3.json").read_text())
    document["policies"][1]["mode"] = "warm"
    (tmp_path / "half.json").write_text(json.dumps(document))
    (tmp_path / "cut.json").write_text('{"format": ')
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "other.json").write_text('{"format": "other"}')
    (tmp_path / "later.json").write_text('{"format": "onf-autotune-policies", "version": 2}')
    (tmp_path / "none.json").write_text('{"format": "onf-autotune-policies", "version": 1}')
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe")
    (tmp_path / "README.md").write_text("not a policy file")
    found, notes = load_shipped(tmp_path)
    assert [policy.problem.dim("N") for policy in found] == [8, 8, 9]
    assert {policy.origin for policy in found} == {"shipped"}
    assert len(notes) == 7
    for name in ("bytes", "cut", "deep", "half", "later", "none", "other"):
        assert sum(name in note for note in notes) == 1


def test_the_files_of_the_package_itself_are_sound() -> None:
    _, notes = load_shipped()
    assert notes == []


def test_a_missing_folder_ships_nothing(tmp_path: Path) -> None:
    assert load_shipped(tmp_path / "nothing") == ([], [])
