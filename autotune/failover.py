"""The candidate that serves a kernel: built when it is first needed, replaced when it fails."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from autotune.errors import CapturingError, DeviceLostError, ShapeError
from autotune.locks import Lock, after_fork

if TYPE_CHECKING:
    from autotune.execution import Executable
    from autotune.serving import Served

NOBODYS_FAULT = (CapturingError, DeviceLostError, ShapeError)
"""What sets no candidate aside, as another would fail as well: the last is the caller's mistake."""


class Seat:
    """Who serves at the moment; several threads may build, call and fail at once.

    `call` is what a kernel calls where it may be called directly, on inputs and outputs as they
    are; None where it has to go through `executable`, or is not built yet.
    """

    __slots__ = ("__weakref__", "_direct", "_lock", "_serve_next", "call", "executable", "served")

    def __init__(
        self,
        served: Served,
        serve_next: Callable[[Served, BaseException], Served],
        *,
        direct: bool,
    ) -> None:
        self.served = served
        self.executable: Executable | None = None
        self.call: Callable[..., Any] | None = None
        self._serve_next, self._direct, self._lock = serve_next, direct, Lock()
        _seats.add(self)

    def built(self) -> Executable:
        """Built by the first thread that comes; what cannot be built gives way to the next best.

        Raises what the last one raises, and what is NOBODYS_FAULT.
        """
        executable = self.executable
        if executable is not None:
            return executable
        with self._lock:
            while self.executable is None:
                try:
                    executable = self.served.build()
                except NOBODYS_FAULT:
                    raise
                except Exception as error:
                    self._give_way(error)
                else:
                    self._put(executable)
            return self.executable

    def give_way(self, failed: Any, error: Exception) -> None:
        """Have the next best serve in place of the executable, or call, that failed.

        Of threads that meet the same failure the first has it replaced. What failed by NumPy's
        floating-point errors gives way to itself without them. Raises the error when the last
        resort has failed.
        """
        from autotune.quiet import quieter

        with self._lock:
            executable = self.executable
            if executable is not None and (failed is executable or failed is self.call):
                quiet = quieter(executable, error)
                if quiet is None:
                    self._give_way(error)
                else:
                    self._put(quiet)

    def _put(self, executable: Executable) -> None:
        self.call = executable.call if self._direct and executable.takes_outputs else None
        self.executable = executable

    def _give_way(self, error: Exception) -> None:
        if self.served.origin == "reference":
            raise error
        self.served = self._serve_next(self.served, error)
        self.executable = self.call = None

    def leave(self) -> None:
        """Have the candidate built anew: what it was built on is not there any more."""
        self.executable = self.call = None


_seats: weakref.WeakSet[Seat] = weakref.WeakSet()


def _in_child() -> None:
    """A forked child has none of the threads that candidates were built to run on."""
    for seat in list(_seats):
        seat.leave()


after_fork(_in_child)
