"""kv_append: one more row of keys and values, written into the cache where it lies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from autotune import Pass, operation, variant
from autotune.cuda import CudaSource
from autotune.cuda.structs import ArgumentStruct, bind
from autotune.errors import ShapeError
from autotune_variants.attention.reference import Array

SOURCE = CudaSource(Path(__file__).parent / "cuda" / "append.cu")

Run = Callable[..., None]

_THREADS = 256


@operation(
    dims="B Hkv N D Dv",
    shape="B Hkv N D",
    defaults={"Dv": "D"},
    inputs="keys[B,Hkv,N,D] values[B,Hkv,N,Dv] key[B,Hkv,D] value[B,Hkv,Dv]",
    outputs="keys[B,Hkv,N,D] values[B,Hkv,N,Dv]",
    scalars={"position": "N - 1"},
    axes=(("N",), ("B", "Hkv")),
    dtypes=("float32", "float64", "bfloat16", "float16"),
    flops="0",
)
def kv_append(
    keys: Array, values: Array, key: Array, value: Array, *, position: float
) -> tuple[Array, Array]:
    """The caches with `key` and `value` in row `position` of every head, updated in place.

    What generating one more token does to the cache before `decode` reads it: B*Hkv*(D + Dv)
    elements are written, whatever N is. Raises ShapeError for a position that is no row, 0 to
    N - 1. Formula: arXiv 2607.19456.
    """
    row = _row(position, keys.shape[2])
    keys, values = keys.copy(), values.copy()
    keys[:, :, row], values[:, :, row] = key, value
    return keys, values


def _row(position: float, rows: int) -> int:
    if not 0 <= position < rows or position != int(position):  # nor NaN
        raise ShapeError(f"kv_append: position {position:g} is no row of a cache of {rows}.")
    return int(position)


_COPY = Pass("copy", parallel=("B", "Hkv"), reads=("key", "value"), writes={})


@variant(kv_append, "numpy", passes=(_COPY,), dtypes=("float32", "float64"), deterministic=True)
def numpy(problem: Any, config: Mapping[str, Any]) -> Run:
    """Two assignments."""
    rows = problem.sizes["N"]

    def run(keys: Any, values: Any, key: Any, value: Any, position: float) -> None:
        row = _row(position, rows)
        keys[:, :, row], values[:, :, row] = key, value

    return run


@variant(
    kv_append,
    "cuda_copy",
    passes=(_COPY,),
    device="cuda",
    constraints=("compute >= 80",),
    deterministic=True,
)
def cuda_copy(problem: Any, config: Mapping[str, Any]) -> Run:
    """A thread for each element of the two rows."""
    b, heads, n, d, dv = (problem.sizes[dim] for dim in ("B", "Hkv", "N", "D", "Dv"))
    arguments = ArgumentStruct(
        ("keys", "values", "key", "value"),
        pointers=("keys", "values", "key", "value"),
        strided={"keys": "bhnd", "values": "bhnd", "key": "bhd", "value": "bhd"},
        shapes={
            "keys": (b, heads, n, d),
            "values": (b, heads, n, dv),
            "key": (b, heads, d),
            "value": (b, heads, dv),
        },
        sizes=(b, heads, d, dv),
        itemsize=problem.itemsize,
    )
    blocks = -(-b * heads * (d + dv) // _THREADS)

    def plan(_: bool) -> Any:
        return blocks and [
            SOURCE.kernel("append_row", {"BYTES": problem.itemsize}).launcher(
                grid=(blocks, 1, 1), block=(_THREADS, 1, 1), arguments=arguments.code
            )
        ]

    launch = bind(arguments, lambda aligned: plan(aligned) or [], likely=True)

    def run(*values: Any) -> None:
        _row(values[-1], n)
        launch(*values)

    return run
