"""`autotune devices` for machines that are not this one."""

from __future__ import annotations

from autotune.device import CpuDevice
from autotune.device.cpuinfo import Silicon
from autotune.device.topology import Cache, Core, Node, Package, Topology
from autotune.report.blocks import to_text
from autotune.report.devices import device_blocks, device_document
from autotune.report.document import to_json

SILICON = Silicon("amd", "25", "1", "1", "Some CPU", ("avx2", "fma"))


def topology(**changes: object) -> Topology:
    given = {
        "silicon": SILICON,
        "packages": (Package(0, (0, 1, 2, 3)),),
        "nodes": (
            Node(0, (0, 1, 2, 3), 8 << 30),
            Node(2, (), 96 << 30),
            Node(7, (), 1 << 30, usable=False),
        ),
        "cores": (Core(0, 0, 0, (0, 2)), Core(0, 1, 0, (1, 3))),
        "caches": (Cache(1, "data", 32 << 10, (0, 2)), Cache(3, "unified", 32 << 20, (0, 1, 2, 3))),
        "online": (0, 1, 2, 3),
        "allowed": (0, 1, 2, 3),
    }
    return Topology(**(given | changes))  # type: ignore[arg-type]


def shown(machine: Topology) -> str:
    return " ".join(to_text(device_blocks([CpuDevice.of(machine)])).split())


def test_memory_only_nodes_are_listed_under_their_ids() -> None:
    text = shown(topology())
    assert "node 0: CPUs 0-3, 8 GiB" in text
    assert "node 2: memory only, no CPUs to use, 96 GiB" in text
    assert "node 7: memory only, no CPUs to use, 1 GiB (a cpuset bars it)" in text


def test_siblings_caches_and_limits() -> None:
    text = shown(topology(quota=1.5, allowed=(0, 1, 2)))
    assert "cores 2 (1-2 threads each)" in text
    assert "L3 unified 32 MiB, shared by 3 CPUs" in text
    assert "affinity CPUs 0-2" in text
    assert "CPU quota 1.5 CPUs" in text
    assert "threads at most 2" in text
    assert "CPU quota none" in shown(topology())


def test_a_machine_that_tells_nothing() -> None:
    core = (Core(0, 0, 0, (0,)),)
    bare = topology(cores=core, caches=(), online=(0,), allowed=(0,), nodes=(Node(0, (0,)),))
    text = shown(bare)
    assert "caches unknown" in text
    assert "node 0: CPUs 0, memory not told" in text


def test_the_document_is_json() -> None:
    assert '"identity": "cpu-amd' in to_json(device_document(CpuDevice.of(topology())))
