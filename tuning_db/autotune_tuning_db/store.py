"""The store of everything measured and chosen: one SQLite file, safe to share."""

from __future__ import annotations

import contextlib
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Collection, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from sqlite_utils import Database

from autotune_tuning_db import exchange, queries
from autotune_tuning_db.connection import integrity, open_database, transaction
from autotune_tuning_db.errors import StoreWarning, store_error, translated
from autotune_tuning_db.exchange import ImportReport, PolicyCheck
from autotune_tuning_db.files import copy_database, resolved, sync_log
from autotune_tuning_db.keys import ProblemKey
from autotune_tuning_db.rejections import Rejection, rejections
from autotune_tuning_db.rows import (
    CampaignRow,
    CeilingsRow,
    DeviceRow,
    PinRow,
    PolicyRow,
    TrialRow,
    utc_now,
)
from autotune_tuning_db.upkeep import Collected, collect

Rows = TypeVar("Rows")

_INHERITED: list[object] = []
"""Connections a forked child got from its parent: never used and never closed.

Closing one would end the parent's log under its hands (https://www.sqlite.org/howtocorrupt.html).
"""


_OPEN: weakref.WeakSet[Store] = weakref.WeakSet()


def _renew_locks() -> None:
    """In a forked child: what threads of the parent held is nobody's there."""
    for store in list(_OPEN):
        store._lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_locks)


