"""`autotune predict`: what declarations imply, beside what was measured."""

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
        help="One variant, pass by pass (default: a line for each variant that can run here).",
        show_default=False,
    ),
]
Measure = Annotated[
    bool,
    typer.Option(
        "--measure",
        help="Measure the device's ceilings again.",
        show_default=False,
    ),
]


@answers
def predict(
    operation: NamedOperation,
    shape: Shapes = None,
    dtype: Dtypes = None,
    flags: Flags = None,
    variant: VariantName = None,
    device: DeviceName = None,
    measure: Measure = False,
    plugin: Plugins = None,
    as_json: AsJson = False,
) -> Answer:
    """Predict traffic and time of every variant.

    From the declared passes of every variant: bytes read and written, and over what no arrangement
    avoids; atomic additions, launches, flops, workspace; the roofline time on the device, and the
    measured time beside it. The device's ceilings are measured once (some seconds) and kept.
    Without a GPU, --variant of a CUDA variant gives its counts alone, for assumed limits.
    """
    from autotune.cli import predicting
    from autotune.cli.selection import (
        Words,
        find_operation,
        load_registry,
        measuring_device,
        one_problem,
    )

    load_registry(plugin)
    problem = one_problem(find_operation(operation), Words.of(shape, dtype, flags))
    machine = measuring_device(device)
    if variant and device is None and predicting.is_for_absent_gpu(problem, machine, variant):
        return predicting.count(problem, variant)
    return predicting.run(problem, machine, variant, measure=measure)
