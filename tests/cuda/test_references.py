"""The references of attention run on the device's own arrays, and give the host's results there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from autotune_variants.attention import reference


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("keys", [0, 7])
@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_references_stay_on_the_device(fake_cupy: Any, dtype: str, keys: int, causal: bool) -> None:
    rng = np.random.default_rng(3)
    shapes = ((1, 4, 9, 8), (1, 2, keys, 8), (1, 2, keys, 8), (1, 4, 9, 8))
    q, k, v, grad_out = (rng.standard_normal(shape).astype(dtype) for shape in shapes)
    options = {"causal": causal, "scale": 0.3}
    out, lse = reference.plain_forward(q, k, v, **options)
    for name, arrays in {
        "forward": (q, k, v),
        "plain_forward": (q, k, v),
        "gradients": (q, k, v, grad_out),
        "plain_gradients": (q, k, v, out, lse, grad_out),
        "plain_train": (q, k, v, grad_out),
    }.items():
        function = getattr(reference, name)
        on_device = function(*(fake_cupy.asarray(each) for each in arrays), **options)
        for one, other in zip(on_device, function(*arrays, **options), strict=True):
            assert isinstance(one, fake_cupy.ndarray), name
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one.get(), other, err_msg=name)
