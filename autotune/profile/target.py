"""The profiled process: `python -m autotune.profile.target`, with the job as JSON on stdin.

Calls the candidate once unprofiled, so that it is compiled and loaded, and once with the profiler
on.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from autotune.device import find_device
from autotune.execution import Executable
from autotune.model import Config, Problem
from autotune.registry import registry
from autotune.worker.definitions import load
from autotune_tuning_db import ProblemKey


def main(job: dict[str, Any]) -> None:
    """Run the job."""
    load(job["definitions"])
    device: Any = find_device(job["device"])
    key = ProblemKey.parse(job["problem"])
    problem = Problem.from_key(registry.operation(key.operation), key)
    variant = registry.variant(problem.operation, job["variant"])
    executable = Executable(variant, problem, Config(job["config"]), device)
    from cupy.cuda import profiler, runtime

    from autotune.worker.session import Session

    arguments = Session(device).unchecked_buffers(problem).arguments
    executable(*arguments)
    runtime.deviceSynchronize()
    profiler.start()
    executable(*arguments)
    runtime.deviceSynchronize()
    profiler.stop()


if __name__ == "__main__":
    main(json.load(sys.stdin))