class Store:
    """A tuning database. Threads may share one; processes open their own on the same path.

    Every writing method is one transaction, which is on the disk when the method returns.

    Args:
        path: the file; it and its folder are created when missing, unless `readonly`.
        readonly: never create, repair or write.

    Raises:
        StoreError: here and from every method, when the file cannot be used.
    """

    def __init__(self, path: str | os.PathLike[str], *, readonly: bool = False) -> None:
        with translated(Path(path)):
            self.path = resolved(Path(path))
        self.readonly = readonly
        self._lock = threading.RLock()
        _OPEN.add(self)
        self._db: Database | None = None
        self._opened: tuple[int, int, int] | None = None
        with self._lock:
            self._current()

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes the file; a later call of any method opens it again."""
        with self._lock, translated(self.path):
            db, self._db = self._db, None
            if db is not None and self._opened is not None and self._opened[0] == os.getpid():
                db.close()

    # Devices and campaigns

    def add_device(self, row: DeviceRow) -> None:
        """Adds a device or renews its label and facts."""
        with self._writing() as db:
            queries.put_device(db, row)

    def devices(self) -> list[DeviceRow]:
        """Every device anything was ever measured on, imported ones included."""
        return self._read(lambda db, bad: queries.devices(db, bad))

    def start_campaign(self, device: str, settings: dict[str, Any]) -> int:
        """The id of a new campaign that starts now."""
        with self._writing() as db:
            row = CampaignRow(0, device, utc_now(), None, settings)
            return queries.add_campaign(db, row)

    def end_campaign(self, campaign: int) -> None:
        """Notes that the campaign came to its end; one that was killed keeps `ended` None."""
        with self._writing() as db:
            queries.end_campaign(db, campaign, utc_now())

    def campaigns(self) -> list[CampaignRow]:
        """Every campaign, oldest first."""
        return self._read(lambda db, bad: queries.campaigns(db, bad))

    # Trials

    def add_trial(self, row: TrialRow) -> int:
        """Keeps one trial and gives its id; it survives anything that happens afterwards."""
        with self._writing() as db:
            return queries.add_trial(db, row)

    def trials(
        self,
        problem: ProblemKey | None = None,
        device: str | None = None,
        *,
        mode: str | None = None,
        operation: str | None = None,
        campaign: int | None = None,
        fingerprints: Collection[str] | None = None,
    ) -> list[TrialRow]:
        """The trials that match all that is given, in the order they were added."""
        where = {
            "problem": problem.text if problem else None,
            "device": device,
            "mode": mode,
            "operation": operation,
            "campaign": campaign,
        }
        return self._read(lambda db, bad: queries.trials(db, where, fingerprints, bad))

    def rejections(self, problem: ProblemKey, device: str) -> frozenset[Rejection]:
        """What the gate has rejected of a problem's candidates; see `rejections.rejections`."""
        return self._read(lambda db, _: rejections(db, problem, device))

    # Policies and pins

    def put_policy(self, row: PolicyRow) -> None:
        """Makes `row` the policy of its problem, device and mode; older ones stay as history."""
        with self._writing() as db:
            queries.add_policy(db, row)

    def policies(self, device: str | None = None, operation: str | None = None) -> list[PolicyRow]:
        """The policy last written for every problem, device and mode."""
        where = {"device": device, "operation": operation}
        return self._read(lambda db, bad: queries.policies(db, where, bad, history=False))

    def policy_history(self, problem: ProblemKey, device: str, mode: str) -> list[PolicyRow]:
        """Every policy this problem ever had on this device, oldest first."""
        where = {"problem": problem.text, "device": device, "mode": mode}
        return self._read(lambda db, bad: queries.policies(db, where, bad, history=True))

    def pin(self, row: PinRow) -> None:
        """Makes this choice the user's own, in place of an earlier one with the same scope."""
        with self._writing() as db:
            queries.put_pin(db, row)

    def unpin(self, operation: str, problem: ProblemKey | None, device: str) -> bool:
        """Takes a pin back; False when there was none with this scope."""
        with self._writing() as db:
            return queries.delete_pin(db, operation, problem, device)

    def pins(self) -> list[PinRow]:
        """Every pin."""
        return self._read(lambda db, bad: queries.pins(db, bad))

    def generation(self) -> int:
        """A number that moves on whenever a policy or a pin changes, by whichever process."""
        return self._read(lambda db, _: queries.generation(db))

    def put_ceilings(self, row: CeilingsRow) -> None:
        """Keeps the rates measured of a device, in place of earlier ones."""
        with self._writing() as db:
            queries.put_ceilings(db, row)

    def ceilings(self, device: str) -> CeilingsRow | None:
        """The rates last measured of a device; they are its own and are not exported."""
        return self._read(lambda db, bad: queries.ceilings(db, device, bad))

    # The file

    def integrity(self) -> tuple[str, ...]:
        """What SQLite's full check finds wrong with the file; nothing when it is sound."""
        return self._read(lambda db, _: integrity(db, quick=False))

    def collect(
        self, *, older: timedelta | None = None, copies: bool = False, dry: bool = False
    ) -> Collected:
        """Removes what is not needed any more; see `autotune_tuning_db.upkeep.collect`."""
        with self._lock, translated(self.path):
            return collect(self._current(), self.path, older=older, copies=copies, dry=dry)

    def backup(self, target: str | os.PathLike[str]) -> None:
        """Writes a consistent copy of the store to `target`, while others go on using it.

        A file that is there already is not replaced.
        """
        with self._reading() as db, translated(Path(target)):
            copy_database(db.conn, Path(target).resolve())

    def export_file(self, target: str | os.PathLike[str]) -> dict[str, int]:
        """Writes everything as JSON, complete or not at all; the number of rows of each kind.

        Raises:
            ExchangeError: the file cannot be written.
        """
        bad: list[str] = []
        with self._reading() as db:
            document = exchange.export_document(db, bad)
        self._warn_of(bad)
        return exchange.write_document(document, Path(target))

    def import_file(
        self,
        file: str | os.PathLike[str],
        *,
        local_devices: Collection[str] = (),
        check: PolicyCheck | None = None,
    ) -> ImportReport:
        """Adds what an exported file has and this store has not, in one transaction.

        Importing again adds nothing; a policy older than the local one is skipped. Entries of
        devices outside `local_devices` are kept and counted in `ImportReport.foreign`; being
        keyed by their device, they serve no other. `check` says what is wrong with a policy.

        Raises:
            ExchangeError: the file is not a complete export; nothing was imported.
        """
        document = exchange.read_document(Path(file))
        with self._writing() as db:
            return exchange.import_document(
                db, document, source=Path(file).name, local_devices=local_devices, check=check
            )

    @contextlib.contextmanager
    def _reading(self) -> Iterator[Database]:
        """One consistent view of the store, for reads that belong together."""
        with self._lock, translated(self.path):
            db = self._current()
            db.execute("BEGIN")
            try:
                yield db
            finally:
                db.rollback()

    @contextlib.contextmanager
    def _writing(self) -> Iterator[Database]:
        """One transaction: kept as a whole when the body ends, undone when it raises."""
        if self.readonly:
            raise store_error("readonly", self.path, "it was opened for reading")
        with self._lock, translated(self.path), contextlib.ExitStack() as stack:
            while True:
                db = self._current()
                stack.enter_context(transaction(db))
                if self._opened == self._place():
                    break
                stack.close()  # while this one waited, another store took the path
            yield db
            stack.close()
            # With the lock given back: several writers wait for the disk at once, not in turn.
            sync_log(self.path)

    def _read(self, read: Callable[[Database, list[str]], Rows]) -> Rows:
        bad: list[str] = []
        with self._reading() as db:
            rows = read(db, bad)
        self._warn_of(bad)
        return rows

    def _warn_of(self, bad: list[str]) -> None:
        if bad:
            warnings.warn(
                f"Skipped {len(bad)} entries of the tuning database {self.path} that cannot be "
                f"read; the first is {bad[0]}.",
                StoreWarning,
                stacklevel=4,
            )

    def _current(self) -> Database:
        """The open connection, renewed after a fork and when another file took the path."""
        if self._db is not None and self._opened == self._place():
            return self._db
        if self._db is not None:
            if self._opened is not None and self._opened[0] != os.getpid():
                _INHERITED.append(self._db)
                self._db = None
            self.close()
        self._db = open_database(self.path, readonly=self.readonly)
        self._opened = self._place()
        return self._db

    def _place(self) -> tuple[int, int, int] | None:
        """This process and the file that is at the path now."""
        try:
            found = self.path.stat()
        except OSError:
            return None
        return os.getpid(), found.st_dev, found.st_ino


def open_store(path: str | os.PathLike[str], *, readonly: bool = False) -> Store:
    """The store at `path`; see `Store`."""
    return Store(path, readonly=readonly)
