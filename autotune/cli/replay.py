"""`autotune replay`: the search against recordings, without a device."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.answer import Answer, answers
from autotune.cli.options import AsJson

Spaces = Annotated[
    list[Path],
    typer.Argument(
        metavar="SPACE...",
        help="Recordings: a table (.csv, .csv.gz) with its index.json beside it, Kernel Tuner's T4 "
        "or cache file (.json, .json.gz), or a folder with an index.json.",
        show_default=False,
    ),
]
Method = Annotated[
    str,
    typer.Option(
        "--strategy",
        metavar="NAME",
        help="model (default), as tuning searches, or a sampler of Optuna, tpe or random, of which "
        "the nearest admissible unknown config is taken.",
        show_default=False,
    ),
]
Budget = Annotated[
    int,
    typer.Option(
        "--budget",
        metavar="N",
        min=1,
        help="Evaluations of each search (default: 200).",
        show_default=False,
    ),
]
Seeds = Annotated[
    int,
    typer.Option(
        "--seeds",
        metavar="K",
        min=1,
        help="Searches on each recording (default: 5).",
        show_default=False,
    ),
]
Elsewhere = Annotated[
    list[Path] | None,
    typer.Option(
        "--from",
        metavar="SPACE",
        help="A recording of the same kernel on another device: its three fastest configs are "
        "tried first. Repeat for more.",
        show_default=False,
    ),
]


@answers
def replay(
    spaces: Spaces,
    method: Method = "model",
    budget: Budget = 200,
    seeds: Seeds = 5,
    elsewhere: Elsewhere = None,
    as_json: AsJson = False,
) -> Answer:
    """Search spaces whose every config was recorded.

    The search that `autotune tune` uses, with recorded times in place of a device: how close it
    comes to the optimum after how many evaluations.
    """
    from autotune.cli import replaying

    return replaying.run(spaces, method, budget=budget, seeds=seeds, elsewhere=elsewhere or [])
