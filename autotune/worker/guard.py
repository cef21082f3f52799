"""Ends what a measuring process has started when nobody is left to do it."""

from __future__ import annotations

import contextlib
import subprocess

_SCRIPT = 'read -r done || kill -s KILL -- "-$0"'


class Guard:
    """A shell that kills a process group once this process has gone without dismissing it.

    The kernel ends a measuring process with its parent, but not the processes that a candidate
    has started. The shell reads from a pipe, which ends with this process however that ends. Where
    there is no shell, nothing is guarded.
    """

    def __init__(self, group: int) -> None:
        self._popen: subprocess.Popen[bytes] | None = None
        with contextlib.suppress(OSError):
            self._popen = subprocess.Popen(
                ["/bin/sh", "-c", _SCRIPT, str(group)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )

    def dismiss(self) -> None:
        """The group has been ended, or goes on by itself."""
        if self._popen is not None:
            with contextlib.suppress(OSError):
                self._popen.communicate(b"done\n")
