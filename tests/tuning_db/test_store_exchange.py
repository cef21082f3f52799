"""Carrying results to another machine and back."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autotune_tuning_db import (
    DeviceRow,
    ExchangeError,
    PinRow,
    PolicyRow,
    Store,
    TrialRow,
)

Trial = Callable[..., TrialRow]
Policy = Callable[..., PolicyRow]


@pytest.fixture
def exported(store: Store, make_trial: Trial, make_policy: Policy, tmp_path: Path) -> Path:
    store.add_device(DeviceRow("cpu:abc", "cpu", "zen3", "EPYC", {"cores": 2}))
    store.add_device(DeviceRow("gpu:1", "cuda", "h200", "H200", {}))
    campaign = store.start_campaign("cpu:abc", {"budget": 1})
    store.end_campaign(campaign)
    store.add_trial(make_trial(campaign=campaign))
    store.add_trial(
        make_trial(
            campaign=campaign,
            status="wrong",
            error=float("inf"),
            samples=(),
            median=None,
            low=None,
            high=None,
        )
    )
    store.put_policy(make_policy(created="2026-01-01T00:00:00+00:00"))
    store.put_policy(make_policy(device="gpu:1"))
    store.pin(PinRow("attention", None, "cpu:abc", "a", {"block": 8}))
    counts = store.export_file(tmp_path / "export.json")
    assert counts == {"devices": 2, "campaigns": 1, "trials": 2, "policies": 2, "pins": 1}
    return tmp_path / "export.json"


@pytest.fixture
def elsewhere(tmp_path: Path) -> Store:
    return Store(tmp_path / "elsewhere.db")


def test_cli4_everything_arrives(store: Store, exported: Path, elsewhere: Store) -> None:
    elsewhere.start_campaign("cpu:own", {})
    report = elsewhere.import_file(exported, local_devices={"cpu:abc"})
    assert report.added == {"devices": 2, "campaigns": 1, "trials": 2, "policies": 2, "pins": 1}
    assert report.skipped == {}
    assert report.rejected == ()
    assert report.foreign == {"gpu:1": 1}
    assert elsewhere.devices() == store.devices()
    assert elsewhere.pins() == store.pins()
    for here, there in zip(store.trials(), elsewhere.trials(), strict=True):
        assert there.samples == here.samples
        assert there.uid == here.uid
        assert there.source == "export.json"
    imported = elsewhere.campaigns()[1]
    assert imported.settings == {"budget": 1}
    assert {row.campaign for row in elsewhere.trials()} == {imported.id}
    assert {row.source for row in elsewhere.policies()} == {"export.json"}


def test_cli4_importing_twice_adds_nothing(exported: Path, elsewhere: Store) -> None:
    first = elsewhere.import_file(exported)
    before = elsewhere.generation()
    second = elsewhere.import_file(exported)
    assert second.added == {}
    assert second.skipped == first.added
    assert elsewhere.generation() == before


def test_cli4_a_round_trip_brings_nothing_back(
    store: Store, exported: Path, elsewhere: Store, tmp_path: Path
) -> None:
    elsewhere.import_file(exported)
    elsewhere.export_file(tmp_path / "back.json")
    assert store.import_file(tmp_path / "back.json").added == {}


def test_cli4_newer_local_entries_stay(
    exported: Path, elsewhere: Store, make_policy: Policy
) -> None:
    elsewhere.put_policy(make_policy(payload={"local": True}))
    report = elsewhere.import_file(exported)
    assert report.added["policies"] == 1
    assert report.skipped["policies"] == 1
    assert elsewhere.policies(device="cpu:abc")[0].payload == {"local": True}


def test_cli4_older_local_entries_become_history(
    exported: Path, elsewhere: Store, make_policy: Policy
) -> None:
    elsewhere.put_policy(make_policy(created="2020-01-01T00:00:00+00:00", payload={"old": True}))
    elsewhere.import_file(exported)
    assert elsewhere.policies(device="cpu:abc")[0].payload == {"ranking": [1, 2]}
    problem = make_policy().problem
    assert len(elsewhere.policy_history(problem, "cpu:abc", "cold")) == 2


def test_cli4_own_pins_stay(exported: Path, elsewhere: Store) -> None:
    elsewhere.pin(PinRow("attention", None, "cpu:abc", "mine"))
    assert elsewhere.import_file(exported).skipped["pins"] == 1
    assert [pin.variant for pin in elsewhere.pins()] == ["mine"]


def test_cli4_a_cut_off_file_changes_nothing(exported: Path, elsewhere: Store) -> None:
    whole = exported.read_bytes()
    for length in (0, 1, len(whole) // 2, len(whole) - 2):
        exported.write_bytes(whole[:length])
        with pytest.raises(ExchangeError, match=r"export\.json is not a complete export"):
            elsewhere.import_file(exported)
    assert elsewhere.trials() == []
    assert elsewhere.devices() == []


@pytest.mark.parametrize(
    ("content", "named"),
    [
        (b"[1, 2]", "was not written by"),
        (b'{"format": "other"}', "was not written by"),
        (b'{"format": "onf-autotune-export", "version": 7}', "version 7"),
        (b'{"format": "onf-autotune-export", "version": 1, "trials": []}', "lacks a section"),
        (b"\xff\xfe\x00", "not a complete export"),
        (b"[" * 100_000, "not a complete export"),
        (b'{"format": NaN}', "not a complete export"),
    ],
)
def test_other_files_are_refused_in_one_sentence(
    elsewhere: Store, tmp_path: Path, content: bytes, named: str
) -> None:
    file = tmp_path / "file.json"
    file.write_bytes(content)
    with pytest.raises(ExchangeError, match=named) as caught:
        elsewhere.import_file(file)
    assert "\n" not in str(caught.value)


def test_a_missing_file_is_named(elsewhere: Store, tmp_path: Path) -> None:
    with pytest.raises(ExchangeError, match=r"nothing\.json"):
        elsewhere.import_file(tmp_path / "nothing.json")


def change(section: str, field: str, value: Any) -> Callable[[dict[str, Any]], None]:
    def apply(document: dict[str, Any]) -> None:
        document[section][0][field] = value

    return apply


@pytest.mark.parametrize(
    "damage",
    [
        change("trials", "samples", ["fast"]),
        change("trials", "samples", [0.0]),
        change("trials", "median", -1),
        change("trials", "status", "great"),
        change("trials", "problem", "attention"),
        change("trials", "uid", ""),
        change("trials", "workspace_bytes", 2**70),
        change("trials", "median", 10**400),
        change("trials", "config", [1]),
        change("trials", "variant", "\x1b[2Jfused"),
        change("trials", "variant", "\ud800"),
        change("trials", "extra", 1),
        change("policies", "created", "today"),
        change("policies", "payload", "text"),
        change("devices", "facts", None),
        change("campaigns", "started", 5),
        change("pins", "operation", "decode "),
        lambda document: document["trials"][0].pop("mode"),
        lambda document: document["trials"].__setitem__(0, None),
        lambda document: document["pins"][0].update(problem="decode N=1 float32 packed"),
    ],
)
def test_a_bad_entry_is_rejected_and_the_rest_kept(
    exported: Path, elsewhere: Store, damage: Callable[[dict[str, Any]], None]
) -> None:
    document = json.loads(exported.read_text())
    damage(document)
    exported.write_text(json.dumps(document))
    report = elsewhere.import_file(exported)
    assert len(report.rejected) == 1
    assert sum(report.added.values()) == 7
    assert elsewhere.integrity() == ()


def test_a_whole_number_too_large_for_a_column_is_taken_as_a_time(
    exported: Path, elsewhere: Store
) -> None:
    document = json.loads(exported.read_text())
    document["trials"][0] |= {"wall_seconds": 2**63, "compile_seconds": 2**70, "median": 1}
    exported.write_text(json.dumps(document))
    assert elsewhere.import_file(exported).rejected == ()
    assert {row.wall_seconds for row in elsewhere.trials()} >= {float(2**63)}


def test_policies_are_checked_by_those_who_know_them(exported: Path, elsewhere: Store) -> None:
    report = elsewhere.import_file(
        exported, check=lambda row: "no good" if row.device == "gpu:1" else None
    )
    assert len(report.rejected) == 1
    assert "no good" in report.rejected[0]
    assert [row.device for row in elsewhere.policies()] == ["cpu:abc"]


@pytest.mark.parametrize("section", ["trials", "policies"])
def test_an_entry_without_a_problem_is_rejected(
    exported: Path, elsewhere: Store, section: str
) -> None:
    document = json.loads(exported.read_text())
    document[section][0]["problem"] = None
    exported.write_text(json.dumps(document))
    (reason,) = elsewhere.import_file(exported).rejected
    assert "it has no problem" in reason


FINITE = st.floats(allow_nan=False, allow_infinity=False)
json_values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), FINITE, st.text(max_size=5)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=5,
)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_no_entry_can_break_an_import(
    exported: Path, elsewhere: Store, data: st.DataObject
) -> None:
    document = json.loads(exported.read_text())
    section = data.draw(st.sampled_from(["devices", "campaigns", "trials", "policies", "pins"]))
    field = data.draw(st.sampled_from(sorted(document[section][0])))
    document[section][0][field] = data.draw(json_values)
    file = exported.with_name("odd.json")
    file.write_text(json.dumps(document))
    report = elsewhere.import_file(file)
    counts = (*report.added.values(), *report.skipped.values(), len(report.rejected))
    assert sum(counts) == 8
    elsewhere.trials()
    elsewhere.policies()
    elsewhere.pins()
