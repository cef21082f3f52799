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
_TEMPORARIES = ("z", "parts", "weight_parts", "planes", "scales")
_KERNELS = {"tokens": 1, "weights": 2, "combine": 4, "prepare": 8}
_COMBINING = 256  # threads of a block that sums the shares
_SUMMED = 32  # features of a token whose shares such a block sums


Steps = Mapping[str, tuple[int, int, int]]
"""Blocks, threads and bytes of dynamic shared memory of each launch, in order."""


def tiled(
    problem: Any, config: Mapping[str, Any], temporaries: tuple[str, ...], *, atomic: bool
) -> Run:
    """`run(*inputs, *outputs, *temporaries, *scalars)` for any of the operations of the MLP.

    With `atomic` the shares of the tokens add to one sum instead of leaving theirs to be summed.
    """
    gradients = "grad_out" in given_arrays(problem)
    macros = {"tokens": {**token_macros(problem, config), "CHUNK": config["chunk"]}}
    if gradients:
        macros["weights"] = {
            "FEATURE_WARPS": config["feature_warps"],
            "PARTNERS": config["partners"],
            "STEP": config["step"],
            "TILE": TILE,
        }
        macros["combine"] = {"ROW_WARPS": config["row_warps"]}
    steps = _steps(problem, config, gradients)
    return launches(problem, config, temporaries, SOURCE, macros, steps, atomic=atomic)


def given_arrays(problem: Any) -> list[str]:
    """Names of inputs and outputs."""
    return [tensor.name for tensor in (*problem.operation.inputs, *problem.operation.outputs)]


def token_macros(problem: Any, config: Mapping[str, Any]) -> dict[str, Any]:
    """What the kernel of the tokens has to know beside what all have."""
    given = given_arrays(problem)
    return {
        "RESIDUAL": bool(problem.flags.get("residual")),
        "OUT": "out" in given,
        "GRADS": "grad_out" in given,
        "ROW_WARPS": config["row_warps"],
        "SPLIT_WARPS": config["split_warps"],
    }


def launches(
    problem: Any,
    config: Mapping[str, Any],
    temporaries: tuple[str, ...],
    source: CudaSource,
    macros: Mapping[str, Mapping[str, Any]],
    steps: Steps,
    *,
    atomic: bool,
) -> Run:
    """The kernels of a source in the order of `steps`, with one struct for all of them."""
    operation, sizes, given = problem.operation, problem.sizes, given_arrays(problem)
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
    common = {
        "STORAGE": STORAGE[problem.dtype],
        "DIM": sizes["D"],
        "NORM": "weight" in given,
        "ATOMIC": atomic,
    }

    def plan(aligned: bool) -> Launches:
        made = []
        for entry, (blocks, threads, shared) in steps.items():
            own = {**common, **macros[entry], "KERNELS": _KERNELS[entry], "ALIGNED": aligned}
            launcher = source.kernel(entry, own).launcher(
                grid=(blocks, 1, 1),
                block=(threads, 1, 1),
                shared=shared,
                arguments=arguments.code,
            )
            made += [launcher] if blocks else []
        return made

    likely = not any(sizes[dim] * problem.itemsize % VECTOR for dim in ("D", "F"))
    run = bind(arguments, plan, likely=likely)
    return run if operation.scalars else lambda *arrays: run(*arrays, 0.0)


def combining(problem: Any) -> tuple[int, int, int]:
    """The launch that sums the shares."""
    sizes, norm = problem.sizes, "weight" in given_arrays(problem)
    blocks = -(-3 * sizes["F"] * sizes["D"] // _COMBINING)
    return blocks + (-(-sizes["D"] // _SUMMED) if norm else 0), _COMBINING, 0


def _steps(problem: Any, config: Mapping[str, Any], gradients: bool) -> Steps:
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
    steps["combine"] = combining(problem)
    return steps


def _up(size: int, unit: int) -> int:
    return -(-size // unit) * unit
