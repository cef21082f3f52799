"""`autotune show`: what is cached, how far it can be trusted, and why it is so."""

from __future__ import annotations

from typing import Annotated

import typer

from autotune.cli.answer import Answer, answers
from autotune.cli.options import AsJson, Dtypes, Flags, Operation, Plugins, Shapes

Explain = Annotated[
    bool,
    typer.Option(
        "--explain",
        help="One problem in full: ranking, constraints, nearest entries, what to run.",
        show_default=False,
    ),
]
Why = Annotated[
    bool,
    typer.Option(
        "--why", help="What would make an entry stale, and what has changed.", show_default=False
    ),
]
Failures = Annotated[
    bool,
    typer.Option(
        "--failures",
        help="Candidates that failed, were wrong or were skipped.",
        show_default=False,
    ),
]
DeviceOrAll = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="NAME|all",
        help="A device of this machine, an identity, or all; left out: this machine's.",
        show_default=False,
    ),
]
AnyMode = Annotated[
    str | None,
    typer.Option(
        "--mode", metavar="cold|hot|graph", help="One cache mode only.", show_default=False
    ),
]


@answers
def show(
    operation: Operation = None,
    shape: Shapes = None,
    dtype: Dtypes = None,
    flags: Flags = None,
    mode: AnyMode = None,
    device: DeviceOrAll = None,
    explain: Explain = False,
    why: Why = False,
    failures: Failures = False,
    plugin: Plugins = None,
    as_json: AsJson = False,
) -> Answer:
    """Show the cached policies.

    One line for each problem: the winner, its time, its lead over the next variant, and marks
    (stale, foreign, shipped, pinned, tie); then the variants that fell out, and why.
    """
    from autotune.cli import showing
    from autotune.cli.selection import Words, load_registry

    load_registry(plugin)
    query = showing.Query.of(operation, Words.of(shape, dtype, flags), mode=mode, device=device)
    if explain:
        return showing.explained(query)
    found = showing.find(query)
    if why:
        return showing.whys(found)
    if failures:
        return showing.failures(found)
    return showing.listed(query, found)
