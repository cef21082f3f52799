"""Executables: arguments, outputs, temporaries, threads."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from autotune.arrays import ALIGNMENT
from autotune.device import local_cpu
from autotune.errors import DeclarationError, UnavailableError
from autotune.execution import Executable, thread_settings
from autotune.model import Intermediate, Operation, Problem, Threads, Variant
from autotune.model.operation import parse_tensors
from autotune.worker.failures import failure


def make_operation(inputs: str, outputs: str, **fields: Any) -> Operation:
    tensors = parse_tensors(inputs), parse_tensors(outputs)
    return Operation("thing", ("N",), *tensors, reference=print, plain=print, **fields)


SCALE = make_operation("x[N]", "y[N]", scalars={"factor": 2.0})
MIXED = make_operation("x[N] w[N]", "z[N] x[N] y[N]")


def build(
    operation: Operation,
    run: Callable[..., Any],
    config: dict[str, Any] | None = None,
    **fields: Any,
) -> Executable:
    variant = Variant("v", operation, lambda *_: run, source=run, **fields)
    return Executable(variant, Problem.of(operation, (8,)), config or {}, local_cpu())


def arrays(count: int) -> list[Any]:
    return [np.full(8, float(n), np.float32) for n in range(count)]


def test_a_variant_without_threads_and_temporaries_is_called_directly() -> None:
    def run(x: Any, y: Any, factor: float) -> None:
        np.multiply(x, factor, out=y)

    executable = build(SCALE, run)
    assert executable.call is run
    x, y = np.ones(8, np.float32), np.zeros(8, np.float32)
    results = executable(x, y, 3.0)
    assert results == (y,)
    assert results[0] is y
    assert (y == 3.0).all()


def test_outputs_come_in_declared_order_with_updated_inputs_among_them() -> None:
    def run(x: Any, w: Any, z: Any, y: Any) -> None:
        x += w
        z[...] = 5.0
        y[...] = 7.0

    x, w, z, y = arrays(4)
    results = build(MIXED, run)(x, w, z, y)
    assert [id(each) for each in results] == [id(z), id(x), id(y)]
    assert (x[0], z[0], y[0]) == (1.0, 5.0, 7.0)


def test_a_returning_variant_gives_its_own_arrays_or_fills_those_it_is_given() -> None:
    executable = build(SCALE, lambda x, factor: x * factor, returns=True)
    x, y = np.ones(8, np.float32), np.zeros(8, np.float32)
    (made,) = executable(x, 4.0)
    assert (made == 4.0).all()
    assert executable(x, y, 4.0)[0] is y
    assert (y == 4.0).all()


def test_a_returning_variant_with_too_few_outputs_is_named() -> None:
    executable = build(MIXED, lambda x, w: x, returns=True)
    with pytest.raises(DeclarationError, match=r"thing/v returned 1 arrays.*2 outputs"):
        executable(*arrays(2))


def test_temporaries_are_aligned_of_the_declared_size_and_reused() -> None:
    seen: list[Any] = []

    def run(x: Any, y: Any, big: Any, numbers: Any, factor: float) -> None:
        seen.append((big, numbers))

    executable = build(
        SCALE,
        run,
        {"block": 4},
        intermediates=(Intermediate("big", ("N", "2*N")), Intermediate("numbers", (3,), "int32")),
    )
    executable(*arrays(2), 2.0)
    executable(*arrays(2), 2.0)
    (big, numbers), (again, _) = seen
    assert big.shape == (8, 16)
    assert big.dtype == np.float32
    assert (numbers.shape, numbers.dtype) == ((3,), np.int32)
    assert big.ctypes.data % ALIGNMENT == numbers.ctypes.data % ALIGNMENT == 0
    assert again is big


def test_two_calls_at_once_get_different_temporaries() -> None:
    barrier = threading.Barrier(2, timeout=10)
    seen: list[int] = []

    def run(x: Any, y: Any, scratch: Any, factor: float) -> None:
        seen.append(scratch.ctypes.data)
        barrier.wait()

    executable = build(SCALE, run, intermediates=(Intermediate("scratch", ("N",)),))
    for _ in range(2):
        threads = [threading.Thread(target=executable, args=(*arrays(2), 2.0)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len(seen) == 4
    assert len(set(seen)) == 2


def test_temporaries_are_given_back_after_a_failure() -> None:
    seen: list[int] = []

    def run(x: Any, y: Any, scratch: Any, factor: float) -> None:
        seen.append(scratch.ctypes.data)
        raise RuntimeError

    executable = build(SCALE, run, intermediates=(Intermediate("scratch", ("N",)),))
    for _ in range(2):
        with pytest.raises(RuntimeError):
            executable(*arrays(2), 2.0)
    assert len(set(seen)) == 1


def test_threads_and_placement_hold_for_the_call_alone() -> None:
    inside: list[Any] = []

    def run(x: Any, y: Any, factor: float) -> None:
        inside.append(os.sched_getaffinity(0))

    if not hasattr(os, "sched_setaffinity"):
        pytest.skip("this system cannot pin threads")
    before = os.sched_getaffinity(0)
    config = {"threads": 1, "placement": "compact"}
    executable = build(SCALE, run, config, tunables=(Threads(),))
    executable(*arrays(2), 2.0)
    assert os.sched_getaffinity(0) == before
    assert len(inside[0]) == 1
    record = executable.thread_record()
    assert record is not None
    assert record.threads == 1
    assert set(record.used) == inside[0]


def test_more_threads_than_the_machine_has_are_refused() -> None:
    config = {"threads": 4096, "placement": "compact"}
    with pytest.raises(UnavailableError, match="4096") as caught:
        build(SCALE, print, config, tunables=(Threads(),))
    found = failure(caught.value)
    assert found.status == "unavailable"  # which no later campaign holds against it
    assert found.reason.startswith("cannot place 4096 threads")


def test_only_a_declaration_that_speaks_of_threads_touches_them() -> None:
    plain = Variant("v", SCALE, print)
    serial = Variant("v", SCALE, print, blas="serial")
    assert thread_settings(plain, {}, local_cpu(), numba=True) is None
    assert thread_settings(plain, {"threads": 1}, object(), numba=True) is None
    settings = thread_settings(serial, {}, local_cpu(), numba=False)
    assert settings is not None
    assert (settings.threads, settings.cpus, settings.blas) == (1, (), "serial")
