"""Puts a sound store in the place of a damaged one, with all that can still be read."""

from __future__ import annotations

import contextlib
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from sqlite_utils import Database

from autotune_tuning_db import connection, files
from autotune_tuning_db.errors import kind_of, store_error, translated
from autotune_tuning_db.salvage import Salvage, add_rows, read_rows
from autotune_tuning_db.upkeep import check_store


@dataclass(frozen=True, slots=True)
class Repaired:
    """What `repair_store` did: rows `kept` and `lost` by table.

    Rows at the very end of a table that is damaged there are not known, and not counted as lost.

    `aside` is where the damaged file lies now, None where nothing had to be replaced.
    """

    path: Path
    source: Path
    kept: Mapping[str, int]
    lost: Mapping[str, int]
    aside: Path | None


def repair_store(path: Path, source: Path | None = None) -> Repaired:
    """Brings back what can be read of a damaged store.

    Without `source` the store itself: if it is damaged, a new one with all rows that can be read
    takes its place, and the damaged file is kept beside it; a sound one is left as it is. With
    `source`, a file that was set aside, its rows are added to the store.

    Raises:
        StoreError: there is nothing to repair, or what is there is no damaged store.
    """
    path = path.resolve()
    with translated(path):
        if source is not None:
            return _brought_back(path, source.resolve())
        found = check_store(path)
        if found.sound:
            return Repaired(path, path, found.rows, {}, None)
        with files.locked(path):
            return _rebuilt(path)


def _brought_back(path: Path, source: Path) -> Repaired:
    if not source.exists():
        raise store_error("missing", source)
    with _held(source) as damaged:
        rows = _rows_of(damaged)
    if not rows.tables:
        raise store_error("lost", source)
    with contextlib.closing(connection.open_database(path, readonly=False)) as db:
        kept = _filled(db, rows)
        files.sync_log(path)
    return Repaired(path, source, kept, +rows.unreadable, None)


def _rebuilt(path: Path) -> Repaired:
    """No writer comes between reading the old file and giving its name away.

    One that waited for it finds another file at the path, and writes there; see `Store`.
    """
    with _held(path) as damaged:
        rows = _rows_of(damaged)
        building = connection.build(path)
        try:
            with contextlib.closing(connection.connect(building)) as db:
                kept = _filled(db, rows)
                connection.carry_over(db)
            aside = files.move_aside(path)
            files.publish(building, path)
        finally:
            files.discard(building)
    return Repaired(path, path, kept, +rows.unreadable, aside)


@contextlib.contextmanager
def _held(path: Path) -> Iterator[Database | None]:
    """The damaged file, with other writers kept out where it is sound enough for that.

    None where there is nothing to read in it.
    """
    if connection.too_short(path):
        yield None
        return
    try:
        db = connection.open_raw(path)
    except sqlite3.Error as error:
        if kind_of(error) != "corrupt":
            raise
        yield None
        return
    try:
        with contextlib.suppress(sqlite3.DatabaseError):
            db.execute("BEGIN IMMEDIATE")
        yield db
    finally:
        with contextlib.suppress(sqlite3.Error):
            db.close()


def _rows_of(damaged: Database | None) -> Salvage:
    return read_rows(damaged) if damaged is not None else Salvage()


def _filled(db: Database, rows: Salvage) -> Counter[str]:
    with connection.transaction(db):
        return add_rows(db, rows)
