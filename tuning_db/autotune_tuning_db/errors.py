"""What can go wrong with a store, each with one sentence that names the file and the remedy."""

from __future__ import annotations

import errno
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

Kind = Literal[
    "missing",
    "busy",
    "full",
    "readonly",
    "unopenable",
    "io",
    "corrupt",
    "foreign",
    "newer",
    "lost",
]


class StoreError(Exception):
    """The store cannot be used; `kind` says in which way, `path` names the file.

    `detail` is what SQLite or the operating system said, an empty text for nothing.
    """

    def __init__(self, message: str, *, kind: Kind, path: Path, detail: str = "") -> None:
        super().__init__(message)
        self.kind: Kind = kind
        self.path = path
        self.detail = detail


class StoreWarning(UserWarning):
    """The store can be used, and something about its file needs to be known."""


_REMEDY: dict[Kind, str] = {
    "missing": "does not exist yet; tuning creates it",
    "busy": "is locked by another process; wait for it to end, or use another path",
    "full": "cannot grow, the disk or quota is full; free some space or use another path",
    "readonly": "cannot be written; make it and its folder writable, or use another path",
    "unopenable": "cannot be opened; name a file in a folder that you may write to",
    "io": "cannot be read or written reliably where it lies; check disk and quota, or use a path "
    "on a local disk",
    "corrupt": "is damaged; `autotune db repair` saves what can still be read, or the next tuning "
    "run sets it aside and starts a new one",
    "foreign": "belongs to another program; use another path",
    "lost": "has nothing in it that can be read as a tuning database; name another file",
    "newer": "was written by a newer version; upgrade onf-autotune, or use another path",
}


def store_error(kind: Kind, path: Path, detail: str = "") -> StoreError:
    """The error of this kind, in one sentence."""
    detail = " ".join(detail.split())  # SQLite may quote a piece of the file over several lines
    because = f" ({detail})" if detail else ""
    message = f"The tuning database {path} {_REMEDY[kind]}{because}."
    return StoreError(message, kind=kind, path=path, detail=detail)


# Longest prefix first: an I/O error while reading a short file is damage, not a bad disk.
_KIND_OF_CODE: tuple[tuple[str, Kind], ...] = (
    ("SQLITE_IOERR_SHORT_READ", "corrupt"),
    ("SQLITE_IOERR", "io"),
    ("SQLITE_PROTOCOL", "io"),
    ("SQLITE_NOTADB", "corrupt"),
    ("SQLITE_CORRUPT", "corrupt"),
    ("SQLITE_BUSY", "busy"),
    ("SQLITE_LOCKED", "busy"),
    ("SQLITE_FULL", "full"),
    ("SQLITE_READONLY", "readonly"),
    ("SQLITE_PERM", "readonly"),
    ("SQLITE_CANTOPEN", "unopenable"),
    ("SQLITE_ERROR", "corrupt"),  # our statements are fixed: a table or column is gone
    ("SQLITE_MISMATCH", "corrupt"),
)


def kind_of(error: Exception) -> Kind | None:
    """The kind of a SQLite error, None for one that says nothing about the file."""
    if isinstance(error, UnicodeDecodeError):  # from the name of a column
        return "corrupt"
    code = getattr(error, "sqlite_errorname", "") or ""
    return next((kind for prefix, kind in _KIND_OF_CODE if code.startswith(prefix)), None)


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Turns what SQLite and the operating system raise about this file into `StoreError`."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:
        kind = kind_of(error)
        if kind is None:
            raise
        raise store_error(kind, path, str(error)) from error
    except OSError as error:
        raise store_error(_kind_of_os_error(error), path, error.strerror or str(error)) from error


def _kind_of_os_error(error: OSError) -> Kind:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "full"
    if error.errno == errno.EROFS:
        return "readonly"
    wrong_place = (PermissionError, FileNotFoundError, FileExistsError, NotADirectoryError)
    return "unopenable" if isinstance(error, wrong_place) else "io"
