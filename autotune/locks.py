"""A lock that a forked child finds open, whatever the threads of its parent were doing."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any


class Lock:
    """As threading.RLock. A forked child has only the thread that forked: what others held is
    nobody's there, and would never be released."""

    __slots__ = ("__weakref__", "_lock")

    def __init__(self) -> None:
        self._lock: Any = threading.RLock()
        _every.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def renew(self) -> None:
        """Open it, unless this thread holds it."""
        if not self._lock._is_owned():
            self._lock = threading.RLock()


_every: weakref.WeakSet[Lock] = weakref.WeakSet()
_callbacks: list[Callable[[], None]] = []


def after_fork(callback: Callable[[], None]) -> None:
    """Have something called in every forked child, before anything else of it."""
    _callbacks.append(callback)


def _in_child() -> None:
    for lock in list(_every):
        lock.renew()
    for callback in _callbacks:
        callback()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)
