"""Views that are kept by address."""

from __future__ import annotations

from typing import Any

import fake_cupy as fake
import numpy as np

from autotune.cuda.arrays import kept_views


def test_views_are_kept_by_address_and_see_what_is_written_there(fake_cupy: Any) -> None:
    rows = kept_views(lambda array: array.reshape(6, 2))
    one, other = (fake_cupy.zeros((2, 3, 2), np.dtype("float64")) for _ in range(2))
    first = rows(one)
    assert rows(one) is first
    assert rows(other) is not first
    fake.host([one])[0][...] = 7.0
    assert (fake.host([rows(one)])[0] == 7.0).all()
    assert (fake.host([rows(other)])[0] == 0.0).all()


def test_views_of_what_is_not_packed_are_made_anew(fake_cupy: Any) -> None:
    heads = kept_views(lambda array: array[..., 0])
    packed = fake_cupy.zeros((4, 6), np.dtype("float64"))
    fake.host([packed])[0][...] = np.arange(24.0).reshape(4, 6)
    assert heads(packed) is heads(packed)
    columns = packed[:, ::2]
    assert heads(columns) is not heads(columns)
    np.testing.assert_array_equal(fake.host([heads(packed[:, 1:])])[0], [1.0, 7.0, 13.0, 19.0])
