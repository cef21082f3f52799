"""Which CPUs the threads of a kernel are pinned to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain, zip_longest

from autotune.device.sysfs import format_cpu_list
from autotune.device.topology import Core, Topology


def place(topology: Topology, threads: int, placement: str) -> tuple[int, ...]:
    """The CPU of each of `threads` threads, in thread order; () when they are not pinned.

    `free` leaves them to the operating system; `cpu_order` says what the others do. Raises
    ValueError for more threads than it has CPUs, and as `cpu_order` does.
    """
    if threads < 1:
        raise ValueError(f"cannot place {threads} threads; at least one is needed.")
    if placement == "free":
        return ()
    cpus = cpu_order(topology, placement)
    if threads > len(cpus):
        raise ValueError(
            f"cannot place {threads} threads {placement!r} on {len(cpus)} CPUs "
            f"({format_cpu_list(cpus)})."
        )
    return cpus[:threads]


def cpu_order(topology: Topology, placement: str) -> tuple[int, ...]:
    """The usable CPUs in the order a placement hands them out.

    `compact` fills a node, and in it a last-level cache, before the next. `spread` deals threads
    to packages, nodes and caches in turn. `node:k` stays on NUMA node k. All give every physical
    core a thread before any core gets a second one, and fast cores of a hybrid part come before
    slow ones. Raises ValueError for an unknown placement or node, or a node without usable CPUs.
    """
    kind, _, number = placement.partition(":")
    machine = topology.visible()
    if placement == "compact":
        return _core_by_core(_packed(machine, machine.cores))
    if placement == "spread":
        return _core_by_core(_dealt(machine))
    if kind == "node" and number.isdecimal():
        return _core_by_core(_packed(machine, _cores_on(machine, int(number))))
    raise ValueError(f"unknown placement {placement!r}; use free, compact, spread or node:<id>.")


def _cores_on(machine: Topology, node: int) -> tuple[Core, ...]:
    cores = tuple(core for core in machine.cores if core.node == node)
    if not cores:
        known = ", ".join(str(each.id) for each in machine.cpu_nodes)
        state = "has no usable CPUs" if any(n.id == node for n in machine.nodes) else "is not here"
        raise ValueError(f"NUMA node {node} {state}; nodes with CPUs: {known}.")
    return cores


def _core_by_core(cores: Sequence[Core]) -> tuple[int, ...]:
    """First threads of all cores, fast ones first, then second threads, and so on."""
    ranked = sorted(cores, key=lambda core: core.efficient)
    layers = zip_longest(*(core.cpus for core in ranked))
    return tuple(cpu for layer in layers for cpu in layer if cpu is not None)


def _packed(machine: Topology, cores: Iterable[Core]) -> list[Core]:
    """Node after node, the ones with most cores first, and cache after cache within a node."""
    cache_of = _cache_index(machine)
    size = {node.id: sum(core.node == node.id for core in machine.cores) for node in machine.nodes}
    return sorted(
        cores,
        key=lambda c: (-size[c.node], c.package, c.node, cache_of(c), c.cpus),
    )


def _dealt(machine: Topology) -> list[Core]:
    """Packages in turn, within each its nodes, within each its caches.

    Where a node holds several packages it is nodes first.
    """
    outer: list[Callable[[Core], int]] = [lambda core: core.package, lambda core: core.node]
    outer.sort(key=lambda group: len({group(core) for core in machine.cores}))
    return _deal(_packed(machine, machine.cores), (*outer, _cache_index(machine)))


def _deal(cores: Sequence[Core], levels: Sequence[Callable[[Core], int]]) -> list[Core]:
    if not levels:
        return list(cores)
    piles: dict[int, list[Core]] = {}
    for core in cores:
        piles.setdefault(levels[0](core), []).append(core)
    dealt = [_deal(pile, levels[1:]) for pile in piles.values()]
    return [core for core in chain.from_iterable(zip_longest(*dealt)) if core is not None]


def _cache_index(machine: Topology) -> Callable[[Core], int]:
    """Number of the last-level cache a core sits on; -1 when that is not known."""
    index = {
        cpu: number
        for number, cache in enumerate(machine.last_level_caches())
        for cpu in cache.cpus
    }
    return lambda core: index.get(core.cpus[0], -1)
