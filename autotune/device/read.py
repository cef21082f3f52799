"""Reads this machine's topology, or a recorded one under another root."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

from autotune.device.fallback import read_elsewhere
from autotune.device.linux import read_linux
from autotune.device.topology import Topology


def read_topology(root: Path = Path("/"), *, affinity: Iterable[int] | None = None) -> Topology:
    """The topology under `root`.

    `affinity` replaces this process's mask. Without it the live system (`/`) is asked, and a
    recorded tree's /proc/self/status. Away from Linux psutil tells what it can.
    """
    live = root == Path("/")
    if live and not sys.platform.startswith("linux"):
        return read_elsewhere()
    if affinity is None and live:
        affinity = os.sched_getaffinity(0)
    return read_linux(root, None if affinity is None else frozenset(affinity))
