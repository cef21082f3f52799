"""dispatch: from an operation and a shape to the kernel to call; a dictionary look-up on a hit."""

from __future__ import annotations

import concurrent.futures.thread  # noqa: F401 (what imports it later cannot while Python ends)
import contextlib
import itertools
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from autotune.libraries import known
from autotune.model.operation import Operation

if TYPE_CHECKING:
    from autotune.kernel import Kernel

_hits: dict[Any, Kernel] = {}
_LARGEST = 8192
"""Entries kept before the table starts over; each is one spelling of one problem."""

_FLOAT32 = "".join(("float", "32"))
"""The default dtype, an object of its own: one that is given beside arrays is told apart."""

_count = itertools.count()
_looks = 0
_times_forgotten = 0


@dataclass(frozen=True, slots=True)
class Stats:
    """What `dispatch` has done in this process.

    `hits`: calls answered with a kernel that was there. `misses`: problems that had to be resolved.
    `fallbacks`: choices that rest on no measurement, predicted or the reference. `quarantines`:
    variants set aside because they failed.
    """

    hits: int = 0
    misses: int = 0
    fallbacks: int = 0
    quarantines: int = 0


def stats() -> Stats:
    """Counts of this process since it started; a forked child goes on from its parent's."""
    global _looks
    serving = sys.modules.get("autotune.serving")
    counts = serving.counts() if serving is not None else {}
    hits = next(_count) - _looks
    _looks += 1
    return Stats(
        hits=hits + counts.get("known", 0),
        misses=counts.get("misses", 0),
        fallbacks=counts.get("predicted", 0) + counts.get("reference", 0),
        quarantines=counts.get("quarantined", 0),
    )


def dispatch(
    operation: Operation | str, *spec: Any, dtype: Any = _FLOAT32, **options: Any
) -> Kernel:
    """The best known kernel for a problem, bound and ready to call.

    Args:
        operation: an operation (`autotune.attention`) or its name.
        spec: a positional shape `(2, 1, 2048, 64)`, or the input arrays themselves (NumPy's,
            CuPy's or torch's); leave out to give `dims={"B": 2, ...}`.
        dtype: any spelling of a dtype; that of the arrays when those are given, and then not
            needed.
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
            if dtype is not _FLOAT32:
                key = (key, dtype)
            kernel = _hits[(key, *options, *options.values()) if options else key]
        elif options:
            kernel = _hits[operation, spec, dtype, *options, *options.values()]
        else:
            kernel = _hits[operation, spec, dtype]
        next(_count)  # atomic, and a tenth of a look-up
        return kernel
    except (KeyError, TypeError, AttributeError, IndexError):
        pass  # what a miss raises is not to be told as raised meanwhile
    return _miss(operation, spec, dtype, options)


def _miss(operation: Any, spec: tuple[Any, ...], dtype: Any, options: dict[str, Any]) -> Kernel:
    from autotune.serving import server

    before = _times_forgotten
    if spec and hasattr(spec[0], "dtype"):
        given = None if dtype is _FLOAT32 else dtype
        kernel = server().kernel_for_arrays(operation, spec, given, options)
        key = known[spec[0].__class__].signature(operation, spec)
        key = key if given is None else (key, dtype)
        key = (key, *options, *options.values()) if options else key
    else:
        key = (operation, _frozen(spec), dtype, *options, *map(_frozen, options.values()))
        with contextlib.suppress(KeyError, TypeError):
            kernel = _hits[key]
            next(_count)
            return kernel
        kernel = server().kernel(operation, spec, dtype, options)
    if before == _times_forgotten:  # else it may rest on policies that were replaced meanwhile
        _remember(key, kernel)
    return kernel


def _frozen(value: Any) -> Any:
    """A value as a key: lists and dicts, also in a tuple, as tuples."""
    kind = value.__class__
    if kind is dict:
        return tuple(value.items())
    return tuple(map(_frozen, value)) if kind in (list, tuple) else value


def _remember(key: Any, kernel: Kernel) -> None:
    """Keep a spelling of a problem; one that cannot be a key is resolved at each call."""
    if len(_hits) >= _LARGEST:
        _hits.clear()
    with contextlib.suppress(TypeError):
        _hits[key] = kernel


def forget() -> None:
    """Drop every remembered kernel, so that the next calls see the newest policies."""
    global _times_forgotten
    _times_forgotten += 1
    _hits.clear()
