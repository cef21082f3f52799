"""`autotune scale`: how the time of each variant grows with a size."""

from __future__ import annotations

from typing import Annotated

import typer

from autotune.cli.answer import Answer, answers
from autotune.cli.options import AsJson, DeviceName, Flags, NamedOperation, Plugins

Vary = Annotated[
    str,
    typer.Option(
        "--vary",
        metavar="DIM=A:B",
        help="The dim to vary: N=64:8192 doubles, N=64:512:64 adds.",
        show_default=False,
    ),
]
OtherSizes = Annotated[
    str | None,
    typer.Option(
        "--shape", metavar="SHAPE", help="The other dims: B=2,H=1,D=64.", show_default=False
    ),
]
Dtype = Annotated[
    str | None,
    typer.Option(
        "--dtype",
        metavar="DTYPE",
        help="float32, float64, ... (default: the operation's first).",
        show_default=False,
    ),
]
VariantNames = Annotated[
    list[str] | None,
    typer.Option(
        "--variant",
        metavar="NAME",
        help="This variant only. Repeat for more.",
        show_default=False,
    ),
]
Mode = Annotated[
    str,
    typer.Option(
        "--mode", metavar="cold|hot|graph", help="How to time (default: cold).", show_default=False
    ),
]
Budget = Annotated[
    str,
    typer.Option(
        "--budget",
        metavar="TIME",
        help="About how long measuring takes in all, with inputs and checks (default: 60s); "
        "compiling comes on top.",
        show_default=False,
    ),
]


@answers
def scale(
    operation: NamedOperation,
    vary: Vary,
    shape: OtherSizes = None,
    dtype: Dtype = None,
    flags: Flags = None,
    variant: VariantNames = None,
    device: DeviceName = None,
    mode: Mode = "cold",
    budget: Budget = "60s",
    plugin: Plugins = None,
    as_json: AsJson = False,
) -> Answer:
    """Measure how time grows with a size.

    All sizes in one process, each variant with its fastest known config or its default. The local
    exponent between neighbouring sizes stands beside that of the predicted bytes and flops, and
    jumps beyond both are named. First calls and compiling are shown apart. What needs more memory
    than is left is skipped, and no further size is begun once the budget is used up.
    """
    from autotune.cli import sweeping
    from autotune.cli.selection import load_registry, measuring_device

    machine = measuring_device(device)
    load_registry(plugin)
    how = sweeping.How(machine, mode, budget, tuple(variant or ()))
    return sweeping.scale(how, operation, vary, shape, dtype, tuple(flags or ()))
