"""What a CPU machine is made of, and the part of it that this process may use."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from autotune.device.cpuinfo import Silicon


@dataclass(frozen=True, slots=True)
class Package:
    """A socket."""

    id: int
    cpus: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Node:
    """A NUMA node. Ids have gaps; a node without CPUs is memory only and never gets a thread.

    `memory_bytes` is 0 when the node has none or does not tell; `usable` is False when a cpuset
    keeps this process off that memory. `distances` pairs node ids with the firmware's relative
    latency (10 is local).
    """

    id: int
    cpus: tuple[int, ...]
    memory_bytes: int = 0
    usable: bool = True
    distances: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Core:
    """A physical core: its package, the id it has there, its node and its SMT siblings.

    `efficient` marks the slow cores of a hybrid part.
    """

    package: int
    id: int
    node: int
    cpus: tuple[int, ...]
    efficient: bool = False


@dataclass(frozen=True, slots=True)
class Cache:
    """One cache: its level, kind (`data`, `instruction`, `unified`), size and who shares it."""

    level: int
    kind: str
    size_bytes: int
    cpus: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Topology:
    """A machine's online CPUs and how they hang together.

    `allowed` are the CPUs this process may run on (online, within affinity mask and cpuset),
    `quota` the CPU time it is granted, in CPUs, `numba` the threads that numba is started with
    where that is set (None: no limit).
    """

    silicon: Silicon
    packages: tuple[Package, ...]
    nodes: tuple[Node, ...]
    cores: tuple[Core, ...]
    caches: tuple[Cache, ...]
    online: tuple[int, ...]
    allowed: tuple[int, ...]
    quota: float | None = None
    numba: int | None = None

    @property
    def max_threads(self) -> int:
        """The most threads worth starting: within mask and numba's, and the quota rounded up."""
        granted = len(self.allowed) if self.quota is None else math.ceil(self.quota)
        return max(1, min(len(self.allowed), granted, self.numba or granted))

    @property
    def cpu_nodes(self) -> tuple[Node, ...]:
        """The nodes that have CPUs."""
        return tuple(node for node in self.nodes if node.cpus)

    def visible(self) -> Topology:
        """The same machine cut down to the allowed CPUs; nodes without any stay, as memory."""
        allowed = frozenset(self.allowed)
        return replace(
            self,
            packages=tuple(
                replace(each, cpus=cpus)
                for each in self.packages
                if (cpus := within(each.cpus, allowed))
            ),
            nodes=tuple(replace(node, cpus=within(node.cpus, allowed)) for node in self.nodes),
            cores=tuple(
                replace(each, cpus=cpus)
                for each in self.cores
                if (cpus := within(each.cpus, allowed))
            ),
            caches=tuple(
                replace(each, cpus=cpus)
                for each in self.caches
                if (cpus := within(each.cpus, allowed))
            ),
            online=self.allowed,
        )

    def last_level_caches(self) -> tuple[Cache, ...]:
        """The distinct caches that are the outermost for some CPU; empty when nothing is known."""
        outermost: dict[int, Cache] = {}
        for cache in self.caches:
            if cache.kind == "instruction":
                continue
            for cpu in cache.cpus:
                if cpu not in outermost or outermost[cpu].level < cache.level:
                    outermost[cpu] = cache
        return tuple(sorted(set(outermost.values()), key=lambda cache: cache.cpus))


def within(cpus: Iterable[int], allowed: frozenset[int]) -> tuple[int, ...]:
    """The CPUs that are in `allowed`, ascending."""
    return tuple(sorted(cpu for cpu in cpus if cpu in allowed))


def gather(keys: Mapping[int, object]) -> tuple[tuple[int, ...], ...]:
    """CPUs grouped by their key, each group ascending, groups by their lowest CPU."""
    groups: dict[object, list[int]] = defaultdict(list)
    for cpu in sorted(keys):
        groups[keys[cpu]].append(cpu)
    return tuple(tuple(group) for group in groups.values())
