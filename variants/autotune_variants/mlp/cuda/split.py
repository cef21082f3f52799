"""Launches of the kernels that multiply float32 on the 16-bit matrix units."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from autotune.cuda import CudaSource
from autotune_variants.mlp.cuda.tiled import (
    TILE,
    Steps,
    combining,
    given_arrays,
    launches,
    token_macros,
)

SOURCE = CudaSource(Path(__file__).parent / "split.cu")

Run = Callable[..., None]

WIDTH = 64
"""Features of a token, and hidden features of a tile, with their padding."""

_PLANE = 128 * WIDTH  # bytes of a tile of weights
_WARPS = 8
_WORDS = 28  # that a lane of the gradients of the weights gives its partner
_PREPARING = 1024  # threads
_WEIGHT_BLOCKS = 24  # that prepare the weights


def split(
    problem: Any, config: Mapping[str, Any], temporaries: tuple[str, ...], *, atomic: bool
) -> Run:
    """As `tiled`."""
    gradients = "grad_out" in given_arrays(problem)
    tiles = {"FEATURE_WARPS": _WARPS, "PARTNERS": 2, "STEP": TILE, "TILE": TILE, "CHUNK": WIDTH}
    tokens = {**tiles, **token_macros(problem, config)}
    macros = {"prepare": {**tiles, "GRADS": gradients}, "tokens": tokens, "weights": tiles}
    macros["combine"] = {"ROW_WARPS": config["row_warps"]}
    steps = _steps(problem, config, gradients)
    return launches(problem, config, temporaries, SOURCE, macros, steps, atomic=atomic)


def _steps(problem: Any, config: Mapping[str, Any], gradients: bool) -> Steps:
    rows, hidden = problem.sizes["N"], problem.sizes["F"]
    padded = -(-rows // 128) * 128
    tokens = 16 * config["row_warps"]
    depth = -(-problem.sizes["D"] // 16) * 16
    planes = (4 if gradients else 2) * tokens * 128
    shared = planes + 12 * _PLANE + 4 * (tokens + config["row_warps"] * depth)
    threads = 32 * config["row_warps"] * config["split_warps"]
    steps = {
        "prepare": (_WEIGHT_BLOCKS + padded * 32 // _PREPARING, _PREPARING, 0),
        "tokens": (-(-rows // tokens), threads, shared),
    }
    if gradients:
        shared = 6 * _PLANE + 8 * TILE * 128 + _WARPS * _WORDS * 128
        blocks = -(-hidden // WIDTH) * config["shares"]
        steps["weights"] = (blocks, 32 * _WARPS, shared)
        steps["combine"] = combining(problem)
    return steps
