"""Our search beside Kernel Tuner's strategies and Optuna's samplers, on recordings of others.

    python benchmarks/search_replay.py FOLDER [--jobs 8] [--seeds 20] [--methods ours,pso,...]
    python benchmarks/search_replay.py FOLDER --table
    python benchmarks/search_replay.py benchmarks/results/recordings --methods ours --budget 588 \
        --name search_replay_own

Every (space, method, seed) is a row, appended to results/NAME.jsonl as soon as it ends; the same
command goes on where it was. The table is made of all rows that are there, and written to
results/NAME.json. Kernel Tuner (PyPI: kernel-tuner) has to be installed for its rows.

Score: geometric mean over spaces of the mean over seeds of best found over optimum. A legal config
costs one evaluation, failed or not; repeats and illegal configs cost nothing, except to Optuna as
it comes. `ours_transfer` starts from the best three configs of each of two other devices.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

import numpy as np
import search_rivals as rivals
from common import RESULTS, write
from threadpoolctl import threadpool_limits

from autotune.replay import Recording, read_recordings, replay
from autotune.search import Strategy

BUDGETS = (25, 50, 100, 200, 400)
OURS = {
    "ours": Strategy(),
    "ours_transfer": Strategy(),
    "optuna_tpe_snapped": Strategy(method="tpe"),
    "ours_random": Strategy(method="random"),
}
METHODS = (*OURS, *rivals.OPTUNA, *rivals.KERNEL_TUNER)
WINNERS, ELSEWHERE = 3, 2
Task = tuple[str, str, int]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="recordings and their index.json")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--budget", type=int, default=BUDGETS[-1])
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--name", default="search_replay", help="of the files with the results")
    parser.add_argument("--spaces", default="", help="names in the index; all, if left out")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin nothing after")
    parser.add_argument("--table", action="store_true", help="of the rows that are there")
    options = parser.parse_args()
    rows_file = Path(os.environ.get("OUT") or RESULTS) / f"{options.name}.jsonl"
    if not options.table:
        run(options, rows_file)
    summarize(read_rows(rows_file), options)


def run(options: argparse.Namespace, rows_file: Path) -> None:
    """Every task that has no row yet, many at a time."""
    rows = read_rows(rows_file)
    known = {(r["space"], r["method"], r["seed"]) for r in rows if r["budget"] >= options.budget}
    tasks = [task for task in planned(options) if task not in known]
    deadline = time.monotonic() + 60.0 * options.minutes
    print(f"{len(tasks)} to do, {len(known)} known", flush=True)
    with (
        rows_file.open("a") as stream,
        ProcessPoolExecutor(options.jobs, initializer=prepare, initargs=(options.folder,)) as pool,
    ):
        futures = [pool.submit(measured, task, options.budget, deadline) for task in tasks]
        for number, future in enumerate(as_completed(futures), start=1):
            row = future.result()
            if row is not None:
                stream.write(json.dumps(row) + "\n")
                stream.flush()
            if number % 100 == 0:
                print(f"{number} of {len(tasks)}", flush=True)


def planned(options: argparse.Namespace) -> Iterator[Task]:
    """Seed by seed, so that what is there after an interruption is a whole table."""
    index = json.loads((options.folder / "index.json").read_text())
    spaces = options.spaces.split(",") if options.spaces else list(index)
    for seed in range(options.first_seed, options.first_seed + options.seeds):
        for method in options.methods.split(","):
            for space in spaces:
                if method != "ours_transfer" or len(elsewhere(space, index)) == ELSEWHERE:
                    yield space, method, seed


_recordings: dict[str, Recording] = {}
_index: dict[str, dict[str, Any]] = {}
_folder = Path()


def prepare(folder: Path) -> None:
    """What a process needs before its first task."""
    global _folder
    threadpool_limits(1)
    _folder = folder
    _index.update(json.loads((folder / "index.json").read_text()))


def recorded(space: str) -> Recording:
    """The recording of a space, read once in each process."""
    if space not in _recordings:
        (_recordings[space],) = read_recordings(_folder / _index[space]["file"])
    return _recordings[space]


def elsewhere(space: str, index: dict[str, Any]) -> list[str]:
    """Two recordings of the same kernel on other devices."""
    kernel = index[space]["kernel"]
    others = [name for name, about in index.items() if about["kernel"] == kernel and name != space]
    return others[:ELSEWHERE]


def measured(task: Task, budget: int, deadline: float) -> dict[str, Any] | None:
    """The row of one task; None past the deadline."""
    if time.monotonic() > deadline:
        return None
    space, method, seed = task
    recording = recorded(space)
    if method in OURS:
        starts = []
        if method == "ours_transfer":
            fastest = [recorded(o).fastest(WINNERS) for o in elsewhere(space, _index)]
            starts = list(dict.fromkeys(c for pair in zip(*fastest, strict=True) for c in pair))
        found = replay(
            recording,
            budget=budget,
            seeds=1,
            first_seed=seed,
            strategy=OURS[method],
            starts=starts,
        )
        (outcome,) = found.outcomes
        facts = {"settled": outcome.settled, "budget": budget, "configs": len(recording)}
        return row(task, outcome.over_best.tolist(), outcome.seconds, **facts)
    if method in rivals.OPTUNA:
        curve, spent = rivals.optuna_as_it_comes(recording, method, seed, budget)
        return row(task, curve, spent / budget, budget=budget)
    cache = Path(os.environ.get("TMPDIR", "/tmp")) / f"{space}-{os.getpid()}.json"
    if not cache.exists():
        rivals.write_cache(recording, _index[space], cache)
    curve, spent = rivals.kernel_tuner(recording, _index[space], cache, method, seed, budget)
    return row(task, curve, spent / budget, budget=budget)


def row(task: Task, curve: Iterable[float], seconds: float, **facts: Any) -> dict[str, Any]:
    """What is kept of a run: where the best improved, and the tuner's own time per evaluation."""
    steps, last = [], math.inf
    for evaluation, over_best in enumerate(curve, start=1):
        if over_best < last:
            steps.append((evaluation, round(over_best, 6)))
            last = over_best
    space, method, seed = task
    spent = {"ms_per_evaluation": 1e3 * seconds}
    return {"space": space, "method": method, "seed": seed, "steps": steps, **spent, **facts}


