"""Reads the topology of a Linux machine from /sys and /proc under any root."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from autotune.device.cgroup import read_grant, read_status_lists
from autotune.device.cpuinfo import read_processors, read_silicon
from autotune.device.sysfs import (
    numbered,
    read_bytes_size,
    read_cpu_list,
    read_cpu_set,
    read_int,
    read_text,
)
from autotune.device.topology import Cache, Core, Node, Package, Topology, gather, within

Processors = Sequence[Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class _Place:
    """Where one CPU sits, before CPUs are grouped."""

    package: int
    core: int
    siblings: frozenset[int]


def read_linux(root: Path, affinity: frozenset[int] | None = None) -> Topology:
    """The topology under `root`; `affinity` is this process's mask (None: as /proc says)."""
    cpu_root = root / "sys/devices/system/cpu"
    processors = read_processors(root)
    online = _online(cpu_root, processors)
    grant = read_grant(root)
    status_cpus, status_nodes = read_status_lists(root)
    mask = status_cpus if affinity is None else affinity
    allowed = _cut(_cut(online, mask), grant.cpus)
    places = _places(cpu_root, online, processors)
    nodes = _nodes(root, online, allowed_nodes=grant.nodes or status_nodes)
    return Topology(
        silicon=read_silicon(processors, allowed),
        packages=_packages(places),
        nodes=nodes,
        cores=_cores(places, nodes, _slow_cpus(root, online)),
        caches=_caches(cpu_root, places),
        online=tuple(sorted(online)),
        allowed=tuple(sorted(allowed)),
        quota=grant.quota,
    )


def _cut(cpus: frozenset[int], bounds: frozenset[int] | None) -> frozenset[int]:
    """CPUs within the bounds; bounds that leave nothing describe another view and are ignored."""
    return (cpus & bounds) or cpus if bounds else cpus


def _online(cpu_root: Path, processors: Processors) -> frozenset[int]:
    listed = read_cpu_list(cpu_root / "online")
    if listed:
        return listed
    found = {n for n, cpu in numbered(cpu_root, "cpu").items() if read_int(cpu / "online") != 0}
    found = found or {int(n) for p in processors if (n := p.get("processor", "")).isdecimal()}
    return frozenset(found or range(os.cpu_count() or 1))


def _places(cpu_root: Path, online: frozenset[int], processors: Processors) -> dict[int, _Place]:
    """Package, core id and siblings of each CPU: sysfs first, then /proc/cpuinfo, then alone."""
    told = {p["processor"]: p for p in processors if "processor" in p}
    places: dict[int, _Place] = {}
    for cpu in sorted(online):
        topology, block = cpu_root / f"cpu{cpu}/topology", told.get(str(cpu), {})
        siblings = read_cpu_set(topology, listed="core_cpus_list", mask="core_cpus")
        siblings = siblings or read_cpu_set(
            topology, listed="thread_siblings_list", mask="thread_siblings"
        )
        package = _number(read_int(topology / "physical_package_id"), block.get("physical id"))
        if package is None or package < 0:  # POWER7 says -1, the Cell says nothing
            around = read_cpu_set(topology, listed="package_cpus_list", mask="package_cpus")
            around = around or read_cpu_set(
                topology, listed="core_siblings_list", mask="core_siblings"
            )
            package = min(around, default=0) if around else 0
        core = _number(read_int(topology / "core_id"), block.get("core id"))
        if core is None:
            core = min(siblings, default=cpu) if siblings else cpu
        places[cpu] = _Place(package, core, (siblings or frozenset()) & online)
    return places


def _number(found: int | None, told: str | None) -> int | None:
    if found is None and told is not None and told.isdecimal():
        return int(told)
    return found


def _packages(places: Mapping[int, _Place]) -> tuple[Package, ...]:
    groups = gather({cpu: place.package for cpu, place in places.items()})
    return tuple(Package(places[group[0]].package, group) for group in groups)


def _cores(
    places: Mapping[int, _Place], nodes: tuple[Node, ...], slow: frozenset[int]
) -> tuple[Core, ...]:
    """Core identity is (package, core id); siblings tell apart equal ids on several dies.

    Both are needed: a two-die Opteron numbers each die's cores from 0, and a Bulldozer lists the
    two cores of a module as siblings.
    """
    node_of = {cpu: node.id for node in nodes for cpu in node.cpus}
    return tuple(
        Core(
            package=places[group[0]].package,
            id=places[group[0]].core,
            node=node_of[group[0]],
            cpus=group,
            efficient=group[0] in slow,
        )
        for group in gather(dict(places))
    )


