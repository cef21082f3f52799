"""The options that several commands share, each spelled and explained once."""

from __future__ import annotations

from typing import Annotated

import typer

Operation = Annotated[
    str | None,
    typer.Argument(metavar="[OP]", help="An operation, such as attention.", show_default=False),
]
NamedOperation = Annotated[
    str, typer.Argument(metavar="OP", help="An operation, such as attention.", show_default=False)
]
Shapes = Annotated[
    list[str] | None,
    typer.Option(
        "--shape",
        metavar="SHAPE",
        help="Sizes: B=2,H=1,N=512:4096,D=64 (a:b doubles, a:b:s adds s) or 2x1x512x64. "
        "Repeat for more.",
        show_default=False,
    ),
]
Dtypes = Annotated[
    list[str] | None,
    typer.Option(
        "--dtype",
        metavar="DTYPE",
        help="float32, float64, ... Repeat or join with commas.",
        show_default=False,
    ),
]
Flags = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="A flag of the operation: causal=true. Repeat for more.",
        show_default=False,
    ),
]
DeviceName = Annotated[
    str | None,
    typer.Option(
        "--device",
        metavar="NAME",
        help="cpu, cuda, cuda:1, a card such as h200, or an identity from `autotune devices`; "
        "left out: the best one here.",
        show_default=False,
    ),
]
Plugins = Annotated[
    list[str] | None,
    typer.Option(
        "--plugin",
        metavar="FILE",
        help="A Python file with operations or variants of your own. Repeat for more.",
        show_default=False,
    ),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="One JSON document on stdout.", show_default=False)
]
