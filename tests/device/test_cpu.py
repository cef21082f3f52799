"""The CPU as a device: what makes two of them the same, and what there is to try."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from machines import EPYC_7763, Machine, epyc_7763_pair, plain

from autotune.device import CpuDevice, cpu, find_device, local_cpu, local_devices
from autotune.device.read import read_topology
from autotune.errors import DeviceNotFoundError, UserError

needs_pinning = pytest.mark.skipif(
    not hasattr(os, "sched_setaffinity"), reason="this system cannot pin threads"
)


def device(machine: Machine, affinity: list[int] | None = None) -> CpuDevice:
    root = machine.root if (machine.root / "proc/cpuinfo").exists() else machine.write()
    return CpuDevice.of(read_topology(root, affinity=affinity))


def container(root: Path, quota: str) -> Machine:
    """Sixteen cores in a container with a v2 quota."""
    machine = plain(root, 16)
    machine.file(root / "proc/self/mountinfo", "30 23 0:26 / /cg rw - cgroup2 cgroup2 rw")
    machine.file(root / "proc/self/cgroup", "0::/")
    machine.file(root / "cg/cpu.max", quota)
    return machine


def test_the_name_is_no_part_of_the_identity(tmp_path: Path) -> None:
    names = ("AMD EPYC 7763 64-Core Processor", "amd epyc  7763 ", "Engineering Sample", "")
    devices = []
    for number, name in enumerate(names):
        machine = plain(tmp_path / str(number), 4)
        machine.silicon = {**EPYC_7763, "model name": name}
        devices.append(device(machine))
    assert len({d.identity for d in devices}) == 1
    assert len({d.family for d in devices}) == 1
    assert devices[0].label == names[0]
    assert devices[3].label == "amd 25.1"


def test_identity_reads_well_and_can_name_a_file(tmp_path: Path) -> None:
    found = device(epyc_7763_pair(tmp_path))
    assert re.fullmatch(r"cpu-amd-25\.1\.1-128c128t8n-[0-9a-f]{8}", found.identity)
    assert found.family == "cpu-amd-25.1-128c"


def test_what_differs_changes_the_identity(tmp_path: Path) -> None:
    base = device(plain(tmp_path / "base", 4))
    other = []
    stepping = plain(tmp_path / "stepping", 4)
    stepping.silicon = {**EPYC_7763, "stepping": "2"}
    flags = plain(tmp_path / "flags", 4)
    flags.silicon = {**EPYC_7763, "flags": "fpu sse4_2 avx avx2 fma avx512f"}
    caches = plain(tmp_path / "caches", 4)
    caches.llc = [((0, 1), "16M"), ((2, 3), "16M")]
    nodes = plain(tmp_path / "nodes", 4)
    nodes.nodes = {0: ((0, 1), 512), 3: ((2, 3), 512)}
    smt = plain(tmp_path / "smt", 2, siblings="apart")
    for machine in (stepping, flags, caches, nodes, smt):
        other.append(device(machine).identity)
    other.append(device(plain(tmp_path / "mask", 4), affinity=[0]).identity)
    assert len({base.identity, *other}) == 7


def test_what_does_not_matter_leaves_the_identity(tmp_path: Path) -> None:
    base = device(plain(tmp_path / "base", 4))
    memory = plain(tmp_path / "memory", 4)
    memory.nodes = {0: ((0, 1, 2, 3), 9999), 255: ((), 77)}
    flags = plain(tmp_path / "flags", 4)
    flags.silicon = {**EPYC_7763, "flags": "newly_named_flag fma fpu sse4_2 avx avx2"}
    assert {device(memory).identity, device(flags).identity} == {base.identity}
    wide = plain(tmp_path / "wide", 8)
    first, last = device(wide, affinity=[0, 1]), device(wide, affinity=[6, 7])
    assert first.identity == last.identity


def test_one_cpu_is_not_the_family_of_sixty_four(tmp_path: Path) -> None:
    machine = epyc_7763_pair(tmp_path)
    whole, one = device(machine), device(machine, affinity=[0])
    assert whole.identity != one.identity
    assert whole.family != one.family
    squeezed = device(container(tmp_path / "container", "100000 100000"))
    assert squeezed.family == "cpu-amd-25.1-1c"


def test_family_forgives_a_stepping(tmp_path: Path) -> None:
    other = plain(tmp_path / "other", 4)
    other.silicon = {**EPYC_7763, "stepping": "2"}
    assert device(plain(tmp_path / "base", 4)).family == device(other).family


def test_thread_counts_stay_within_mask_and_quota(tmp_path: Path) -> None:
    machine = epyc_7763_pair(tmp_path)
    counts = device(machine).thread_counts()
    assert counts == (1, 2, 4, 8, 16, 32, 48, 64, 80, 96, 112, 128)
    assert device(machine, affinity=[0]).thread_counts() == (1,)
    assert device(machine, affinity=list(range(10, 22))).thread_counts() == (1, 2, 4, 6, 8, 12)
    limited = device(container(tmp_path / "container", "250000 100000"))
    assert limited.max_threads == 3
    assert limited.thread_counts() == (1, 2, 3)
    assert "q2.5" in limited.identity


def test_thread_counts_with_smt_name_the_cores(tmp_path: Path) -> None:
    assert device(plain(tmp_path, 6, siblings="apart")).thread_counts() == (1, 2, 4, 6, 8, 12)


@needs_pinning
def test_placements_that_change_nothing_are_left_out(tmp_path: Path) -> None:
    assert device(plain(tmp_path / "plain", 4)).placements() == ("free", "compact")
    halves = plain(tmp_path / "halves", 4)
    halves.llc = [((0, 1), "16M"), ((2, 3), "16M")]
    assert device(halves).placements() == ("free", "compact", "spread")
    nodes = tuple(f"node:{n}" for n in range(1, 8))  # node:0 is what compact takes first
    assert device(epyc_7763_pair(tmp_path / "pair")).placements() == (
        "free",
        "compact",
        "spread",
        *nodes,
    )


def test_fits_tells_what_can_be_placed(tmp_path: Path) -> None:
    found = device(epyc_7763_pair(tmp_path))
    assert found.fits(16, "node:1")
    assert not found.fits(17, "node:1")
    assert not found.fits(1, "node:9")
    assert not found.fits(129, "free")


def test_last_level_cache_counts_visible_instances(tmp_path: Path) -> None:
    machine = epyc_7763_pair(tmp_path)
    assert device(machine).last_level_cache_bytes == 16 * 32 << 20
    assert device(machine, affinity=[0, 1, 8]).last_level_cache_bytes == 2 * 32 << 20


def test_facts_are_plain_values(tmp_path: Path) -> None:
    facts = device(epyc_7763_pair(tmp_path)).facts
    assert json.loads(json.dumps(dict(facts))) == facts
    assert facts["sockets"] == 2
    assert facts["caches"] == [
        {"level": 3, "kind": "unified", "size_bytes": 32 << 20, "shared_by": 8, "count": 16}
    ]
    node = {"id": 7, "cpus": "112-127", "memory_bytes": 64 << 30, "usable": True}
    assert facts["nodes"][7] == node


@needs_pinning
def test_a_process_under_taskset_sees_its_cpus_only() -> None:
    code = "from autotune.device import local_cpu; d = local_cpu(); print(d.family, d.max_threads)"
    one = min(os.sched_getaffinity(0))
    out = subprocess.run(
        [sys.executable, "-c", f"import os; os.sched_setaffinity(0, {{{one}}}); {code}"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert out.stdout.split() == [re.sub(r"\d+c$", "1c", local_cpu().family), "1"]


def test_finding_a_device() -> None:
    (cpu,) = local_devices()
    assert local_cpu() is cpu
    for name in (None, "cpu", " CPU ", cpu.identity, cpu.identity.upper(), cpu.identity[:-3]):
        assert find_device(name) is cpu


@pytest.mark.parametrize("name", ["h200", "cuda:0", "cpu-nothing", "", "c", "cpu:1"])
def test_a_device_that_is_not_here(name: str) -> None:
    with pytest.raises(DeviceNotFoundError) as caught:
        find_device(name)
    assert isinstance(caught.value, UserError)
    assert repr(name) in str(caught.value)
    assert local_cpu().identity in str(caught.value)
    assert "\n" not in str(caught.value)


def test_importing_the_devices_is_light() -> None:
    code = (
        "import sys, autotune.device, autotune.device.threads; "
        "print([m for m in ('numba', 'numpy', 'threadpoolctl', 'psutil') if m in sys.modules])"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


@pytest.fixture
def whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CpuDevice:
    """This machine has four CPUs."""
    topology = read_topology(plain(tmp_path, 4).write(), affinity=range(4))
    monkeypatch.setattr(cpu, "read_topology", lambda: topology)
    return CpuDevice.of(topology)


@pytest.mark.parametrize("told", ["1", "3"])
def test_no_more_threads_than_numba_is_started_with(
    whole: CpuDevice, monkeypatch: pytest.MonkeyPatch, told: str
) -> None:
    monkeypatch.setenv("NUMBA_NUM_THREADS", told)
    narrow = cpu.local_cpu.__wrapped__()
    assert max(narrow.thread_counts()) == int(told)
    assert narrow.fits(int(told), "compact")
    assert not narrow.fits(4, "compact")
    assert narrow.identity != whole.identity
    assert narrow.family.endswith(f"-{told}c")
    assert narrow.facts["numba_threads"] == int(told)


@pytest.mark.parametrize("told", ["", "4", "64", "0", "many"])
def test_what_numba_is_told_may_limit_nothing(
    whole: CpuDevice, monkeypatch: pytest.MonkeyPatch, told: str
) -> None:
    monkeypatch.setenv("NUMBA_NUM_THREADS", told)
    assert cpu.local_cpu.__wrapped__() == whole
