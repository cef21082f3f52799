"""The argument struct of the tiled kernels (arguments.cuh)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from autotune.cuda import structs
from autotune.cuda.structs import VECTOR, ArgumentStruct, Launches

# The pointers of the struct in order, and those of them that have strides.
_POINTERS = (
    *("q", "k", "v", "out", "grad_out", "grad_q", "grad_k", "grad_v"),
    *("lse", "delta", "shift", "inverse", "scratch", "measures"),
)
_VECTORS = _POINTERS[:8]
_STRIDED = {**dict.fromkeys(_VECTORS, "bhnd"), "lse": "bhn"}
_OF_KEYS = ("k", "v", "grad_k", "grad_v")
_SIZES = ("B", "H", "Hkv", "Nq", "Nk")

ARGUMENTS = f"S{8 * (len(_POINTERS) + 1 + len(_SIZES) + 4 * len(_STRIDED))}"
"""What `launcher` is told about it: one struct."""

Run = Callable[..., None]


def arguments(problem: Any, names: Sequence[str], kept: Mapping[str, str]) -> ArgumentStruct:
    """From the arrays of a call, in the order of `names`, to the struct.

    `kept` says which of the kernels' two own arrays, scratch and measures, a temporary is.
    """
    sizes = problem.sizes
    queries = (sizes["B"], sizes["H"], sizes["Nq"])
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(_VECTORS, (*queries, sizes["D"]))
    shapes |= dict.fromkeys(_OF_KEYS, (sizes["B"], sizes["Hkv"], sizes["Nk"], sizes["D"]))
    return ArgumentStruct(
        [kept.get(name, name) for name in names],
        pointers=_POINTERS,
        strided=_STRIDED,
        shapes={**shapes, "lse": queries},
        sizes=[sizes[dim] for dim in _SIZES],
        itemsize=problem.itemsize,
        vectors=_VECTORS,
    )


def bind(
    problem: Any,
    names: Sequence[str],
    plan: Callable[[bool], Launches],
    kept: Mapping[str, str],
) -> Run:
    """`run(*arrays, scale)`: the launches that `plan` gives for aligned rows, or for any others."""
    likely = problem.sizes["D"] * problem.itemsize % VECTOR == 0
    return structs.bind(arguments(problem, names, kept), plan, likely=likely)
