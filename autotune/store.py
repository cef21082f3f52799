"""The one place where the engine meets the tuning database: opening it, and reading policies."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.errors import StoreUnavailableError, UserError
from autotune.locks import Lock, after_fork
from autotune.settings import settings
from autotune_policies import Snapshot, load_shipped, snapshot_of
from autotune_tuning_db import StoreError
from autotune_tuning_db.errors import store_error, translated
from autotune_tuning_db.files import spare_name

if TYPE_CHECKING:
    from autotune.device import Device
    from autotune_tuning_db import CeilingsRow, DeviceRow, ProblemKey, Store
    from autotune_tuning_db.rejections import Rejection

log = logging.getLogger("autotune")

_NOTES = 5
"""Entries that cannot be read are named up to here, and counted beyond."""

_lock = Lock()
_reader: Store | None = None
_of_parents: list[Store] = []
_said: set[str] = set()


def open_tuning_db(*, readonly: bool = False) -> Store:
    """The tuning database of the settings in force; created when missing, unless `readonly`.

    Raises StoreUnavailableError, in one sentence with the file and the remedy, when it cannot be
    used.
    """
    from autotune_tuning_db import open_store

    try:
        return open_store(settings().database, readonly=readonly)
    except StoreError as error:
        raise StoreUnavailableError(with_remedy(error)) from error


def database_file() -> Path:
    """The file of the tuning database.

    Raises StoreUnavailableError when there is none yet.
    """
    file = settings().database
    if not file.exists():
        raise StoreUnavailableError(with_remedy(store_error("missing", file)))
    return file


def back_up(target: Path | None = None) -> Path:
    """Copy the database to `target`, or beside it under a name with date and time; the copy.

    Raises UserError when `target` exists or cannot be written, StoreUnavailableError when the
    database cannot be read.
    """
    with open_tuning_db(readonly=True) as store:
        place = target or spare_name(store.path, "backup")
        if place.exists():
            raise UserError(f"{place} exists; name another file, or remove it.")
        try:
            store.backup(place)
        except StoreError as error:
            if error.path != place:
                raise
            raise UserError(f"cannot write {place}: {error.detail}; name another file.") from error
    return place


def device_row(device: Device) -> DeviceRow:
    """A device as the database keeps it."""
    from autotune_tuning_db import DeviceRow

    return DeviceRow(device.identity, device.kind, device.family, device.label, device.facts)


def with_remedy(error: StoreError) -> str:
    """The store's sentence; where it asks for another place, how to name one."""
    if error.kind in ("missing", "busy", "corrupt"):
        return str(error)
    return f"{error} AUTOTUNE_DB=FILE or AUTOTUNE_HOME=FOLDER names another place."


def load_snapshot() -> tuple[Snapshot, int | None]:
    """Everything to dispatch from, and the store's generation when it was read; never raises.

    A store that does not exist yet has no policies. One that cannot be used counts as empty and
    is named in one warning of the process, with the remedy. The shipped policies are always there.
    """
    shipped, notes = load_shipped()
    snapshot, number = Snapshot(tuple(shipped)), None
    try:
        if _is_there():
            # The generation first: a write in between shows as a change at the next look.
            store = _shared_reader()
            number = store.generation()
            snapshot = snapshot_of(store.policies(), store.pins(), shipped)
    except Exception as error:
        text = with_remedy(error) if isinstance(error, StoreError) else str(error)
        _say_once(f"{text} Until then nothing that was tuned is used.")
    said = (*notes, *snapshot.notes)
    for note in said[:_NOTES]:
        _say_once(note)
    if len(said) > _NOTES:
        _say_once(f"skipped {len(said) - _NOTES} more entries that cannot be read.")
    return snapshot, number


def _is_there() -> bool:
    with translated(settings().database):
        return settings().database.exists()


def generation() -> int | None:
    """A number that moves on with every change of a policy or pin; None without a usable store."""
    try:
        return _shared_reader().generation() if settings().database.exists() else None
    except Exception:
        return None


def kept_ceilings(identity: str) -> CeilingsRow | None:
    """The rates last measured of a device; None without a usable store or when there are none."""
    try:
        return _shared_reader().ceilings(identity) if settings().database.exists() else None
    except Exception:
        return None


def stored_rejections(problem: ProblemKey, device: str) -> frozenset[Rejection]:
    """What the gate has rejected of a problem on a device; nothing without a usable store."""
    try:
        there = settings().database.exists()
        return _shared_reader().rejections(problem, device) if there else frozenset()
    except Exception:
        return frozenset()


def _shared_reader() -> Store:
    """A connection for reading that stays open: looking at the generation takes microseconds."""
    from autotune_tuning_db import open_store

    global _reader
    path = settings().database.resolve()
    with _lock:
        if _reader is None or _reader.path != path:
            if _reader is not None:
                _reader.close()
            _reader = open_store(path, readonly=True)
        return _reader


def _in_child() -> None:
    """SQLite's connections must neither be used nor closed in a forked child."""
    global _reader
    if _reader is not None:
        _of_parents.append(_reader)
        _reader = None


after_fork(_in_child)


def _say_once(message: str) -> None:
    if message not in _said:
        _said.add(message)
        log.warning("%s", message)
