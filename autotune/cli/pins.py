"""`autotune pin` and `unpin`: the user's own choice over any measurement."""

from __future__ import annotations

from typing import Annotated

import typer

from autotune.cli.answer import Answer, answers
from autotune.cli.options import (
    AsJson,
    DeviceName,
    Dtypes,
    Flags,
    NamedOperation,
    Plugins,
    Shapes,
)

VariantName = Annotated[
    str, typer.Argument(metavar="VARIANT", help="One of its variants.", show_default=False)
]
ConfigValues = Annotated[
    list[str] | None,
    typer.Option(
        "--config",
        metavar="NAME=VALUE",
        help="A tunable; those left out take their default. Without any, the best config "
        "measured. Repeat for more.",
        show_default=False,
    ),
]


@answers
def pin(
    operation: NamedOperation,
    variant: VariantName,
    shape: Shapes = None,
    dtype: Dtypes = None,
    flags: Flags = None,
    config: ConfigValues = None,
    device: DeviceName = None,
    plugin: Plugins = None,
    as_json: AsJson = False,
) -> Answer:
    """Always serve one variant.

    For one problem with --shape, else for every problem of the operation, on this device.
    """
    from autotune import pins
    from autotune.cli.selection import Words, find_operation, load_registry, scope
    from autotune.device import find_device
    from autotune.spelling import parse_settings

    load_registry(plugin)
    target = find_operation(operation)
    problem = scope(target, Words.of(shape, dtype, flags))
    given = parse_settings(tuple(config or ()), what="config") if config else None
    row = pins.pin(target, variant, find_device(device), problem=problem, given=given)
    return Answer([f"pinned {pins.describe(row)}.", pins.undo(row)], row)


@answers
def unpin(
    operation: NamedOperation,
    shape: Shapes = None,
    dtype: Dtypes = None,
    flags: Flags = None,
    device: DeviceName = None,
    plugin: Plugins = None,
    as_json: AsJson = False,
) -> Answer:
    """Take a pin back.

    OP, --shape, --dtype and --set as the pin was made with.
    """
    from autotune import pins
    from autotune.cli.selection import Words, find_operation, load_registry, scope
    from autotune.device import find_device

    load_registry(plugin)
    target = find_operation(operation)
    row = pins.unpin(
        target, find_device(device), problem=scope(target, Words.of(shape, dtype, flags))
    )
    return Answer([f"took back the pin of {pins.describe(row)}."], row)
