"""An operation whose variants take their process down, at once or later, but for one."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import sys
import time
from typing import Any

import numpy as np

from autotune import Choice, Pass, operation, variant

OWNED = (Pass("all", parallel=("N",), reads=("x",), writes={"y": "owned"}),)


@operation(inputs="x[N]", outputs="y[N]")
def case_crashes(x: Any) -> Any:
    """Twice x."""
    return x * 2


@variant(case_crashes, "honest", passes=OWNED, tunables=(Choice("pause", (1, 2)),))
def honest(x: Any, y: Any, pause: int) -> None:
    """Takes some milliseconds."""
    time.sleep(0.001 * pause)
    np.multiply(x, 2, out=y)


@variant(case_crashes, "segfault", passes=OWNED)
def segfault(x: Any, y: Any) -> None:
    """Reads where nothing is."""
    ctypes.string_at(0)


@variant(case_crashes, "aborts", passes=OWNED)
def aborts(x: Any, y: Any) -> None:
    """Ends its process."""
    print("assertion failed: tile > 0")
    os.abort()


@variant(case_crashes, "exits", passes=OWNED)
def exits(x: Any, y: Any) -> None:
    """Asks Python to end."""
    sys.exit(3)


@variant(case_crashes, "greedy", passes=OWNED)
def greedy(x: Any, y: Any) -> None:
    """Needs more memory than there is."""
    hoard = np.empty(1 << 44, np.uint8)
    hoard[:: 1 << 12] = 1


@operation(inputs="x[N]", outputs="y[N]")
def case_bomb(x: Any) -> Any:
    """Twice x."""
    return x * 2


@variant(case_bomb, "bomb", passes=OWNED)
def bomb(x: Any, y: Any) -> None:
    """Right, and the end of its process a moment later; too long to time others beside."""
    time.sleep(0.03)
    faulthandler.dump_traceback_later(0.3, exit=True, file=sys.stderr)
    np.multiply(x, 2, out=y)


@variant(case_bomb, "slow", passes=OWNED)
def slow(x: Any, y: Any) -> None:
    """Takes some milliseconds."""
    time.sleep(0.005)
    np.multiply(x, 2, out=y)
