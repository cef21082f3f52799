"""The transformer block on this CPU beside PyTorch, forward plus backward, in one run.

    python benchmarks/block_cpu.py [--part-budget 20s] [--budget 30s] [--tokens 512 2048]

Needs torch, and for torch.compile a C++ compiler (the benchmark only). Tunes the block's parts,
then the block, checks that both sides compute the same, then interleaves them; hot caches for all.
With `--tune block` the parts stay as they were tuned before, with `--tune none` the block too.
B=2, one head, d=64, d_ff=256, as the study has it.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from common import write
from torch_models import block
from training_cpu import compare, tune_here

import autotune

B, D, F = 2, 64, 256


def tune_parts(tokens: int, dtype: str, options: argparse.Namespace) -> None:
    """Every operation that the block's variants ask `dispatch` for, at the sizes they ask for."""
    rows = {"N": B * tokens, "D": D}
    hidden = {**rows, "F": F}
    heads = {"B": B, "H": 1, "Hkv": 1, "N": tokens, "D": D}
    asked: list[tuple[Any, dict[str, int], dict[str, bool]]] = [
        (autotune.rmsnorm, rows, {}),
        (autotune.rmsnorm_backward, rows, {}),
        (autotune.attention, heads, {}),
        (autotune.attention_backward, heads, {}),
        (autotune.gated_mlp_train, hidden, {}),
        (autotune.norm_mlp_train, hidden, {"residual": True}),
    ]
    for operation, dims, flags in asked:
        tune_here(operation, dims, dtype, options.mode, options.part_budget, **flags)


def measure(tokens: int, dtype: str, options: argparse.Namespace) -> dict[str, Any]:
    """Tune one block with its parts, and time both sides."""
    operation, dims = autotune.transformer_block_train, {"B": B, "N": tokens, "D": D, "F": F}
    if options.tune == "all":
        tune_parts(tokens, dtype, options)
    if options.tune != "none":
        tune_here(operation, dims, dtype, options.mode, options.budget)
    return compare(operation, block, dims, "N", dtype, options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--part-budget", default="20s")
    parser.add_argument("--budget", default="30s")
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--mode", default="hot")
    parser.add_argument("--tokens", type=int, nargs="+", default=[512, 2048])
    parser.add_argument("--dtypes", nargs="+", default=["float32", "float64"])
    parser.add_argument("--tune", choices=("all", "block", "none"), default="all")
    parser.add_argument("--compiled", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--name", default="block_cpu")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for dtype in options.dtypes:
        for tokens in options.tokens:
            rows.append(measure(tokens, dtype, options))
            write(options.name, rows, packages=("torch",), torch_threads=torch.get_num_threads())


if __name__ == "__main__":
    main()
