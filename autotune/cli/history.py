"""`autotune history`: what was measured of an operation, version by version."""

from __future__ import annotations

from typing import Annotated

import typer

from autotune.cli.answer import Answer, answers
from autotune.cli.options import AsJson, Dtypes, Flags, NamedOperation, Plugins, Shapes
from autotune.cli.show import AnyMode

VariantNames = Annotated[
    list[str] | None,
    typer.Option(
        "--variant", metavar="NAME", help="This variant only. Repeat for more.", show_default=False
    ),
]
OneDevice = Annotated[
    str,
    typer.Option(
        "--device",
        metavar="NAME|all",
        help="A device of this machine, or an identity (default: all).",
        show_default=False,
    ),
]


@answers
def history(
    operation: NamedOperation,
    shape: Shapes = None,
    dtype: Dtypes = None,
    flags: Flags = None,
    mode: AnyMode = None,
    variant: VariantNames = None,
    device: OneDevice = "all",
    plugin: Plugins = None,
    as_json: AsJson = False,
) -> Answer:
    """Show times across versions, drivers and devices.

    A version of a variant is the fingerprint of its source, with the label that `autotune accept
    --label` gave it. Every trial counts, imported ones too; `autotune accept --against` takes the
    versions and labels that are shown here.
    """
    from autotune.cli import showing
    from autotune.cli.selection import Words, load_registry

    load_registry(plugin)
    query = showing.Query.of(operation, Words.of(shape, dtype, flags), mode=mode, device=device)
    return showing.history(query, tuple(variant or ()))
