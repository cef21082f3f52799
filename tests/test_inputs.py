"""Arrays for checking and timing: random, aligned, guarded, restored."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autotune.arrays import ALIGNMENT, Guarded, empty_aligned, poison
from autotune.errors import DeclarationError
from autotune.inputs import make_buffers
from autotune.model import Operation, Problem
from autotune.model.operation import parse_tensors
from autotune_tuning_db import LAYOUTS


def make_operation(inputs: str, outputs: str, dims: str, **fields: Any) -> Operation:
    return Operation(
        "thing",
        tuple(dims.split()),
        parse_tensors(inputs),
        parse_tensors(outputs),
        reference=lambda *arrays, **_: arrays[0],
        plain=lambda *arrays, **_: arrays[0],
        **fields,
    )


MATRIX = make_operation("q[B,H,N,D] w[N]:int32", "y[B,H,N,D]", "B H N D")
IN_PLACE = make_operation("x[N] w[N]", "x[N]", "N")
SHAPE = (2, 3, 70, 5)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_inputs_are_random_and_the_same_for_the_same_seed(dtype: str) -> None:
    operation = make_operation("x[N]", "y[N]", "N", dtypes=(dtype,))
    problem = Problem.of(operation, (1 << 16,), dtype)
    (values,) = make_buffers(problem, 5).input_arrays
    assert values.dtype == dtype
    assert abs(float(values.mean(dtype=np.float64))) < 0.05
    assert float(values.std(dtype=np.float64)) == pytest.approx(1.0, abs=0.05)
    assert np.unique(values[:1000]).size > 500
    assert np.array_equal(values, make_buffers(problem, 5).input_arrays[0])
    assert not np.array_equal(values, make_buffers(problem, 6).input_arrays[0])


def test_two_inputs_of_one_shape_differ() -> None:
    one, other = make_buffers(Problem.of(IN_PLACE, (100,))).input_arrays
    assert not np.array_equal(one, other)


def test_inputs_do_not_depend_on_the_number_of_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = Problem.of(IN_PLACE, ((1 << 20) * 2 + 3,))
    many = make_buffers(problem).input_arrays
    monkeypatch.setattr("autotune.inputs.allowed_cpus", lambda: 1)
    few = make_buffers(problem).input_arrays
    assert all(np.array_equal(a, b) for a, b in zip(many, few, strict=True))


def test_packed_arrays_are_contiguous_and_on_a_cache_line() -> None:
    buffers = make_buffers(Problem.of(MATRIX, SHAPE))
    for array in (*buffers.input_arrays, *buffers.output_arrays):
        assert array.flags.c_contiguous
        assert array.ctypes.data % ALIGNMENT == 0
    weights = buffers.input_arrays[1]
    assert weights.dtype == np.int32
    assert weights.min() < 0 < weights.max()


def test_strided_inputs_have_the_same_shape_in_another_order() -> None:
    buffers = make_buffers(Problem.of(MATRIX, SHAPE, layout="strided"))
    q, w = buffers.input_arrays
    assert q.shape == SHAPE
    assert q.transpose(0, 2, 1, 3).flags.c_contiguous
    assert w.strides == (8,)
    assert buffers.output_arrays[0].flags.c_contiguous
    assert buffers.damage() is None


def test_unaligned_arrays_begin_one_element_behind_an_aligned_address() -> None:
    buffers = make_buffers(Problem.of(MATRIX, SHAPE, layout="unaligned"))
    for array in (*buffers.input_arrays, *buffers.output_arrays):
        assert array.flags.c_contiguous
        assert array.ctypes.data % ALIGNMENT == array.itemsize
    assert buffers.damage() is None


def test_outputs_start_poisoned() -> None:
    (y,) = make_buffers(Problem.of(MATRIX, SHAPE)).output_arrays
    assert np.isnan(y).all()
    numbers = np.zeros(3, np.int16)
    poison(numbers)
    assert (numbers == np.iinfo(np.int16).max).all()


@pytest.mark.parametrize("layout", LAYOUTS)
def test_what_was_changed_is_named(layout: str) -> None:
    buffers = make_buffers(Problem.of(MATRIX, SHAPE, layout=layout))
    assert buffers.damage() is None
    buffers.input_arrays[0][1, 2, 69, 4] += 1
    assert buffers.damage() == "changed its input q"


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("offset", ["before", "behind"])
def test_writing_past_an_end_is_noticed(layout: str, offset: str) -> None:
    buffers = make_buffers(Problem.of(IN_PLACE, (10,), layout=layout))
    w = buffers.input_arrays[1]
    step = w.strides[0]
    shifted = np.lib.stride_tricks.as_strided(w, (12,), (step,))
    address = w.ctypes.data - step if offset == "before" else shifted.ctypes.data + 10 * step
    type(np.ctypeslib.as_ctypes(np.zeros((), np.float32))).from_address(address).value = 1.0
    assert buffers.damage() == "wrote outside of w"


def test_writing_into_the_gaps_of_a_strided_vector_is_noticed() -> None:
    guarded = Guarded.empty((8,), np.float32, layout="strided")
    assert guarded.intact()
    base = np.lib.stride_tricks.as_strided(guarded.array, (16,), (4,))
    base[3] = 0.0
    assert not guarded.intact()


def test_updated_inputs_are_restored_and_may_change() -> None:
    buffers = make_buffers(Problem.of(IN_PLACE, (100,)))
    x = buffers.input_arrays[0]
    original = x.copy()
    assert buffers.output_arrays[0] is x
    x *= 2
    assert buffers.damage() is None
    buffers.reset()
    assert np.array_equal(x, original)


def test_a_sample_of_the_operation_takes_the_place_of_random_values() -> None:
    def sample(problem: Problem, rng: np.random.Generator) -> tuple[Any, ...]:
        return np.arange(problem.sizes["N"]), rng.standard_normal(problem.sizes["N"])

    operation = make_operation("x[N] w[N]", "y[N]", "N", sample=sample)
    x, w = make_buffers(Problem.of(operation, (9,), "float64")).input_arrays
    assert np.array_equal(x, np.arange(9.0))
    assert np.unique(w).size == 9


@pytest.mark.parametrize("given", [(np.ones(9),), (np.ones(9), np.ones(8))])
def test_a_sample_that_does_not_fit_is_named(given: tuple[Any, ...]) -> None:
    operation = make_operation("x[N] w[N]", "y[N]", "N", sample=lambda *_: given)
    with pytest.raises(DeclarationError, match="thing: sample gave"):
        make_buffers(Problem.of(operation, (9,)))


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (7, 1)])
def test_any_shape_can_be_had(shape: tuple[int, ...]) -> None:
    assert empty_aligned(shape, np.float32).shape == shape
    for layout in LAYOUTS:
        guarded = Guarded.empty(shape, np.float32, layout=layout)
        guarded.array[...] = 1.0
        assert guarded.array.shape == shape
        assert guarded.intact()
