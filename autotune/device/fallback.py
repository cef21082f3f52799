"""The topology where there is no sysfs: what psutil and platform know, as one node."""

from __future__ import annotations

import platform

from autotune.device.cpuinfo import Silicon
from autotune.device.topology import Core, Node, Package, Topology


def read_elsewhere() -> Topology:
    """One package and one node; cores hold equal shares of the CPUs; no caches, no quota."""
    import psutil

    count = psutil.cpu_count(logical=True) or 1
    physical = min(psutil.cpu_count(logical=False) or count, count)
    cpus = tuple(range(count))
    try:
        allowed = tuple(sorted(set(psutil.Process().cpu_affinity()) & set(cpus))) or cpus
    except (AttributeError, OSError, psutil.Error):  # macOS has no affinity
        allowed = cpus
    width = -(-count // physical)
    cores = tuple(
        Core(package=0, id=first // width, node=0, cpus=cpus[first : first + width])
        for first in range(0, count, width)
    )
    return Topology(
        silicon=Silicon(
            vendor=platform.machine().lower() or "unknown",
            family=platform.system().lower(),
            model=platform.processor(),
            model_name=platform.processor(),
        ),
        packages=(Package(0, cpus),),
        nodes=(Node(0, cpus, int(psutil.virtual_memory().total)),),
        cores=cores,
        caches=(),
        online=cpus,
        allowed=allowed,
    )
