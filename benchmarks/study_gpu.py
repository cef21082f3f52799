"""The study's table again, in device time: separate, v2, v3, v4, and the same with better passes.

    python benchmarks/study_gpu.py [--operation attention] [--sizes 64 128 ...] [--dtype float64]

Three levels of every arrangement race each other at every N, so that ratios have intervals:
`study` (one row or column a block, features outermost in the column passes, as in the study's
OpenACC code), `on chip` (one row or column a block, a column's sums in registers) and `tiled`
(four rows or columns a block); with them, in the forward and the backward alone, what dispatch
serves. B=2, H=1, D=64; cold L2; every entrant has passed the gate. The study's own figures are
wall times of other code, copies included.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from common import gpu_facts, median_interval, ratio_interval, write

from autotune.candidates import served_candidate
from autotune.device import Device, find_device
from autotune.fingerprint import fingerprint
from autotune.model import Problem
from autotune.model.space import default_config, inadmissible, why_not
from autotune.plugins import load_plugins
from autotune.registry import registry
from autotune.worker.gpu import GpuWorker
from autotune.worker.protocol import RaceJob

FORMS = {
    "attention_train": ("separate", "separate_stored", "v2", "v3", "v4"),
    "attention_backward": ("separate", "separate_stored"),  # A an input's stand-in: made first
    "attention": ("stored",),
}
LEFT_OUT = {"attention_train": ("gs_recomputed", "recomputed", "gq_atomic", "copies")}
LEVELS = {"study": ("cuda_", {}), "on chip": ("cuda_arranged_", {"rows": 1, "columns": 1})}
LEVELS["tiled"] = ("cuda_arranged_", {"rows": 4, "columns": 4})


def entrants(problem: Problem, device: Device) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Label, variant and config of everything that can run at this size."""
    known = {variant.name: variant for variant in registry.variants(problem.operation)}
    name = problem.operation.name
    forms, left_out = FORMS[name], LEFT_OUT.get(name, ())
    if name != "attention_train":
        served = served_candidate(problem, device)
        yield "served", served.variant, dict(served.config)
    for level, (prefix, fixed) in LEVELS.items():
        for form in forms if level == "study" else (*forms, *left_out):
            variant = known[prefix + form]
            if why_not(variant, problem, device.kind, device.limits) is not None:
                continue
            default = default_config(variant, problem, device)
            if default is None:
                continue
            config = {**default, **{k: v for k, v in fixed.items() if k in default}}
            while inadmissible(variant, problem, config, device) and config.get("blocks", 1) > 128:
                config["blocks"] = int(config["blocks"]) // 2  # no more than there are tiles
            if inadmissible(variant, problem, config, device) is None:
                yield f"{form}, {level}", variant.name, config


def row(worker: GpuWorker, device: Device, problem: Problem, seconds: float) -> dict[str, Any]:
    """All arrangements at one size, raced."""
    taking_part = list(entrants(problem, device))
    race = worker.race(
        RaceJob(
            problem.key.text,
            tuple((name, config) for _, name, config in taking_part),
            mode="cold",
            precision=0.0,
            min_rounds=7,
            max_rounds=15,
            budget=seconds,
            time_limit=120.0,
        )
    )
    n = problem.sizes["Nq"]
    if not race.samples:
        culprit = taking_part[race.culprit][0] if race.culprit is not None else "?"
        print(f"N={n}: {race.status} {culprit}: {race.reason}", flush=True)
        return {"N": n, "failed": f"{culprit}: {race.reason}"}
    times = {label: s for (label, _, _), s in zip(taking_part, race.samples, strict=True)}
    forms: dict[str, Any] = {}
    for label, name, config in taking_part:
        median, low, high = median_interval(times[label])
        level = label.split(", ")[-1]
        naive = times.get(f"separate, {level}")
        forms[label] = {
            "ms": median * 1e3,
            "low_ms": low * 1e3,
            "high_ms": high * 1e3,
            "over_separate": ratio_interval(times[label], naive) if naive else None,
            "variant": name,
            "config": config,
            "source": fingerprint(registry.variant(problem.operation, name)),
        }
    ratios = {
        level: ratio_interval(times[f"v4, {level}"], times[f"v3, {level}"])
        for level in LEVELS
        if {f"v3, {level}", f"v4, {level}"} <= times.keys()
    }
    cells = "  ".join(f"{label} {form['ms']:.4f}" for label, form in forms.items())
    print(f"N={n:5d} ms: {cells}", flush=True)
    if ratios:
        print(
            "        v4/v3 " + "  ".join(f"{k} {r[0]:.3f}" for k, r in ratios.items()), flush=True
        )
    return {"N": n, "rounds": len(race.samples[0]), "forms": forms, "v4_over_v3": ratios}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    sizes = [64, 128, 256, 512, 1024, 2048, 4096, 8192]
    parser.add_argument("--sizes", type=int, nargs="+", default=sizes)
    parser.add_argument("--operation", choices=list(FORMS), default="attention_train")
    parser.add_argument("--dtype", default="float64")
    parser.add_argument("--seconds", type=float, default=12.0, help="for the race at one size")
    parser.add_argument("--name", default="study_gpu")
    options = parser.parse_args()
    load_plugins()
    operation = registry.operation(options.operation)
    gpu = find_device("cuda")
    rows = []
    with closing(GpuWorker(gpu)) as worker:
        for n in options.sizes:
            problem = Problem.of(operation, {"B": 2, "H": 1, "N": n, "D": 64}, options.dtype)
            rows.append(row(worker, gpu, problem, options.seconds))
            write(options.name, rows, packages=("cupy",), **gpu_facts())


if __name__ == "__main__":
    main()
