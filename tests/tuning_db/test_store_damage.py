"""A file that is not quite a store: cut off, damaged, foreign, newer, with a log left behind."""

from __future__ import annotations

import os
import sqlite3
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from autotune_tuning_db import PolicyRow, Store, StoreError, StoreWarning, TrialRow

Trial = Callable[..., TrialRow]
Policy = Callable[..., PolicyRow]


def close_and_fill(store: Store, make_trial: Trial, make_policy: Policy) -> Path:
    for _ in range(20):
        store.add_trial(make_trial())
    store.put_policy(make_policy())
    store.close()
    return store.path


@pytest.mark.parametrize("length", [0, 100, 4096])
def test_db2_a_cut_off_store_is_set_aside(
    store: Store, make_trial: Trial, make_policy: Policy, length: int
) -> None:
    path = close_and_fill(store, make_trial, make_policy)
    os.truncate(path, length)
    with pytest.raises(StoreError, match="sets it aside") as caught:
        Store(path, readonly=True)
    assert caught.value.kind == "corrupt"
    with pytest.warns(StoreWarning) as warned:
        fresh = Store(path)
    assert len(warned) == 1
    (kept,) = path.parent.glob("tuning.db.damaged-*")
    assert str(path) in str(warned[0].message)
    assert kept.name in str(warned[0].message)
    assert kept.stat().st_size == length
    assert fresh.trials() == []
    fresh.add_trial(make_trial())
    fresh.close()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(Store(path).trials()) == 1


def test_db2_something_else_is_set_aside_byte_for_byte(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("not a database")
    with pytest.warns(StoreWarning, match="not a database"):
        Store(path).close()
    (kept,) = path.parent.glob("tuning.db.damaged-*")
    assert kept.read_text() == "not a database"


def test_db2_damage_inside_is_found_before_more_is_written(
    store: Store, make_trial: Trial, make_policy: Policy
) -> None:
    path = close_and_fill(store, make_trial, make_policy)
    size = path.stat().st_size
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xa5" * (size - 4096))
    with pytest.warns(StoreWarning, match="damaged"):
        assert Store(path).trials() == []


def test_a_text_that_is_no_text_is_one_bad_entry(store: Store, make_policy: Policy) -> None:
    for size in (1, 2):
        store.put_policy(make_policy(problem=replace(make_policy().problem, dims=(("N", size),))))
    assert store._db is not None
    store._db.execute("UPDATE policies SET problem = CAST(x'61ff62' AS TEXT) WHERE id = 1")
    with pytest.warns(StoreWarning, match="Skipped 1 entries"):
        assert [row.problem.dim("N") for row in store.policies()] == [2]


def test_a_log_of_a_damaged_store_goes_with_it(path: Path) -> None:
    path.parent.mkdir()
    path.write_text("not a database")
    path.with_name("tuning.db-wal").write_text("not a log")
    with pytest.warns(StoreWarning):
        store = Store(path)
    assert store.integrity() == ()
    assert len(list(path.parent.glob("tuning.db.damaged-*-wal"))) == 1


def test_a_log_whose_store_was_deleted_is_not_replayed(
    store: Store, make_trial: Trial, tmp_path: Path
) -> None:
    store.add_trial(make_trial())
    log = store.path.with_name("tuning.db-wal").read_bytes()
    assert log
    other = tmp_path / "other.db"
    other.with_name("other.db-wal").write_bytes(log)
    with Store(other) as fresh:
        assert fresh.trials() == []
        assert fresh.integrity() == ()
    assert len(list(tmp_path.glob("other.db.orphan-*-wal"))) == 1


def test_a_database_of_another_program_is_left_alone(path: Path) -> None:
    path.parent.mkdir()
    with sqlite3.connect(path) as foreign:
        foreign.execute("CREATE TABLE bookmarks (url TEXT)")
    foreign.close()
    before = path.read_bytes()
    for readonly in (False, True):
        with pytest.raises(StoreError, match="another program") as caught:
            Store(path, readonly=readonly)
        assert caught.value.kind == "foreign"
    assert path.read_bytes() == before


def test_a_newer_schema_is_refused_kindly(store: Store) -> None:
    store.close()
    with sqlite3.connect(store.path) as raw:
        raw.execute(
            "INSERT INTO _sqlite_migrations (migration_set, name) "
            "VALUES ('autotune_tuning_db', '9999_from_the_future')"
        )
    raw.close()
    for readonly in (False, True):
        with pytest.raises(StoreError, match=r"newer version.*9999_from_the_future") as caught:
            Store(store.path, readonly=readonly)
        assert caught.value.kind == "newer"


def test_a_store_that_went_through_a_text_dump_is_the_same(
    store: Store, make_trial: Trial, make_policy: Policy, tmp_path: Path
) -> None:
    path = close_and_fill(store, make_trial, make_policy)
    copy = tmp_path / "copy.db"
    with sqlite3.connect(path) as source, sqlite3.connect(copy) as target:
        target.executescript("\n".join(source.iterdump()).replace('"0.61"', '"0.99"'))
    source.close()
    target.close()
    with Store(copy) as again, Store(path) as original:
        assert again.policies() == original.policies()
        assert {row.toolchain["numba"] for row in again.trials()} == {"0.99"}
        again.put_policy(make_policy())


def test_a_damaged_schema_is_one_sentence(store: Store) -> None:
    """SQLite quotes the statement that it cannot read, line breaks and all."""
    store.close()
    content = store.path.read_bytes()
    spoiled = content.replace(b'"source" TEXT NOT NULL\n)', b'Xsource" TEXT NOT NULL\n)', 1)
    assert spoiled != content
    store.path.write_bytes(spoiled)
    with pytest.raises(StoreError) as caught:
        Store(store.path, readonly=True)
    assert caught.value.kind == "corrupt"
    assert "\n" not in str(caught.value)
