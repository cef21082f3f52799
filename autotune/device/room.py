"""How much memory this process may still take, and a limit that keeps it within that."""

from __future__ import annotations

import contextlib
from pathlib import Path

import psutil

from autotune.device.cgroup import group_folders
from autotune.device.sysfs import read_int, read_text

SHARE = 0.9
"""Of what is left: the rest is for those who work beside this process."""

_LIMITS = (("memory.max", "memory.current"), ("memory.limit_in_bytes", "memory.usage_in_bytes"))


def memory_left(root: Path = Path("/")) -> int:
    """Bytes that this process can take before the machine, or a control group of it, has none."""
    rooms = [int(psutil.virtual_memory().available)]
    for folder in group_folders(root, frozenset({"memory"})):
        for most, now in _LIMITS:
            limit, used = read_int(folder / most), read_int(folder / now)
            if limit is not None and used is not None:
                rooms.append(max(limit - used + _cached(folder), 0))
    return min(rooms)


def _cached(folder: Path) -> int:
    """Bytes of files that a group holds and would give up."""
    for line in (read_text(folder / "memory.stat") or "").splitlines():
        name, _, value = line.partition(" ")
        if name in ("inactive_file", "total_inactive_file") and value.isdecimal():
            return int(value)
    return 0


def confine(left: int | None = None) -> int | None:
    """Let this process allocate no more than its share of the memory that is left, in bytes.

    What goes beyond fails where it is asked for. Should memory end all the same, the system is told
    to end this process before any other. Returns the limit, None where the system has none.
    """
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    try:
        import resource

        data = resource.RLIMIT_DATA
    except (ImportError, AttributeError):
        return None
    most = int(SHARE * (memory_left() if left is None else left)) + _data_bytes()
    _, hard = resource.getrlimit(data)
    limit = most if hard == resource.RLIM_INFINITY else min(most, hard)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(data, (limit, hard))
        return limit
    return None


def _data_bytes() -> int:
    """What counts towards that limit already."""
    for line in (read_text(Path("/proc/self/status")) or "").splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) << 10
    return 0
