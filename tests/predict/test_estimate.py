"""The estimate: what each resource needs, by which unit, and how much of the device is at work."""

from __future__ import annotations

import math

import pytest

from autotune.estimate import estimate, estimate_seconds
from autotune.model import Operation, Pass, Problem, Threads, Unit, Variant
from autotune.model.operation import parse_tensors
from autotune.rates import Rates, nominal_rates

OPERATION = Operation(
    name="sums",
    dims=("M", "N"),
    inputs=parse_tensors("x[M,N]"),
    outputs=parse_tensors("y[M]"),
    reference=lambda x: x,
    plain=lambda x: x,
    flops="M*N",
    dtypes=("float32", "float64", "bfloat16"),
)
GPU = Rates(
    workers=100,
    alone=10.0,
    flops={"vector float32": 2.0, "matrix float32": 8.0, "matrix bfloat16": 32.0},
    atomics=1.0,
    launch=1e-3,
    read=1000.0,
    copy=500.0,
    cache=5.0,
    step=0.25,
    resident=2,
)
ROWS = Pass(
    "rows",
    parallel={"M": 1},
    sequential={"N": 4},
    reads=("x",),
    writes={"y": "owned"},
    flops="M*N",
)


def variant(*passes: Pass, device: str = "cuda", **fields: object) -> Variant:
    return Variant("v", OPERATION, lambda p, c: None, device, passes=passes, **fields)  # type: ignore[arg-type]


def problem(m: int, n: int, dtype: str = "float32") -> Problem:
    return Problem.of(OPERATION, (m, n), dtype)


def test_each_resource_by_itself() -> None:
    found = estimate(variant(ROWS), problem(200, 8), {}, GPU)
    read, written = 4 * 200 * 8, 4 * 200
    assert found.memory == pytest.approx((read - written) / 1000 + 2 * written / 500)
    assert found.cache == pytest.approx(read / (5 * 100))
    assert found.arithmetic == pytest.approx(1600 / (2 * 100))
    assert found.depth == pytest.approx(1 * 2 * 0.25)
    assert found.launches == pytest.approx(1e-3)
    longest = max(found.memory, found.cache, found.arithmetic, found.depth)
    assert found.seconds == pytest.approx(longest + found.launches)
    assert found.limit == "cache"


def test_few_blocks_leave_most_multiprocessors_idle() -> None:
    wide, narrow = problem(100, 64), problem(10, 640)
    both = [estimate(variant(ROWS), each, {}, GPU) for each in (wide, narrow)]
    assert both[1].arithmetic == pytest.approx(10 * both[0].arithmetic)
    assert both[1].roofline == pytest.approx(both[0].roofline, rel=0.2)
    assert both[1].seconds > 5 * both[0].seconds


def test_blocks_beyond_what_is_resident_come_in_waves() -> None:
    depth = [estimate(variant(ROWS), problem(m, 8), {}, GPU).depth for m in (200, 201, 400, 401)]
    assert [each / 0.5 for each in depth] == pytest.approx([1, 2, 2, 3])


def test_a_matrix_unit_is_faster_and_products_in_parts_cost_their_number() -> None:
    def arithmetic(unit: Unit | None, dtype: str = "float32") -> float:
        return estimate(variant(ROWS, unit=unit), problem(100, 64, dtype), {}, GPU).arithmetic

    plain = arithmetic(None)
    assert arithmetic(Unit("vector")) == pytest.approx(plain)
    assert arithmetic(Unit("matrix")) == pytest.approx(plain / 4)
    assert arithmetic(Unit("matrix", "bfloat16", 3)) == pytest.approx(plain / 16 * 3)
    assert arithmetic(Unit("matrix"), "bfloat16") == pytest.approx(plain / 16)
    # what loops cannot do in 16 bits they do in float32, not on the matrix unit
    assert arithmetic(None, "bfloat16") == pytest.approx(plain)
    # a matrix unit without a rate is made up for by vectors
    assert arithmetic(Unit("matrix", "tf32")) == pytest.approx(plain / 4)


def test_the_roofline_is_the_larger_of_traffic_and_arithmetic_with_all_at_work() -> None:
    found = estimate(variant(ROWS), problem(1, 4000), {}, GPU)
    assert found.roofline == pytest.approx(max(16000 / 1000, 4000 / 200), rel=0.01)
    assert found.seconds > found.roofline


def test_nobody_waits_for_atomics_and_launches_come_on_top() -> None:
    adding = Pass("add", parallel={"M": 1, "N": 1}, reads=("x",), writes={"y": "atomic"})
    found = estimate(variant(adding, adding), problem(10, 20), {}, GPU)
    assert found.atomics == pytest.approx(2 * 10 * 20 / 100)
    assert found.launches == pytest.approx(2e-3)
    assert found.limit == "atomics"
    assert found.seconds == pytest.approx(found.atomics + found.launches)


def test_threads_share_the_work_of_a_cpu_up_to_its_workers_and_the_memorys_rate() -> None:
    core = Rates(
        workers=8, alone=10.0, flops={"loop float32": 2.0}, atomics=1.0, launch=0.0, read=40.0
    )
    cpu = variant(ROWS, device="cpu", tunables=(Threads(),))
    times = [estimate(cpu, problem(4, 400), {"threads": t}, core) for t in (1, 2, 4, 8)]
    assert [times[0].arithmetic / each.arithmetic for each in times] == pytest.approx([1, 2, 4, 4])
    assert times[0].memory / times[3].memory == pytest.approx(4, rel=0.05)


def test_what_is_not_declared_is_taken_from_the_operation() -> None:
    size = problem(100, 64)
    found = estimate(variant(device="cpu"), size, {}, nominal_rates("cpu"))
    assert found.memory == pytest.approx(4 * (6400 + 100) / 6e9)
    assert found.arithmetic == pytest.approx(6400 / 16e9)
    told = estimate(variant(ROWS, device="cpu"), size, {}, nominal_rates("cpu"))
    assert found.launches == told.launches > 0  # what declares nothing is launched too
    silent = Pass("silent", reads=("x",), writes={"y": "owned"})
    told = estimate(variant(silent, device="cpu"), size, {}, nominal_rates("cpu"))
    assert told.arithmetic == pytest.approx(6400 / 16e9)


def test_without_rates_the_nominal_ones_order() -> None:
    for device in ("cpu", "cuda"):
        seconds = estimate_seconds(variant(ROWS, device=device), problem(64, 64), {})
        assert 0 < seconds < math.inf
