"""Cases DEV-1 to DEV-7: what a device is, and which CPUs and nodes belong to it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from command_line import Run
from fake_driver import Card, machine
from filled import choice, keep, toy_problem
from machines import Machine, plain
from programs import python

from autotune.device import CpuDevice, find_device, gpus, local_cpu
from autotune.device.placement import place
from autotune.device.read import read_topology
from autotune.device.threads import ThreadSettings, first_touch, prepare
from autotune.store import load_snapshot
from autotune_policies import Request, resolve

MIB = 1 << 20
H200 = Card("NVIDIA H200", 90, 132, 143156 * MIB, 60 * MIB, 232448, 233472, 6144)
A100 = Card("NVIDIA A100-SXM4-40GB", 80, 108, 40338 * MIB, 40 * MIB, 166912, 167936, 5120)

Cards = Callable[..., None]


@pytest.fixture
def cards(monkeypatch: pytest.MonkeyPatch) -> Cards:
    """Makes this machine one with these cards."""

    def put(*found: Card) -> None:
        there = machine(*(replace(card, number=i) for i, card in enumerate(found)))
        monkeypatch.setattr(gpus, "local_gpus", lambda: there)

    return put


def answer(name: str) -> str | None:
    """Where the answer for the toy problem on a device comes from; None for a miss."""
    device = find_device(name)
    request = Request(toy_problem(512).key, device.identity, device.family, axes=(("N",),))
    found = resolve(
        load_snapshot()[0],
        request,
        admits=lambda *_: None,
        fingerprints=lambda name: choice(name, 1.0).fingerprint,
        toolchain={},
    )
    return found.origin


def written(root: Path, **changes: object) -> CpuDevice:
    made: Machine = plain(root, 4)
    for name, value in changes.items():
        setattr(made, name, value)
    return CpuDevice.of(read_topology(made.write()))


@pytest.mark.parametrize(
    "label", ["NVIDIA H200 141GB HBM3e", "nvidia h200  ", "NVIDIA-H200-SXM5-141GB", "Graphics X"]
)
def test_dev_1_the_same_card_under_another_name(
    run: Run, toy: str, cards: Cards, label: str
) -> None:
    cards(H200)
    tuned = find_device("h200")
    keep(toy_problem(512), choice("numpy", 1e-3), device=tuned.identity, family=tuned.family)
    cards(replace(H200, name=label))
    assert find_device("h200").identity == tuned.identity
    assert answer("h200") == "tuned"
    (entry,) = run("show", "toy_scale", "--device", "h200", "--json").document
    assert entry["device"] == tuned.identity
    shown = run("devices").out
    assert " ".join(label.split()) in " ".join(shown.split())
    assert tuned.identity in shown


def test_dev_1_a_slice_or_a_smaller_card_of_that_name_is_another_device(cards: Cards) -> None:
    same_name = (
        replace(H200, sms=114),
        replace(H200, memory=81000 * MIB),
        replace(H200, mig=(3, 3), sms=60, memory=70000 * MIB),
    )
    identities = set()
    for card in (H200, *same_name):
        cards(card)
        identities.add(find_device("cuda").identity)
    assert len(identities) == 4


def test_dev_2_two_unlike_cards_in_one_box(run: Run, toy: str, cards: Cards) -> None:
    cards(H200, A100)
    first, second = find_device("cuda:0"), find_device("cuda:1")
    keep(toy_problem(512), choice("numpy", 1e-3), device=first.identity, family=first.family)
    assert (answer("cuda:0"), answer("cuda:1")) == ("tuned", None)
    keep(toy_problem(512), choice("flipped", 1e-3), device=second.identity, family=second.family)
    shown = run("show", "toy_scale", "--json").document
    assert {entry["device"]: entry["winner"]["variant"] for entry in shown} == {
        first.identity: "numpy",
        second.identity: "flipped",
    }
    text = run("show", "toy_scale").out
    assert first.identity in text
    assert second.identity in text


ON_ONE_CPU = """
import json, os, sys
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from filled import PLUGIN, choice, keep, toy_problem
from autotune.device import local_cpu
from autotune.model import Problem
from autotune.model.space import configs
from autotune.plugins import load_file, load_plugins
from autotune.registry import registry
from autotune import dispatch
load_file(PLUGIN)
load_plugins()
cpu = local_cpu()
origin = dispatch("toy_scale", (1024,)).origin
keep(toy_problem(512), choice("flipped", 1e-6))
problem = Problem.of(registry.operation("attention"), (1, 1, 256, 64))
threads = {
    config["threads"]
    for variant in registry.variants(problem.operation) if variant.device == "cpu"
    for config in configs(variant, problem, cpu) if "threads" in config
}
print(json.dumps([cpu.identity, cpu.family, origin, sorted(threads), list(cpu.thread_counts())]))
"""


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system cannot pin threads")
def test_dev_3_an_affinity_narrower_than_the_machine(toy: str) -> None:
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("needs two CPUs, and this process may use one")
    keep(toy_problem(1024), choice("flipped", 1e-6))
    done = python("-c", ON_ONE_CPU)
    assert done.returncode == 0, done.stderr
    identity, family, origin, threads, counts = json.loads(done.stdout)
    assert identity != local_cpu().identity
    assert family != local_cpu().family
    assert origin == "predicted"  # what was tuned on all CPUs does not count on one
    assert (threads, counts) == ([1], [1])
    from autotune.serving import Server

    assert Server().kernel("toy_scale", ((512,),), "float32", {}).origin != "tuned"


def test_dev_4_nodes_without_cpus_and_ids_with_gaps(tmp_path: Path) -> None:
    device = written(tmp_path, nodes={0: ((0, 1, 2, 3), 100), 2: ((), 200), 7: ((), 300)})
    topology = device.topology
    assert [node.id for node in topology.nodes] == [0, 2, 7]
    assert [node.id for node in topology.cpu_nodes] == [0]
    assert topology.nodes[2].distances == ((0, 32), (2, 32), (7, 10))
    for placement in device.placements():
        for threads in device.thread_counts():
            assert set(place(topology, threads, placement)) <= {0, 1, 2, 3}
    assert json.dumps(dict(device.facts))


@pytest.mark.parametrize(("siblings", "cpus"), [("adjacent", (0, 2)), ("apart", (0, 1))])
def test_dev_5_two_threads_go_to_two_cores(
    tmp_path: Path, siblings: str, cpus: tuple[int, ...]
) -> None:
    topology = read_topology(plain(tmp_path, 2, siblings=siblings).write())
    for placement in ("compact", "spread", "node:0"):
        assert place(topology, 2, placement) == cpus
        assert set(place(topology, 4, placement)) == {0, 1, 2, 3}
    assert len(topology.cores) == 2


@pytest.mark.parametrize("left", ["nothing", "an empty folder", "files that cannot be read"])
def test_dev_6_no_numa_information_is_one_node(tmp_path: Path, left: str) -> None:
    device = written(tmp_path, nodes={})
    folder = tmp_path / "sys/devices/system/node"
    if left != "nothing":
        (folder / "node0" if "files" in left else folder).mkdir(parents=True)
    again = CpuDevice.of(read_topology(tmp_path))
    assert [node.cpus for node in again.topology.cpu_nodes] == [(0, 1, 2, 3)]
    assert again.identity == device.identity
    for placement in again.placements():
        assert len(place(again.topology, 4, placement)) in (0, 4)


def test_dev_7_inputs_are_on_the_node_of_their_threads_and_the_key_has_the_nodes(
    tmp_path: Path,
) -> None:
    """Where the memory is cannot be seen on a machine with one node: the parts are tested."""
    two = {0: ((0, 1), 100), 1: ((2, 3), 100)}
    both = written(tmp_path / "two", nodes=two)
    one = written(tmp_path / "one")
    assert both.identity != one.identity
    assert "node:1" in both.placements()
    pinned = CpuDevice.of(read_topology(tmp_path / "two", affinity=[0, 1]))
    assert pinned.identity != both.identity
    assert place(both.topology, 2, "node:1") == (2, 3)
    source = np.random.default_rng(0).random((200, 70))
    settings = ThreadSettings(2) if len(os.sched_getaffinity(0)) > 1 else ThreadSettings(1)
    copy = first_touch(source, prepare(settings))
    assert not np.shares_memory(copy, source)
    assert (copy == source).all()
