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
_NO_SHARED_MEMORY = (
    "SQLITE_IOERR_SHMMAP",
    "SQLITE_IOERR_SHMOPEN",
    "SQLITE_IOERR_SHMLOCK",
    "SQLITE_CANTOPEN",
    "SQLITE_PROTOCOL",
)
_CHECKED_BYTES = 256 * 2**20
_FULLY_CHECKED_BYTES = 32 * 2**20
"""Up to here the indexes are compared with their tables as well, which takes longer."""


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
        return open_for_reading(path) if readonly else _open_for_writing(path)


def open_for_reading(path: Path) -> Database:
    """The store at `path`, for reading alone; raises StoreError and what SQLite raises."""
    if not path.exists():
        raise store_error("missing", path)
    files.require_locks(path, create=False)
    short = too_short(path)
    if short:
        raise store_error("corrupt", path, short)
    with _closed_on_error(_connect_readonly(path)) as db:
        finding = _examine(db, path, quick=None)
        if finding.damage:
            raise store_error("corrupt", path, finding.damage)
        if finding.current:
            return db
    db.close()
    _open_for_writing(path).close()
    return _connect_readonly(path)


def _open_for_writing(path: Path) -> Database:
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    files.require_locks(path)
    if path.exists() and look(path) == Finding(current=True):
        return connect(path)
    with files.locked(path):
        _make_current(path)
        return connect(path)


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
    short = too_short(path)
    if short:
        return Finding(damage=short)
    try:
        with contextlib.closing(connect(path)) as db:
            size = path.stat().st_size
            quick = None if size > _CHECKED_BYTES else size > _FULLY_CHECKED_BYTES
            return _examine(db, path, quick=quick)
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        if kind_of(error) == "corrupt":
            return Finding(damage=str(error))
        raise


def too_short(path: Path) -> str:
    """Says so of a file below SQLite's smallest page.

    SQLite must not even be shown one: it would take it for empty and delete the log beside it.

    Raises:
        StoreError: there is something other than a file, which SQLite might wait for or change.
    """
    if not path.is_file():
        raise store_error("unopenable", path, "it is not a file")
    size = path.stat().st_size
    return "" if size >= _SMALLEST_PAGE else f"a file of {size} bytes is not a database"


def _examine(db: Database, path: Path, *, quick: bool | None) -> Finding:
    """What the file says of itself; None for `quick` leaves out SQLite's own check."""
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
    found = () if quick is None else integrity(db, quick=quick)
    return Finding(current=done == known, damage="; ".join(found[:1]))


def integrity(db: Database, *, quick: bool) -> tuple[str, ...]:
    """What SQLite finds wrong with the file, nothing when it is sound."""
    check = "PRAGMA quick_check(1)" if quick else "PRAGMA integrity_check"
    found = tuple(str(text) for (text,) in db.execute(check).fetchall())
    return () if found == ("ok",) else found


def _migrate_with_backup(path: Path) -> None:
    with contextlib.closing(connect(path)) as db:
        files.copy_database(db.conn, files.spare_name(path, "backup"))
        _migrate(db)


def _create(path: Path) -> None:
    """Builds the whole store under a private name first, so that nobody ever meets half of one."""
    files.publish(build(path), path)


def build(path: Path) -> Path:
    """An empty store beside `path` under a private name, with a log where one works."""
    building = None if files.on_network(path.parent) else _build_with_log(path)
    return building or _build(path, "delete")


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
        with contextlib.closing(_wrap(_raw(building, "mode=rwc"))) as db:
            db.execute(f"PRAGMA journal_mode = {journal_mode}")
            _migrate(db)
            carry_over(db)
    except BaseException:
        files.discard(building)
        raise
    return building


def carry_over(db: Database) -> None:
    """Writes what is in the log to the file of a store that is being built.

    It would be lost with the private name, and closing does not say that it could not be done.
    """
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _migrate(db: Database) -> None:
    with transaction(db):
        migrations.MIGRATIONS.apply(db)


@contextlib.contextmanager
def transaction(db: Database) -> Iterator[None]:
    """Kept as a whole when the body ends, undone when it raises; other writers wait from its start.

    A transaction that starts with reading and writes later can be refused in the middle, and no
    busy timeout helps it: hence IMMEDIATE.
    """
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    except BaseException:
        db.rollback()
        raise


def connect(path: Path) -> Database:
    """A connection for writing to the store at `path`, whatever its state."""
    with _closed_on_error(_open_for_use(path)) as db:
        (mode,) = db.execute("PRAGMA journal_mode").fetchone()
        if mode == "wal" and files.on_network(path.parent):
            (mode,) = db.execute("PRAGMA journal_mode = delete").fetchone()
        # A log is synced by the store once others may write again: see `Store`.
        db.execute(f"PRAGMA synchronous = {'NORMAL' if mode == 'wal' else 'FULL'}")
    return db


def _open_for_use(path: Path) -> Database:
    # mode=rw: never creates a file.
    try:
        return _open_uri(path, "mode=rw")
    except sqlite3.OperationalError as error:
        # A store that was copied here with its write-ahead log, and no shared memory for the index.
        if error.sqlite_errorname not in _NO_SHARED_MEMORY or not _left_log(path):
            raise
        return _open_uri(path, "mode=rw")


def _left_log(path: Path) -> bool:
    """Whether the store could be given a rollback journal; alone, that takes no shared memory."""
    with contextlib.closing(_raw(path, "mode=rw")) as connection:
        try:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            (mode,) = connection.execute("PRAGMA journal_mode = delete").fetchone()
        except sqlite3.Error:
            return False
    return str(mode) == "delete"


def _connect_readonly(path: Path) -> Database:
    try:
        return _open_uri(path, "mode=ro")
    except sqlite3.OperationalError as error:
        # A store with a write-ahead log where the log's index cannot be made: the folder cannot be
        # written, the disk is full, or there is no shared memory. With no log to read, the file
        # alone is complete and nobody changes it.
        log = files.sidecars(path)[0]
        if kind_of(error) not in ("unopenable", "readonly", "io", "full") or (
            log.exists() and log.stat().st_size
        ):
            raise
        return _open_uri(path, "mode=ro&immutable=1")


def _open_uri(path: Path, options: str) -> Database:
    with _closed_on_error(_wrap(_raw(path, options))) as db:
        db.execute("SELECT name FROM sqlite_master LIMIT 1").fetchone()
    return db


def open_raw(path: Path) -> Database:
    """A connection to whatever lies at `path`; nothing of it has been read yet."""
    return _wrap(_raw(path, "mode=rw"))


def _raw(path: Path, options: str) -> sqlite3.Connection:
    return sqlite3.connect(
        f"{path.as_uri()}?{options}",
        uri=True,
        timeout=BUSY_SECONDS,
        isolation_level=None,
        check_same_thread=False,  # Store guards its connection by a lock
    )


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
