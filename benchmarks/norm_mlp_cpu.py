"""Tuned normalisation and gated MLP on this CPU beside PyTorch, forward plus backward, in one run.

    python benchmarks/norm_mlp_cpu.py [--budget 60s] [--tokens 512 8192]

Needs torch, and for torch.compile a C++ compiler (the benchmark only). Tunes each problem first,
checks that both sides compute the same, then interleaves them; hot caches for all. With --no-tune
what was tuned before serves.
"""

from __future__ import annotations

import argparse
from typing import Any

import numpy as np
import torch
from common import interleaved, write
from torch_models import check, norm_mlp, times, training

import autotune
from autotune import dispatch, tune
from autotune.model import Problem

D, F = 64, 256


def compare(tokens: int, dtype: str, options: argparse.Namespace) -> dict[str, Any]:
    """Tune one problem and time both sides."""
    operation, dims = autotune.norm_mlp_train, {"N": tokens, "D": D, "F": F}
    if options.tune:
        tune(operation, dims=dims, dtype=dtype, mode=options.mode, budget=options.budget)
    kernel = dispatch(operation, dims=dims, dtype=dtype, mode=options.mode, strict=True)
    problem = Problem.of(operation, dims, dtype)
    arrays = [a.astype(dtype) for a in operation.sample(problem, np.random.default_rng(0))]
    calls = training(norm_mlp, arrays, compiled=options.compiled)
    for theirs in calls.values():
        check(kernel(*arrays), theirs(), dtype)
    samples = interleaved(
        {"ours": lambda: kernel(*arrays), **calls},
        rounds=151,
        settle=0.04,
        seconds=options.seconds,
    )
    row = {
        **{"tokens": tokens, "dtype": dtype, **times(samples)},
        **{"variant": kernel.variant, "config": dict(kernel.config)},
    }
    ms = ", ".join(f"{name} {median:.3f}" for name, (median, *_) in row["ms"].items())
    ratio = "{:.2f} ({:.2f}-{:.2f})".format(*row["ratio"])
    print(f"{tokens:6d} {dtype}  ms: {ms}  ratio {ratio}  {kernel.variant} [{kernel.config}]")
    return row


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
            rows.append(compare(tokens, dtype, options))
            write(options.name, rows, packages=("torch",), torch_threads=torch.get_num_threads())


if __name__ == "__main__":
    main()
