"""The study's table again, in device time: separate, v2, v3, v4 and what it left out.

    python benchmarks/study_gpu.py [--sizes 64 128 ...] [--dtype float64]

For every N each arrangement is measured over a few of its configs through the tuner's own gate and
clock, and the best configs then race each other in turn, so that ratios have intervals. B=2, H=1,
D=64 as in the study; its figures are wall times of OpenACC code, copies included.
"""

from __future__ import annotations

import argparse
from typing import Any

from common import median_interval, ratio_interval, write

from autotune.device import Device, find_device
from autotune.model import Problem
from autotune.model.space import why_not
from autotune.plugins import load_plugins
from autotune.registry import registry
from autotune.search import Search, build_space
from autotune.worker.client import Worker
from autotune.worker.protocol import Job, RaceJob

STUDY_FORMS = ("cuda_separate", "cuda_v2", "cuda_v3", "cuda_v4")


def best_config(
    worker: Worker, device: Device, problem: Problem, name: str, options: Any
) -> dict[str, Any] | None:
    """The fastest of the configs that the search proposes for one variant alone."""
    variant = registry.variant(problem.operation, name)
    if why_not(variant, problem, device.kind) is not None:
        return None
    search = Search(build_space(problem, [variant], device, device_kind=device.kind))
    best: tuple[float, dict[str, Any]] | None = None
    for _ in range(options.trials):
        candidate = search.ask()
        if candidate is None:
            break
        outcome = worker.measure(
            Job(
                problem=problem.key.text,
                variant=name,
                config=dict(candidate.config),
                mode="cold",
                incumbent=best[0] if best else None,
                budget=0.3,
            )
        )
        search.tell(candidate, outcome.median if outcome.samples else None)
        if outcome.samples and outcome.median and (best is None or outcome.median < best[0]):
            best = outcome.median, dict(candidate.config)
        elif not outcome.samples:
            print(f"  {name} {dict(candidate.config)}: {outcome.status} {outcome.reason}")
    return best[1] if best else None


def row(
    worker: Worker, device: Device, problem: Problem, names: list[str], options: Any
) -> dict[str, Any]:
    """All arrangements at one size, raced."""
    configs = {name: best_config(worker, device, problem, name, options) for name in names}
    entrants = tuple((name, config) for name, config in configs.items() if config is not None)
    race = worker.race(
        RaceJob(problem.key.text, entrants, mode="cold", min_rounds=9, max_rounds=15, budget=20.0)
    )
    if not race.samples:
        return {"N": problem.sizes["Nq"], "failed": race.reason}
    times = {name: samples for (name, _), samples in zip(entrants, race.samples, strict=True)}
    found: dict[str, Any] = {"N": problem.sizes["Nq"], "forms": {}}
    for name, samples in times.items():
        median, low, high = median_interval(samples)
        found["forms"][name] = {
            "ms": median * 1e3,
            "low_ms": low * 1e3,
            "high_ms": high * 1e3,
            "config": configs[name],
        }
        if "cuda_separate" in times:
            ratio = ratio_interval(samples, times["cuda_separate"])
            found["forms"][name]["over_separate"] = list(ratio)
    if {"cuda_v3", "cuda_v4"} <= times.keys():
        found["v4_over_v3"] = list(ratio_interval(times["cuda_v4"], times["cuda_v3"]))
    cells = "  ".join(f"{n.removeprefix('cuda_')} {f['ms']:.3f}" for n, f in found["forms"].items())
    print(f"N={found['N']:5d}  {cells} ms  v4/v3 {found.get('v4_over_v3', ['-'])[0]}", flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    sizes = [64, 128, 256, 512, 1024, 2048, 4096, 8192]
    parser.add_argument("--sizes", type=int, nargs="+", default=sizes)
    parser.add_argument("--dtype", default="float64")
    parser.add_argument("--trials", type=int, default=8, help="configs tried per arrangement")
    parser.add_argument("--forms", nargs="+", help="variants (default: every arrangement)")
    parser.add_argument("--name", default="study_gpu")
    options = parser.parse_args()
    load_plugins()
    operation = registry.operation("attention_train")
    gpu = find_device("cuda")
    names = options.forms or [
        variant.name
        for variant in registry.variants(operation)
        if variant.name in STUDY_FORMS or variant.name.startswith("cuda_arranged")
    ]
    rows = []
    with Worker(gpu) as worker:
        for n in options.sizes:
            problem = Problem.of(operation, {"B": 2, "H": 1, "N": n, "D": 64}, options.dtype)
            rows.append(row(worker, gpu, problem, names, options))
            write(options.name, rows, packages=("cupy",), gpu=gpu.identity, gpu_label=gpu.label)


if __name__ == "__main__":
    main()
