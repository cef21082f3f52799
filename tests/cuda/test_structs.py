"""The argument struct of a call: what is kept of calls before is told apart by strides too."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest

from autotune.cuda.structs import ArgumentStruct
from autotune.errors import ShapeError


def _array(address: int, strides: tuple[int, int], *, packed: bool) -> Any:
    return SimpleNamespace(
        data=SimpleNamespace(ptr=address),
        shape=(6, 8),
        strides=strides,
        itemsize=4,
        _c_contiguous=packed,
    )


def _of_two() -> ArgumentStruct:
    return ArgumentStruct(
        ["x", "y"],
        pointers=["x", "y"],
        strided={"x": "nd", "y": "nd"},
        shapes={"x": (6, 8), "y": (6, 8)},
        sizes=(6,),
        itemsize=4,
    )


def test_the_same_address_with_other_strides_is_another_call() -> None:
    arguments = _of_two()
    layouts = [((32, 4), True), ((64, 4), False), ((36, 4), False), ((4, 32), False)]
    y = _array(8192, (32, 4), packed=True)
    for _ in range(2):
        for strides, packed in layouts:
            made, aligned = arguments([_array(4096, strides, packed=packed), y], 0.5)
            x_at, y_at, scalar, rows, *steps = struct.unpack("<QQd9q", made)
            assert (x_at, y_at, scalar, rows) == (4096, 8192, 0.5, 6)
            assert steps == [0, 0, *(stride // 4 for stride in strides), 0, 0, 8, 1]
            assert aligned == (strides in ((32, 4), (64, 4)))
    assert len(arguments._known) == len(layouts)


def test_an_array_between_its_own_elements_is_refused() -> None:
    arguments = _of_two()
    y = _array(8192, (32, 4), packed=True)
    with pytest.raises(ShapeError, match="elements of 4 bytes begins at an address that is no"):
        arguments([_array(4098, (32, 4), packed=True), y], 0.5)
    arguments([_array(4100, (32, 4), packed=True), y], 0.5)
