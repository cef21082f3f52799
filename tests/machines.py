"""Writes small trees of /sys and /proc for machines whose layout is publicly known."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from autotune.device.sysfs import format_cpu_list

EPYC_7763 = {
    "vendor_id": "AuthenticAMD",
    "cpu family": "25",
    "model": "1",
    "model name": "AMD EPYC 7763 64-Core Processor",
    "stepping": "1",
    "flags": "fpu sse4_2 avx avx2 fma",
}


@dataclass
class Machine:
    """A machine to write: CPUs as (package, core id, siblings), nodes as CPUs and MiB."""

    root: Path
    cpus: dict[int, tuple[int, int, tuple[int, ...]]]
    nodes: dict[int, tuple[tuple[int, ...], int]] = field(default_factory=dict)
    llc: list[tuple[tuple[int, ...], str]] = field(default_factory=list)
    silicon: dict[str, str] = field(default_factory=lambda: dict(EPYC_7763))

    def write(self) -> Path:
        """Write the tree and return its root."""
        cpu_root = self.root / "sys/devices/system/cpu"
        self.file(cpu_root / "online", format_cpu_list(self.cpus))
        for cpu, (package, core, siblings) in self.cpus.items():
            topology = cpu_root / f"cpu{cpu}/topology"
            self.file(topology / "physical_package_id", str(package))
            self.file(topology / "core_id", str(core))
            self.file(topology / "thread_siblings_list", format_cpu_list(siblings))
        for cpus, size in self.llc:
            for cpu in cpus:
                cache = cpu_root / f"cpu{cpu}/cache/index3"
                self.file(cache / "level", "3")
                self.file(cache / "type", "Unified")
                self.file(cache / "size", size)
                self.file(cache / "shared_cpu_list", format_cpu_list(cpus))
        if self.nodes:
            self._write_nodes()
        blocks = [{"processor": str(cpu), **self.silicon} for cpu in self.cpus]
        text = ["\n".join(f"{key}\t: {value}" for key, value in block.items()) for block in blocks]
        self.file(self.root / "proc/cpuinfo", "\n\n".join(text))
        self.file(self.root / "proc/meminfo", "MemTotal:  1024 kB\nMemFree:  512 kB")
        return self.root

    def _write_nodes(self) -> None:
        node_root = self.root / "sys/devices/system/node"
        self.file(node_root / "online", format_cpu_list(self.nodes))
        for node, (cpus, mebibytes) in self.nodes.items():
            directory = node_root / f"node{node}"
            self.file(directory / "cpulist", format_cpu_list(cpus) if cpus else "")
            self.file(directory / "meminfo", f"Node {node} MemTotal: {mebibytes * 1024} kB")
            columns = ["10" if other == node else "32" for other in self.nodes]
            self.file(directory / "distance", " ".join(columns))

    def file(self, path: Path, text: str) -> None:
        """Write one file with the newline the kernel ends it with."""
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{text}\n")


def plain(root: Path, cores: int, *, siblings: str = "none") -> Machine:
    """One package; SMT siblings `none`, `adjacent` (0-1, 2-3) or `apart` (0,2 and 1,3)."""
    cpus: dict[int, tuple[int, int, tuple[int, ...]]] = {}
    for core in range(cores):
        pair = {
            "none": (core,),
            "adjacent": (2 * core, 2 * core + 1),
            "apart": (core, core + cores),
        }
        for cpu in pair[siblings]:
            cpus[cpu] = (0, core, pair[siblings])
    every = tuple(sorted(cpus))
    return Machine(root, dict(sorted(cpus.items())), nodes={0: (every, 1024)}, llc=[(every, "32M")])


def epyc_7763_pair(root: Path) -> Machine:
    """Two 64-core EPYC 7763, four nodes a socket (NPS4), SMT off: 8 cores share 32 MiB of L3."""
    cpus = {cpu: (cpu // 64, cpu % 64, (cpu,)) for cpu in range(128)}
    nodes = {n: (tuple(range(16 * n, 16 * n + 16)), 65536) for n in range(8)}
    llc = [(tuple(range(first, first + 8)), "32768K") for first in range(0, 128, 8)]
    return Machine(root, cpus, nodes, llc)
