"""The reader on written trees: shapes the recorded ones lack."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from machines import Machine, epyc_7763_pair, plain

from autotune.device.fallback import read_elsewhere
from autotune.device.read import read_topology


def test_two_sockets_with_eight_nodes(tmp_path: Path) -> None:
    machine = read_topology(epyc_7763_pair(tmp_path).write())
    assert [package.cpus for package in machine.packages] == [
        tuple(range(64)),
        tuple(range(64, 128)),
    ]
    assert [node.id for node in machine.nodes] == list(range(8))
    assert {len(node.cpus) for node in machine.nodes} == {16}
    assert len(machine.cores) == 128
    assert len(machine.last_level_caches()) == 16
    assert dict(machine.nodes[3].distances)[3] == 10
    assert machine.silicon.family == "25"


def test_node_ids_with_gaps_and_memory_only_nodes(tmp_path: Path) -> None:
    written = plain(tmp_path, 4)
    written.nodes = {0: ((0, 1, 2, 3), 100), 2: ((), 200), 7: ((), 300)}
    machine = read_topology(written.write())
    assert [(n.id, n.cpus, n.memory_bytes >> 20) for n in machine.nodes] == [
        (0, (0, 1, 2, 3), 100),
        (2, (), 200),
        (7, (), 300),
    ]
    assert [node.id for node in machine.cpu_nodes] == [0]
    assert machine.nodes[2].distances == ((0, 32), (2, 32), (7, 10))


def test_nodes_that_tell_nothing_or_are_forbidden_are_still_listed(tmp_path: Path) -> None:
    written = plain(tmp_path, 2)
    written.nodes = {0: ((0, 1), 100), 2: ((), 200), 7: ((), 300)}
    written.file(tmp_path / "proc/self/status", "Mems_allowed_list:\t0,7")
    written.write()
    (tmp_path / "sys/devices/system/node/node7/meminfo").unlink()
    machine = read_topology(tmp_path).visible()
    assert [(n.id, n.cpus, n.memory_bytes >> 20, n.usable) for n in machine.nodes] == [
        (0, (0, 1), 100, True),
        (2, (), 200, False),
        (7, (), 0, True),
    ]


def test_no_numa_information_is_one_node(tmp_path: Path) -> None:
    written = plain(tmp_path, 2)
    written.nodes = {}
    machine = read_topology(written.write())
    assert [(n.id, n.cpus, n.memory_bytes) for n in machine.nodes] == [(0, (0, 1), 1 << 20)]
    (tmp_path / "sys/devices/system/node").mkdir()  # as an empty tmpfs over it looks
    assert read_topology(tmp_path) == machine


@pytest.mark.parametrize(
    ("siblings", "pairs"), [("adjacent", [(0, 1), (2, 3)]), ("apart", [(0, 2), (1, 3)])]
)
def test_both_numberings_of_smt_siblings(
    tmp_path: Path, siblings: str, pairs: list[tuple[int, ...]]
) -> None:
    machine = read_topology(plain(tmp_path, 2, siblings=siblings).write())
    assert [core.cpus for core in machine.cores] == pairs
    assert [(core.package, core.id) for core in machine.cores] == [(0, 0), (0, 1)]


def test_equal_core_ids_on_two_dies_are_two_cores(tmp_path: Path) -> None:
    cpus = {cpu: (0, cpu % 2, (cpu,)) for cpu in range(4)}
    assert len(read_topology(Machine(tmp_path, cpus).write()).cores) == 4


def test_cores_without_sibling_files_come_from_package_and_core_id(tmp_path: Path) -> None:
    plain(tmp_path, 2, siblings="apart").write()
    for path in tmp_path.rglob("thread_siblings_list"):
        path.unlink()
    assert [core.cpus for core in read_topology(tmp_path).cores] == [(0, 2), (1, 3)]


def test_without_topology_directories_cpuinfo_tells(tmp_path: Path) -> None:
    text = "\n\n".join(
        f"processor\t: {cpu}\nphysical id\t: {cpu // 4}\ncore id\t: {cpu % 4 // 2}"
        for cpu in range(8)
    )
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/cpuinfo").write_text(text)
    machine = read_topology(tmp_path)
    assert [package.cpus for package in machine.packages] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert [core.cpus for core in machine.cores] == [(0, 1), (2, 3), (4, 5), (6, 7)]


def test_an_empty_root_is_a_plain_machine(tmp_path: Path) -> None:
    machine = read_topology(tmp_path)
    assert len(machine.online) == os.cpu_count()
    assert len(machine.cores) == os.cpu_count()
    assert machine.last_level_caches() == ()


def test_offline_cpus_do_not_count(tmp_path: Path) -> None:
    written = plain(tmp_path, 4)
    written.write()
    (tmp_path / "sys/devices/system/cpu/online").unlink()
    written.file(tmp_path / "sys/devices/system/cpu/cpu2/online", "0")
    machine = read_topology(tmp_path)
    assert machine.online == (0, 1, 3)
    assert machine.nodes[0].cpus == (0, 1, 3)
    assert machine.caches[0].cpus == (0, 1, 3)


def test_the_affinity_mask_limits_what_is_visible(tmp_path: Path) -> None:
    root = epyc_7763_pair(tmp_path).write()
    machine = read_topology(root, affinity=[0, 1, 64, 500]).visible()
    assert machine.allowed == (0, 1, 64)
    assert [node.id for node in machine.cpu_nodes] == [0, 4]
    assert len(machine.nodes) == 8
    assert [cache.cpus for cache in machine.last_level_caches()] == [(0, 1), (64,)]


def test_an_affinity_of_another_view_is_ignored(tmp_path: Path) -> None:
    assert read_topology(plain(tmp_path, 2).write(), affinity=[70, 71]).allowed == (0, 1)


def test_the_kernels_list_of_efficiency_cores_counts(tmp_path: Path) -> None:
    written = plain(tmp_path, 4)
    written.file(tmp_path / "sys/devices/cpu_atom/cpus", "2-3")
    assert [c.efficient for c in read_topology(written.write()).cores] == [False, False, True, True]


def test_favoured_cores_are_no_hybrid(tmp_path: Path) -> None:
    written = plain(tmp_path, 2)
    for cpu, kilohertz in enumerate((5_000_000, 4_700_000)):
        frequency = tmp_path / f"sys/devices/system/cpu/cpu{cpu}/cpufreq/cpuinfo_max_freq"
        written.file(frequency, str(kilohertz))
    assert not any(core.efficient for core in read_topology(written.write()).cores)


def test_this_machine_agrees_with_its_scheduler() -> None:
    machine = read_topology()
    if sys.platform.startswith("linux"):
        assert set(machine.allowed) == os.sched_getaffinity(0)
    assert machine.visible().visible() == machine.visible()


def test_psutil_stands_in_where_there_is_no_sysfs() -> None:
    machine = read_elsewhere()
    assert sorted(cpu for core in machine.cores for cpu in core.cpus) == list(machine.online)
    assert machine.nodes[0].memory_bytes > 0
    assert set(machine.allowed) <= set(machine.online)


def test_topologies_compare_by_value(tmp_path: Path) -> None:
    machine = read_topology(plain(tmp_path, 2).write())
    assert machine == read_topology(tmp_path)
    assert replace(machine, quota=1.0) != machine
