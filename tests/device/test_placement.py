"""Where threads go: cores before siblings, nodes and caches in the order asked for."""

from __future__ import annotations

from pathlib import Path

import pytest
from machines import Machine, epyc_7763_pair, plain

from autotune.device.placement import place
from autotune.device.read import read_topology


@pytest.mark.parametrize("placement", ["compact", "spread", "node:0"])
@pytest.mark.parametrize(
    ("siblings", "order"), [("adjacent", (0, 2, 1, 3)), ("apart", (0, 1, 2, 3))]
)
def test_one_thread_a_core_first(
    tmp_path: Path, siblings: str, order: tuple[int, ...], placement: str
) -> None:
    machine = read_topology(plain(tmp_path, 2, siblings=siblings).write())
    for threads in range(1, 5):
        assert place(machine, threads, placement) == order[:threads]


def test_free_pins_nothing(tmp_path: Path) -> None:
    assert place(read_topology(plain(tmp_path, 2).write()), 64, "free") == ()


def test_compact_fills_a_node_before_the_next(tmp_path: Path) -> None:
    machine = read_topology(epyc_7763_pair(tmp_path).write())
    assert place(machine, 16, "compact") == tuple(range(16))
    assert place(machine, 20, "compact") == tuple(range(20))
    assert place(machine, 128, "compact") == tuple(range(128))


def test_spread_deals_to_sockets_nodes_and_caches(tmp_path: Path) -> None:
    machine = read_topology(epyc_7763_pair(tmp_path).write())
    assert place(machine, 2, "spread") == (0, 64)
    assert place(machine, 8, "spread") == (0, 64, 16, 80, 32, 96, 48, 112)
    assert place(machine, 10, "spread")[8:] == (8, 72)  # the second L3 of nodes 0 and 4
    for threads in (8, 16, 32, 64):
        cpus = place(machine, threads, "spread")
        assert [sum(cpu // 16 == node for cpu in cpus) for node in range(8)] == [threads // 8] * 8
    assert sorted(place(machine, 128, "spread")) == list(range(128))


def test_spread_goes_to_nodes_first_where_a_node_holds_many_sockets(tmp_path: Path) -> None:
    cpus = {cpu: (cpu // 2, cpu % 2, (cpu,)) for cpu in range(8)}
    nodes = {0: ((0, 1, 2, 3), 10), 1: ((4, 5, 6, 7), 10)}
    machine = read_topology(Machine(tmp_path, cpus, nodes).write())
    assert place(machine, 4, "spread") == (0, 4, 2, 6)


def test_node_stays_on_its_node(tmp_path: Path) -> None:
    machine = read_topology(epyc_7763_pair(tmp_path).write())
    assert place(machine, 16, "node:5") == tuple(range(80, 96))
    with pytest.raises(ValueError, match="17 threads 'node:5' on 16 CPUs"):
        place(machine, 17, "node:5")


def test_memory_only_nodes_get_no_thread(tmp_path: Path) -> None:
    written = plain(tmp_path, 2)
    written.nodes = {0: ((0, 1), 100), 2: ((), 100), 7: ((), 100)}
    machine = read_topology(written.write())
    assert place(machine, 2, "spread") == (0, 1)
    with pytest.raises(ValueError, match="node 7 has no usable CPUs; nodes with CPUs: 0"):
        place(machine, 1, "node:7")
    with pytest.raises(ValueError, match="node 1 is not here"):
        place(machine, 1, "node:1")


def test_the_fullest_node_comes_first_under_a_mask(tmp_path: Path) -> None:
    root = epyc_7763_pair(tmp_path).write()
    machine = read_topology(root, affinity=[3, *range(16, 24)])
    assert place(machine, 8, "compact") == tuple(range(16, 24))
    assert place(machine, 9, "compact")[-1] == 3


def test_fast_cores_before_slow_ones_and_all_cores_before_siblings(tmp_path: Path) -> None:
    cpus = {0: (0, 9, (0,)), 1: (0, 1, (1, 2)), 2: (0, 1, (1, 2))}
    written = Machine(tmp_path, cpus)
    written.file(tmp_path / "sys/devices/cpu_atom/cpus", "0")
    assert place(read_topology(written.write()), 3, "compact") == (1, 0, 2)


@pytest.mark.parametrize("placement", ["scatter", "node:", "node:x", "node:-1", "Compact", ""])
def test_unknown_placements_are_named(tmp_path: Path, placement: str) -> None:
    with pytest.raises(ValueError, match="unknown placement"):
        place(read_topology(plain(tmp_path, 2).write()), 1, placement)


def test_impossible_counts_are_named(tmp_path: Path) -> None:
    machine = read_topology(plain(tmp_path, 2).write())
    with pytest.raises(ValueError, match="0 threads"):
        place(machine, 0, "free")
    with pytest.raises(ValueError, match="3 threads 'compact' on 2 CPUs"):
        place(machine, 3, "compact")
