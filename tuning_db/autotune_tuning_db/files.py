"""The store as a file: locking its folder entry, setting damaged ones aside, copying it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import sqlite3
import time
import uuid
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from autotune_tuning_db.errors import StoreWarning, store_error

LOCK_SECONDS = 60.0

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)

_NETWORK = frozenset(
    (
        *("nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "lustre", "gpfs", "beegfs"),
        *("orangefs", "pvfs2", "virtiofs", "fuse.sshfs", "fuse.glusterfs", "fuse.ceph"),
        *("fuse.s3fs", "fuse.gcsfuse", "fuse.rclone"),
    )
)
_OCTAL = re.compile(r"\\([0-7]{3})")


def resolved(path: Path) -> Path:
    """The file a path leads to; raises StoreError for one that can lead nowhere."""
    try:
        return path.resolve()
    except (ValueError, RuntimeError) as error:  # a NUL in the name, links in a circle
        raise store_error("unopenable", path, str(error)) from None


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds the one lock under which the file at `path` is created, replaced or migrated.

    The lock is a file of its own beside the store and is never deleted. The store itself cannot
    be used for it: closing any descriptor of a SQLite file drops this process's locks on it.
    Where the file system knows no locks, the body runs without; each step in it is then still
    atomic on its own.
    """
    handle = _lock_file(path)
    try:
        _acquire(handle, path)
        yield
    finally:
        os.close(handle)


def _lock_file(path: Path, *, create: bool = True) -> int:
    lock = path.with_name(f".{path.name}.lock")
    try:
        return os.open(lock, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o666)
    except PermissionError:  # another user's, in a folder that several share
        return os.open(lock, os.O_RDONLY | os.O_CLOEXEC)


def require_locks(path: Path, *, create: bool = True) -> None:
    """Raises StoreError where files cannot be locked, as on some network mounts.

    SQLite takes that for another process that holds a lock, and waits for it. Asked with the lock
    file, for the reason that `locked` gives; where it cannot be opened, nothing is said.
    """
    try:
        handle = _lock_file(path, create=create)
    except OSError:
        return
    try:
        fcntl.lockf(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        pass
    except OSError as error:
        if error.errno in _NO_LOCKS:
            detail = f"files cannot be locked there: {error.strerror}"
            raise store_error("io", path, detail) from error
    finally:
        os.close(handle)


def _acquire(descriptor: int, path: Path) -> None:
    deadline = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise store_error("busy", path) from None
            time.sleep(0.01)
        except OSError as error:
            if error.errno in _NO_LOCKS:
                return
            raise
        else:
            return


def sidecars(path: Path) -> list[Path]:
    """The files SQLite keeps beside the store: write-ahead log, its index, rollback journal."""
    return [path.with_name(path.name + suffix) for suffix in ("-wal", "-shm", "-journal")]


def sync_log(path: Path) -> None:
    """Has the write-ahead log on the disk, as far as it was written; nothing where there is none.

    The log takes no locks: closing a descriptor of it drops none.
    """
    try:
        handle = os.open(sidecars(path)[0], os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:  # a rollback journal, or all of it is in the store and synced
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def spare_name(path: Path, word: str) -> Path:
    """A name beside `path` that nothing has yet: `<name>.<word>-<UTC time>`."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S")
    base = path.with_name(f"{path.name}.{word}-{stamp}")
    candidate, number = base, 1
    while candidate.exists():
        number += 1
        candidate = base.with_name(f"{base.name}-{number}")
    return candidate


def private_name(path: Path) -> Path:
    """A name beside `path` that no other process or host will choose."""
    return path.with_name(f".{path.name}.{uuid.uuid4().hex}")


def discard(path: Path) -> None:
    """Removes a store that was being built, with all that SQLite keeps beside it."""
    for file in (path, *sidecars(path)):
        file.unlink(missing_ok=True)


def set_aside(path: Path, reason: str) -> None:
    """Renames a damaged store, keeping every byte, and says so in one warning.

    Call it under `locked`.
    """
    kept = move_aside(path)
    warnings.warn(
        f"The tuning database {path} was damaged ({reason}). It is kept as {kept.name}, and a "
        f"new one is started; tune again to fill it, or bring back what can still be read with "
        f"`autotune db repair {kept}`.",
        StoreWarning,
        stacklevel=2,
    )


def move_aside(path: Path) -> Path:
    """Renames a damaged store, keeping every byte; the new name.

    The log goes first: a log left behind would be replayed into the next store of this name.
    """
    kept = spare_name(path, "damaged")
    _move_sidecars(path, kept)
    path.rename(kept)
    _sync_folder(path.parent)
    return kept


def clear_orphans(path: Path) -> None:
    """Moves away a log whose store is gone, so that it cannot be replayed into a new one."""
    if any(sidecar.exists() for sidecar in sidecars(path)):
        _move_sidecars(path, spare_name(path, "orphan"))


def _move_sidecars(path: Path, kept: Path) -> None:
    for old, new in zip(sidecars(path), sidecars(kept), strict=True):
        with contextlib.suppress(FileNotFoundError):
            old.rename(new)


def publish(finished: Path, path: Path) -> None:
    """Gives a complete file its name, unless the name is taken by then; never replaces a file."""
    try:
        os.link(finished, path)
    except FileExistsError:
        pass
    except OSError:  # a file system without hard links; the caller's lock keeps others out
        if not path.exists():
            finished.rename(path)
    finally:
        finished.unlink(missing_ok=True)
    _sync_folder(path.parent)


def _sync_folder(folder: Path) -> None:
    """A new name survives a power failure only when its folder is on the disk too."""
    with contextlib.suppress(OSError):  # not every file system can do that
        handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def copy_database(source: sqlite3.Connection, target: Path) -> None:
    """A consistent copy of an open database; `target` appears complete or not at all.

    Raises FileExistsError rather than replace a file.
    """
    if target.exists():
        raise FileExistsError(errno.EEXIST, "it exists already", str(target))
    partial = private_name(target)
    copy = sqlite3.connect(partial)
    try:
        source.backup(copy)
        copy.close()
        publish(partial, target)
    finally:
        copy.close()
        discard(partial)


def write_whole(text: str, target: Path) -> None:
    """Writes a text file, whole or not at all, over the one that is there.

    Raises OSError with the name of the target, whichever step of it failed.
    """
    partial = private_name(target)
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(target)
    except OSError as error:
        raise type(error)(error.errno, error.strerror, str(target)) from None
    finally:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)


def on_network(path: Path, mounts: Path = Path("/proc/self/mountinfo")) -> bool:
    """Whether `path` lies on a file system shared between hosts, where a WAL cannot work.

    The write-ahead log's index is shared memory, which two hosts do not have
    (https://www.sqlite.org/wal.html); SQLite does not notice, so it is looked up here.
    """
    try:
        lines = mounts.read_text(errors="replace").splitlines()
    except OSError:
        return False
    place = os.path.realpath(path)
    best, kind = "", ""
    for line in lines:
        before, separator, after = line.partition(" - ")
        fields = before.split(" ")
        if not separator or len(fields) < 5:
            continue
        mount = _OCTAL.sub(lambda match: chr(int(match[1], 8)), fields[4])
        inside = place == mount or place.startswith(mount.rstrip("/") + "/")
        if inside and len(mount) >= len(best):
            best, kind = mount, after.split(" ")[0]
    return kind in _NETWORK
