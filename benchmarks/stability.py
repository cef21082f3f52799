"""Do two tunings from scratch agree? Over twenty problems and more.

    python benchmarks/stability.py [--budget 20s] [--mode hot] [--most 24]

Each problem is tuned twice, with different seeds and empty databases. Winners that differ are
raced against each other in three processes or more, since the same two can differ by a percent or
two in one and the other way round in the next: until the interval of the ratio lies within the
band or outside of it, in nine at most. The tunings agree when the winners are the same candidate or
the median of the ratios of all rounds is within the band; `shown` tells whether the interval says
the same.
"""

from __future__ import annotations

import argparse
import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common import ratio_interval, write

from autotune.campaign import Campaign, Settings, parse_budget
from autotune.campaign.evidence import seconds_of
from autotune.device import local_cpu
from autotune.model import Problem
from autotune.plugins import load_plugins
from autotune.registry import registry
from autotune.worker.client import Worker
from autotune.worker.protocol import RaceJob
from autotune_policies import Choice
from autotune_tuning_db import Store, TrialRow

BAND = 0.01
LEAST, MOST = 3, 9  # processes


def problems() -> list[Problem]:
    """Twenty-four problems over the built-in operations."""
    found = []
    for name in ("attention", "attention_train"):
        operation = registry.operation(name)
        for n in (128, 256, 512, 1024):
            for dtype in ("float32", "float64"):
                found.append(Problem.of(operation, {"B": 2, "H": 1, "N": n, "D": 64}, dtype))
    decode = registry.operation("decode")
    for n in (1024, 2048, 4096, 8192, 16384, 32768, 65536, 131072):
        found.append(Problem.of(decode, {"B": 1, "H": 1, "N": n, "D": 64}, "float32"))
    return found


@dataclass(frozen=True, slots=True)
class Tuned:
    """The winner of a tuning from scratch, and all that it measured."""

    winner: Choice
    trials: tuple[TrialRow, ...]

    def fate(self, other: Choice) -> str:
        """How far another tuning's winner came in this one."""
        rows = [row for row in self.trials if _candidate(row) == other.candidate]
        if not rows:
            return "never tried"
        races = list(dict.fromkeys(r.circumstances["race"] for r in self.trials if _raced(r)))
        last = [row for row in rows if _raced(row)][-1:] or rows[-1:]
        name = last[0].circumstances.get("race")
        beside = [r for r in self.trials if r.circumstances.get("race") == name]
        fastest = min(seconds_of(row) or math.inf for row in beside)
        behind = (seconds_of(last[0]) or math.nan) / fastest - 1.0
        where = f"race {races.index(name) + 1} of {len(races)}" if name else "the search"
        return f"{100 * behind:.1f}% behind in {where} ({last[0].status})"


def _candidate(row: TrialRow) -> tuple[str, tuple[tuple[str, Any], ...]]:
    return row.variant, tuple(sorted(row.config.items()))


def _raced(row: TrialRow) -> bool:
    return row.stage == "race" and "race" in row.circumstances


def tuned(problem: Problem, seed: int, options: Any) -> Tuned:
    """A tuning from scratch."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(budget=parse_budget(options.budget), mode=options.mode, seed=seed)
        store = Path(folder) / "tuning.db"
        campaign = Campaign([problem], device=local_cpu(), settings=settings, store=store)
        (result,) = campaign.run().results
        trials = tuple(Store(store).trials(problem.key))
    assert result.policy is not None
    return Tuned(result.policy.winner, trials)


def compare(worker: Worker, problem: Problem, options: Any) -> dict[str, Any]:
    """Two winners and how they compare."""
    runs = tuned(problem, 0, options), tuned(problem, 1, options)
    one, other = (run.winner for run in runs)
    row: dict[str, Any] = {
        "problem": problem.key.text,
        "first": f"{one.variant} {dict(one.config)}",
        "second": f"{other.variant} {dict(other.config)}",
        "same": one.candidate == other.candidate,
        "ratio": 1.0,
        "shown": True,
        "tried": [sum(trial.stage == "search" for trial in run.trials) for run in runs],
    }
    if not row["same"]:
        row |= beside(worker, problem, one, other, options.mode)
        row |= {"second_in_first": runs[0].fate(other), "first_in_second": runs[1].fate(one)}
    row["agree"] = row["same"] or abs(row["ratio"] - 1.0) <= BAND
    verdict = "agree" if row["agree"] else "DIFFER"
    sure = "" if row["shown"] else ", unsure"
    took = f"({row['ratio']:.3f}{sure})"
    print(f"{problem}: {verdict} {took} {row['first']} / {row['second']}", flush=True)
    if not row["agree"]:
        print(f"  the second in the first: {row['second_in_first']}")
        print(f"  the first in the second: {row['first_in_second']}", flush=True)
    return row


def beside(
    worker: Worker, problem: Problem, one: Choice, other: Choice, mode: Any
) -> dict[str, Any]:
    """How two candidates compare, one over the other: over all rounds, and in each process."""
    entrants = tuple((each.variant, dict(each.config)) for each in (one, other))
    job = RaceJob(
        problem.key.text,
        entrants,
        mode=mode,
        seed=2,
        precision=0.0,
        min_rounds=30,
        max_rounds=3000,
        budget=2.5,
    )
    first: list[float] = []
    second: list[float] = []
    medians: list[float] = []
    while True:
        one_leg, other_leg = worker.race(job).samples
        medians.append(ratio_interval(one_leg, other_leg)[0])
        first += one_leg
        second += other_leg
        ratio, low, high = ratio_interval(first, second)
        within = low >= 1.0 - BAND and high <= 1.0 + BAND
        shown = within or low > 1.0 + BAND or high < 1.0 - BAND
        if len(medians) >= (LEAST if shown else MOST):
            break
        worker.renew()
    return {"ratio": ratio, "low": low, "high": high, "shown": shown, "by_process": medians}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--budget", default="20s")
    parser.add_argument("--mode", default="hot", choices=("cold", "hot"))
    parser.add_argument("--most", type=int, default=24)
    options = parser.parse_args()
    load_plugins()
    with Worker(local_cpu()) as worker:
        rows = [compare(worker, problem, options) for problem in problems()[: options.most]]
    agreed = sum(row["agree"] for row in rows) / len(rows)
    differ = sum(row["shown"] and not row["agree"] for row in rows) / len(rows)
    print(
        f"agreed on {100 * agreed:.0f}% of {len(rows)} problems, surely not on {100 * differ:.0f}%"
    )
    facts = {"mode": options.mode, "budget": options.budget}
    write("stability", rows, agreed=agreed, differ=differ, band=BAND, target=0.95, **facts)


if __name__ == "__main__":
    main()
