"""An older store is brought up to date, once, with a copy of how it was."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from sqlite_utils import Database
from sqlite_utils.migrations import Migrations

from autotune_tuning_db import Store, StoreError, TrialRow, migrations

Trial = Callable[..., TrialRow]


@pytest.fixture
def old(path: Path, make_trial: Trial) -> Path:
    """A store as the first released schema left it."""
    with Store(path) as store:
        store.add_trial(make_trial())
    return path


@pytest.fixture
def next_version(monkeypatch: pytest.MonkeyPatch) -> Migrations:
    """A version of the code that knows one migration more."""
    newer = Migrations(migrations.MIGRATIONS.name)
    newer(name="0001_first_schema")(migrations.first_schema)
    newer(name="0002_ceilings")(migrations.ceilings)

    @newer(name="0003_notes")
    def notes(db: Database) -> None:
        db.table("trials").add_column("note", str)
        db.table("notes").create({"id": int, "text": str}, pk="id")

    monkeypatch.setattr(migrations, "MIGRATIONS", newer)
    monkeypatch.setattr(migrations, "TABLES", (*migrations.TABLES, "notes"))
    return newer


def columns(path: Path) -> set[str]:
    with sqlite3.connect(path) as raw:
        found = {row[1] for row in raw.execute("PRAGMA table_info(trials)")}
    raw.close()
    return found


@pytest.mark.parametrize("readonly", [False, True])
def test_opening_migrates_after_a_backup(
    old: Path, next_version: Migrations, readonly: bool
) -> None:
    with Store(old, readonly=readonly) as store:
        assert len(store.trials()) == 1
        assert store.integrity() == ()
    assert "note" in columns(old)
    (backup,) = old.parent.glob("tuning.db.backup-*")
    assert "note" not in columns(backup)
    with sqlite3.connect(backup) as raw:
        assert raw.execute("SELECT COUNT(*) FROM trials").fetchone() == (1,)
    raw.close()
    Store(old).close()
    assert len(list(old.parent.glob("tuning.db.backup-*"))) == 1


def test_many_openers_migrate_once(old: Path, next_version: Migrations) -> None:
    failures: list[BaseException] = []

    def work() -> None:
        try:
            Store(old).close()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(list(old.parent.glob("tuning.db.backup-*"))) == 1


def test_a_migration_that_fails_changes_nothing(
    old: Path, next_version: Migrations, make_trial: Trial, monkeypatch: pytest.MonkeyPatch
) -> None:
    @next_version(name="0004_broken")
    def broken(db: Database) -> None:
        db.table("trials").add_column("half", str)
        raise sqlite3.OperationalError("disk I/O error")

    with pytest.raises(sqlite3.OperationalError):
        Store(old)
    assert columns(old).isdisjoint({"note", "half"})
    monkeypatch.undo()
    with Store(old) as store:
        assert len(store.trials()) == 1


def test_the_code_before_refuses_what_the_code_after_wrote(
    old: Path, next_version: Migrations, monkeypatch: pytest.MonkeyPatch
) -> None:
    Store(old).close()
    monkeypatch.undo()
    with pytest.raises(StoreError, match="0003_notes") as caught:
        Store(old)
    assert caught.value.kind == "newer"
