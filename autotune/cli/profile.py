"""`autotune profile`: hardware counters of one variant on one problem."""

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
    str | None,
    typer.Option(
        "--variant",
        metavar="NAME",
        help="A variant of the operation (default: the one that dispatch serves).",
        show_default=False,
    ),
]


@answers
def profile(
    operation: NamedOperation,
    shape: Shapes = None,
    dtype: Dtypes = None,
    flags: Flags = None,
    variant: VariantName = None,
    device: DeviceName = None,
    plugin: Plugins = None,
    as_json: AsJson = False,
) -> Answer:
    """Count traffic and atomics on a GPU, beside the prediction.

    Bytes of device memory, atomics and occupancy, launch by launch, by Nsight Compute (ncu), which
    has to be installed. The counters are kept in the tuning database.
    """
    from autotune.cli import profiling
    from autotune.cli.selection import Words, find_operation, load_registry, one_problem
    from autotune.device import find_device

    load_registry(plugin)
    machine = find_device(device)
    problem = one_problem(find_operation(operation), Words.of(shape, dtype, flags))
    return profiling.run(problem, machine, variant)
