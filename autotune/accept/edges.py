"""The shapes at which kernels go wrong: one, odd, just beside a tile, empty, and not packed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import replace

from autotune.errors import UserError
from autotune.model import Problem
from autotune_tuning_db import LAYOUTS

LENGTHS = (0, 1, 7, 65, 129)
"""Of the operation's size: none, one, shorter than any tile, and one more than a tile or two."""

UNEVEN = ((7, 65), (65, 7))
"""Where a size is made of several dims that may differ."""


def edge_problems(problem: Problem) -> tuple[Problem, ...]:
    """The problem at the edges of its operation's size, all else the same; each once.

    The size is the operation's first axis group, or all its dims when it declares none; of further
    axes each is tried at 1. Sizes that break the operation's rules are left out. The last two
    are on arrays that are packed but not aligned, and that are not packed.
    """
    found = [p for sizes in _edges(problem) for p in _at(problem, sizes)]
    unusual = [
        replace(each, layout=layout)
        for each in _at(problem, _size(problem, 65))
        for layout in LAYOUTS[1:]
    ]
    return tuple(dict.fromkeys((*found, *unusual)))


def _edges(problem: Problem) -> Iterator[dict[str, int]]:
    groups = _groups(problem)
    for length in LENGTHS:
        yield _size(problem, length)
    for dims in groups[:1]:
        if len(dims) == 2:
            for lengths in UNEVEN:
                yield dict(zip(dims, lengths, strict=True))
    for group in groups[1:]:
        yield _size(problem, 7) | dict.fromkeys(group, 1)


def _groups(problem: Problem) -> tuple[tuple[str, ...], ...]:
    return problem.operation.axes or (problem.operation.dims,)


def _size(problem: Problem, length: int) -> dict[str, int]:
    return dict.fromkeys(_groups(problem)[0], length)


def _at(problem: Problem, sizes: Mapping[str, int]) -> Iterator[Problem]:
    """The problem with some sizes replaced, unless the operation's rules forbid them."""
    with contextlib.suppress(UserError):
        complete = problem.operation.complete({**problem.sizes, **sizes})
        yield replace(problem, sizes=complete)
