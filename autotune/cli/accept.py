"""`autotune accept`: three verdicts on each candidate, for a team's continuous integration."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.answer import Answer, answers
from autotune.cli.options import AsJson, DeviceName, Dtypes, Flags, Plugins, Shapes

Operations = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="OP", help="Operations; left out: all that are tuned.", show_default=False
    ),
]
ThresholdsFile = Annotated[
    Path | None,
    typer.Option(
        "--thresholds",
        metavar="FILE",
        help="A TOML file with limits and problems (examples/acceptance.toml).",
        show_default=False,
    ),
]
Against = Annotated[
    str | None,
    typer.Option(
        "--against",
        metavar="BASELINE",
        help="What to compare times with: a variant, a file of `autotune export`, or a version: "
        "previous, a label, or a fingerprint that `autotune history` shows.",
        show_default=False,
    ),
]
Variants = Annotated[
    list[str] | None,
    typer.Option(
        "--variant",
        metavar="NAME|all",
        help="Judge this variant, or all of them (default: what dispatch serves). Repeat for more.",
        show_default=False,
    ),
]
Mode = Annotated[
    str,
    typer.Option(
        "--mode", metavar="cold|hot|graph", help="How to time (default: cold).", show_default=False
    ),
]
Label = Annotated[
    str | None,
    typer.Option(
        "--label",
        metavar="TEXT",
        help="A name for the version that is measured, such as a tag or a commit.",
        show_default=False,
    ),
]
JunitFile = Annotated[
    Path | None,
    typer.Option(
        "--junit", metavar="FILE", help="Write the verdicts as JUnit's XML.", show_default=False
    ),
]
Force = Annotated[
    bool,
    typer.Option(
        "--force",
        help="Compare even with a baseline of another device or mode.",
        show_default=False,
    ),
]


@answers
def accept(
    operations: Operations = None,
    thresholds: ThresholdsFile = None,
    against: Against = None,
    shape: Shapes = None,
    dtype: Dtypes = None,
    flags: Flags = None,
    variant: Variants = None,
    device: DeviceName = None,
    mode: Mode = "cold",
    label: Label = None,
    junit: JunitFile = None,
    force: Force = False,
    plugin: Plugins = None,
    as_json: AsJson = False,
) -> Answer:
    """Judge candidates: are they right, frugal, fast.

    Three verdicts for each, with bits of the exit code for a failure: 8 correctness, 16 memory,
    32 performance; 64 for a question without an answer. Without --shape: the problems that the
    thresholds list, or those tuned on this device.
    """
    from autotune.cli import accepting
    from autotune.cli.selection import Words, load_registry, measuring_device

    machine = measuring_device(device)
    load_registry(plugin)
    request = accepting.Request(
        tuple(operations or ()),
        Words.of(shape, dtype, flags),
        tuple(variant or ()),
        mode=mode,
        against=against,
        force=force,
        label=label,
    )
    return accepting.run(request, machine, thresholds=thresholds, junit_file=junit)
