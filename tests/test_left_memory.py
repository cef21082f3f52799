"""What preparing a problem takes at least."""

from __future__ import annotations

import pytest

import autotune
from autotune import operation
from autotune.model import Problem
from autotune.registry import Registry
from autotune.room import NoRoomError, least_bytes, no_room, require_room


@pytest.mark.parametrize(("dtype", "itemsize"), [("float16", 2), ("float32", 4), ("float64", 8)])
def test_arrays_and_their_float64_copies_count(dtype: str, itemsize: int) -> None:
    problem = Problem.of(autotune.attention, (2, 1, 1000, 64), dtype)
    elements = 4 * 2 * 1000 * 64 + (2 * 1000 if problem.operation.residuals else 0)
    assert least_bytes(problem) >= elements * (itemsize + 8)
    assert least_bytes(problem) < 1.1 * elements * (itemsize + 8)


def test_whole_numbers_are_copied_as_they_are_and_updated_arrays_count_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("autotune.registry.registry", Registry())

    @operation(inputs="x[N]:int8 y[N]", outputs="y[N]")
    def added(x: object, y: object) -> object:
        """Adds in place."""
        return y

    assert least_bytes(Problem.of(added, (1000,), "float32")) == 1000 * (1 + 1) + 1000 * (4 + 8)


def test_the_reason_names_both_numbers() -> None:
    problem = Problem.of(autotune.attention, (2, 1, 1000, 64), "float32")
    needed = least_bytes(problem)
    assert no_room(problem, needed) is None
    with pytest.raises(NoRoomError, match=r"needs at least 5.88 MiB for inputs.* and 1 MiB of"):
        require_room(problem, 1 << 20)
