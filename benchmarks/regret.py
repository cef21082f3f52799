"""Regret on sizes nobody tuned: N = 700, 1500, 3000 after tuning powers of two.

    python benchmarks/regret.py [--budget 60s]

For each untuned size the served choice (interpolated) is timed against the size's own tuned
winner, interleaved.
"""

from __future__ import annotations

import argparse
import statistics
from typing import Any

import numpy as np
from common import interleaved, ratio_interval, write

import autotune
from autotune import dispatch, tune

TUNED, UNTUNED = (512, 1024, 2048, 4096), (700, 1500, 3000)


def measure(name: str, dtype: str, n: int, options: argparse.Namespace) -> dict[str, Any]:
    """Served before tuning against the winner after tuning the size itself."""
    operation, shape = getattr(autotune, name), (2, 1, n, 64)
    served = dispatch(operation, shape, dtype=dtype, mode=options.mode)
    origin = served.origin
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape).astype(dtype) for _ in operation.inputs]
    served(*arrays)
    tune(operation, shape, dtype=dtype, mode=options.mode, budget=options.budget)
    best = dispatch(operation, shape, dtype=dtype, mode=options.mode, strict=True)
    samples = interleaved(
        {"served": lambda: served(*arrays), "best": lambda: best(*arrays)}, rounds=51
    )
    ratio, low, high = ratio_interval(samples["served"], samples["best"])
    row = {
        "operation": name,
        "dtype": dtype,
        "N": n,
        "origin": origin,
        "served": f"{served.variant} [{served.config}]",
        "best": f"{best.variant} [{best.config}]",
        "regret": ratio - 1,
        "low": low - 1,
        "high": high - 1,
    }
    print(
        f"{name} {dtype} N={n}: regret {100 * (ratio - 1):.1f}%  {row['served']} / {row['best']}",
        flush=True,
    )
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", default="60s")
    parser.add_argument("--mode", default="hot")
    parser.add_argument("--name", default="regret")
    options = parser.parse_args()
    rows = []
    for name in ("attention", "attention_train"):
        for dtype in ("float32",):
            for n in TUNED:
                shape = (2, 1, n, 64)
                tune(
                    getattr(autotune, name),
                    shape,
                    dtype=dtype,
                    mode=options.mode,
                    budget=options.budget,
                )
            rows += [measure(name, dtype, n, options) for n in UNTUNED]
    mean = statistics.fmean(max(row["regret"], 0.0) for row in rows)
    print(f"mean regret {100 * mean:.1f}%")
    write(options.name, rows, mean_regret=mean)


if __name__ == "__main__":
    main()
