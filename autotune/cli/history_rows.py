"""What `autotune history` reads, which has nothing to tell without a database it can use."""

from __future__ import annotations

import tempfile
from pathlib import Path

from autotune.errors import StoreUnavailableError
from autotune.settings import settings
from autotune.store import open_tuning_db, with_remedy
from autotune_tuning_db import DeviceRow, StoreError, TrialRow
from autotune_tuning_db.errors import translated


def stored_rows(operation: str | None) -> tuple[list[TrialRow], list[DeviceRow]]:
    """The trials of an operation and all devices; none where nothing was ever measured.

    Raises StoreUnavailableError, in one sentence with the remedy, for a database that cannot be
    read, and for one that is not there and cannot be made there.
    """
    file = settings().database
    try:
        with translated(file):
            if not file.exists():
                _try_folder(file)
                return [], []
    except StoreError as error:
        raise StoreUnavailableError(with_remedy(error)) from error
    with open_tuning_db(readonly=True) as store:
        return store.trials(operation=operation), store.devices()


def _try_folder(file: Path) -> None:
    """Make a file and remove it where the folder of `file` is or would be made."""
    nearest = next(folder for folder in file.absolute().parents if folder.exists())
    tempfile.TemporaryFile(dir=nearest).close()
