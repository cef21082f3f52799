"""Which arrays share memory: a call must not write to one twice, nor to what it reads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from autotune.cuda.arrays import CupyArrays
from autotune.libraries import NumpyArrays, share_bytes

_FIRST = 1 << 40  # an address that nobody may read


def _device_view(like: np.ndarray[Any, Any], whole: np.ndarray[Any, Any]) -> Any:
    """A view of memory on a device, as CuPy describes one."""
    address = _FIRST + like.__array_interface__["data"][0] - whole.__array_interface__["data"][0]
    return SimpleNamespace(
        data=SimpleNamespace(ptr=address),
        shape=like.shape,
        strides=like.strides,
        itemsize=like.itemsize,
        nbytes=like.nbytes,
        _c_contiguous=like.flags.c_contiguous,
    )


PAIRS = [
    ("heads of one product", np.s_[:, :64], np.s_[:, 64:128], False),
    ("a column more", np.s_[:, :65], np.s_[:, 64:128], True),
    ("rows", np.s_[:8], np.s_[8:], False),
    ("a row more", np.s_[:9], np.s_[8:], True),
    ("alternate columns", np.s_[:, ::2], np.s_[:, 1::2], False),
    ("every third beside every second", np.s_[:, ::3], np.s_[:, ::2], True),
    ("backwards", np.s_[::-1, :64], np.s_[:, 64:], False),
    ("the same backwards", np.s_[::-1], np.s_[:1], True),
    ("nothing", np.s_[:0], np.s_[:], False),
]


@pytest.mark.parametrize(
    ("one", "other", "shared"), [p[1:] for p in PAIRS], ids=[p[0] for p in PAIRS]
)
def test_views_share_memory_where_they_have_a_byte_in_common(
    one: Any, other: Any, shared: bool
) -> None:
    whole = np.zeros((16, 192), "float32")
    assert NumpyArrays().overlap(whole[one], whole[other]) is shared
    views = (_device_view(whole[each], whole) for each in (one, other))
    assert CupyArrays().overlap(*views) is shared


def test_what_is_hard_to_tell_counts_as_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    def give_up(*_: Any, **__: Any) -> bool:
        raise np.exceptions.TooHardError

    monkeypatch.setattr(np, "shares_memory", give_up)
    assert share_bytes(np.zeros(3), np.zeros(3))
