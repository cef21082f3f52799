"""Launches of the kernels of rmsnorm, for its variants and for those it is a step of."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from autotune.cuda import CudaSource
from autotune.cuda.structs import VECTOR, ArgumentStruct, Launches, bind
from autotune.model.problem import dtype_itemsize

SOURCE = CudaSource(Path(__file__).parent / "norm.cu")
STORAGE = {"float64": 0, "bfloat16": 1, "float16": 2, "float32": 3}

BLOCKS = 264
"""Of the kernels' grids where none is tuned: two for each multiprocessor of a large GPU."""

Run = Callable[..., None]

_STRIDED = {
    **dict.fromkeys(("x", "grad_out", "out", "grad_x", "added", "sum", "above"), "nd"),
    **dict.fromkeys(("weight", "grad_weight"), "d"),
}
_SUMMED = 32  # features whose shares a block sums
_ORDER = ("x", "weight", "grad_out", "out", "grad_x", "grad_weight")
_MORE = ("added", "sum", "above")
_POINTERS = (*_ORDER, "parts", *_MORE)


def norm_launches(
    sizes: tuple[int, int],
    dtype: str,
    config: Mapping[str, Any],
    names: Sequence[str],
    entries: Sequence[str],
) -> Run:
    """`run(*arrays, eps)` for rows of `sizes` (N, D); `names` say what the arrays are.

    x, weight, out; with `added` x + added is normalised, and `sum` takes that (all that `add_rows`
    does). For gradients grad_out, grad_x, grad_weight and parts (blocks, D), in what is computed
    in; `above` is added to grad_x. The config is that of the variant cuda_rows.
    """
    rows, features = sizes
    itemsize = dtype_itemsize(dtype)
    shapes = {
        name: (rows, features) if axes == "nd" else (features,) for name, axes in _STRIDED.items()
    }
    blocks, threads = int(config["blocks"]), int(config["block"])
    arguments = ArgumentStruct(
        names,
        pointers=_POINTERS,
        strided={name: _STRIDED[name] for name in (*_ORDER, *_MORE)},
        shapes=shapes,
        sizes=(rows, blocks),
        itemsize=itemsize,
    )
    grids = {"sum_parts": -(-features // _SUMMED)}
    shared = {"backward_rows": features * max(itemsize, 4)}

    def plan(aligned: bool) -> Launches:
        macros = {
            "STORAGE": STORAGE[dtype],
            "DIM": features,
            "LANES": config["lanes"],
            "THREADS": threads,
            "VECTOR": VECTOR // itemsize if aligned else 1,
        }
        return [
            SOURCE.kernel(entry, macros).launcher(
                grid=(grids.get(entry, blocks), 1, 1),
                block=(threads, 1, 1),
                shared=shared.get(entry, 0),
                arguments=arguments.code,
            )
            for entry in entries
        ]

    return bind(arguments, plan, likely=features * itemsize % VECTOR == 0)


def norm_config(features: int, dtype: str) -> dict[str, int]:
    """A config for rows of so many features where none is tuned: at most 64 bytes a thread."""
    lanes = 32
    while lanes < 512 and features * max(dtype_itemsize(dtype), 4) > lanes * 64:
        lanes *= 2
    return {"lanes": lanes, "block": max(256, lanes), "blocks": BLOCKS}
