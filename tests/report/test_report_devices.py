"""`autotune devices` for machines that are not this one."""

from __future__ import annotations

from dataclasses import replace

from autotune.device import CpuDevice
from autotune.device.cpuinfo import Silicon
from autotune.device.cuda import CudaDevice
from autotune.device.driver import DriverGpu
from autotune.device.nvml import NvmlGpu
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


H200 = DriverGpu(
    index=1,
    name="NVIDIA H200",
    uuid="00000000-0000-0000-0000-00000000abcd",
    bus_id="0000:1B:00.0",
    bus_width=6144,
    ecc=True,
    prohibited=False,
    limits={
        "compute": 90,
        "sms": 132,
        "shared_per_block": 232_448,
        "shared_per_sm": 233_472,
        "registers_per_sm": 65_536,
        "max_threads_per_block": 1024,
        "max_threads_per_sm": 2048,
        "warp": 32,
        "device_memory": 150_110_011_392,
        "l2_bytes": 62_914_560,
    },
)
CARD = f"GPU-{H200.uuid}"
VERSIONS = {"driver": "580.65.06", "cuda": "13.0"}


def test_a_gpu_is_shown_within_80_columns() -> None:
    gpu = CudaDevice.of(H200, NvmlGpu(CARD, CARD, "", 700.0), versions=VERSIONS)
    text = to_text(device_blocks([gpu]))
    assert max(map(len, text.splitlines())) <= 80
    flat = " ".join(text.split())
    assert flat.startswith("cuda:1 NVIDIA H200 identity cuda-sm90-132sm-141gb-")
    for told in (
        f"UUID {CARD} bus 0000:1B:00.0 partition none",
        "compute capability 9.0, 132 SMs",
        "memory 140 GiB, 6144 bits wide, ECC on",
        "L2 cache 60 MiB",
        "shared at most 227 KiB a block, 228 KiB an SM",
        "threads at most 1024 a block, 2048 an SM",
        "power limit 700 W",
        "driver 580.65.06, for CUDA 13.0",
        "usable yes",
    ):
        assert told in flat


def test_a_slice_names_its_card_and_a_gpu_what_keeps_it_from_being_used() -> None:
    sliced = replace(H200, name="NVIDIA H200 MIG 3g.71gb", ecc=False)
    nvml = NvmlGpu(f"MIG-{H200.uuid}", CARD, "3g")
    why = "CuPy is not installed: pip install 'onf-autotune[cuda13]'"
    gpu = CudaDevice.of(sliced, nvml, versions={"driver": None, "cuda": "13.0"}, unusable=why)
    text = to_text(device_blocks([gpu]))
    assert max(map(len, text.splitlines())) <= 80
    flat = " ".join(text.split())
    assert f"UUID MIG-{H200.uuid}, a slice of {CARD}" in flat
    assert "partition MIG 3g" in flat
    assert "ECC off" in flat
    assert "power limit not told" in flat
    assert "driver release not told, for CUDA 13.0" in flat
    assert f"usable no: {why}" in flat


def test_the_document_of_a_gpu_is_json() -> None:
    gpu = CudaDevice.of(H200, versions=VERSIONS, unusable="no CuPy")
    document = device_document(gpu)
    assert (document["address"], document["uuid"], document["bus_id"]) == (
        "cuda:1",
        CARD,
        "0000:1B:00.0",
    )
    assert document["limits"] == dict(H200.limits)
    assert document["unusable"] == "no CuPy"
    assert '"memory_class_gb": 141' in to_json(document)


def test_why_there_is_no_gpu_comes_last() -> None:
    text = to_text(device_blocks([CpuDevice.of(topology())], "there is no driver"))
    assert text.endswith("\n\nno GPU: there is no driver.\n")