def read_rows(rows_file: Path) -> list[dict[str, Any]]:
    """Rows so far; a last line that was cut short is left out."""
    found = []
    for line in rows_file.read_text().splitlines() if rows_file.exists() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found


def at(steps: list[tuple[int, float]], budget: int) -> float:
    """Best over optimum after so many evaluations."""
    return next((value for evaluation, value in reversed(steps) if evaluation <= budget), math.inf)


def summarize(rows: list[dict[str, Any]], options: argparse.Namespace) -> None:
    """The table, printed and written. Of a seed that ran twice, the longer run counts."""
    longest = {(r["method"], r["space"], r["seed"]): r for r in sorted(rows, key=_budget)}
    by_method: dict[str, dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for each in longest.values():
        by_method[each["method"]][each["space"]].append(each)
    table = []
    for method in sorted(by_method, key=lambda name: METHODS.index(name)):
        line = summary(method, by_method[method])
        table.append(line)
        shown = " | ".join(
            f"{value:.3f} ({line['seeds'][b]})" for b, value in line["score"].items()
        )
        print(f"| {method} | {shown} | {line['ms_per_evaluation']:.1f} |")
    write(options.name, table, budgets=BUDGETS, packages=("kernel_tuner", "scipy", "sklearn"))


def _budget(each: dict[str, Any]) -> int:
    return int(each["budget"])


def summary(method: str, spaces: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Scores by budget, over the seeds that ran so long on every space.

    A run that ended before a third of its space counts with what it had found by then.
    """
    seeds = {
        budget: set.intersection(
            *({r["seed"] for r in runs if r["budget"] >= budget} for runs in spaces.values())
        )
        for budget in BUDGETS
    }
    budgets = [budget for budget in BUDGETS if seeds[budget]]
    means = {
        space: [
            float(np.mean([at(r["steps"], b) for r in runs if r["seed"] in seeds[b]]))
            for b in budgets
        ]
        for space, runs in spaces.items()
    }
    score = np.exp(np.mean(np.log(list(means.values())), axis=0)).tolist()
    every = [run for runs in spaces.values() for run in runs]
    return {
        "method": method,
        "score": dict(zip(map(str, budgets), score, strict=True)),
        "seeds": {str(budget): len(seeds[budget]) for budget in budgets},
        "ms_per_evaluation": float(np.mean([run["ms_per_evaluation"] for run in every])),
        "spaces": means,
        "within_2_percent_after_a_third": {
            space: [sum(at(r["steps"], r["configs"] // 3) <= 1.02 for r in runs), len(runs)]
            for space, runs in spaces.items()
            if all("configs" in r for r in runs)
        },
    }


if __name__ == "__main__":
    main()
