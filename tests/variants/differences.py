"""Gradients by central differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np


def check_gradients(
    forward: Callable[..., Any],
    inputs: Sequence[Any],
    grad_out: Any,
    found: Sequence[Any],
    tolerance: float = 1e-8,
) -> None:
    """Assert that `found` are the derivatives of the sum of forward(*inputs) * grad_out."""
    for array, gradient in zip(inputs, found, strict=True):
        slopes = np.empty_like(array)
        for index in np.ndindex(array.shape):
            at = array[index]
            array[index] = at + 1e-5
            above = (forward(*inputs) * grad_out).sum()
            array[index] = at - 1e-5
            slopes[index] = (above - (forward(*inputs) * grad_out).sum()) / 2e-5
            array[index] = at
        np.testing.assert_allclose(gradient, slopes, rtol=0, atol=tolerance)
