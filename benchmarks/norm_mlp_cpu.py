"""Tuned normalisation and gated MLP on this CPU beside PyTorch, forward plus backward, in one run.

    python benchmarks/norm_mlp_cpu.py [--budget 60s] [--tokens 512 8192]

Needs torch, and for torch.compile a C++ compiler (the benchmark only). Tunes each problem first,
checks that both sides compute the same, then interleaves them; hot caches for all. With --no-tune
what was tuned before serves.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from common import write
from torch_models import norm_mlp
from training_cpu import compare, tune_here

import autotune

D, F = 64, 256


def measure(tokens: int, dtype: str, options: argparse.Namespace) -> dict[str, Any]:
    """Tune one problem and time both sides."""
    operation, dims = autotune.norm_mlp_train, {"N": tokens, "D": D, "F": F}
    if options.tune:
        tune_here(operation, dims, dtype, options.mode, options.budget)
    return compare(operation, norm_mlp, dims, "tokens", dtype, options)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", default="60s")
    parser.add_argument("--seconds", type=float, default=12.0)
    parser.add_argument("--mode", default="hot")
    parser.add_argument("--tokens", type=int, nargs="+", default=[512, 8192])
    parser.add_argument("--dtypes", nargs="+", default=["float32", "float64"])
    parser.add_argument("--tune", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--compiled", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--name", default="norm_mlp_cpu")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for dtype in options.dtypes:
        for tokens in options.tokens:
            rows.append(measure(tokens, dtype, options))
            write(options.name, rows, packages=("torch",), torch_threads=torch.get_num_threads())


if __name__ == "__main__":
    main()
