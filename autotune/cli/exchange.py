"""`autotune export`, `import` and `path`: where results live, and carrying them elsewhere."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.answer import Answer, answers
from autotune.cli.options import AsJson, Operation

Target = Annotated[
    Path, typer.Argument(metavar="FILE", help="The JSON file to write.", show_default=False)
]
Source = Annotated[
    Path,
    typer.Argument(metavar="FILE", help="What `autotune export` wrote.", show_default=False),
]

Recording = Annotated[
    bool,
    typer.Option(
        "--recording",
        help="FILE is a folder: a table of what was searched for each problem, device and mode, "
        "for `autotune replay`.",
    ),
]
Shipped = Annotated[
    bool,
    typer.Option(
        "--shipped",
        help="The policies alone, as a file for the package to ship "
        "(policies/autotune_policies/data).",
    ),
]


@answers
def export(
    file: Target,
    operation: Operation = None,
    shipped: Shipped = False,
    recording: Recording = False,
    as_json: AsJson = False,
) -> Answer:
    """Write what was measured to a JSON file.

    Everything, or what belongs to OP. An existing file is replaced only if it is an export.
    """
    from autotune.errors import UserError
    from autotune.exchange import export_file, export_recordings, export_shipped
    from autotune.report.exchange import export_blocks, recording_blocks, shipped_blocks

    if shipped and recording:
        raise UserError("export takes either --shipped or --recording.")
    if recording:
        counts = export_recordings(file, operation)
        return Answer(recording_blocks(file, counts), {"folder": file, "configs": counts})
    counts = (export_shipped if shipped else export_file)(file, operation)
    blocks = (shipped_blocks if shipped else export_blocks)(file, counts)
    return Answer(blocks, {"file": file, "rows": counts})


@answers
def import_(file: Source, as_json: AsJson = False) -> Answer:
    """Add what another machine exported.

    Nothing newer here is replaced. Policies of other devices are kept and shown as foreign; they
    serve only those devices. Importing a file again adds nothing.
    """
    from autotune.exchange import import_file
    from autotune.report.exchange import import_blocks

    report = import_file(file)
    return Answer(import_blocks(file, report), report)


@answers
def path(as_json: AsJson = False) -> Answer:
    """Say where data lives, and what moves it."""
    from autotune.report.exchange import places_blocks, places_document
    from autotune.settings import settings

    document = places_document(settings())
    return Answer(places_blocks(document), document)
