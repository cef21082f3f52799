"""Admissible configs of products small and huge."""

from __future__ import annotations

import itertools
import subprocess
import sys

import numpy as np

from autotune.search.constraints import constraint
from autotune.search.legal import Rules, legal_points


def rules(options: dict[str, list[object]], *texts: str, **facts: object) -> Rules:
    return Rules(options, [constraint(text) for text in texts], facts)


def test_all_of_a_small_product_in_its_order() -> None:
    options: dict[str, list[object]] = {"a": [1, 2, 3, 4], "b": [1, 2, 3], "c": ["x", "y"]}
    found, complete = legal_points(rules(options, "a * b <= n", "c == 'x' or a == 1", n=6), 1000)
    expected = [
        (i, j, k)
        for i, j, k in itertools.product(range(4), range(3), range(2))
        if (i + 1) * (j + 1) <= 6 and (k == 0 or i == 0)
    ]
    assert complete
    assert [tuple(point) for point in found.tolist()] == expected


def test_without_tunables_there_is_one_config_or_none() -> None:
    assert legal_points(rules({}, "n > 3", n=4), 10)[0].shape == (1, 0)
    assert legal_points(rules({}, "n > 3", n=2), 10)[0].shape == (0, 0)


def test_constraints_that_exclude_everything_leave_nothing() -> None:
    options: dict[str, list[object]] = {name: list(range(10)) for name in "abcdefgh"}
    found, complete = legal_points(rules(options, "a > 9"), 100)
    assert complete
    assert len(found) == 0


def test_of_many_a_sample_is_drawn_evenly() -> None:
    options: dict[str, list[object]] = {name: list(range(10)) for name in "abcdefgh"}
    found, complete = legal_points(rules(options, "a + b + c + d <= 20", "e != f"), 4000)
    assert not complete
    assert len(found) == len(np.unique(found, axis=0)) == 4000
    sums = np.array([sum(p) for p in itertools.product(range(10), repeat=4)])
    assert abs(found[:, :4].sum(axis=1).mean() - sums[sums <= 20].mean()) < 0.5
    assert (found[:, 4] != found[:, 5]).all()
    assert np.allclose(found[:, 6].mean(), 4.5, atol=0.3)


def test_tight_constraints_on_the_last_tunables_are_met() -> None:
    options: dict[str, list[object]] = {name: list(range(10)) for name in "abcdef"}
    only = rules(options, "a + b + c + d + e + f == 53")
    found, complete = legal_points(only, 1000)
    assert complete
    assert len(found) == 6
    assert only.admits(found).all()


def test_a_sample_is_the_same_under_a_seed() -> None:
    options: dict[str, list[object]] = {name: list(range(10)) for name in "abcdefgh"}
    one, same, other = (legal_points(rules(options, "a != b"), 50, s)[0] for s in (1, 1, 2))
    assert (one == same).all()
    assert (one != other).any()


HUGE = """
from autotune.model import Operation, Pass, PowerOfTwo, Problem, Variant
from autotune.model.operation import parse_tensors
from autotune.search import Search, build_space

class Machine:
    limits = {}
    def thread_counts(self): return (1,)
    def placements(self): return ("free",)

def nothing(*args): raise AssertionError

tensors = parse_tensors("x[N]"), parse_tensors("y[N]")
operation = Operation(name="rows", dims=("N",), inputs=tensors[0], outputs=tensors[1],
    reference=nothing, plain=nothing, flops="N")
tunables = tuple(PowerOfTwo(f"t{i}", 1, 512, default=256) for i in range(8))
wide = Variant("wide", operation, nothing, tunables=tunables,
    constraints=("t0 * t1 * t2 <= 4096", "t3 % t4 == 0", "t5 * t6 <= 512 or t7 == 1"),
    passes=(Pass("all", reads={"x": "64 / t0"}, writes={"y": "owned"}),))
space = build_space(Problem.of(operation, (4096,)), [wide], Machine())
(home,) = space.variants
first = Search(space).ask()
assert first == home.candidate(home.default) and first in space
print(home.admits is not None, len(home))
status = open("/proc/self/status").read()  # what getrusage says holds the parent's as well
print(int(status.split("VmHWM:")[1].split()[0]) / 1024)
"""


def test_a_first_proposal_for_a_hundred_million_configs_needs_little_memory() -> None:
    """That of the whole process, in MiB. The product alone would take 3 GB, and minutes."""
    run = [sys.executable, "-c", HUGE]
    sampled, count, peak = subprocess.check_output(run, text=True, timeout=60).split()
    assert (sampled, int(count)) == ("True", 20_000)
    assert float(peak) < 200.0
