"""What measuring in a process of its own costs a candidate, over measuring it in this one.

    python benchmarks/isolation.py [--rounds 200]

Each round measures one candidate through the worker and in this process, in random order. The cost
is the time of the round trip beyond what the measuring process itself took: sending the job,
reading the answer, and looking at what the candidate left behind.
"""

from __future__ import annotations

import argparse
import random
import time
from typing import Any

from common import median_interval, write

from autotune.bench import CpuBench
from autotune.device import local_cpu
from autotune.model import Problem
from autotune.model.space import default_config
from autotune.plugins import load_plugins
from autotune.registry import registry
from autotune.worker import Job, Worker
from autotune.worker.measure import measure
from autotune.worker.session import Session

CASES = (
    ("decode", "unsplit", {"B": 1, "H": 1, "N": 1024, "D": 64}),
    ("attention", "simd_tiled", {"B": 2, "H": 1, "N": 512, "D": 64}),
)
TARGET_SECONDS = 3e-3


def job_of(name: str, variant: str, dims: dict[str, int]) -> Job:
    """A job with the variant's default config, timed hot for a moment."""
    operation = registry.operation(name)
    problem = Problem.of(operation, dims, "float32")
    config = default_config(registry.variant(operation, variant), problem, local_cpu())
    assert config is not None
    return Job(problem.key.text, variant, dict(config), mode="hot", budget=0.02, retries=0)


def compare(worker: Worker, session: Session, job: Job, rounds: int) -> dict[str, Any]:
    """Round trips through the worker, and the same work here."""
    beyond, through, here = [], [], []
    order = random.Random(0)
    for each in (worker.measure(job), measure(session, job)):  # both compile first
        assert each.median is not None, each.reason
    for _ in range(rounds):
        for isolated in order.sample((True, False), 2):
            started = time.perf_counter()
            outcome = worker.measure(job) if isolated else measure(session, job)
            seconds = time.perf_counter() - started
            assert outcome.median is not None, outcome.reason
            if isolated:
                beyond.append(seconds - outcome.wall_seconds)
            (through if isolated else here).append(seconds)
    median, low, high = median_interval(beyond)
    return {
        "job": f"{job.problem} {job.variant}",
        "rounds": rounds,
        "beyond": median,
        "low": low,
        "high": high,
        "worst": max(beyond),
        "through_the_worker": median_interval(through)[0],
        "in_this_process": median_interval(here)[0],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    options = parser.parse_args()
    load_plugins()
    rows = []
    with Worker(local_cpu()) as worker:
        for case in CASES:
            session = Session(CpuBench(local_cpu()))
            rows.append(compare(worker, session, job_of(*case), options.rounds))
            row = rows[-1]
            print(f"{row['job']}: {1e3 * row['beyond']:.2f} ms beyond the work itself", flush=True)
    write(
        "isolation", rows, target=TARGET_SECONDS, met=all(r["high"] <= TARGET_SECONDS for r in rows)
    )


if __name__ == "__main__":
    main()
