"""Opens a store: finds out what lies at the path, and makes it one that can be used."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from sqlite_utils import Database

from autotune_tuning_db import files, migrations
from autotune_tuning_db.errors import kind_of, store_error, translated

BUSY_SECONDS = 30.0
"""How long a statement waits for another writer before it gives up."""

_SMALLEST_PAGE = 512
_CHECKED_BYTES = 256 * 2**20


@dataclass(frozen=True, slots=True)
class Finding:
    """What lies at a path: `damage` is empty for a healthy file, `current` tells its schema."""

    current: bool = False
    damage: str = ""


def open_database(path: Path, *, readonly: bool) -> Database:
    """The store at `path`, ready for use.

    For writing, a missing store is created, an older schema migrated (after a backup beside it),
    and a damaged file set aside with one warning. For reading, nothing is moved or changed, with
    one exception: an older schema is migrated, because it could not be read otherwise.

    Raises:
        StoreError: there is no usable store at `path`, and the sentence says why.
    """
    with translated(path):
        return _open_for_reading(path) if readonly else _open_for_writing(path)


def _open_for_reading(path: Path) -> Database:
    if not path.exists():
        raise store_error("missing", path)
    short = _too_short(path)
    if short:
        raise store_error("corrupt", path, short)
    with _closed_on_error(_connect_readonly(path)) as db:
        finding = _examine(db, path, thorough=False)
        if finding.damage:
            raise store_error("corrupt", path, finding.damage)
        if finding.current:
            return db
    db.close()
    _open_for_writing(path).close()
    return _connect_readonly(path)


def _open_for_writing(path: Path) -> Database:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    if path.exists() and look(path) == Finding(current=True):
        return _connect(path)
    with files.locked(path):
        _make_current(path)
        return _connect(path)


def _make_current(path: Path) -> None:
    """Creates, migrates or replaces the store, under the lock; others may just have done so."""
    if path.exists():
        finding = look(path)
        if finding.damage:
            files.set_aside(path, finding.damage)
        elif not finding.current:
            _migrate_with_backup(path)
    if not path.exists():
        files.clear_orphans(path)
        _create(path)


def look(path: Path) -> Finding:
    """Examines the file at `path` and changes nothing.

    Raises:
        StoreError: it belongs to another program or to a newer version.
    """
    short = _too_short(path)
    if short:
        return Finding(damage=short)
    try:
        with contextlib.closing(_connect(path)) as db:
            return _examine(db, path, thorough=path.stat().st_size <= _CHECKED_BYTES)
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        if kind_of(error) == "corrupt":
            return Finding(damage=str(error))
        raise


def _too_short(path: Path) -> str:
    """Says so of a file below SQLite's smallest page.

    SQLite must not even be shown one: it would take it for empty and delete the log beside it.

    Raises:
        StoreError: there is something other than a file, which SQLite might wait for or change.
    """
    if not path.is_file():
        raise store_error("unopenable", path, "it is not a file")
    size = path.stat().st_size
    return "" if size >= _SMALLEST_PAGE else f"a file of {size} bytes is not a database"


def _examine(db: Database, path: Path, *, thorough: bool) -> Finding:
    tables = set(db.table_names())
    if not tables:
        return Finding(damage="it has no tables")
    done, known = set(migrations.applied(db)), set(migrations.known())
    if not done:
        raise store_error("foreign", path)
    if done - known:
        raise store_error("newer", path, f"it has {', '.join(sorted(done - known))}")
    if done == known and not tables.issuperset(migrations.TABLES):
        return Finding(damage=f"it lacks {', '.join(sorted(set(migrations.TABLES) - tables))}")
    found = integrity(db, quick=True) if thorough else ()
    return Finding(current=done == known, damage="; ".join(found[:1]))


def integrity(db: Database, *, quick: bool) -> tuple[str, ...]:
    """What SQLite finds wrong with the file, nothing when it is sound."""
    check = "PRAGMA quick_check(1)" if quick else "PRAGMA integrity_check"
    found = tuple(str(text) for (text,) in db.execute(check).fetchall())
    return () if found == ("ok",) else found


def _migrate_with_backup(path: Path) -> None:
    with contextlib.closing(_connect(path)) as db:
        files.copy_database(db.conn, files.spare_name(path, "backup"))
        _migrate(db)


def _create(path: Path) -> None:
    """Builds the whole store under a private name first, so that nobody ever meets half of one."""
    building = None if files.on_network(path.parent) else _build_with_log(path)
    files.publish(building or _build(path, "delete"), path)


def _build_with_log(path: Path) -> Path | None:
    """None where shared memory or locks do not work: a write-ahead log fails at its first use."""
    try:
        return _build(path, "wal")
    except sqlite3.OperationalError as error:
        if kind_of(error) == "full":
            raise
        return None


def _build(path: Path, journal_mode: str) -> Path:
    building = files.private_name(path)
    try:
        with contextlib.closing(_wrap(sqlite3.connect(building, isolation_level=None))) as db:
            db.execute(f"PRAGMA journal_mode = {journal_mode}")
            _migrate(db)
    except BaseException:
        for leftover in (building, *files.sidecars(building)):
            leftover.unlink(missing_ok=True)
        raise
    return building


def _migrate(db: Database) -> None:
    """Every pending migration in one transaction that excludes other writers from its start."""
    db.execute("BEGIN IMMEDIATE")
    try:
        migrations.MIGRATIONS.apply(db)
        db.execute("COMMIT")
    except BaseException:
        db.rollback()
        raise


def _connect(path: Path) -> Database:
    # mode=rw: never creates a file. check_same_thread: Store guards the connection by a lock.
    db = _open_uri(path, "mode=rw")
    with _closed_on_error(db):
        # FULL: a trial is on the disk when add_trial returns, also through a power failure. It
        # costs one fsync, a fraction of a millisecond against the seconds a trial takes.
        db.execute("PRAGMA synchronous = FULL")
        (mode,) = db.execute("PRAGMA journal_mode").fetchone()
        if mode == "wal" and files.on_network(path.parent):
            db.execute("PRAGMA journal_mode = delete")
    return db


def _connect_readonly(path: Path) -> Database:
    try:
        return _open_uri(path, "mode=ro")
    except sqlite3.OperationalError as error:
        # A store with a write-ahead log in a folder that cannot be written: the log's index
        # cannot be made. With no log to read, the file alone is complete and nobody changes it.
        log = files.sidecars(path)[0]
        if kind_of(error) not in ("unopenable", "readonly") or (
            log.exists() and log.stat().st_size
        ):
            raise
        return _open_uri(path, "mode=ro&immutable=1")


def _open_uri(path: Path, options: str) -> Database:
    connection = sqlite3.connect(
        f"{path.as_uri()}?{options}",
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,
    )
    db = _wrap(connection)
    with _closed_on_error(db):
        db.execute("SELECT name FROM sqlite_master LIMIT 1").fetchone()
    return db


def _wrap(connection: sqlite3.Connection) -> Database:
    # A damaged text is one bad value, not a failed query.
    connection.text_factory = _decode
    # Plugins of sqlite-utils are other people's code on every connection: not for a store.
    return Database(connection, execute_plugins=False)


def _decode(text: bytes) -> str:
    return text.decode(errors="replace")


@contextlib.contextmanager
def _closed_on_error(db: Database) -> Iterator[Database]:
    try:
        yield db
    except BaseException:
        db.close()
        raise
