"""kv_append on this machine's GPU."""

from __future__ import annotations

from typing import Any

import pytest

from autotune import dispatch

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16"])
@pytest.mark.parametrize("strided", [False, True])
def test_one_row_is_written_in_place(device: Any, dtype: str, strided: bool) -> None:
    cupy = pytest.importorskip("cupy")
    rng = cupy.random.default_rng(1)
    shapes = ((2, 3, 5, 4), (2, 3, 5, 6), (2, 3, 4), (2, 3, 6))
    keys, values, key, value = (rng.standard_normal(shape).astype(dtype) for shape in shapes)
    if strided:
        keys = cupy.ascontiguousarray(keys.swapaxes(1, 2)).swapaxes(1, 2)
    before = keys.copy(), values.copy()
    kernel = dispatch("kv_append", keys, values, key, value)
    assert kernel.variant == "cuda_copy"
    kernel(keys, values, key, value, position=3)
    others = [0, 1, 2, 4]
    for cache, old, row in ((keys, before[0], key), (values, before[1], value)):
        assert bool((cache[:, :, 3] == row).all())
        assert bool((cache[:, :, others] == old[:, :, others]).all())
