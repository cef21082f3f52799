"""How much do times move on this machine, alone and in turn with a candidate whose time is known?

    python benchmarks/pace.py [--minutes 1.5] [--n 256]

Some candidates of attention are measured again and again, in random order, as a campaign would;
the spread is that of the medians between the tenth and the ninetieth percentile, relative.
"""

from __future__ import annotations

import argparse
import random
import time
from typing import Any

import numpy as np
from common import write

from autotune.bench import CpuBench
from autotune.device import local_cpu
from autotune.in_turn import PACED
from autotune.model import Problem
from autotune.plugins import load_plugins
from autotune.registry import registry
from autotune.worker.measure import measure
from autotune.worker.protocol import Job
from autotune.worker.session import Session

CANDIDATES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("simd_tiled", {"block_k": 96, "block_q": 96, "placement": "free", "threads": 2}),
    ("simd_tiled", {"block_k": 64, "block_q": 32, "placement": "free", "threads": 2}),
    ("simd_tiled", {"block_k": 96, "block_q": 96, "placement": "compact", "threads": 2}),
    ("blas_tiled", {"block_k": 64, "block_q": 32, "placement": "free", "threads": 2}),
    ("blas_tiled", {"block_k": 64, "block_q": 64, "placement": "free", "threads": 2}),
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=1.5)
    parser.add_argument("--n", type=int, default=256)
    options = parser.parse_args()
    load_plugins()
    operation = registry.operation("attention")
    problem = Problem.of(operation, {"B": 2, "H": 1, "N": options.n, "D": 64}, "float64")
    session = Session(CpuBench(local_cpu()))
    alone: list[list[float]] = [[] for _ in CANDIDATES]
    in_turn: list[list[float]] = [[] for _ in CANDIDATES]
    reference = None
    end, order = time.monotonic() + 60.0 * options.minutes, random.Random(0)
    while time.monotonic() < end:
        for number in order.sample(range(len(CANDIDATES)), len(CANDIDATES)):
            name, config = CANDIDATES[number]
            job = Job(
                problem.key.text,
                name,
                config,
                mode="hot",
                budget=0.5,
                precision=0.02,
                reference=reference,
            )
            outcome = measure(session, job)
            reference = reference or (name, config, outcome.median or 1e-3)
            told = outcome.circumstances.get(PACED)
            if told and outcome.median:
                alone[number].append(outcome.median)
                in_turn[number].append(told["seconds"])
    rows = []
    for (name, config), own, ratios in zip(CANDIDATES, alone, in_turn, strict=True):
        row = {"variant": name, "config": config, "own": own, "in_turn": ratios}
        rows.append(row | {"spread_own": spread(own), "spread_in_turn": spread(ratios)})
        print(
            f"{name:10s} {1e6 * np.median(own):7.1f} us, {len(own)} times: spread"
            f" {spread(own):.1%} alone, {spread(ratios):.1%} in turn"
        )
    write("pace", rows, problem=problem.key.text)


def spread(times: list[float]) -> float:
    """From the tenth to the ninetieth percentile, over the median."""
    low, middle, high = np.percentile(times, [10, 50, 90])
    return float((high - low) / middle)


if __name__ == "__main__":
    main()
