"""Cost of dispatch on a hit, of calling from arrays, and of `import autotune`.

python benchmarks/dispatch_cost.py
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import timeit
from collections.abc import Callable
from typing import Any

import numpy as np
from common import median_interval, write

import autotune
from autotune import dispatch, operation, variant


@operation(inputs="x[N] y[N] z[N]", outputs="out[N]")
def three(x: Any, y: Any, z: Any) -> Any:
    """Three inputs, as attention has."""
    return x + y + z


@variant(three, "nothing", deterministic=True)
def nothing(problem: Any, config: Any) -> Callable[..., None]:
    """Does nothing: what is left is the cost around a kernel."""

    def run(x: Any, y: Any, z: Any, out: Any) -> None:
        return None

    return run


def per_call(function: Callable[[], Any], number: int = 20_000, repeats: int = 31) -> list[float]:
    """Seconds per call, one value per repeat."""
    return [total / number for total in timeit.repeat(function, number=number, repeat=repeats)]


def import_seconds(statement: str) -> float:
    """Wall time of a fresh interpreter that runs the statement, in seconds."""
    code = f"import time; t = time.perf_counter(); {statement}; print(time.perf_counter() - t)"
    return float(subprocess.check_output([sys.executable, "-c", code]))


def main() -> None:
    rows: list[dict[str, Any]] = []

    def report(what: str, samples: list[float]) -> None:
        middle, low, high = median_interval(samples)
        rows.append(
            {"what": what, "median_us": middle * 1e6, "low_us": low * 1e6, "high_us": high * 1e6}
        )
        print(f"{what:44s} {middle * 1e6:8.3f} us   ({low * 1e6:.3f} - {high * 1e6:.3f})")

    shape = (2, 1, 2048, 64)
    attention = autotune.attention
    dispatch(attention, shape, dtype="float32")
    report(
        "dispatch(attention, shape, dtype=...)",
        per_call(lambda: dispatch(attention, shape, dtype="float32")),
    )
    report("an empty lambda", per_call(lambda: None))
    dispatch(attention, shape, dtype="float32", causal=True)
    report(
        "dispatch(..., causal=True)",
        per_call(lambda: dispatch(attention, shape, dtype="float32", causal=True)),
    )
    x = np.ones(64, np.float32)
    out = np.empty_like(x)
    kernel = dispatch(three, x, x, x)
    bare = nothing(None, None)
    report("resolve from arrays and call", per_call(lambda: dispatch(three, x, x, x)(x, x, x)))
    report("the bound kernel alone", per_call(lambda: kernel(x, x, x)))
    report("the bare function", per_call(lambda: bare(x, x, x, out)))

    ours, numpys = [], []
    for _ in range(15):
        ours.append(import_seconds("import autotune"))
        numpys.append(import_seconds("import numpy"))
    ratio = statistics.median(a / b for a, b in zip(ours, numpys, strict=True))
    rows.append(
        {
            "what": "import",
            "autotune_s": statistics.median(ours),
            "numpy_s": statistics.median(numpys),
            "ratio": ratio,
        }
    )
    print(f"import autotune / import numpy: {ratio:.2f}")
    write("dispatch_cost", rows)


if __name__ == "__main__":
    main()
