"""`autotune threads`: what thread counts and placements of a CPU cost."""

from __future__ import annotations

from typing import Annotated

import typer

from autotune.cli.answer import Answer, answers
from autotune.cli.options import AsJson, Dtypes, Flags, NamedOperation, Plugins, Shapes
from autotune.cli.scale import Budget, Mode

VariantName = Annotated[
    str | None,
    typer.Option(
        "--variant",
        metavar="NAME",
        help="A variant with a tunable `threads` (default: the one that dispatch serves or, if its "
        "threads cannot vary, the fastest whose can).",
        show_default=False,
    ),
]


@answers
def threads(
    operation: NamedOperation,
    shape: Shapes = None,
    dtype: Dtypes = None,
    flags: Flags = None,
    variant: VariantName = None,
    mode: Mode = "cold",
    budget: Budget = "60s",
    plugin: Plugins = None,
    as_json: AsJson = False,
) -> Answer:
    """Measure thread counts and placements of this CPU.

    Every count with every placement, the rest of the config as it is known best: the time of each,
    the best, and how many times longer all threads take.
    """
    from autotune.cli import sweeping
    from autotune.cli.selection import Words, find_operation, load_registry, one_problem
    from autotune.device import find_device

    load_registry(plugin)
    problem = one_problem(find_operation(operation), Words.of(shape, dtype, flags))
    how = sweeping.How(find_device("cpu"), mode, budget, (variant,) if variant else ())
    return sweeping.threads(how, problem)
