"""Launches of the kernels that hold a tile of tokens on chip, for the operations of the MLP."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from autotune.cuda import CudaSource
from autotune.cuda.structs import VECTOR, ArgumentStruct, Launches, bind
from autotune_variants.norm.cuda.launches import STORAGE

SOURCE = CudaSource(Path(__file__).parent / "tiled.cu")

Run = Callable[..., None]

TILE = 32
"""Tokens that a block of the gradients of the weights has in shared memory at a time."""

_INPUTS = ("x", "weight", "w_gate", "w_up", "w_down", "grad_out")
_OUTPUTS = ("out", "grad_x", "grad_weight", "grad_w_gate", "grad_w_up", "grad_w_down")
_TEMPORARIES = ("z", "parts", "weight_parts")
_COMBINING = 256  # threads of a block that sums the shares
_SUMMED = 32  # features of a token whose shares such a block sums


def tiled(problem: Any, config: Mapping[str, Any], temporaries: tuple[str, ...]) -> Run:
    """`run(*inputs, *outputs, *temporaries, *scalars)` for any of the operations of the MLP."""
    operation, sizes = problem.operation, problem.sizes
    given = [tensor.name for tensor in (*operation.inputs, *operation.outputs)]
    gradients = "grad_out" in given
    tensors = {t.name: t.shape(sizes) for t in (*operation.inputs, *operation.outputs)}
    axes = {name: "d" if name in ("weight", "grad_weight") else "nd" for name in _INPUTS + _OUTPUTS}
    arguments = ArgumentStruct(
        (*given, *temporaries),
        pointers=(*_INPUTS, *_OUTPUTS, *_TEMPORARIES),
        strided=axes,
        shapes=tensors,
        sizes=(sizes["N"], sizes["F"], config.get("shares", 0)),
        itemsize=problem.itemsize,
    )
    shared = {
        "STORAGE": STORAGE[problem.dtype],
        "DIM": sizes["D"],
        "NORM": "weight" in given,
    }
    macros = {
        "tokens": {
            **shared,
            "KERNELS": 1,
            "RESIDUAL": bool(problem.flags.get("residual")),
            "OUT": "out" in given,
            "GRADS": gradients,
            "ROW_WARPS": config["row_warps"],
            "SPLIT_WARPS": config["split_warps"],
            "CHUNK": config["chunk"],
        }
    }
    if gradients:
        macros["weights"] = {
            **shared,
            "KERNELS": 2,
            "FEATURE_WARPS": config["feature_warps"],
            "PARTNERS": config["partners"],
            "STEP": config["step"],
            "TILE": TILE,
        }
        macros["combine"] = {**shared, "KERNELS": 4, "ROW_WARPS": config["row_warps"]}
    steps = _steps(problem, config, norm="weight" in given, gradients=gradients)

    def plan(aligned: bool) -> Launches:
        return [
            SOURCE.kernel(entry, {**macros[entry], "ALIGNED": aligned}).launcher(
                grid=(blocks, 1, 1),
                block=(threads, 1, 1),
                shared=room,
                arguments=arguments.code,
            )
            for entry, (blocks, threads, room) in steps.items()
            if blocks
        ]

    likely = not any(sizes[dim] * problem.itemsize % VECTOR for dim in ("D", "F"))
    run = bind(arguments, plan, likely=likely)
    return run if operation.scalars else lambda *arrays: run(*arrays, 0.0)


def _steps(
    problem: Any, config: Mapping[str, Any], *, norm: bool, gradients: bool
) -> dict[str, tuple[int, int, int]]:
    """Blocks, threads and bytes of dynamic shared memory of each launch."""
    sizes, real = problem.sizes, max(problem.itemsize, 4)
    rows, hidden, width = sizes["N"], sizes["F"], sizes["D"]
    depth = _up(width, 16)
    pitch = _up(depth, 128 // real)
    tokens, chunk = 16 * config["row_warps"], config["chunk"]
    staged = 2 * (2 * depth * chunk + chunk * pitch)
    tiles = (2 if gradients else 1) * tokens * pitch
    shared = real * (tiles + staged + tokens + config["row_warps"] * depth)
    threads = 32 * config["row_warps"] * config["split_warps"]
    steps = {"tokens": (-(-rows // tokens), threads, shared)}
    if not gradients:
        return steps
    warps, partners = config["feature_warps"], config["partners"]
    features = 16 * warps // partners
    exchanged = config["step"] // 8 * 3 * 128 * (warps // partners) if partners > 1 else 0
    staged = 4 * TILE * pitch
    shared = real * (2 * depth * features + features * pitch + staged + exchanged)
    steps["weights"] = (-(-hidden // features) * config["shares"], 32 * warps, shared)
    sums = -(-3 * hidden * width // _COMBINING) + (-(-width // _SUMMED) if norm else 0)
    steps["combine"] = (sums, _COMBINING, 0)
    return steps


def _up(size: int, unit: int) -> int:
    return -(-size // unit) * unit
