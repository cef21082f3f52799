"""The tuned choice against measuring the whole space, on three problems.

    python benchmarks/search_quality.py [--mode hot] [--seeds 20] [--only decode]

Every candidate of a problem is measured once and kept as a recording. Then the search runs
against the recording under several seeds, with at most a third of the evaluations; and a real
campaign from scratch is held to as many trials, its winner raced against the exhaustive best.
"""

from __future__ import annotations

import argparse
import math
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from common import ratio_interval, write

from autotune.campaign import Campaign, Settings
from autotune.device import local_cpu
from autotune.model import Candidate, Problem
from autotune.plugins import load_plugins
from autotune.registry import registry
from autotune.search import Search, Space, build_space
from autotune.worker.client import Worker
from autotune.worker.protocol import Job, RaceJob

PROBLEMS = (
    ("attention", {"B": 2, "H": 1, "N": 512, "D": 64}, "float32"),
    ("attention_train", {"B": 2, "H": 1, "N": 512, "D": 64}, "float32"),
    ("decode", {"B": 1, "H": 1, "N": 16384, "D": 64}, "float32"),
)
Times = dict[Candidate, float | None]


def measure_all(worker: Worker, problem: Problem, space: Space, options: Any) -> Times:
    """One measurement of every candidate; None for one that failed."""
    times: Times = {}
    best = math.inf
    started = time.perf_counter()
    for home in space.variants:
        for row in range(len(home)):
            candidate = home.candidate(row)
            outcome = worker.measure(_job(problem, candidate, best, options))
            times[candidate] = outcome.median if outcome.samples else None
            best = min(best, outcome.median or math.inf)
        print(f"  {home.variant}: {len(home)} measured, {time.perf_counter() - started:.0f} s")
    return times


def _job(problem: Problem, candidate: Candidate, best: float, options: Any) -> Job:
    return Job(
        problem=problem.key.text,
        variant=candidate.variant,
        config=dict(candidate.config),
        mode=options.mode,
        incumbent=None if math.isinf(best) else best,
        budget=options.seconds,
        retries=0,
    )


def replay(space: Space, times: Times, seeds: int) -> list[dict[str, float]]:
    """The search against the recording: evaluations used, and found over best."""
    best = min(seconds for seconds in times.values() if seconds is not None)
    rows = []
    for seed in range(seeds):
        search, found, used = Search(space, seed=seed), math.inf, 0
        while used < len(times) // 3 and (candidate := search.ask()) is not None:
            used += 1
            search.tell(candidate, times[candidate])
            found = min(found, times[candidate] or math.inf)
        rows.append({"seed": seed, "evaluations": used, "over_best": found / best})
    return rows


def tuned_against_best(
    worker: Worker, problem: Problem, times: Times, options: Any
) -> dict[str, Any]:
    """A campaign from scratch with a third of the trials, then a race with the best three."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(budget=3600.0, mode=options.mode, trials=len(times) // 3)
        campaign = Campaign([problem], settings=settings, store=Path(folder) / "tuning.db")
        (result,) = campaign.run().results
    assert result.policy is not None
    winner = result.policy.winner
    ranked = sorted((t, str(c), c) for c, t in times.items() if t is not None)
    entrants = [(winner.variant, dict(winner.config))]
    entrants += [(c.variant, dict(c.config)) for _, _, c in ranked[:3]]
    distinct = [each for i, each in enumerate(entrants) if each not in entrants[:i]]
    race = worker.race(
        RaceJob(
            problem.key.text,
            tuple(distinct),
            mode=options.mode,
            precision=0.0,
            band=0.0,
            min_rounds=30,
            budget=10.0,
        )
    )
    best = min(race.samples, key=statistics.median)
    ratio, low, high = ratio_interval(race.samples[0], best)
    return {
        "trials": result.tried,
        "winner": f"{winner.variant} [{dict(winner.config)}]",
        "tuned_over_best": ratio,
        "low": low,
        "high": high,
    }


def measure(worker: Worker, problem: Problem, options: Any) -> tuple[dict[str, Any], list[Any]]:
    """The row of one problem, and its recording."""
    space = build_space(problem, registry.variants(problem.operation), local_cpu())
    print(f"{problem}: {len(space)} candidates", flush=True)
    times = measure_all(worker, problem, space, options)
    replays = replay(space, times, options.seeds)
    row = {
        "problem": problem.key.text,
        "candidates": len(space),
        "replay_within_2_percent": sum(r["over_best"] <= 1.02 for r in replays),
        "replay_seeds": len(replays),
        "replay_evaluations": statistics.median(r["evaluations"] for r in replays),
        "replay_worst_over_best": max(r["over_best"] for r in replays),
        **tuned_against_best(worker, problem, times, options),
    }
    print(f"  {row}", flush=True)
    recording = [
        {"variant": c.variant, "config": dict(c.config), "seconds": t} for c, t in times.items()
    ]
    return row, recording


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mode", default="hot", choices=("cold", "hot"))
    parser.add_argument("--seconds", type=float, default=0.3, help="for timing one candidate")
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--only", help="an operation")
    options = parser.parse_args()
    load_plugins()
    rows, recordings = [], {}
    with Worker(local_cpu()) as worker:
        for name, sizes, dtype in PROBLEMS:
            if options.only in (None, name):
                problem = Problem.of(registry.operation(name), sizes, dtype)
                row, recordings[problem.key.text] = measure(worker, problem, options)
                rows.append(row)
    write("search_quality", rows, mode=options.mode, target="within 2% at a third", packages=())
    write("search_recordings", [], recordings=recordings)


if __name__ == "__main__":
    main()
