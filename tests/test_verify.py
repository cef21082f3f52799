"""The gate: what passes, what does not, and why the bound is what it is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autotune.device import local_cpu
from autotune.execution import Executable
from autotune.expected import FLOOR_ULPS, GateError
from autotune.model import Operation, Pass, Problem, Variant
from autotune.model.operation import parse_tensors
from autotune.verify import Gate, Verdict

OWNED = (Pass("all", parallel=("N",), writes={"y": "owned"}),)


def make_operation(
    reference: Callable[..., Any],
    inputs: str = "x[N]",
    outputs: str = "y[N]",
    dims: str = "N",
    **fields: Any,
) -> Operation:
    fields = {"plain": reference, **fields}
    tensors = parse_tensors(inputs), parse_tensors(outputs)
    return Operation("thing", tuple(dims.split()), *tensors, reference=reference, **fields)


def build(problem: Problem, run: Callable[..., Any], **fields: Any) -> Executable:
    variant = Variant("v", problem.operation, lambda *_: run, source=run, **fields)
    return Executable(variant, problem, {}, local_cpu())


def check(problem: Problem, run: Callable[..., Any], **fields: Any) -> Verdict:
    return Gate(problem).check(build(problem, run, **fields))


TWICE = make_operation(lambda x: 2 * x)
SIZES = (0, 1, 1000)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("layout", ["packed", "strided"])
def test_a_right_variant_passes(size: int, layout: str) -> None:
    problem = Problem.of(TWICE, (size,), layout=layout)
    verdict = check(problem, lambda x, y: np.multiply(x, 2, out=y), passes=OWNED)
    assert verdict == Verdict(True, "", 0.0, FLOOR_ULPS * np.finfo(np.float32).eps)


def test_in_16_bits_one_unit_is_allowed_and_not_sixteen() -> None:
    operation = make_operation(lambda x: 2 * x, dtypes=("float16",))
    problem = Problem.of(operation, (1000,), "float16")
    step = float(np.finfo(np.float16).eps)
    assert Gate(problem).expected[0].bound == step

    def off(share: float) -> Verdict:
        return check(problem, lambda x, y: np.multiply(x, 2 * (1 + share), out=y))

    assert off(step / 2).passed
    assert not off(4 * step).passed


def test_a_variant_that_returns_its_output_passes() -> None:
    assert check(Problem.of(TWICE, (100,)), lambda x: x * 2, returns=True).passed


def one_off(x: Any, y: Any) -> None:
    np.multiply(x, 2, out=y)
    y[-1] *= 1.001


def left_out(x: Any, y: Any) -> None:
    np.multiply(x[:-1], 2, out=y[:-1])


def infinite(x: Any, y: Any) -> None:
    np.multiply(x, 2, out=y)
    y[3] = np.inf


WRONG = [
    (one_off, "y is off by"),
    (left_out, "1 of 100 elements unwritten"),
    (infinite, "y is off by inf"),
    (lambda x, y: None, "100 of 100 elements unwritten"),
]


@pytest.mark.parametrize(("run", "reason"), WRONG)
def test_every_element_counts(run: Callable[..., Any], reason: str) -> None:
    verdict = check(Problem.of(TWICE, (100,)), run)
    assert not verdict.passed
    assert reason in verdict.reason


@pytest.mark.parametrize(
    ("run", "reason"),
    [
        (lambda x: (x * 2).astype("f8"), "float64 (100,), not float32"),
        (lambda x: (x * 2)[:50], r"float32 (50,), not float32 (100,)"),
        (lambda x: [[1, 2], [3]], ""),
    ],
)
def test_what_is_returned_has_to_be_of_the_declared_kind(
    run: Callable[..., Any], reason: str
) -> None:
    problem = Problem.of(TWICE, (100,))
    if not reason:
        with pytest.raises(Exception, match="2 arrays"):
            check(problem, run, returns=True)
        return
    verdict = check(problem, run, returns=True)
    assert not verdict.passed
    assert reason in verdict.reason


def test_leftovers_of_a_good_candidate_do_not_help_a_bad_one() -> None:
    problem = Problem.of(TWICE, (100,))
    gate = Gate(problem)
    assert gate.check(build(problem, lambda x, y: np.multiply(x, 2, out=y))).passed
    assert not gate.check(build(problem, lambda x, y: None)).passed


def test_damage_by_one_candidate_is_repaired_for_the_next() -> None:
    problem = Problem.of(TWICE, (100,))
    gate = Gate(problem)

    def vandal(x: Any, y: Any) -> None:
        np.multiply(x, 2, out=y)
        x[...] = 0

    good = build(problem, lambda x, y: np.multiply(x, 2, out=y))
    assert gate.check(build(problem, vandal)).reason == "changed its input x"
    gate.repair()
    assert gate.check(good).passed


def test_infinities_in_the_same_place_are_equal_and_others_are_not() -> None:
    operation = make_operation(lambda x: np.where(x > 0, -np.inf, x))
    problem = Problem.of(operation, (100,))
    assert check(problem, lambda x, y: np.copyto(y, np.where(x > 0, -np.inf, x))).passed
    assert not check(problem, lambda x, y: np.copyto(y, np.where(x > 0, np.inf, x))).passed
    assert not check(problem, lambda x, y: np.copyto(y, np.where(x > 0, -1e30, x))).passed
    assert not check(problem, lambda x, y: np.copyto(y, np.where(x > 1, -np.inf, x))).passed


def test_a_reference_that_raises_or_gives_nan_or_another_shape_cannot_judge() -> None:
    with pytest.raises(GateError, match="NaN in y"):
        Gate(Problem.of(make_operation(lambda x: x * np.nan), (10,)))
    with pytest.raises(GateError, match="raised KeyError"):
        Gate(Problem.of(make_operation(lambda x: {}[x.size]), (10,)))
    with pytest.raises(GateError, match="expected"):
        Gate(Problem.of(make_operation(lambda x: x[:3]), (10,)))


def test_the_reference_computes_in_float64_and_the_plain_one_in_the_problems_dtype() -> None:
    seen: list[np.dtype[Any]] = []

    def reference(x: Any) -> Any:
        seen.append(x.dtype)
        return x * 2

    Gate(Problem.of(make_operation(reference), (10,), "float32"))
    assert {str(dtype) for dtype in seen} == {"float64", "float32"}


SUM = make_operation(lambda x: x.sum(axis=0), "x[N,M]", "y[M]", "N M", tolerance={"y": 2.0})


def in_order(x: Any, y: Any) -> None:
    y[...] = 0
    for row in x:
        y += row


def in_half_precision(x: Any, y: Any) -> None:
    y[...] = x.astype(np.float16).sum(axis=0, dtype=np.float32)


def test_the_bound_is_a_multiple_of_what_the_arithmetic_cannot_avoid() -> None:
    problem = Problem.of(SUM, (2000, 50), "float32")
    gate = Gate(problem)
    passed = gate.check(build(problem, in_order))
    assert passed.passed, passed.reason
    assert 0 < passed.error <= passed.bound
    failed = gate.check(build(problem, in_half_precision))
    assert not failed.passed
    assert failed.error > failed.bound


def test_in_float64_the_bound_is_not_what_comparing_the_reference_with_itself_gives() -> None:
    problem = Problem.of(SUM, (20_000, 50), "float64")
    gate = Gate(problem)
    verdict = gate.check(build(problem, lambda x, y: in_order(x[::-1], y)))
    assert verdict.passed, verdict.reason
    assert verdict.error > FLOOR_ULPS * np.finfo(np.float64).eps
    assert not gate.check(
        build(problem, lambda x, y: np.copyto(y, x.astype("f4").sum(axis=0)))
    ).passed


def test_the_tolerance_of_an_output_scales_its_bound() -> None:
    wide = make_operation(SUM.reference, "x[N,M]", "y[M]", "N M", tolerance={"y": 2000.0})
    shape = (2000, 50)
    assert Gate(Problem.of(wide, shape)).expected[0].bound == pytest.approx(
        1000 * Gate(Problem.of(SUM, shape)).expected[0].bound, rel=0.5
    )


def test_an_overflow_of_the_plain_implementation_excuses_nobody() -> None:
    def plain(x: Any) -> Any:
        return np.where(x > 1, np.inf, 2 * x)

    operation = make_operation(lambda x: 2 * x, plain=plain)
    expected = Gate(Problem.of(operation, (100,))).expected[0]
    assert expected.bound < 1e-5


def test_integers_have_to_be_exact() -> None:
    operation = make_operation(lambda x: np.argsort(x), "x[N]", "y[N]:int64")
    problem = Problem.of(operation, (100,))
    assert check(problem, lambda x, y: np.copyto(y, np.argsort(x))).passed
    assert not check(problem, lambda x, y: np.copyto(y, np.argsort(-x))).passed


def test_a_claim_of_determinism_is_checked_bitwise() -> None:
    calls = []

    def drifting(x: Any, y: Any) -> None:
        calls.append(1)
        np.multiply(x, 2, out=y)
        if len(calls) % 2:
            y[0] = np.nextafter(y[0], np.float32(np.inf))

    problem = Problem.of(TWICE, (100,))
    assert "differs between two runs" in check(problem, drifting, passes=OWNED).reason
    assert check(problem, drifting).passed


def test_cheap_problems_are_checked_on_a_second_set_of_inputs() -> None:
    memo: list[Any] = []

    def remembering(x: Any, y: Any) -> None:
        if not memo:
            memo.append(x * 2)
        y[...] = memo[0]

    problem = Problem.of(TWICE, (100,))
    assert "y is off" in check(problem, remembering).reason


def test_the_first_call_can_be_timed_by_the_caller() -> None:
    calls = []

    def first(call: Callable[[], Any]) -> Any:
        calls.append("first")
        return call()

    problem = Problem.of(TWICE, (100,))
    executable = build(problem, lambda x, y: np.multiply(x, 2, out=y), passes=OWNED)
    assert Gate(problem).check(executable, first).passed
    assert calls == ["first"]


def test_in_place_operations_get_fresh_inputs_for_each_run() -> None:
    operation = make_operation(lambda x: 2 * x, outputs="x[N]")
    problem = Problem.of(operation, (100,))
    gate = Gate(problem)

    def double(x: Any) -> None:
        x *= 2

    for _ in range(3):
        assert gate.check(build(problem, double, deterministic=True)).passed


def test_what_is_written_after_the_return_comes_too_late() -> None:
    import threading

    release = threading.Event()

    def later(x: Any, y: Any) -> None:
        def write() -> None:
            release.wait(10)
            np.multiply(x, 2, out=y)

        threads.append(threading.Thread(target=write))
        threads[-1].start()

    threads: list[threading.Thread] = []
    problem = Problem.of(TWICE, (100,))
    try:
        assert "unwritten" in check(problem, later).reason
    finally:
        release.set()
        for thread in threads:
            thread.join()
