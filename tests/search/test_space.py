"""From declarations to the space a search walks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from search_spaces import grid

from autotune.model import (
    Candidate,
    Choice,
    Config,
    Operation,
    Pass,
    Placement,
    PowerOfTwo,
    Problem,
    Range,
    Requirement,
    Threads,
    Variant,
)
from autotune.model.operation import parse_tensors
from autotune.model.space import configs, default_config
from autotune.search import build_space


@dataclass(frozen=True)
class Machine:
    """Four threads; the placement `half` has room for two."""

    limits: Mapping[str, int] = field(default_factory=dict)

    def thread_counts(self) -> tuple[int, ...]:
        return (1, 2, 4)

    def placements(self) -> tuple[str, ...]:
        return ("free", "half")

    def fits(self, threads: int, placement: str) -> bool:
        return placement != "half" or threads <= 2


def reference(x: Any) -> Any:
    """A reference that is never run."""
    return x


def nothing(problem: Problem, config: Mapping[str, Any]) -> Any:
    """A builder that is never called."""


OPERATION = Operation(
    name="rows",
    dims=("N",),
    inputs=parse_tensors("x[N]"),
    outputs=parse_tensors("y[N]"),
    reference=reference,
    plain=reference,
    flops="N",
)
PROBLEM = Problem.of(OPERATION, (4096,))


def declared(name: str, **fields: Any) -> Variant:
    return Variant(name, OPERATION, nothing, **fields)


def test_only_admissible_configs_are_in_the_space() -> None:
    tiled = declared(
        "tiled",
        tunables=(PowerOfTwo("a", 1, 8), Range("b", 1, 3)),
        constraints=("a * b <= 8", "a <= N"),
    )
    space = build_space(PROBLEM, [tiled], Machine())
    (home,) = space.variants
    configs = {(c["a"], c["b"]) for c in (home.candidate(row).config for row in range(len(home)))}
    assert configs == {(a, b) for a in (1, 2, 4, 8) for b in (1, 2, 3) if a * b <= 8}
    assert home.candidate(home.default).config == {"a": 1, "b": 1}


def test_of_a_problem_larger_than_the_memory_left_every_variant_is_skipped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("autotune.search.space.memory_left", lambda: 1 << 10)
    space = build_space(PROBLEM, [declared("one"), declared("gpu", device="cuda")], Machine())
    assert not space.variants
    assert list(space.skipped) == ["one"]
    assert "needs at least 96 KiB" in space.skipped["one"]
    assert "1 KiB of memory are left" in space.skipped["one"]
    assert build_space(PROBLEM, [declared("gpu", device="cuda")], Machine(), device_kind="cuda")


def test_variants_that_cannot_serve_are_named_with_the_reason() -> None:
    """Those for another kind of device or another dtype are not part of the question."""
    variants = [
        declared("here"),
        declared("gpu", device="cuda"),
        declared("double", dtypes=("float64",)),
        declared("large", constraints=("N >= 8192",)),
        declared("empty", tunables=(Range("a", 1, 3),), constraints=("a > 3",)),
        declared("lacking", requires=(Requirement("library", lambda: "needs a library"),)),
    ]
    space = build_space(PROBLEM, variants, Machine())
    assert [home.variant for home in space.variants] == ["here"]
    assert space.skipped == {
        "large": "needs N >= 8192",
        "empty": "no config satisfies its constraints",
        "lacking": "needs a library",
    }
    assert Candidate("here", Config()) in space
    assert Candidate("large", Config()) not in space


def test_a_placement_without_room_for_the_threads_is_left_out() -> None:
    pinned = declared("pinned", tunables=(Threads(), Placement()))
    (home,) = build_space(PROBLEM, [pinned], Machine()).variants
    found = {tuple(home.candidate(row).config.values()) for row in range(len(home))}
    assert found == {(1, "free"), (2, "free"), (4, "free"), (1, "half"), (2, "half")}


def test_limits_of_the_device_bound_the_space_listed_or_drawn() -> None:
    gpu = Machine({"sms": 8, "compute": 80})
    tiles = tuple(Range(name, 1, 10, default=9) for name in "abc")
    product = declared("product", device="cuda", tunables=tiles, constraints=("a * b * c <= sms",))
    newer = declared("newer", device="cuda", constraints=("compute >= 90",))
    for limit in (1000, 10):
        space = build_space(PROBLEM, [product, newer], gpu, device_kind="cuda", limit=limit)
        assert space.skipped == {"newer": "needs compute >= 90 (here compute=80)"}
        (home,) = space.variants
        found = [home.candidate(row).config for row in range(len(home))]
        assert all(config["a"] * config["b"] * config["c"] <= 8 for config in found)
        assert len(home) == (38 if limit == 1000 else 10)


def test_a_space_too_large_to_list_is_drawn_evenly_and_keeps_the_default() -> None:
    wide = declared("wide", tunables=tuple(Range(name, 0, 9, default=7) for name in "abcde"))
    (home,) = build_space(PROBLEM, [wide], Machine(), limit=500).variants
    assert 500 <= len(home) <= 501
    assert set(home.candidate(home.default).config.values()) == {7}
    assert np.ptp(home.points, axis=0).tolist() == [9] * 5
    assert home.points.mean(axis=0) == pytest.approx([4.5] * 5, abs=0.5)


def test_the_variant_expected_to_be_fastest_comes_first_and_its_best_tile_is_known() -> None:
    def streaming(times: str) -> tuple[Pass, ...]:
        return (Pass("all", reads={"x": times}, writes={"y": "owned"}),)

    tile = PowerOfTwo("tile", 1, 64, default=4)
    slow = declared("slow", passes=streaming("100"))
    fast = declared("fast", passes=streaming("64 / tile"), tunables=(tile, Choice("c", (1, 2))))
    space = build_space(PROBLEM, [slow, fast], Machine())
    assert [home.variant for home in space.variants] == ["fast", "slow"]
    first, second = space.variants
    assert first.predicted is not None
    assert first.candidate(first.predicted).config["tile"] == 64
    assert second.predicted is None


def test_neighbours_are_one_admissible_step_away() -> None:
    home = grid("v", (1, 0), a=(True, (1, 2, 4, 8)), kind=(False, ("x", "y", "z")))
    near = [home.candidate(row).config for row in home.neighbours(home.default)]
    assert near == [
        {"a": 4, "kind": "x"},
        {"a": 1, "kind": "x"},
        {"a": 2, "kind": "y"},
        {"a": 2, "kind": "z"},
    ]


def test_a_neighbour_may_lie_behind_a_hole() -> None:
    full = grid("v", (0,), a=(True, (1, 2, 4, 8)))
    holed = type(full)("v", full.axes, full.points[[0, 2, 3]], 0)
    assert [holed.candidate(row).config["a"] for row in holed.neighbours(0)] == [4]


def test_rows_of_configs_that_are_not_there() -> None:
    home = grid("v", (0,), a=(True, (1, 2)))
    assert home.row({"a": 2}) == 1
    assert home.row({"a": 3}) is None
    assert home.row({}) is None
    assert home.row({"a": 1, "b": 1}) is None


@pytest.mark.parametrize(
    "constraints",
    [("a * b <= 4",), ("a * b * c >= 100",), ("a + b != c", "c >= 7"), ("a > 9",), ("kind == 2",)],
)
def test_the_default_is_the_first_of_the_nearest_admissible_configs(
    constraints: tuple[str, ...],
) -> None:
    tunables = (
        Range("a", 1, 9, default=5),
        PowerOfTwo("b", 1, 16, default=4),
        Range("c", 1, 9, step=2, default=5),
        Choice("kind", (0, 1, 2)),
    )
    variant = declared("several", tunables=tunables, constraints=constraints)

    def apart(config: Mapping[str, Any]) -> int:
        steps = abs(config["a"] - 5) + abs(config["c"] - 5) // 2 + (config["kind"] != 0)
        return int(steps + abs(config["b"].bit_length() - 3))

    listed = list(configs(variant, PROBLEM, Machine()))
    expected = min(listed, key=apart, default=None)
    assert default_config(variant, PROBLEM, Machine()) == expected
    space = build_space(PROBLEM, [variant], Machine())
    assert [home.candidate(home.default).config for home in space.variants] == [expected] * bool(
        listed
    )


def test_a_default_in_a_product_of_a_hundred_million_is_found_without_listing_it() -> None:
    tunables = tuple(PowerOfTwo(f"t{i}", 1, 512, default=256) for i in range(8))
    tight = ("t0 * t1 * t2 <= 4096", "t3 % t4 == 0", "t5 * t6 <= 512 or t7 == 1")
    found = default_config(
        declared("wide", tunables=tunables, constraints=tight), PROBLEM, Machine()
    )
    assert found is not None
    assert sum(8 - int(value).bit_length() + 1 for value in found.values()) == 19
