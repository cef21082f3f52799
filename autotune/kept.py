"""Compiled code on disk: found whole or not at all, made once, the least used removed."""

from __future__ import annotations

import hashlib
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path

from autotune.private import private_cache
from autotune.settings import settings

_MAGIC = b"\0onf-kept-1\0"
_CHECK = 32
_TAIL = len(_MAGIC) + _CHECK


class KeptCode:
    """Files of one kind in a folder of the cache; a name stands for all its code was made from.

    Behind the code stand a mark and its digest, where loaders of machine code do not look.
    `largest` is how many bytes are kept, and `look_every` how many files a process writes between
    looks at that; those not used for longest go first.
    """

    def __init__(self, folder: str, suffix: str, *, largest: int, look_every: int = 32) -> None:
        self._folder, self._suffix = folder, suffix
        self.largest, self.look_every = largest, look_every
        self.warned = False
        self._written = count()

    def file(self, name: str) -> Path:
        """Where the code of that name is kept, or would be."""
        return settings().cache / self._folder / f"{name}{self._suffix}"

    def get(self, name: str, make: Callable[[], bytes]) -> bytes:
        """The code of that name: from disk if it is there and whole, or made, once at a time."""
        file = self.file(name)
        kept = self.load(name)
        if kept is not None:
            return kept
        with _alone(file):
            kept = self.load(name)
            if kept is not None:  # another process was faster
                return kept
            code = make()
            self._save(file, code)
        return code

    def load(self, name: str) -> bytes | None:
        """What is kept; None when it is absent, unreadable or not what was written."""
        file = self.file(name)
        try:
            private_cache()
            data = file.read_bytes()
        except OSError:
            return None
        code = data[:-_TAIL]
        if data[-_TAIL:] != _MAGIC + hashlib.sha256(code).digest():
            return None
        with suppress(OSError):
            os.utime(file)
        return code

    def _save(self, file: Path, code: bytes) -> None:
        """Write beside and rename, so that no reader sees half a file."""
        try:
            private_cache()
            file.parent.mkdir(parents=True, exist_ok=True)
            handle, beside = tempfile.mkstemp(dir=file.parent, suffix=".part")
            try:
                with os.fdopen(handle, "wb") as stream:
                    stream.write(code + _MAGIC + hashlib.sha256(code).digest())
                Path(beside).replace(file)
            except BaseException:
                Path(beside).unlink(missing_ok=True)
                raise
            if next(self._written) % self.look_every == 0:
                self._prune(file.parent)
        except OSError as error:
            self._warn(f"cannot keep compiled kernels in {file.parent} ({_text(error)})")

    def _prune(self, folder: Path) -> None:
        """Remove what was not used for longest until the rest fits."""
        total, files = 0, []
        for file in folder.iterdir():
            with suppress(OSError):
                status = file.stat()
                files.append((status.st_mtime, status.st_size, file))
                total += status.st_size
        for _, size, file in sorted(files):
            if total <= self.largest:
                break
            with suppress(OSError):
                file.unlink()
                total -= size

    def _warn(self, message: str) -> None:
        if not self.warned:
            self.warned = True
            remedy = "set AUTOTUNE_HOME to a directory that can be written"
            warnings.warn(f"{message}; they are compiled in each process: {remedy}.", stacklevel=2)


@contextmanager
def _alone(file: Path) -> Iterator[None]:
    """While another process compiles the same code, wait for it; where that can be known."""
    with ExitStack() as stack:
        with suppress(ImportError, OSError):
            import fcntl

            file.parent.mkdir(parents=True, exist_ok=True)
            lock = file.with_suffix(".lock")
            fcntl.flock(stack.enter_context(lock.open("a")), fcntl.LOCK_EX)
            stack.callback(lock.unlink, missing_ok=True)
        yield


def _text(error: OSError) -> str:
    return f"{type(error).__name__}: {error}"
