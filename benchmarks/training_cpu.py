"""Forward plus backward of a tuned operation on this CPU beside PyTorch: one row of a table."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from common import interleaved
from torch_models import check, times, training

from autotune import dispatch, tune
from autotune.model import Operation, Problem


def tune_here(
    operation: Operation,
    dims: Mapping[str, int],
    dtype: str,
    mode: str,
    budget: str,
    **flags: bool,
) -> None:
    """Tune a problem on the CPU, also on a machine with a GPU."""
    tune(operation, dims=dims, dtype=dtype, mode=mode, budget=budget, device="cpu", **flags)


def compare(
    operation: Operation,
    model: Callable[..., Any],
    dims: Mapping[str, int],
    size: str,
    dtype: str,
    options: argparse.Namespace,
) -> dict[str, Any]:
    """A tuned operation beside the model: both checked, then timed in turn.

    `size` is what the row calls dims["N"].
    """
    kernel = dispatch(
        operation, dims=dims, dtype=dtype, mode=options.mode, strict=True, device="cpu"
    )
    problem = Problem.of(operation, dims, dtype)
    arrays = [a.astype(dtype) for a in operation.sample(problem, np.random.default_rng(0))]
    calls = training(model, arrays, compiled=options.compiled)
    for theirs in calls.values():
        check(kernel(*arrays), theirs(), dtype)
    samples = interleaved(
        {"ours": lambda: kernel(*arrays), **calls},
        rounds=151,
        settle=0.04,
        seconds=options.seconds,
    )
    row = {
        **{size: dims["N"], "dtype": dtype, **times(samples)},
        **{"variant": kernel.variant, "config": dict(kernel.config)},
    }
    ms = ", ".join(f"{name} {median:.3f}" for name, (median, *_) in row["ms"].items())
    ratio = "{:.2f} ({:.2f}-{:.2f})".format(*row["ratio"])
    print(f"{dims['N']:6d} {dtype}  ms: {ms}  ratio {ratio}  {kernel.variant} [{kernel.config}]")
    return row
