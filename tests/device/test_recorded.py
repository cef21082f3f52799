"""The reader on trees recorded on real machines, against what hwloc 2.9 reports of them."""

from __future__ import annotations

import json
import re
import tarfile
from pathlib import Path
from typing import Any

import pytest

from autotune.device.read import read_topology
from autotune.device.topology import Topology

# hwloc does not count what it knows nothing about; we need one core a CPU and one package.
NO_CORES_TOLD = "4fake-4gr1nu1pu"
NO_PACKAGE_TOLD = "2ps3-2t"

# Each of these answers of hwloc rests on more than the CPUs and memory that sysfs gives a node.
NODES_EXPLAINED = {
    # The tree has no /proc/meminfo, so the one node has no known memory in either answer.
    "2ps3-2t": "memory unknown",
    # Broken firmware lists all CPUs in all eight nodes. hwloc drops nodes 1 to 7 with their
    # memory; we give the CPUs to node 0 and keep the others as the memory they are.
    "8em64t-2s2ca2c-buggynuma": "extra memory-only nodes",
    # Nodes 250 to 255 are the memory of six GPUs. hwloc removes them after reading the NVIDIA
    # driver's /proc files; for us they are memory-only nodes, which never get a thread.
    "nvidiagpunumanodes": "extra memory-only nodes",
    # CPUs sit in nodes 0 to 3, which have no memory; memory sits in nodes 5 to 10, which have no
    # CPUs. hwloc drops the former and places the latter by the firmware's initiator tables.
    "fakememinitiators-1np2c+1npp+gi": "CPUs and memory in different nodes",
}


def expected() -> dict[str, dict[str, Any]]:
    path = Path(__file__).resolve().parents[3] / "shared/topologies/expected.json"
    return json.loads(path.read_text()) if path.is_file() else {}


EXPECTED = expected()


