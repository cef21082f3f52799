"""Checking a store, saving what can be read of a damaged one, removing what nobody needs."""

from __future__ import annotations

import os
import random
import sqlite3
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from autotune_tuning_db import (
    CeilingsRow,
    DeviceRow,
    PinRow,
    PolicyRow,
    Store,
    StoreError,
    StoreWarning,
    TrialRow,
    check_store,
    repair_store,
    utc_now,
)
from autotune_tuning_db import repair as repair_module

Trial = Callable[..., TrialRow]
Policy = Callable[..., PolicyRow]
TRIALS = 300


@pytest.fixture
def filled(store: Store, make_trial: Trial, make_policy: Policy) -> Path:
    """A closed store with rows of every kind, over some sixty pages."""
    store.add_device(DeviceRow("cpu:abc", "cpu", "zen3", "EPYC", {"cores": 2}))
    campaign = store.start_campaign("cpu:abc", {"budget": 1})
    with store._writing() as db:  # one transaction: the commits are not what is tested
        from autotune_tuning_db import queries

        for number in range(TRIALS):
            queries.add_trial(db, make_trial(campaign=campaign, reason=f"trial {number}"))
    for number in range(3):
        store.put_policy(make_policy(payload={"number": number}))
    store.pin(PinRow("attention", None, "cpu:abc", "a", {"block": 8}))
    store.put_ceilings(CeilingsRow("cpu:abc", utc_now(), {}, {"read": 1e9}))
    store.close()
    return store.path


def spoil(path: Path, seed: int) -> None:
    """Noise over three stretches, behind the pages that a store without rows has."""
    content, rng = bytearray(path.read_bytes()), random.Random(seed)
    for _ in range(3):
        start = rng.randrange(26 * 4096, len(content) - 400)
        content[start : start + 400] = rng.randbytes(400)
    path.write_bytes(content)


def test_a_sound_store_is_said_to_be_sound(filled: Path) -> None:
    found = check_store(filled)
    assert found.sound
    assert found.rows == {
        **{"devices": 1, "campaigns": 1, "trials": TRIALS},
        **{"policies": 3, "pins": 1, "ceilings": 1},
    }
    before = filled.read_bytes()
    assert repair_store(filled).aside is None
    assert filled.read_bytes() == before


@pytest.mark.parametrize("seed", range(4))
def test_what_can_be_read_of_a_damaged_store_is_saved(filled: Path, seed: int) -> None:
    with Store(filled) as store:
        uids = {row.uid: row for row in store.trials()}
    spoil(filled, seed)
    found = check_store(filled)
    assert not found.sound
    damaged = filled.read_bytes()
    done = repair_store(filled)
    assert done.aside is not None
    assert done.aside.read_bytes()[: 4 * 4096] == damaged[: 4 * 4096]
    assert check_store(filled).sound
    with Store(filled) as store:
        kept = store.trials()
        # Three stretches of 400 bytes cost the trials of three pages, of seven to eight rows each.
        assert len(kept) > TRIALS - 40
        assert all(row.uid in uids for row in kept)
        (campaign,) = store.campaigns()
        assert {row.campaign for row in kept} == {campaign.id}
        assert [len(store.devices()), len(store.pins())] == [1, 1]
        assert store.ceilings("cpu:abc") is not None
        assert store.policies()[0].payload == {"number": 2}
        assert done.kept["trials"] == len(kept)


def test_a_store_that_was_set_aside_is_brought_back(
    filled: Path, make_policy: Policy, make_trial: Trial
) -> None:
    os.truncate(filled, filled.stat().st_size - 3 * 4096)
    with pytest.warns(StoreWarning, match="autotune db repair") as warned:
        fresh = Store(filled)
    fresh.add_trial(make_trial(variant="afterwards"))
    fresh.put_policy(make_policy(payload={"number": "newer"}))
    fresh.close()
    (aside,) = filled.parent.glob("tuning.db.damaged-*")
    assert str(aside) in str(warned[0].message)
    done = repair_store(filled, aside)
    assert done.kept["trials"] > TRIALS - 60
    assert repair_store(filled, aside).kept.get("trials", 0) == 0
    with Store(filled) as store:
        assert "afterwards" in {row.variant for row in store.trials()}
        assert store.policies()[0].payload == {"number": "newer"}


def test_entries_that_cannot_be_read_are_named_and_left_behind(filled: Path) -> None:
    with sqlite3.connect(filled) as raw:
        raw.execute("UPDATE trials SET config = '[' WHERE id = 7")
    raw.close()
    found = check_store(filled)
    assert (found.sound, len(found.unreadable), found.damage) == (False, 1, ())
    assert found.rows["trials"] == TRIALS - 1
    done = repair_store(filled)
    assert (done.kept["trials"], done.lost) == (TRIALS - 1, {"trials": 1})


