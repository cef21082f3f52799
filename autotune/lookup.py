"""dispatch: from an operation and a shape to the kernel to call; a dictionary look-up on a hit."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from autotune.libraries import known
from autotune.model.operation import Operation

if TYPE_CHECKING:
    from autotune.kernel import Kernel

_hits: dict[Any, Kernel] = {}
_LARGEST = 8192
"""Entries kept before the table starts over; each is one spelling of one problem."""


def dispatch(
    operation: Operation | str, *spec: Any, dtype: Any = "float32", **options: Any
) -> Kernel:
    """The best known kernel for a problem, bound and ready to call.

    Args:
        operation: an operation (`autotune.attention`) or its name.
        spec: a positional shape `(2, 1, 2048, 64)`, or the input arrays themselves (NumPy's,
            CuPy's or torch's); leave out to give `dims={"B": 2, ...}`.
        dtype: any spelling of a dtype; taken from the arrays when those are given.
        options: the operation's flags and scalars (`causal=True`, `scale=0.1`), and
            `dims`: sizes by name;
            `device`: "cpu", "cuda:0" or an identity from `autotune devices` (default: where the
            arrays are, else the best local one);
            `mode`: "cold" (default), "hot" or "graph", which measurements to choose by;
            `deterministic`: only variants whose repeats agree bitwise;
            `max_workspace`: bytes of temporary memory allowed;
            `max_error`: largest measured error allowed, relative to the output's magnitude;
            `strict`: raise NoPolicyError instead of choosing without a measurement;
            `tune_on_miss`: measure now, on copies, when nothing is known.

    Raises:
        UnknownNameError: an operation, dim, flag or dtype that does not exist.
        ShapeError: (a ValueError) shapes that do not fit each other, naming the dims.
        ConstraintError: no admissible candidate meets the constraints; lists the closest.
        NoPolicyError: `strict` and nothing tuned applies.
    """
    try:
        kind = spec[0].__class__
        if kind is not tuple:
            key = known[kind].signature(operation, spec)
            return _hits[(key, *options, *options.values()) if options else key]
        if options:
            return _hits[operation, spec, dtype, *options, *options.values()]
        return _hits[operation, spec, dtype]
    except (KeyError, TypeError, AttributeError, IndexError):
        return _miss(operation, spec, dtype, options)


def _miss(operation: Any, spec: tuple[Any, ...], dtype: Any, options: dict[str, Any]) -> Kernel:
    from autotune.serving import server

    if spec and hasattr(spec[0], "dtype"):
        kernel = server().kernel_for_arrays(operation, spec, options)
        key = known[spec[0].__class__].signature(operation, spec)
        key = (key, *options, *options.values()) if options else key
    else:
        kernel = server().kernel(operation, spec, dtype, options)
        key = (operation, spec, dtype, *options, *options.values())
    _remember(key, kernel)
    return kernel


def _remember(key: Any, kernel: Kernel) -> None:
    """Keep a spelling of a problem; one with a list or dict in it is resolved at each call."""
    if len(_hits) >= _LARGEST:
        _hits.clear()
    with contextlib.suppress(TypeError):
        _hits[key] = kernel


def forget() -> None:
    """Drop every remembered kernel, so that the next calls see the newest policies."""
    _hits.clear()
