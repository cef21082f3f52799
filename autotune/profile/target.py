"""The profiled process: `python -m autotune.profile.target`, with the job as JSON on stdin.

Calls the candidate once unprofiled, so that it is compiled and loaded, and once with the profiler
on.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from autotune.bench import bench_for
from autotune.device import find_device
from autotune.execution import Executable
from autotune.inputs import make_buffers
from autotune.model import Config, Problem
from autotune.registry import registry
from autotune.worker.definitions import load
from autotune_tuning_db import ProblemKey


def main(job: dict[str, Any]) -> None:
    """Run the job."""
    load(job["definitions"])
    run(job, find_device(job["device"]))


def run(job: dict[str, Any], device: Any) -> None:
    """The two calls on a device."""
    key = ProblemKey.parse(job["problem"])
    problem = Problem.from_key(registry.operation(key.operation), key)
    variant = registry.variant(problem.operation, job["variant"])
    bench = bench_for(device)
    executable = Executable(variant, problem, Config(job["config"]), device)
    arguments = make_buffers(problem, memory=bench.memory).arguments
    executable(*arguments)
    bench.synchronize()
    import cupy

    cupy.cuda.profiler.start()
    executable(*arguments)
    bench.synchronize()
    cupy.cuda.profiler.stop()


if __name__ == "__main__":
    main(json.load(sys.stdin))
