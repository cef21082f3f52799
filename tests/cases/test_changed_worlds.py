"""Every field that a measurement is valid for: a change of it does what its grade says.

`stale` is not served, `revalidate` is served and raced again, and another key is another entry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import Run
from fake_driver import Card, machine
from filled import choice, keep, toy_problem
from machines import Machine, epyc_7763_pair, plain

from autotune import dispatch, serving
from autotune.cuda.versions import cuda_versions
from autotune.device import CpuDevice, local_cpu
from autotune.device.read import read_topology
from autotune.fingerprint import toolchain
from autotune.lookup import forget
from autotune.model import Problem
from autotune.registry import registry
from autotune.store import open_tuning_db
from autotune_policies import grade

MIB = 1 << 20
PYTHONS = ("autotune", "python", "numpy")
LOADED = (*PYTHONS, "numba", "llvmlite", "blas", "numba_threads", "c", "fortran")
CUDA = (*PYTHONS, "cupy", "nvrtc", "cuda", "driver")


@pytest.fixture(autouse=True)
def fresh_server(toy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "_server", None)
    forget()


def served(*spec: Any, **options: Any) -> str:
    """Where dispatch takes its answer from, in a process that starts now."""
    serving._server = None
    forget()
    return dispatch("toy_scale", *(spec or ((1024,),)), **{"reverse": True, **options}).origin


def tuned(**changes: Any) -> None:
    """A policy of the toy operation: of 1024 numbers, reversed, which one variant can."""
    keep(toy_problem(1024, reverse=True), choice("flipped", 1e-6), **changes)


def shown(run: Run) -> dict[str, Any]:
    (entry,) = run("show", "toy_scale", "--why", "--device", "all", "--json").document
    changed = {row["field"]: row for row in entry["depends_on"] if row["changed"]}
    return {"state": entry["state"], "changed": changed}


def test_nothing_changed(run: Run) -> None:
    tuned()
    assert served() == "tuned"
    assert shown(run) == {"state": "fresh", "changed": {}}


def test_everything_that_is_loaded_is_in_the_table() -> None:
    assert set(toolchain("cpu")) == set(LOADED)
    assert set(cuda_versions()) | set(PYTHONS) == set(CUDA)


@pytest.mark.parametrize("field", sorted({*LOADED, *CUDA}))
def test_another_version_of_anything_that_is_loaded_is_to_be_measured_again(field: str) -> None:
    now = dict.fromkeys({*LOADED, *CUDA}, "1.0")
    policy = keep(toy_problem(1024), choice("numpy", 1e-6), toolchain=now)
    current = {"fingerprints": lambda _: policy.winner.fingerprint}
    assert grade(policy, policy.winner, toolchain=now, **current).level == "fresh"
    found = grade(policy, policy.winner, toolchain={**now, field: "2.0"}, **current)
    assert (found.level, found.changed) == ("revalidate", (f"{field}: 1.0 -> 2.0",))
    gone = {name: version for name, version in now.items() if name != field}
    found = grade(policy, policy.winner, toolchain=gone, **current)
    assert (found.level, found.changed) == ("revalidate", (f"{field}: 1.0 -> absent",))


def test_another_toolchain_is_served_and_shown_field_by_field(run: Run) -> None:
    tuned(toolchain=dict.fromkeys(LOADED, "0.0"))
    assert served() == "tuned"
    found = shown(run)
    assert found["state"] == "revalidate"
    assert found["changed"].keys() == set(LOADED)
    effects = {row["a_change_makes_it"] for row in found["changed"].values()}
    assert effects == {"revalidate"}
    explained = run("show", "toy_scale", "--shape", 1024, "--set", "reverse=true", "--explain")
    assert all(f"{field}: 0.0 -> " in explained.flat for field in LOADED)


def test_an_edited_source_is_stale_and_not_served(run: Run) -> None:
    """What counts as source (helpers, includes, build options, ...): see test_fingerprint.py."""
    keep(toy_problem(1024, reverse=True), choice("flipped", 1e-6, fingerprint="0" * 16))
    assert served() == "predicted"
    found = shown(run)
    assert found["state"] == "stale"
    assert found["changed"]["source of flipped"]["a_change_makes_it"] == "stale"


KEYS: dict[str, dict[str, Any]] = {
    "dtype": {"dtype": "float64"},
    "flag": {"reverse": False},
    "device": {},
}


@pytest.mark.parametrize("field", KEYS)
def test_another_dtype_flag_or_device_is_another_entry(field: str) -> None:
    if field == "device":
        tuned(device="cpu-of-another-kind", family="another-family")
    else:
        tuned()
    assert served(**KEYS[field]) == "predicted"


def test_another_size_or_mode_is_answered_from_this_one_and_says_so() -> None:
    tuned()
    assert served((2048,)) == "interpolated"
    assert served(mode="hot") == "interpolated"
    tuned(mode="hot")
    assert served(mode="hot") == "tuned"


def test_a_device_of_the_family_answers_as_family() -> None:
    tuned(device="cpu-a-sister")
    assert served() == "family"


@pytest.mark.parametrize(
    ("arrays", "origin"),
    [
        (lambda: np.zeros(1024, "float32"), "tuned"),
        (lambda: np.zeros(2048, "float32")[::2], "predicted"),
        (lambda: np.zeros(1024, "float32")[::-1], "predicted"),
    ],
    ids=["packed", "strided", "reversed"],
)
def test_strides_are_part_of_the_key(arrays: Callable[[], Any], origin: str) -> None:
    tuned()
    assert served(arrays()) == origin


def test_a_misaligned_array_is_served_like_any_and_right() -> None:
    """On a CPU it is no other entry: to look would cost every call that resolves from arrays."""
    tuned()
    x = np.zeros(4 * 1024 + 1, "uint8")[1:].view("float32")
    x[:] = np.arange(1024)
    assert not x.flags.aligned
    assert served(x) == "tuned"
    assert (dispatch("toy_scale", x, reverse=True)(x) == 2 * x[::-1]).all()


@dataclass(frozen=True)
class Renamed:
    """The registry with the variants of the toy operation as a plugin of tomorrow has them."""

    names: tuple[str, ...]
    renamed: tuple[tuple[str, str], ...] = ()


@pytest.mark.parametrize(
    ("tomorrow", "origin", "state"),
    [
        (Renamed(("numpy", "flipped", "broken")), "tuned", "fresh"),
        (Renamed(("broken", "flipped", "numpy")), "tuned", "fresh"),
        (Renamed(("numpy", "flipped"), (("flipped", "turned"),)), "predicted", "not registered"),
        (Renamed(("numpy",)), "reference", "not registered"),
    ],
    ids=["the same", "reordered", "renamed", "removed"],
)
def test_a_variant_is_known_by_its_name_and_source(
    run: Run, monkeypatch: pytest.MonkeyPatch, tomorrow: Renamed, origin: str, state: str
) -> None:
    tuned()
    known = dict(registry._variants["toy_scale"])
    names = dict(tomorrow.renamed)
    variants = {
        names.get(name, name): replace(known[name], name=names.get(name, name))
        for name in tomorrow.names
    }
    monkeypatch.setitem(registry._variants, "toy_scale", variants)
    assert served() == origin
    assert shown(run)["state"] == state


def test_a_renamed_operation_starts_anew_and_the_old_entry_is_marked(run: Run) -> None:
    tuned()
    policy = keep(toy_problem(64), choice("numpy", 1e-6))
    with open_tuning_db() as store:
        renamed = replace(policy, problem=replace(policy.problem, operation="toy_rescale"))
        store.put_policy(renamed.to_row())
    (entry,) = run("show", "toy_rescale", "--json").document
    assert entry["state"] in ("not registered", "stale")
    assert run("show", "toy_rescale").code == 0


def cpu(machine: Machine, affinity: list[int] | None = None) -> CpuDevice:
    return CpuDevice.of(read_topology(machine.write(), affinity=affinity))


def limited(root: Path, quota: str) -> Machine:
    made = plain(root, 16)
    made.file(root / "proc/self/mountinfo", "30 23 0:26 / /cg rw - cgroup2 cgroup2 rw")
    made.file(root / "proc/self/cgroup", "0::/")
    made.file(root / "cg/cpu.max", quota)
    return made


def test_affinity_quota_and_layout_of_a_cpu_are_part_of_its_identity(tmp_path: Path) -> None:
    devices = [
        cpu(plain(tmp_path / "all", 16)),
        cpu(plain(tmp_path / "mask", 16), affinity=[0, 1]),
        cpu(limited(tmp_path / "quota", "200000 100000")),
        cpu(limited(tmp_path / "more", "800000 100000")),
        cpu(plain(tmp_path / "smt", 8, siblings="apart")),
        cpu(epyc_7763_pair(tmp_path / "pair")),
    ]
    assert len({device.identity for device in devices}) == len(devices)
    same = cpu(limited(tmp_path / "none", "max 100000"))
    assert same.identity == devices[0].identity


H200 = Card("NVIDIA H200", 90, 132, 143156 * MIB, 60 * MIB, 232448, 233472, 6144)


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({"name": "Graphics Device"}, True),
        ({"memory": 143000 * MIB}, True),
        ({"ecc": 0}, True),
        ({"number": 1}, True),
        ({"sms": 114}, False),
        ({"compute": 100}, False),
        ({"l2": 50 * MIB}, False),
        ({"bus": 5120}, False),
        ({"shared": 166912}, False),
        ({"memory": 81000 * MIB}, False),
        ({"mig": (3, 3), "sms": 60, "memory": 70000 * MIB}, False),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else None,
)
def test_a_gpu_is_its_silicon_and_the_visible_part_of_it(
    change: dict[str, Any], same: bool
) -> None:
    (one,), (other,) = machine(H200).devices, machine(replace(H200, **change)).devices
    assert (one.identity == other.identity) == same


def test_the_problem_of_a_key_survives_the_way_through_the_store() -> None:
    tuned()
    with open_tuning_db() as store:
        (row,) = store.policies(device=local_cpu().identity)
    again = Problem.from_key(registry.operation("toy_scale"), row.problem)
    assert again == toy_problem(1024, reverse=True)
