"""Array libraries: what is told apart, and what is made in whose memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autotune.errors import ShapeError
from autotune.libraries import NumpyArrays, common_library, library_of
from autotune.model import Intermediate, Operation, Problem, Variant
from autotune.model.operation import parse_tensors
from autotune.workspace import ALIGNMENT, layout


def test_numpys_arrays_and_their_kinds_are_numpys(tmp_path: Any) -> None:
    mapped = np.memmap(tmp_path / "m", np.float32, "w+", shape=(4,))
    for array in (np.ones(3), mapped):
        assert library_of(array).name == "numpy"
        assert library_of(array).place(array) is None
    with pytest.raises(ShapeError, match="got a list"):
        library_of([1.0])
    assert common_library([np.ones(3), mapped], "it")[1] is None


def test_signatures_tell_dtype_shape_and_contiguity_apart() -> None:
    def signature(arrays: list[np.ndarray]) -> object:
        return NumpyArrays().signature("operation", arrays)

    x = np.ones((4, 4), np.float32)
    same = {signature([x, x]), signature([x.copy(), x.copy()]), signature([x.copy(), x])}
    assert len(same) == 1
    assert same != {NumpyArrays().signature("other", [x, x])}
    others = [[x, x.T[::-1]], [x, x[:2]], [x.astype("f8"), x], [x, x, x]]
    assert len({*same, *map(signature, others)}) == 1 + len(others)


def test_new_arrays_have_shape_and_dtype() -> None:
    one, other = NumpyArrays().maker([((2, 3), "float32"), ((4,), "float64")], None)()
    assert (one.shape, one.dtype, other.shape, other.dtype) == ((2, 3), "f4", (4,), "f8")


def test_temporaries_in_a_workspace_are_aligned_and_apart() -> None:
    tensors = parse_tensors("x[N]"), parse_tensors("y[N]")
    operation = Operation("thing", ("N",), *tensors, reference=print, plain=print)
    temporaries = (Intermediate("a", ("N", 3)), Intermediate("b", ("N",), "int64"))
    variant = Variant("v", operation, print, intermediates=temporaries)
    places = layout(variant, Problem.of(operation, (50,)), {})
    assert places.offsets == (0, 3 * ALIGNMENT)
    assert places.nbytes == 3 * ALIGNMENT + 2 * ALIGNMENT
    workspace = np.zeros(places.nbytes, np.uint8)
    places.check(NumpyArrays(), None, workspace, "thing")
    a, b = NumpyArrays().carver(places.parts)(workspace)
    a[...], b[...] = 1.5, 7
    assert (a.shape, a.dtype, b.shape, b.dtype) == ((50, 3), "f4", (50,), "i8")
    assert (workspace[:600].view("f4") == 1.5).all()
    assert (workspace[768:1168].view("i8") == 7).all()
    for wrong in (workspace[1:], workspace[::2], workspace.view("f4"), workspace.reshape(2, -1)):
        with pytest.raises(ShapeError, match="at least 1280 bytes"):
            places.check(NumpyArrays(), None, wrong, "thing")
