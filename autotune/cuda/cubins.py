"""Keeps compiled CUDA kernels on disk, under a digest of everything they were compiled from."""

from __future__ import annotations

import hashlib
import os
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.cuda import nvrtc
from autotune.settings import settings

if TYPE_CHECKING:
    from autotune.cuda.source import CudaSource

LARGEST = 512 * 2**20
"""Bytes of kernels kept on disk; those not used for longest go first."""

LOOK_EVERY = 32
"""Files written by a process between looks at how much there is."""

_MAGIC = b"onf-cubin-1\0"
_CHECK = 32
_warned = False
_written = count()


def cubin(source: CudaSource, command: list[str], arch: str) -> bytes:
    """The machine code of `source` for `arch`: from disk if it is there and whole, or compiled."""
    options = [f"--gpu-architecture={arch}", *command]
    parts = [source.digest, nvrtc.version(), *options]
    name = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    file = settings().cache / "cuda" / f"{name}.cubin"
    kept = _load(file)
    if kept is not None:
        return kept
    with _alone(file):
        kept = _load(file)
        if kept is not None:  # another process was faster
            return kept
        given = [*options, f"-I{source.path.parent}"]
        code = nvrtc.compile_cubin(source.text, source.path.name, given)
        _save(file, code)
    return code


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


def _load(file: Path) -> bytes | None:
    """What a file holds; None when it is absent, unreadable or not what was written."""
    try:
        data = file.read_bytes()
    except OSError:
        return None
    start = len(_MAGIC) + _CHECK
    code = data[start:]
    if data[:start] != _MAGIC + hashlib.sha256(code).digest():
        return None
    with suppress(OSError):
        os.utime(file)
    return code


def _save(file: Path, code: bytes) -> None:
    """Write beside and rename, so that no reader sees half a file."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        handle, beside = tempfile.mkstemp(dir=file.parent, suffix=".part")
        try:
            with os.fdopen(handle, "wb") as stream:
                stream.write(_MAGIC + hashlib.sha256(code).digest() + code)
            Path(beside).replace(file)
        except BaseException:
            Path(beside).unlink(missing_ok=True)
            raise
        if next(_written) % LOOK_EVERY == 0:
            _prune(file.parent)
    except OSError as error:
        _warn(f"cannot keep compiled kernels in {file.parent} ({type(error).__name__}: {error})")


def _prune(folder: Path) -> None:
    """Remove what was not used for longest until the rest fits."""
    total, files = 0, []
    for file in folder.iterdir():
        with suppress(OSError):
            status = file.stat()
            files.append((status.st_mtime, status.st_size, file))
            total += status.st_size
    for _, size, file in sorted(files):
        if total <= LARGEST:
            break
        with suppress(OSError):
            file.unlink()
            total -= size


def _warn(message: str) -> None:
    global _warned
    if not _warned:
        _warned = True
        remedy = "set AUTOTUNE_HOME to a directory that can be written"
        warnings.warn(f"{message}; they are compiled in each process: {remedy}.", stacklevel=2)
