"""The tables of docs/search.md, from the result files.

python benchmarks/search_page.py [--check]
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from tables import between, load, table, where

PAGE = Path(__file__).resolve().parents[1] / "docs" / "search.md"
THIRD = "within_2_percent_after_a_third"
NAMES = {
    "ours": "ours",
    "ours_transfer": "ours, started from two other devices",
    "ours_random": "random, admissible configs only",
    "optuna_random": "Optuna random, illegal and repeated trials charged",
    "optuna_tpe": "Optuna TPE, illegal and repeated trials charged",
    "optuna_tpe_snapped": "Optuna TPE, the nearest admissible unknown config taken",
    "random_sample": "random_sample (Kernel Tuner)",
}


def scores(document: dict[str, Any]) -> list[str]:
    """A row for each method, the best other one last."""
    budgets = [str(budget) for budget in document["budgets"]]
    rows: list[tuple[object, ...]] = []
    others = [row for row in document["rows"] if not row["method"].startswith("ours")]
    for row in document["rows"]:
        cells = (f"{row['score'][b]:.3f}" if b in row["score"] else None for b in budgets)
        name = NAMES.get(row["method"], row["method"])
        rows.append((name, *cells, f"{row['ms_per_evaluation']:.1f}", _seeds(row["seeds"])))
    best = [min(row["score"][b] for row in others if b in row["score"]) for b in budgets]
    rows.append(("best of the others at each budget", *(f"{v:.3f}" for v in best), "", ""))
    return table(("method", *budgets, "own ms per evaluation", "seeds"), rows)


def _seeds(by_budget: dict[str, int]) -> str:
    """The number of seeds; by budget, where it differs."""
    counts = list(by_budget.values())
    if len(set(counts)) == 1:
        return str(counts[0])
    return ", ".join(f"{count} at {budget}" for budget, count in by_budget.items())


def spaces(document: dict[str, Any]) -> list[str]:
    """Ours over the best other method, on each space."""
    by_method = {row["method"]: row["spaces"] for row in document["rows"]}
    ours = by_method.pop("ours")
    others = [found for method, found in by_method.items() if not method.startswith("ours")]
    budgets = document["budgets"]
    rows = []
    for space, found in ours.items():
        best = [
            min(o[space][i] for o in others if len(o.get(space, ())) > i)
            for i in range(len(budgets))
        ]
        ratios = (f"{v:.3f} ({v / b:.2f})" for v, b in zip(found, best, strict=False))
        absent = (None,) * (len(budgets) - len(found))
        rows.append((f"`{space}`", *ratios, *absent))
    return table(("space", *budgets), rows)


def own(document: dict[str, Any]) -> list[str]:
    """Our conditional spaces."""
    (row,) = document["rows"]
    third = {s: f"{hits} of {runs}" for s, (hits, runs) in row[THIRD].items()}
    rows = [
        (f"`{space}`", *(f"{value:.3f}" for value in found), third[space])
        for space, found in row["spaces"].items()
    ]
    head = ("space", *row["score"], "within 2% after a third")
    return table(head, rows)


def page(text: str) -> str:
    """The page with its tables as the result files have them."""
    found, conditional = load("search_replay"), load("search_replay_own")
    if found is not None:
        note = f"{where(found)}; `benchmarks/results/search_replay.json`."
        text = between(text, "scores", "\n".join([*scores(found), "", note]))
        text = between(text, "spaces", "\n".join(spaces(found)))
    if conditional is not None:
        note = f"{where(conditional)}; `benchmarks/results/search_replay_own.json`."
        text = between(text, "own", "\n".join([*own(conditional), "", note]))
    return text


def main() -> None:
    before = PAGE.read_text()
    after = page(before)
    if "--check" in sys.argv:
        sys.exit(before != after and f"{PAGE} differs from the results: run {Path(__file__).name}")
    PAGE.write_text(after)


if __name__ == "__main__":
    main()
