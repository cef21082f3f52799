"""What every benchmark shares: where it ran, paired timing, and the results file."""

from __future__ import annotations

import datetime
import importlib
import json
import os
import platform
import random
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"


def circumstances(*packages: str) -> dict[str, Any]:
    """Date, machine and versions as loaded."""
    from autotune.device import local_cpu

    device = local_cpu()
    versions = {name: _version(name) for name in ("numpy", "numba", "optuna", *packages)}
    return {
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "device": device.identity,
        "label": device.label,
        "cpus": len(os.sched_getaffinity(0)),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "versions": versions,
    }


def _version(name: str) -> str:
    try:
        return str(importlib.import_module(name).__version__)
    except ImportError:
        return "absent"


def interleaved(
    functions: Mapping[str, Callable[[], Any]],
    *,
    rounds: int = 21,
    warmups: int = 3,
    settle: float = 0.0,
    seconds: float = 20.0,
) -> dict[str, list[float]]:
    """Samples in seconds per function; round r of each is taken side by side, in random order.

    Stops after `seconds`, but not before five rounds. With `settle` every sample is the second of
    two calls in a row, after a pause of so many seconds: two libraries with thread pools of their
    own would otherwise time each other's threads, which go on spinning for some 20 ms after a
    parallel region (libgomp's default).
    """
    for function in functions.values():
        for _ in range(warmups):
            function()
    samples: dict[str, list[float]] = {name: [] for name in functions}
    order = list(functions)
    shuffle = random.Random(0)
    started = time.perf_counter()
    for done in range(rounds):
        if done >= 5 and time.perf_counter() - started > seconds:
            break
        shuffle.shuffle(order)
        for name in order:
            if settle:
                time.sleep(settle)
                functions[name]()
            begin = time.perf_counter()
            functions[name]()
            samples[name].append(time.perf_counter() - begin)
    return samples


def median_interval(samples: Sequence[float]) -> tuple[float, float, float]:
    """Median with its 95% interval, as the tuner itself takes it."""
    from autotune import statistics

    interval = statistics.median_interval(samples)
    return interval.median, interval.low, interval.high


def ratio_interval(ours: Sequence[float], theirs: Sequence[float]) -> tuple[float, float, float]:
    """Median of the per-round ratios ours/theirs with its 95% interval."""
    return median_interval([a / b for a, b in zip(ours, theirs, strict=True)])


def served(kernel: Any) -> dict[str, Any]:
    """What a kernel of `dispatch` is, with the fingerprint of its source."""
    from autotune.fingerprint import fingerprint
    from autotune.registry import registry

    return {
        "variant": kernel.variant,
        "config": dict(kernel.config),
        "origin": kernel.origin,
        "source": fingerprint(registry.variant(kernel.operation, kernel.variant)),
    }


def gpu_facts() -> dict[str, Any]:
    """The GPU that is measured, its driver, and the versions that were loaded for it."""
    from autotune.device import find_device
    from autotune.fingerprint import toolchain

    gpu = find_device("cuda")
    facts = {"gpu": gpu.identity, "gpu_label": gpu.label, "driver": gpu.facts.get("driver")}
    return {**facts, "toolchain": toolchain("cuda")}


def write(name: str, rows: Sequence[Mapping[str, Any]], **extra: Any) -> Path:
    """Write rows and circumstances to results/NAME.json and say where."""
    folder = Path(os.environ.get("OUT") or RESULTS)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{name}.json"
    document = {"circumstances": circumstances(*extra.pop("packages", ())), **extra, "rows": rows}
    path.write_text(json.dumps(document, indent=1) + "\n")
    print(f"wrote {path}")
    return path
