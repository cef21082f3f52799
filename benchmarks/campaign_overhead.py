"""What share of a campaign's wall time is neither measuring nor compiling.

    python benchmarks/campaign_overhead.py [--budget 60s] [--mode cold]

A campaign from scratch is run with its worker process; what is not spent inside the worker is
the campaign's own (search, store, starting, messages). The same jobs are then done once more in
this process, where every phase can be timed: preparing the problem (inputs and the float64
reference), building (compiling and the first call), timing (warm-up, samples, eviction) and
checking. The candidate's own calls in the gate are measured apart: they are the candidate running.
Overhead is all but timing, building and those calls, as a share of the whole without compiling.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from common import write

from autotune import verify
from autotune.bench import CpuBench
from autotune.campaign import Campaign, Settings, parse_budget
from autotune.campaign.campaign import local_worker
from autotune.campaign.session import Measurer
from autotune.device import Device, local_cpu
from autotune.model import Problem
from autotune.plugins import load_plugins
from autotune.registry import registry
from autotune.worker import session as worker_session
from autotune.worker.measure import measure
from autotune.worker.protocol import Job, Outcome, RaceJob, RaceOutcome
from autotune.worker.session import Session

PROBLEMS = (
    ("attention", {"B": 2, "H": 1, "N": 512, "D": 64}, "float32"),
    ("attention_train", {"B": 2, "H": 1, "N": 1024, "D": 64}, "float32"),
    ("decode", {"B": 1, "H": 1, "N": 65536, "D": 64}, "float32"),
)


class Watched:
    """A worker whose calls are timed and kept."""

    def __init__(self, worker: Measurer) -> None:
        self.worker = worker
        self.jobs: list[tuple[Job, Outcome]] = []
        self.seconds = self.racing = self.compiling = 0.0

    def measure(self, job: Job) -> Outcome:
        started = time.perf_counter()
        outcome = self.worker.measure(job)
        self.seconds += time.perf_counter() - started
        self.jobs.append((job, outcome))
        return outcome

    def race(self, job: RaceJob) -> RaceOutcome:
        started = time.perf_counter()
        outcome = self.worker.race(job)
        self.racing += time.perf_counter() - started
        return outcome

    def compile_ahead(self, jobs: Iterable[Job], *, starting: Callable[[int], None]) -> int:
        started = time.perf_counter()
        try:
            return self.worker.compile_ahead(jobs, starting=starting)
        finally:
            self.compiling += time.perf_counter() - started

    def __getattr__(self, name: str) -> Any:
        return getattr(self.worker, name)


def phases(jobs: list[Job]) -> dict[str, float]:
    """Seconds by phase when the jobs are done again in this process."""
    spent: dict[str, float] = defaultdict(float)
    now = ["starting", time.perf_counter()]

    def say(phase: str, *_: object) -> None:
        moment = time.perf_counter()
        spent[str(now[0])] += moment - float(now[1])
        now[:] = [phase, moment]

    def run_once(executable: Any, buffers: Any, make_call: Any = None) -> Any:
        def timed(call: Any) -> Any:
            begun = time.perf_counter()
            result = make_call(call) if make_call else call()
            if now[0] != "building":
                spent["calls of the gate"] += time.perf_counter() - begun
            return result

        return original(executable, buffers, timed)

    original = verify.run_once
    verify.run_once = worker_session.run_once = run_once  # type: ignore[attr-defined]
    session = Session(CpuBench(local_cpu()), say)
    for job in jobs:
        say("starting")
        measure(session, job)
    say("done")
    verify.run_once = worker_session.run_once = original  # type: ignore[attr-defined]
    return dict(spent)


def run(problem: Problem, options: Any) -> dict[str, Any]:
    """One campaign and where its time went."""
    watched: list[Watched] = []

    def make(device: Device) -> Watched:
        watched.append(Watched(local_worker(device)))
        return watched[0]

    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(budget=parse_budget(options.budget), mode=options.mode)
        started = time.perf_counter()
        campaign = Campaign(
            [problem], settings=settings, store=Path(folder) / "tuning.db", make_worker=make
        )
        (result,) = campaign.run().results
        wall = time.perf_counter() - started
    worker = watched[0]
    inside = sum(outcome.wall_seconds for _, outcome in worker.jobs)
    again = phases([job for job, outcome in worker.jobs if outcome.samples])
    timing, building = again.get("timing", 0.0), again.get("building", 0.0)
    calls = again.pop("calls of the gate", 0.0)
    checked = sum(again.values()) - timing - building - calls
    compiling = sum(outcome.compile_seconds or 0.0 for _, outcome in worker.jobs)
    own = wall - worker.seconds - worker.racing - worker.compiling
    messages = worker.seconds - inside
    row = {
        "problem": problem.key.text,
        "trials": result.tried,
        "wall_seconds": wall,
        "campaign_seconds": own,
        "messages_and_starting_seconds": messages,
        "worker_seconds": inside,
        "race_seconds": worker.racing,
        "compile_seconds": compiling,
        "compile_ahead_seconds": worker.compiling,
        "phases_again": again,
        "calls_of_the_gate_seconds": calls,
        "overhead": (own + messages + checked) / (wall - worker.compiling - compiling),
    }
    print(f"{problem}: {result.tried} trials, overhead {100 * row['overhead']:.1f}%", flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", default="60s")
    parser.add_argument("--mode", default="cold", choices=("cold", "hot"))
    parser.add_argument("--only", help="an operation")
    options = parser.parse_args()
    load_plugins()
    rows = []
    for name, sizes, dtype in PROBLEMS:
        if options.only in (None, name):
            problem = Problem.of(registry.operation(name), sizes, dtype)
            rows.append(run(problem, options))
            write("campaign_overhead", rows, mode=options.mode, budget=options.budget, target=0.10)


if __name__ == "__main__":
    main()