def _nodes(
    root: Path, online: frozenset[int], allowed_nodes: frozenset[int] | None
) -> tuple[Node, ...]:
    """NUMA nodes as numbered by the kernel; one node of everything when it tells of none.

    A CPU belongs to the first node that lists it: firmware with broken tables puts every CPU into
    every node.
    """
    node_root = root / "sys/devices/system/node"
    directories = numbered(node_root, "node")
    listed = read_cpu_list(node_root / "online")
    ids = sorted(set(directories) & listed if listed else directories)
    free, nodes = set(online), list[Node]()
    for number in ids:
        directory = directories[number]
        cpus = read_cpu_set(directory, listed="cpulist", mask="cpumap") or frozenset()
        nodes.append(
            Node(
                id=number,
                cpus=within(cpus, frozenset(free)),
                memory_bytes=_memory(directory / "meminfo"),
                usable=allowed_nodes is None or number in allowed_nodes,
                distances=_distances(directory, ids),
            )
        )
        free -= cpus
    if not nodes:
        return (Node(0, tuple(sorted(online)), _memory(root / "proc/meminfo")),)
    if free:  # CPUs that no node lists run on the first node that has any
        home = next((index for index, node in enumerate(nodes) if node.cpus), 0)
        cpus = frozenset(nodes[home].cpus) | free
        nodes[home] = replace(nodes[home], cpus=tuple(sorted(cpus)))
    return tuple(nodes)


def _memory(path: Path) -> int:
    """`MemTotal` in bytes, of /proc/meminfo or of a node's meminfo; 0 when unknown."""
    for line in (read_text(path) or "").splitlines():
        _, found, after = line.partition("MemTotal:")
        if found and (amount := after.split()) and amount[0].isdecimal():
            return int(amount[0]) * 1024
    return 0


def _distances(directory: Path, ids: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """The distance file has one column for each online node, not for each possible one."""
    columns = (read_text(directory / "distance") or "").split()
    if len(columns) != len(ids) or not all(column.isdecimal() for column in columns):
        return ()
    return tuple(zip(ids, map(int, columns), strict=True))


def _caches(cpu_root: Path, places: Mapping[int, _Place]) -> tuple[Cache, ...]:
    """Every cache once; a CPU whose cache a sharer already told of is not read again."""
    online, caches = frozenset(places), list[Cache]()
    seen: set[tuple[int, int]] = set()
    for cpu in sorted(online):
        for index, directory in numbered(cpu_root / f"cpu{cpu}/cache", "index").items():
            level, size = read_int(directory / "level"), read_bytes_size(directory / "size")
            if (index, cpu) in seen or level is None or not size:
                continue
            shared = read_cpu_set(directory, listed="shared_cpu_list", mask="shared_cpu_map")
            # An empty mask (IA-64) means the core's own cache.
            cpus = within(shared or places[cpu].siblings | {cpu}, online)
            kind = (read_text(directory / "type") or "unified").lower()
            seen.update((index, each) for each in cpus)
            caches.append(Cache(level, kind, size, cpus))
    return tuple(dict.fromkeys(caches))


def _slow_cpus(root: Path, online: frozenset[int]) -> frozenset[int]:
    """The efficiency cores of a hybrid part.

    From the kernel's list where there is one (Intel), else cores below 0.8 of the fastest by
    `cpu_capacity` (ARM) or top frequency. Favoured cores of ordinary parts differ by less.
    """
    listed = read_cpu_list(root / "sys/devices/cpu_atom/cpus")
    if listed:
        return listed & online if listed & online != online else frozenset()
    cpu_root = root / "sys/devices/system/cpu"
    sources: tuple[Callable[[int], int | None], ...] = (
        lambda cpu: read_int(cpu_root / f"cpu{cpu}/cpu_capacity"),
        lambda cpu: read_int(cpu_root / f"cpu{cpu}/cpufreq/cpuinfo_max_freq"),
    )
    for source in sources:
        speeds = {cpu: speed for cpu in online if (speed := source(cpu))}
        if len(speeds) == len(online):
            top = max(speeds.values())
            return frozenset(cpu for cpu, speed in speeds.items() if speed < 0.8 * top)
    return frozenset()
