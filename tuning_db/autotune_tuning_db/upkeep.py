"""Looking after a store: is it sound, and what in it does nobody need any more?"""

from __future__ import annotations

import contextlib
import re
import sqlite3
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from sqlite_utils import Database

from autotune_tuning_db import connection, files, migrations, queries
from autotune_tuning_db.errors import StoreError, kind_of, translated
from autotune_tuning_db.rows import PolicyRow, TrialRow, read_moment

_ABANDONED = 3600.0
"""Seconds after which a file that is being built has been left behind by a killed process."""


@dataclass(frozen=True, slots=True)
class Checked:
    """What `check_store` found: `damage` of the file, `unreadable` entries in it; none when sound.

    `rows` counts by table, `schema` names the last migration, `beside` are the copies that were
    set aside or made before a migration.
    """

    path: Path
    size_bytes: int
    journal: str
    schema: str
    rows: Mapping[str, int]
    damage: tuple[str, ...]
    unreadable: tuple[str, ...]
    beside: tuple[Path, ...]

    @property
    def sound(self) -> bool:
        return not self.damage and not self.unreadable


@dataclass(frozen=True, slots=True)
class Collected:
    """What `collect` removed, or would remove: rows by table, files, and bytes given back."""

    rows: Mapping[str, int]
    files: tuple[Path, ...]
    freed_bytes: int


def check_store(path: Path) -> Checked:
    """Examines the store in full and changes nothing.

    Raises:
        StoreError: there is none at `path`, it belongs to another program or a newer version, or
            it cannot be read for a reason other than damage.
    """
    path = path.resolve()
    try:
        with translated(path), contextlib.closing(connection.open_for_reading(path)) as db:
            return _examined(db, path)
    except StoreError as error:
        if error.kind != "corrupt":
            raise
        return Checked(path, _size(path), "", "", {}, (error.detail,), (), _beside(path))


def _examined(db: Database, path: Path) -> Checked:
    rows: dict[str, int] = {}
    damage, bad = list[str](), list[str]()
    try:
        damage += connection.integrity(db, quick=False)
        for table, build in queries.BUILDERS.items():
            found = queries.each(db.query(f"SELECT * FROM {table}"), build, bad)
            rows[table] = sum(1 for _ in found)
    except sqlite3.DatabaseError as error:
        if kind_of(error) != "corrupt":
            raise
        damage.append(str(error))
    (journal,) = db.execute("PRAGMA journal_mode").fetchone()
    schema = migrations.applied(db)[-1]
    return Checked(
        path, _size(path), journal, schema, rows, tuple(damage), tuple(bad), _beside(path)
    )


def collect(
    db: Database, path: Path, *, older: timedelta | None, copies: bool, dry: bool
) -> Collected:
    """Removes what an open store at `path` does not need any more, and gives the space back.

    Always what killed processes left behind half built, and free pages. With `older`, policies
    that were superseded that long ago, and trials that old of sources that no policy in force
    rests on. With `copies`, stores that were set aside, and backups of migrations. `dry` only
    looks.
    """
    removable = _abandoned(path) + (list(_beside(path)) if copies else [])
    size = sum(file.stat().st_size for file in removable)
    with connection.transaction(db):
        ids = _superseded(db, older) if older is not None else {}
        rows = {table: len(numbers) for table, numbers in ids.items() if numbers}
        if not dry:
            for table, numbers in ids.items():
                queries.delete_rows(db, table, numbers)
    if not dry:
        for file in removable:
            file.unlink(missing_ok=True)
        size += _compacted(db, path)
    return Collected(rows, tuple(removable), size)


def _superseded(db: Database, older: timedelta) -> dict[str, list[int]]:
    limit = datetime.now(UTC) - older
    every = queries.numbered_policies(db)
    in_force = {_place(row): number for number, row in every}  # the last one of a place
    sources = {
        (_place(row), source)
        for number, row in every
        if number == in_force[_place(row)]
        for source in _sources(row)
    }
    trials = [
        row.id
        for row in queries.trials(db, {}, None, [])
        if read_moment(row.started) < limit and (_place(row), row.fingerprint) not in sources
    ]
    policies = [
        number
        for number, row in every
        if read_moment(row.created) < limit and number != in_force[_place(row)]
    ]
    return {"trials": trials, "policies": policies}


def _sources(row: PolicyRow) -> set[str]:
    """The fingerprints a policy rests on, wherever in its payload they stand."""
    choices = [*row.payload.get("ranking", ()), *row.payload.get("variants", ())]
    return {str(each.get("fingerprint")) for each in choices if isinstance(each, dict)}


def _place(row: PolicyRow | TrialRow) -> tuple[str, str, str]:
    return row.problem.text, row.device, row.mode


def _compacted(db: Database, path: Path) -> int:
    before = _size(path)
    (free,) = db.execute("PRAGMA freelist_count").fetchone()
    if free:
        db.execute("VACUUM")
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    return max(before - _size(path), 0)


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in (path, *files.sidecars(path)) if file.exists())


def _abandoned(path: Path) -> list[Path]:
    """Files that were being built beside the store when their process was killed."""
    private = re.compile(rf"\.{re.escape(path.name)}\.[0-9a-f]{{32}}(-wal|-shm|-journal)?\Z")
    limit = time.time() - _ABANDONED
    return [
        file
        for file in sorted(path.parent.iterdir())
        if private.match(file.name) and file.stat().st_mtime < limit
    ]


def _beside(path: Path) -> tuple[Path, ...]:
    """The copies of this store that were set aside or made before a migration."""
    spare = re.compile(rf"{re.escape(path.name)}\.(damaged|orphan|backup)-[0-9T]+")
    return tuple(file for file in sorted(path.parent.iterdir()) if spare.match(file.name))
