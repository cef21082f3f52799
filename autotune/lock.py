"""One measuring process per device at a time, across all processes of a user."""

from __future__ import annotations

import contextlib
import json
import os
import re
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from autotune.errors import AutotuneError
from autotune.private import make_private
from autotune.settings import settings

POLL_SECONDS = 0.2


class DeviceBusyError(AutotuneError):
    """Another process has been measuring on the device for longer than the caller would wait."""


@contextmanager
def device_lock(
    identity: str,
    *,
    waiting: Callable[[str], None] = lambda message: None,
    timeout: float | None = None,
) -> Iterator[None]:
    """Hold the device's lock; wait for another holder after telling `waiting` who that is, once.

    The lock is the operating system's (flock) and ends with its holder, however that ends. Where
    there is none (some network file systems), a warning says so and measuring goes on. Raises
    DeviceBusyError after `timeout` seconds of waiting (None: no end to the patience).
    """
    with contextlib.ExitStack() as stack:
        file = stack.enter_context(_open(identity))
        try:
            _acquire(file, identity, waiting, timeout)
        except NotImplementedError as error:
            warnings.warn(
                f"cannot lock {identity} ({error}); do not tune on it twice at once.", stacklevel=3
            )
        else:
            _tell(file)
        yield


def _acquire(
    file: IO[str], identity: str, waiting: Callable[[str], None], timeout: float | None
) -> None:
    """Raises NotImplementedError where files cannot be locked."""
    try:
        import fcntl
    except ImportError:
        raise NotImplementedError("no flock on this system") from None
    started = time.monotonic()
    told = False
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            pass
        except OSError as error:
            raise NotImplementedError(str(error)) from None
        if not told:
            waiting(f"waiting for {_holder(file)}, which is measuring on {identity}")
            told = True
        if timeout is not None and time.monotonic() - started >= timeout:
            raise DeviceBusyError(f"{_holder(file)} is still measuring on {identity}; try later.")
        time.sleep(POLL_SECONDS)


def _tell(file: IO[str]) -> None:
    """Write down who holds it; where the disk is full nobody can be told."""
    known = json.dumps({"pid": os.getpid(), "since": time.strftime("%H:%M:%S")})
    with contextlib.suppress(OSError):
        os.ftruncate(file.fileno(), 0)
        os.write(file.fileno(), known.encode())


def _holder(file: IO[str]) -> str:
    file.seek(0)
    try:
        known = json.loads(file.read())
        return f"process {known['pid']} (since {known['since']})"
    except (ValueError, KeyError, TypeError):
        return "another process"


def _open(identity: str) -> IO[str]:
    """The lock file, beside the other caches or, if that fails, among temporary files.

    There, a folder that someone else has laid out would let them choose what file is written to.
    """
    name = re.sub(r"[^A-Za-z0-9._-]", "_", identity) + ".lock"
    fallback = Path(tempfile.gettempdir()) / f"onf-autotune-{_user()}"
    for directory in (settings().cache / "locks", fallback):
        try:
            if directory == fallback:
                if fallback.is_symlink():
                    continue
                make_private(fallback)
            directory.mkdir(parents=True, exist_ok=True)
            return (directory / name).open("a+", encoding="utf-8")
        except OSError:
            continue
    raise AutotuneError(
        f"no lock file can be made in {settings().cache} or {fallback}; "
        f"set AUTOTUNE_HOME to a directory that can be written."
    )


def _user() -> str:
    return str(os.getuid()) if hasattr(os, "getuid") else os.environ.get("USERNAME", "user")
