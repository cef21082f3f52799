"""`autotune tune`: measure, with progress on stderr, and say who won."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.answer import Answer, answers
from autotune.cli.options import AsJson, DeviceName, Dtypes, Flags, Operation, Plugins, Shapes

Budget = Annotated[
    str | None,
    typer.Option(
        "--budget",
        metavar="TIME",
        help="The most time for all problems together: 60s, 5m (default: 60s, or the plan's). "
        "The default of every variant is measured even if it takes longer.",
        show_default=False,
    ),
]
Mode = Annotated[
    str | None,
    typer.Option(
        "--mode",
        metavar="cold|hot|graph",
        help="cold (default): caches evicted before every sample; hot: data already in cache; "
        "graph: replays of a CUDA graph, cold.",
        show_default=False,
    ),
]
PlanFile = Annotated[
    Path | None,
    typer.Option(
        "--plan", metavar="FILE", help="A TOML file that lists problems.", show_default=False
    ),
]
Trials = Annotated[
    int | None,
    typer.Option(
        "--trials",
        metavar="N",
        help="The most candidates to measure for each problem; the default of every variant is "
        "measured in any case.",
        show_default=False,
    ),
]
Seed = Annotated[
    int | None,
    typer.Option(
        "--seed",
        metavar="N",
        help="Of the search and the random inputs (default: 0).",
        show_default=False,
    ),
]


@answers
def tune(
    operation: Operation = None,
    device: DeviceName = None,
    shape: Shapes = None,
    dtype: Dtypes = None,
    flags: Flags = None,
    budget: Budget = None,
    mode: Mode = None,
    plan: PlanFile = None,
    trials: Trials = None,
    seed: Seed = None,
    plugin: Plugins = None,
    as_json: AsJson = False,
) -> Answer:
    """Measure variants and keep the fastest.

    Without OP and --plan: a few sizes of attention, attention_train and decode, about four
    minutes. What was measured before is not measured again, so that the same command goes on after
    an interruption.
    """
    from autotune.cli import tuning
    from autotune.cli.selection import Words, load_registry, measuring_device

    machine = measuring_device(device)
    load_registry(plugin)
    given = {"budget": budget, "mode": mode, "trials": trials, "seed": seed}
    chosen = tuning.planned(machine, operation, Words.of(shape, dtype, flags), plan=plan)
    return tuning.run(machine, chosen, {k: v for k, v in given.items() if v is not None})
