"""Which arrays share memory: a call must not write to one twice, nor to what it reads."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from autotune.cuda.arrays import CupyArrays
from autotune.errors import ShapeError
from autotune.libraries import NumpyArrays, share_bytes, share_memory
from autotune.model import Operation
from autotune.model.operation import parse_tensors
from autotune.overlap import Apart

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


ROOM = np.zeros((64, 16), "float32")
OPERATION = Operation(
    *("thing", ("N",)),
    *(parse_tensors("x[N] y[N] z[N]"), parse_tensors("z[N] one[N] other[N]")),
    reference=print,
    plain=print,
)


class Copying(CupyArrays):
    """Copies are told by their words; counts how often two arrays were compared."""

    def __init__(self) -> None:
        super().__init__()
        self.compared = 0

    def overlap(self, one: Any, other: Any) -> bool:
        self.compared += 1
        return super().overlap(one, other)

    def copy(self, array: Any) -> Any:
        return "a copy", array.data.ptr


def _columns(*wanted: Any) -> list[Any]:
    return [_device_view(ROOM[key], ROOM) for key in wanted]


def test_what_is_known_of_a_call_is_exact() -> None:
    """Every call says what a first one says, whatever calls came before it."""
    rng = np.random.default_rng(3)
    places = [*(np.s_[row] for row in range(6)), *(np.s_[:16, column] for column in range(6))]
    places += [np.s_[row, ::-1] for row in range(3)]
    library = Copying()
    apart = Apart(OPERATION, library)

    def said(decide: Apart, arrays: list[Any]) -> Any:
        try:
            found = decide(tuple(arrays[:3]), arrays[3:])
        except ShapeError as error:
            return str(error)
        return [each if isinstance(each, tuple) else arrays.index(each) for each in found]

    seen = set()
    for _ in range(600):
        chosen = rng.choice(len(places), 5, replace=rng.random() < 0.5)
        arrays = _columns(*(places[each] for each in chosen))
        answer = said(Apart(OPERATION, library), arrays)
        assert said(apart, arrays) == answer
        assert said(apart, arrays) == answer
        seen.add(repr(answer))
    assert {
        "[0, 1, 2]",
        f"{'thing: two arrays that it writes to share memory; pass separate ones.'!r}",
    } <= seen
    assert len(seen) > 3
    assert len(apart._known) <= 64


def test_arrays_that_come_back_are_not_compared_again() -> None:
    library = Copying()
    apart = Apart(OPERATION, library)
    rows = _columns(*range(5))
    assert apart(tuple(rows[:3]), rows[3:]) == tuple(rows[:3])
    assert library.compared == 0  # their addresses in order told enough
    mixed = _columns(0, 0, 2, 0, 3)
    answers = [apart(tuple(mixed[:3]), mixed[3:]) for _ in range(2)]
    assert answers[0] == answers[1]
    assert [isinstance(each, tuple) for each in answers[0]] == [True, True, False]
    compared = library.compared
    apart(tuple(mixed[:3]), mixed[3:])
    assert library.compared == compared
    same = _columns(0, 1, 2, 3, 3)
    for _ in range(2):
        with pytest.raises(ShapeError, match="two arrays that it writes to share memory"):
            apart(tuple(same[:3]), same[3:])


def test_the_distance_of_two_arrays_and_their_strides_tell_whether_they_share_memory() -> None:
    every_second, one = ((8,), (2,), 4), ((1,), (1,), 4)
    found = [share_memory(distance, every_second, one) for distance in range(-8, 68, 4)]
    assert found == [False, False, *[True, False] * 8, False]
    assert share_memory(-28, ((8,), (-1,), 4), one)