def test_a_file_with_nothing_in_it_is_replaced_by_an_empty_store(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("not a database")
    assert check_store(path).damage
    done = repair_store(path)
    assert done.aside is not None
    assert done.aside.read_text() == "not a database"
    assert check_store(path).sound


def test_the_log_of_a_store_that_was_cut_to_nothing_is_kept_with_it(
    store: Store, make_trial: Trial
) -> None:
    store.add_trial(make_trial())
    log = store.path.with_name("tuning.db-wal").read_bytes()
    assert log
    os.truncate(store.path, 0)
    done = repair_store(store.path)
    assert done.aside is not None
    assert done.aside.with_name(f"{done.aside.name}-wal").read_bytes() == log
    assert check_store(store.path).sound


def test_another_file_is_no_source_of_rows(filled: Path, tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("mine" * 1000)
    with pytest.raises(StoreError, match=r"notes\.txt has nothing in it"):
        repair_store(filled, other)
    assert other.read_text() == "mine" * 1000


def test_of_another_program_or_a_newer_version_nothing_is_touched(path: Path) -> None:
    path.parent.mkdir()
    with sqlite3.connect(path) as foreign:
        foreign.execute("CREATE TABLE bookmarks (url TEXT)")
    foreign.close()
    before = path.read_bytes()
    for look in (check_store, repair_store):
        with pytest.raises(StoreError, match="another program"):
            look(path)
    assert path.read_bytes() == before


def test_writers_lose_nothing_while_a_store_is_repaired(
    filled: Path, make_trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that waits for the damaged file finds the new one in its place, and writes there."""
    with sqlite3.connect(filled) as raw:
        raw.execute("UPDATE trials SET config = '[' WHERE id = 7")
    raw.close()
    fill, kept = repair_module._filled, list[str]()
    waiting = threading.Event()

    def slowly(*arguments: object) -> object:
        assert waiting.wait(5)
        time.sleep(0.1)  # the writer is at BEGIN by now
        return fill(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(repair_module, "_filled", slowly)
    writer = Store(filled)

    def write() -> None:
        for number in range(20):
            name = f"meanwhile{number}"
            waiting.set()
            writer.add_trial(make_trial(variant=name))
            kept.append(name)

    repairing = threading.Thread(target=repair_store, args=(filled,))
    repairing.start()
    time.sleep(0.05)
    write()
    repairing.join()
    with Store(filled) as store:
        assert set(kept) <= {row.variant for row in store.trials()}
        assert len(store.trials()) == TRIALS - 1 + 20
    writer.close()


def test_gc_keeps_what_is_served_and_what_tuning_goes_on_from(
    store: Store, make_trial: Trial, make_policy: Policy
) -> None:
    old = "2020-01-01T00:00:00+00:00"
    other = replace(make_trial().problem, dims=(("B", 9), ("H", 1), ("N", 4)))
    for name, trial in {
        "in force": make_trial(fingerprint="now", started=old),
        "old source": make_trial(fingerprint="then", started=old),
        "young": make_trial(fingerprint="then"),
        "without a policy": make_trial(fingerprint="now", problem=other, started=old),
    }.items():
        store.add_trial(replace(trial, variant=name))
    for source in ("then", "now"):
        store.put_policy(make_policy(payload={"ranking": [{"fingerprint": source}]}, created=old))
    dry = store.collect(older=timedelta(days=30), dry=True)
    assert dry.rows == {"trials": 2, "policies": 1}
    assert len(store.trials()) == 4
    before = store.generation()
    assert store.collect(older=timedelta(days=30)).rows == dry.rows
    assert [row.variant for row in store.trials()] == ["in force", "young"]
    (policy,) = store.policy_history(make_policy().problem, "cpu:abc", "cold")
    assert policy.payload == {"ranking": [{"fingerprint": "now"}]}
    assert store.generation() != before
    assert store.integrity() == ()


def test_gc_removes_what_killed_processes_left_and_copies_on_request(
    store: Store, make_trial: Trial
) -> None:
    store.add_trial(make_trial())
    beside = store.path.parent
    abandoned = beside / f".tuning.db.{'a' * 32}"
    building = beside / f".tuning.db.{'b' * 32}-wal"
    aside = beside / "tuning.db.damaged-20260101T000000"
    precious = beside / ".tuning.db.mine"
    for file in (abandoned, building, aside, precious):
        file.write_bytes(b"x" * 100)
    os.utime(abandoned, (0, 0))
    assert store.collect().files == (abandoned,)
    assert store.collect(copies=True, dry=True).files == (aside,)
    assert aside.exists()
    store.collect(copies=True)
    left = {file.name for file in beside.iterdir()}
    assert {building.name, precious.name} <= left
    assert not {abandoned.name, aside.name} & left
    assert len(store.trials()) == 1


def test_gc_gives_space_back(filled: Path) -> None:
    with Store(filled) as store:
        size = filled.stat().st_size
        done = store.collect(older=timedelta(0))
        assert done.rows["trials"] == TRIALS
        assert done.freed_bytes > size // 2
        assert filled.stat().st_size < size // 2


def test_a_backup_replaces_nothing(store: Store, tmp_path: Path) -> None:
    mine = tmp_path / "mine.db"
    mine.write_text("mine")
    with pytest.raises(StoreError):
        store.backup(mine)
    assert mine.read_text() == "mine"
    assert [file.name for file in tmp_path.glob(".mine*")] == []


def test_a_check_that_finds_nothing_leaves_no_warning(filled: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert check_store(filled).sound
