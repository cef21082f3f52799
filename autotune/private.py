"""The cache folder: nobody but its user may put anything there."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from autotune.settings import settings, temporary_place


def private_cache() -> Path:
    """The cache folder of the settings in force, made if it is missing and closed to others.

    Machine code from it is loaded, and what numba keeps there is unpickled: whoever can write
    there runs code as this user. Raises PermissionError where it belongs to another user, and
    what making a folder raises.
    """
    folder = settings().cache
    make_private(folder)
    return folder


_OTHERS = {"NUMBA_CACHE_DIR": "numba-own", "CUPY_CACHE_DIR": "cupy", "CUDA_CACHE_PATH": "driver"}
"""Where others keep compiled code: the variable that moves it, and its folder in our cache."""


def gather_caches() -> None:
    """Have numba, CuPy and the driver keep their code beside ours where it was moved.

    Where ours cannot be kept at all, theirs is among temporary files: a function that is declared
    with numba's `cache=True` would fail to. For this process and those it starts, unless they were
    told of another place, and for what of them is not loaded yet.
    """
    usable = _can_be_made(settings().cache)
    if usable and not settings().moved:
        return
    folder = settings().cache if usable else temporary_place()
    for variable, name in _OTHERS.items():
        os.environ.setdefault(variable, str(folder / name))


def _can_be_made(folder: Path) -> bool:
    """Whether a folder is there and can be written to, or could be made."""
    there = next((each for each in (folder, *folder.parents) if os.path.lexists(each)), folder)
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)


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
