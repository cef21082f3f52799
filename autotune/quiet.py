"""NumPy's floating-point errors: what a caller has made of them does not reach into a variant.

They are the calling thread's state (`np.seterr`), or warnings made errors, and a variant or the
reference that runs NumPy meets them: an underflow that everyone ignores would set it aside. To
ignore them costs a microsecond, so that only what has met them runs so, from then on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from autotune.execution import Executable

RAISED = (FloatingPointError, RuntimeWarning)
"""What NumPy raises where a caller wants it to."""


def quietly(call: Callable[..., Any]) -> Callable[..., Any]:
    """The same, with NumPy's floating-point errors ignored."""

    def run(*arguments: Any) -> Any:
        with np.errstate(all="ignore"):
            return call(*arguments)

    return run


class Quiet(Executable):
    """What an executable has built, run with NumPy's floating-point errors ignored."""

    def __init__(self, loud: Executable) -> None:
        vars(self).update(vars(loud))
        self.call = quietly(loud.call)

    def __call__(self, *arguments: Any, workspace: Any = None) -> tuple[Any, ...]:
        with np.errstate(all="ignore"):  # also where what was returned is copied
            return super().__call__(*arguments, workspace=workspace)


def quieter(executable: Executable, error: BaseException) -> Executable | None:
    """What to run in place of an executable that failed, if it did by NumPy's errors."""
    met = isinstance(error, RAISED) and not isinstance(executable, Quiet)
    return Quiet(executable) if met else None
