"""What a candidate leaves behind in its process that would reach the next one."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import sys
import threading
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

_LEAST_NORMAL = 2.0**-1022


@dataclass(frozen=True, slots=True)
class Leftovers:
    """The state of a process that candidates share.

    Threads and children go on running and disturb what is timed next; the rest changes what the
    next candidate computes, or where it runs.
    """

    threads: frozenset[threading.Thread]
    children: frozenset[int]
    state: tuple[Hashable, ...]

    @classmethod
    def now(cls) -> Leftovers:
        """As it is; takes some ten microseconds."""
        return cls(frozenset(_threads()), frozenset(_children()), _state())

    def differ(self, before: Leftovers) -> bool:
        """Whether something is there, or is otherwise, that was not so before."""
        return bool(
            self.threads - before.threads
            or self.children - before.children
            or self.state != before.state
        )


def _threads() -> Iterable[threading.Thread]:
    """Python's threads, but for those that evict caches."""
    from autotune.eviction import THREAD_NAME

    return (each for each in threading.enumerate() if not each.name.startswith(THREAD_NAME))


def _children() -> Iterable[int]:
    """Processes that were started here and have not ended; nothing where the system has no list."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in Path("/proc/self/task").iterdir():
            with contextlib.suppress(OSError):
                found += map(int, (thread / "children").read_text().split())
    return (each for each in found if not _ended(each))


def _ended(child: int) -> bool:
    """Whether it is only waited for by its parent."""
    try:
        return Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (OSError, IndexError):
        return True


def _state() -> tuple[Hashable, ...]:
    return (
        frozenset(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        _folder(),
        tuple(sorted(np.geterr().items())),
        _LEAST_NORMAL / 2.0 > 0.0,  # numbers below the normal ones are not flushed to zero
        gc.isenabled(),
        sys.getswitchinterval(),
        sys.getrecursionlimit(),
        _handler(signal.SIGINT),
        _handler(signal.SIGTERM),
    )


def _folder() -> str | None:
    try:
        return str(Path.cwd())
    except OSError:  # it was removed
        return None


def _handler(number: signal.Signals) -> int:
    return id(signal.getsignal(number))
