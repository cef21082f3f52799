"""Does a tuning beside other work agree with one on a quiet machine?

    python benchmarks/stability_load.py [--budget 10s] [--first 0] [--most 4]

Each problem is tuned once while nothing else runs, and twice, with other seeds, while a process
keeps one CPU busy; all three from empty databases. Winners that differ are raced on the quiet
machine as in stability.py: a tuning agrees when the winner is the same candidate, or within the
band of the quiet one's. Of the measurements under load it is counted how many are marked as
disturbed. Problems are added to those that the results file has.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from common import RESULTS, write
from stability import BAND, beside, problems

from autotune.campaign import Campaign, Settings, parse_budget
from autotune.device import local_cpu
from autotune.model import Problem
from autotune.plugins import load_plugins
from autotune.worker.client import Worker
from autotune_policies import Choice
from autotune_tuning_db import open_store

TARGET = 0.9
SPIN = """
import os, sys
os.sched_setaffinity(0, {int(sys.argv[1])})
while os.getppid() == int(sys.argv[2]):
    for _ in range(1_000_000):
        pass
"""


@contextmanager
def load() -> Iterator[None]:
    """One process that keeps the last CPU busy."""
    cpu = local_cpu().topology.allowed[-1]
    process = subprocess.Popen([sys.executable, "-c", SPIN, str(cpu), str(os.getpid())])
    time.sleep(0.5)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def tuned(problem: Problem, seed: int, budget: float) -> tuple[Choice, Counter[str]]:
    """The winner of a tuning from scratch, and its trials by what is said of their times."""
    with tempfile.TemporaryDirectory() as folder, open_store(Path(folder) / "tuning.db") as store:
        settings = Settings(budget, "hot", seed=seed)
        campaign = Campaign([problem], device=local_cpu(), settings=settings, store=store)
        (result,) = campaign.run().results
        marks = Counter(
            "marked" if row.circumstances.get("disturbed") else "not marked"
            for row in store.trials()
            if row.samples
        )
    assert result.policy is not None
    return result.policy.winner, marks


def compare(worker: Worker, problem: Problem, budget: float) -> dict[str, Any]:
    """The quiet winner, and how those found under load compare with it."""
    quiet, _ = tuned(problem, 0, budget)
    found, marks = [], Counter[str]()
    with load():
        for seed in (1, 2):
            winner, marked = tuned(problem, seed, budget)
            found.append(winner)
            marks += marked
    row: dict[str, Any] = {
        "problem": problem.key.text,
        "quiet": f"{quiet.variant} {dict(quiet.config)}",
        "marks": dict(marks),
        "under_load": [],
    }
    for winner in found:
        same = winner.candidate == quiet.candidate
        ratio = {} if same else beside(worker, problem, winner, quiet, "hot")
        agree = same or abs(ratio["ratio"] - 1.0) <= BAND
        name = f"{winner.variant} {dict(winner.config)}"
        row["under_load"].append({"winner": name, "same": same, "agree": agree, **ratio})
        print(f"{problem}: {'agree' if agree else 'DIFFER'} {ratio} {name}", flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", default="10s")
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--most", type=int, default=4)
    options = parser.parse_args()
    load_plugins()
    path = RESULTS / "stability_load.json"
    known = json.loads(path.read_text())["rows"] if path.exists() and options.first else []
    budget = parse_budget(options.budget)
    chosen = problems()[options.first : options.first + options.most]
    with Worker(local_cpu()) as worker:
        rows = [*known, *(compare(worker, problem, budget) for problem in chosen)]
    every = [each for row in rows for each in row["under_load"]]
    agreed = sum(each["agree"] for each in every) / len(every)
    same_variant = sum(
        each["winner"].split()[0] == row["quiet"].split()[0]
        for row in rows
        for each in row["under_load"]
    ) / len(every)
    print(f"{100 * agreed:.0f}% of {len(every)} agree; the variant, {100 * same_variant:.0f}%")
    extra = {"agreed": agreed, "same_variant": same_variant, "band": BAND, "target": TARGET}
    write("stability_load", rows, budget=options.budget, **extra)


if __name__ == "__main__":
    main()
