"""The cache folder: nobody but its user may put anything there."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from autotune.settings import settings


def private_cache() -> Path:
    """The cache folder of the settings in force, made if it is missing and closed to others.

    Machine code from it is loaded, and what numba keeps there is unpickled: whoever can write
    there runs code as this user. Raises PermissionError where it belongs to another user, and
    what making a folder raises.
    """
    folder = settings().cache
    make_private(folder)
    return folder


def make_private(folder: Path) -> None:
    """Makes a folder that only this user can enter, or closes one of their own that is open.

    Raises PermissionError for one of another user.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not hasattr(os, "getuid"):
        return
    found = folder.stat()
    if found.st_uid != os.getuid():
        raise PermissionError(errno.EACCES, "it belongs to another user", str(folder))
    if found.st_mode & 0o077:
        folder.chmod(0o700)
