"""The study's tables for CPUs again, on this one: each part measured as the commands measure it.

    python benchmarks/study_cpu.py [--parts forward arrangements fused_threads decode block start]

* forward: attention that stores A, float64, by threads and placements, N = 64 to 8192;
* arrangements: forward plus backward, float64, every variant, N = 64 to 8192;
* fused_threads: the study's fused form (five passes) and the separate passes by threads, N = 4096;
* decode: float32, the study's three passes and splits, by threads, n = 1,024 to 1,048,576;
* block: forward plus backward, float64, N = 64 to 4096;
* start: a new process until its first result, with nothing kept and with compiled kernels kept.

B = 2, one head, D = 64, F = 256; cold caches. A part is a result file of its own, study_cpu_PART.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from typing import Any

from common import median_interval, write

from autotune.candidates import candidate_of_variant
from autotune.device import local_cpu
from autotune.model import Problem
from autotune.model.space import concerns
from autotune.plugins import load_plugins
from autotune.registry import registry
from autotune.scaling import Point, sweep_sizes, sweep_threads
from autotune.trials import Trials, trials_on

HEADS = {"B": 2, "H": 1, "D": 64}
Rows = list[dict[str, Any]]


def times(point: Point) -> dict[str, Any]:
    """Milliseconds as [median, low, high], config, and what the first call took beyond that."""
    row: dict[str, Any] = {"config": dict(point.config), "status": point.status}
    if point.samples:
        row["ms"] = [1e3 * t for t in median_interval(point.samples)]
        row["samples"] = len(point.samples)
        row["first_call_ms"] = 1e3 * (point.first_call or 0.0)
    return row if point.samples else {**row, "reason": point.reason}


def by_threads(
    trials: Trials,
    operation: str,
    sizes: dict[str, int],
    dtype: str,
    name: str,
    budget: float = 4.0,
) -> Rows:
    """One variant of one problem at every thread count and placement."""
    problem = Problem.of(registry.operation(operation), sizes, dtype)
    candidate = candidate_of_variant(problem, trials.device, name)
    swept = sweep_threads(trials, problem, candidate, budget=budget)
    rows = []
    for setting, point in swept.points:
        row = {"N": sizes["N"], "variant": name, "threads": setting.threads}
        rows.append({**row, "placement": setting.placement, **times(point)})
        print(row, rows[-1].get("ms"), setting.placement, flush=True)
    return rows


def by_size(
    trials: Trials,
    operation: str,
    sizes: Iterable[dict[str, int]],
    names: Sequence[str],
    budget: float,
) -> Rows:
    """Variants (all of them where none are named) over sizes, in float64."""
    sized = [
        (each["N"], Problem.of(registry.operation(operation), each, "float64")) for each in sizes
    ]
    known = registry.variants(sized[0][1].operation)
    variants = [
        each
        for each in known
        if concerns(each, sized[0][1], "cpu") and (not names or each.name in names)
    ]
    curves = sweep_sizes(trials, sized, variants, budget=budget, say=lambda text: print(text))
    return [
        {"N": point.size, "variant": curve.variant, **times(point)}
        for curve in curves
        for point in curve.points
    ]


def doubling(first: int, last: int) -> list[int]:
    """first, 2*first, ... last."""
    sizes = [first]
    while sizes[-1] < last:
        sizes.append(2 * sizes[-1])
    return sizes


def forward(trials: Trials) -> Rows:
    """Attention that writes A, as the study's forward does."""
    rows: Rows = []
    for n in doubling(64, 8192):
        rows += by_threads(trials, "attention", {**HEADS, "N": n}, "float64", "stored")
    return rows


def arrangements(trials: Trials) -> Rows:
    """Forward plus backward: separate, fused, four and five passes, and what is faster."""
    sizes = [{**HEADS, "N": n} for n in doubling(64, 8192)]
    return by_size(trials, "attention_train", sizes, (), budget=900.0)


def fused_threads(trials: Trials) -> Rows:
    """Forward plus backward in five passes and in separate ones, by threads."""
    rows: Rows = []
    sizes = {**HEADS, "N": 4096}
    for name in ("separate", "five_pass"):
        rows += by_threads(trials, "attention_train", sizes, "float64", name, budget=60.0)
    return rows


def decode(trials: Trials) -> Rows:
    """One query against a cache, by threads."""
    rows: Rows = []
    for n in doubling(1024, 1 << 20):
        for name in ("three_pass", "split"):
            sizes = {"B": 1, "H": 1, "N": n, "D": 64}
            rows += by_threads(trials, "decode", sizes, "float32", name)
    return rows


def block(trials: Trials) -> Rows:
    """The transformer block with its gradients, parts at what dispatch serves untuned."""
    sizes = [{"B": 2, "N": n, "D": 64, "F": 256} for n in doubling(64, 4096)]
    return by_size(trials, "transformer_block_train", sizes, ("parts",), budget=60.0)


_START = """
import time
begin = time.perf_counter()
import numpy as np, autotune
imported = time.perf_counter()
x = [np.ones((2, 1, 512, 64)) for _ in range(3)]
kernel = autotune.dispatch(autotune.attention, *x)
served = time.perf_counter()
kernel(*x)
first = time.perf_counter()
kernel(*x)
second = time.perf_counter()
print(imported - begin, served - imported, first - served, second - first)
"""


def start() -> Rows:
    """New processes, five with nothing on disk and five with what the first of them left."""
    rows: Rows = []
    names = ("import", "dispatch", "first call", "second call")
    for kept in (False, True):
        samples: dict[str, list[float]] = {name: [] for name in (*names, "process")}
        with tempfile.TemporaryDirectory() as home:
            for turn in range(6 if kept else 5):
                own = home if kept else f"{home}/{turn}"
                begin = time.perf_counter()
                ended = subprocess.run(
                    [sys.executable, "-c", _START],
                    env={**os.environ, "AUTOTUNE_HOME": own},
                    capture_output=True,
                    text=True,
                    check=True,
                )
                whole = time.perf_counter() - begin
                if kept and turn == 0:
                    continue  # which leaves the kernels
                for name, seconds in zip(names, map(float, ended.stdout.split()), strict=True):
                    samples[name].append(seconds)
                samples["process"].append(whole)
        for name, each in samples.items():
            rows.append(
                {"kept": kept, "what": name, "ms": [1e3 * t for t in median_interval(each)]}
            )
            print(rows[-1], flush=True)
    return rows


MEASURED = {
    "forward": forward,
    "arrangements": arrangements,
    "fused_threads": fused_threads,
    "decode": decode,
    "block": block,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--parts", nargs="+", default=[*MEASURED, "start"])
    options = parser.parse_args()
    load_plugins()
    for part in options.parts:
        if part == "start":
            rows = start()
        else:
            with trials_on(local_cpu(), command="study_cpu", mode="cold") as trials:
                rows = MEASURED[part](trials)
        write(f"study_cpu_{part}", rows)


if __name__ == "__main__":
    main()
