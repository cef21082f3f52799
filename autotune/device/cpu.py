"""The CPU as a device: its identity, and what its topology lets a search try."""

from __future__ import annotations

import functools
import hashlib
import json
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from autotune.device.placement import cpu_order, place
from autotune.device.read import read_topology
from autotune.device.sysfs import format_cpu_list
from autotune.device.topology import Topology


@dataclass(frozen=True, slots=True)
class CpuDevice:
    """The CPUs this process may use.

    `identity` is made of the silicon (vendor, family, model, stepping, vector instructions) and
    of the visible part: nodes, cores, SMT, cache sizes, CPU quota and fewer threads of numba's.
    `family` leaves out the stepping and the shape but keeps the number of usable cores, so that
    what was measured on one CPU is never taken for sixty-four. Neither holds the marketing name.
    """

    identity: str
    family: str
    label: str
    topology: Topology
    kind: str = "cpu"

    @classmethod
    def of(cls, topology: Topology) -> CpuDevice:
        """The device for a topology, reduced to the part of it this process may use."""
        machine, silicon = topology.visible(), topology.silicon
        if machine.max_threads == replace(machine, numba=None).max_threads:
            machine = replace(machine, numba=None)  # it limits nothing
        usable = min(len(machine.cores), machine.max_threads)
        chip = ".".join(filter(None, (silicon.family, silicon.model)))
        shape = f"{len(machine.cores)}c{len(machine.allowed)}t{len(machine.cpu_nodes)}n"
        quota = "" if machine.quota is None else f"q{machine.quota:.4g}"
        quota += "" if machine.numba is None else f"m{machine.numba}"
        stepping = f".{silicon.stepping}" if silicon.stepping else ""
        digest = hashlib.sha256(json.dumps(_structure(machine)).encode()).hexdigest()[:8]
        return cls(
            identity=_slug("cpu", silicon.vendor, chip + stepping, shape + quota, digest),
            family=_slug("cpu", silicon.vendor, chip, f"{usable}c"),
            label=silicon.model_name or f"{silicon.vendor} {chip}".strip(),
            topology=machine,
        )

    @property
    def address(self) -> str:
        """There is one."""
        return self.kind

    @property
    def lock_name(self) -> str:
        """The identity: CPU sets are not told apart."""
        return self.identity

    @property
    def unusable(self) -> None:
        """This process runs on it."""
        return

    @property
    def limits(self) -> Mapping[str, int]:
        """None: what a CPU cannot launch does not exist."""
        return {}

    @property
    def max_threads(self) -> int:
        """The most threads within affinity mask, quota and NUMBA_NUM_THREADS."""
        return self.topology.max_threads

    @property
    def cores(self) -> int:
        """Visible physical cores."""
        return len(self.topology.cores)

    @property
    def last_level_cache_bytes(self) -> int:
        """Bytes of all distinct last-level caches that visible CPUs sit on; 0 when unknown."""
        return sum(cache.size_bytes for cache in self.topology.last_level_caches())

    @property
    def facts(self) -> Mapping[str, Any]:
        """Plain values for `autotune devices`, in the order to show them."""
        machine, silicon = self.topology, self.topology.silicon
        widths = sorted({len(core.cpus) for core in machine.cores})
        return {
            "vendor": silicon.vendor,
            "family": silicon.family,
            "model": silicon.model,
            "stepping": silicon.stepping,
            "vector": list(silicon.vector_flags),
            "sockets": len(machine.packages),
            "nodes": [
                {
                    "id": node.id,
                    "cpus": format_cpu_list(node.cpus),
                    "memory_bytes": node.memory_bytes,
                    "usable": node.usable,
                }
                for node in machine.nodes
            ],
            "cores": self.cores,
            "efficiency_cores": sum(core.efficient for core in machine.cores),
            "threads_per_core": widths,
            "caches": _cache_facts(machine),
            "last_level_cache_bytes": self.last_level_cache_bytes,
            "affinity": format_cpu_list(machine.allowed),
            "quota": machine.quota,
            "numba_threads": machine.numba,
            "max_threads": self.max_threads,
        }

    def thread_counts(self) -> tuple[int, ...]:
        """Counts worth trying, ascending: powers of two, whole nodes, all cores, the most."""
        most = self.max_threads
        counts = {1 << n for n in range(most.bit_length())} | {most, self.cores}
        filled = 0
        for node in self.topology.cpu_nodes:
            filled += sum(core.node == node.id for core in self.topology.cores)
            counts.add(filled)
        return tuple(sorted(count for count in counts if 1 <= count <= most))

    def placements(self) -> tuple[str, ...]:
        """Placements worth trying, `free` first; none that only repeats the CPUs of another."""
        if not hasattr(os, "sched_setaffinity"):
            return ("free",)
        nodes = self.topology.cpu_nodes if len(self.topology.cpu_nodes) > 1 else ()
        kept: dict[str, set[frozenset[int]]] = {}
        for name in ("compact", "spread", *(f"node:{node.id}" for node in nodes)):
            order = cpu_order(self.topology, name)
            sets = {frozenset(order[:n]) for n in self.thread_counts() if n <= len(order)}
            if not any(sets <= other for other in kept.values()):
                kept[name] = sets
        return ("free", *kept)

    def fits(self, threads: int, placement: str) -> bool:
        """Whether so many threads can be placed so."""
        try:
            place(self.topology, threads, placement)
        except ValueError:
            return False
        return threads <= self.max_threads


@functools.cache
def local_cpu() -> CpuDevice:
    """This machine's CPU as this process saw it first: its identity does not change under it."""
    return CpuDevice.of(replace(read_topology(), numba=_numba_threads()))


def _numba_threads() -> int | None:
    """How many threads numba is told to start, which is all that it can run later."""
    told = os.environ.get("NUMBA_NUM_THREADS", "").strip()
    return int(told) if told.isdecimal() and int(told) > 0 else None


def _structure(machine: Topology) -> list[Any]:
    """What tells two visible machines apart, free of CPU numbers, as JSON values.

    Node ids stay, since `node:k` names them. Memory sizes and memory-only nodes do not count:
    they change with a kernel, a driver or a DIMM and no thread runs there.
    """
    silicon = machine.silicon
    socket = {package.id: number for number, package in enumerate(machine.packages)}
    cores = sorted(
        [socket[core.package], core.node, len(core.cpus), int(core.efficient)]
        for core in machine.cores
    )
    caches = sorted([c.level, c.kind, c.size_bytes, len(c.cpus)] for c in machine.caches)
    quota = None if machine.quota is None else round(machine.quota, 4)
    chip = [silicon.vendor, silicon.family, silicon.model, silicon.stepping]
    limits = [quota] if machine.numba is None else [quota, machine.numba]
    return [chip, list(silicon.vector_flags), cores, caches, *limits]


def _cache_facts(machine: Topology) -> list[dict[str, Any]]:
    """Caches of one level, kind, size and sharing as one entry with their number."""
    counts: dict[tuple[int, str, int, int], int] = {}
    for cache in machine.caches:
        key = (cache.level, cache.kind, cache.size_bytes, len(cache.cpus))
        counts[key] = counts.get(key, 0) + 1
    return [
        {"level": level, "kind": kind, "size_bytes": size, "shared_by": sharers, "count": count}
        for (level, kind, size, sharers), count in sorted(counts.items())
    ]


def _slug(*parts: str) -> str:
    """The parts joined by dashes, fit to name a file."""
    return re.sub(r"[^a-z0-9.+]+", "-", "-".join(parts).lower()).strip("-")