@pytest.fixture(scope="module")
def tree(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.getbasetemp() / f"recorded-{request.param}"
    if not place.exists():
        archive = Path(__file__).resolve().parents[3] / f"shared/topologies/{request.param}.tar.bz2"
        with tarfile.open(archive) as packed:
            unpack(packed, place)
    (root,) = (each for each in place.iterdir() if (each / "sys").is_dir())
    return root


# Device trees, buses and counters make up most of an archive; unpacking them takes a minute.
READ = re.compile(
    r"[^/]+/(proc/(cpuinfo|meminfo|mounts|self/)|cgroup/|dev/cpuset/|sys/fs/cgroup/|sys/devices/"
    r"(cpu_atom/|system/(node/(online|node\d+/(cpumap|cpulist|meminfo|distance))|cpu/(online|"
    r"cpufreq/policy\d+/cpuinfo_max_freq|cpu\d+/(online|cpu_capacity|cpufreq|"
    r"topology/(core|thread|package|physical)|cache/index\d+/(level|size|type|shared))))))"
)


def unpack(packed: tarfile.TarFile, place: Path) -> None:
    for member in packed:
        target = place / member.name
        if not READ.match(member.name) or member.isdir():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        if member.issym():
            target.symlink_to(member.linkname)
        elif content := packed.extractfile(member):
            target.write_bytes(content.read())


every_tree = pytest.mark.parametrize(
    ("tree", "name"), [(n, n) for n in EXPECTED], ids=list(EXPECTED), indirect=["tree"]
)


def test_recorded_trees_are_here() -> None:
    if not EXPECTED:
        pytest.skip("the recorded trees in ../shared/topologies are not here")
    assert len(EXPECTED) >= 21


@every_tree
def test_cpus_cores_and_packages_agree_with_hwloc(tree: Path, name: str) -> None:
    wanted, machine = EXPECTED[name], read_topology(tree).visible()
    assert list(machine.allowed) == wanted["allowed_cpus"]
    cores = sorted(list(core.cpus) for core in machine.cores)
    packages = sorted(list(package.cpus) for package in machine.packages)
    if name == NO_CORES_TOLD:
        assert wanted["cores"] == 0
        assert cores == [[0], [1]]
    else:
        assert cores == sorted(wanted["core_cpus"])
    if name == NO_PACKAGE_TOLD:
        assert wanted["packages"] == 0
        assert packages == [[0, 1]]
    else:
        # hwloc keeps packages of which only memory is allowed; they have no CPU to show.
        assert packages == sorted(cpus for cpus in wanted["package_cpus"] if cpus)


@every_tree
def test_nodes_agree_with_hwloc(tree: Path, name: str) -> None:
    machine = read_topology(tree).visible()
    known = [node for node in machine.nodes if node.memory_bytes and node.usable]
    ours = {node.id: (list(node.cpus), node.memory_bytes) for node in known}
    theirs = {n["id"]: (n["cpus"], n["memory"]) for n in EXPECTED[name]["numa_nodes"]}
    match NODES_EXPLAINED.get(name):
        case None:
            assert ours == theirs
        case "memory unknown":
            assert [(n.id, list(n.cpus)) for n in machine.nodes] == [(0, theirs[0][0])]
            assert theirs[0][1] == 0
        case "extra memory-only nodes":
            assert {node: ours[node] for node in theirs} == theirs
            assert all(not ours[node][0] for node in ours.keys() - theirs.keys())
        case _:
            assert {node: memory for node, (_, memory) in ours.items()} == {
                node: memory for node, (_, memory) in theirs.items()
            }
            pairs = [(n.id, n.cpus) for n in machine.cpu_nodes]
            assert pairs == [(0, (0, 1)), (1, (2, 3)), (2, (4, 5)), (3, (6, 7))]


@every_tree
def test_every_cpu_has_one_core_one_node_and_one_package(tree: Path, name: str) -> None:
    machine = read_topology(tree)
    groups: tuple[tuple[Any, ...], ...] = (machine.cores, machine.nodes, machine.packages)
    for group in groups:
        assert sorted(cpu for each in group for cpu in each.cpus) == list(machine.online)
    for cache in machine.caches:
        assert cache.cpus
        assert cache.size_bytes > 0
        assert set(cache.cpus) <= set(machine.online)


def read(tree: Path) -> Topology:
    return read_topology(tree)


@pytest.mark.skipif(not EXPECTED, reason="the recorded trees are not here")
@pytest.mark.parametrize("tree", ["20em64t-hybrid-1p6c2t+2ca4co1t"], indirect=True)
def test_hybrid_cores_are_told_apart(tree: Path) -> None:
    cores = read(tree).cores
    assert [len(core.cpus) for core in cores if not core.efficient] == [2] * 6
    assert [len(core.cpus) for core in cores if core.efficient] == [1] * 8


@pytest.mark.skipif(not EXPECTED, reason="the recorded trees are not here")
@pytest.mark.parametrize(
    ("tree", "silicon"),
    [
        ("128arm-2pa2n8cluster4co", ("hisilicon", "8", "0xd01", "0x1p0")),
        ("256ppc-8n8s4t", ("ibm", "power", "003f", "0201")),
        ("8ia64-2s2c2t", ("intel", "Itanium 2", "1", "1")),
        ("2arm-2c", ("arm", "7", "0xc09", "0x2p1")),
        ("16amd64-8n2c", ("amd", "15", "33", "0")),
    ],
    indirect=["tree"],
)
def test_silicon_of_other_architectures(tree: Path, silicon: tuple[str, ...]) -> None:
    found = read(tree).silicon
    assert (found.vendor, found.family, found.model, found.stepping) == silicon


@pytest.mark.skipif(not EXPECTED, reason="the recorded trees are not here")
@pytest.mark.parametrize("tree", ["8em64t-2s4c-asymcaches"], indirect=True)
def test_a_cache_missing_on_some_cores_is_no_error(tree: Path) -> None:
    caches = read(tree).last_level_caches()
    assert {cache.level for cache in caches} == {1, 2}
    assert sorted(cpu for cache in caches for cpu in cache.cpus) == list(range(8))
