"""Loops whose speed a CPU's units bound, compiled by numba; without the interpreter's lock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import Any

CHAIN = 16
"""Multiply-adds in a row on each number, in a register."""


@dataclass(frozen=True, slots=True)
class Loops:
    """`total(x)`; `multiply_add(x, y, rounds)` and `chain(x, y, rounds)`, on arrays of a dtype."""

    total: Callable[..., Any]
    multiply_add: Callable[..., Any]
    chain: Callable[..., Any]


@cache
def loops(dtype: str) -> Loops:
    """The loops for arrays of float32 or float64; each is compiled at its first call."""
    numba: Any = import_module("numba")
    one = numba.from_dtype(import_module("numpy").dtype(dtype))
    fused = {"nogil": True, "fastmath": {"contract"}, "locals": {"factor": one}}
    return Loops(
        numba.njit(nogil=True, fastmath=True)(_total),
        numba.njit(**fused)(_multiply_add),
        numba.njit(**fused)(_chain),
    )


def _total(x: Any) -> Any:
    """Sum of all elements."""
    found = x[0] - x[0]
    for i in range(len(x)):
        found += x[i]
    return found


def _multiply_add(x: Any, y: Any, rounds: int) -> None:
    """y = y + factor x, again and again."""
    factor = x[0] / 2
    for _ in range(rounds):
        for i in range(len(x)):
            y[i] = y[i] + factor * x[i]


def _chain(x: Any, y: Any, rounds: int) -> None:
    """y = factor y + x, CHAIN times before it is stored; written out, so that i is vectorised."""
    factor = x[0] / 2
    for _ in range(rounds):
        for i in range(len(x)):
            value, added = y[i], x[i]
            value = value * factor + added
            value = value * factor + added
            value = value * factor + added
            value = value * factor + added
            value = value * factor + added
            value = value * factor + added
            value = value * factor + added
            value = value * factor + added
            value = value * factor + added
            value = value * factor + added
            value = value * factor + added
            value = value * factor + added
            value = value * factor + added
            value = value * factor + added
            value = value * factor + added
            value = value * factor + added
            y[i] = value
