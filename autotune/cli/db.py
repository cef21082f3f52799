"""`autotune db`: the tuning database as a file: is it sound, copy it, repair it, tidy it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from autotune.cli.answer import Answer, answers
from autotune.cli.options import AsJson

app = typer.Typer(rich_markup_mode=None)


@app.callback(invoke_without_command=True)
def root(context: typer.Context) -> None:
    """Look after the tuning database: check, backup, repair, gc, path."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


Copy = Annotated[
    Path | None,
    typer.Argument(
        metavar="[FILE]",
        help="The copy to write; left out: beside the database, with date and time in its name.",
        show_default=False,
    ),
]
Damaged = Annotated[
    Path | None,
    typer.Argument(
        metavar="[FILE]",
        help="A damaged database that was set aside, to bring its rows back into the present one.",
        show_default=False,
    ),
]
Older = Annotated[
    int | None,
    typer.Option(
        "--older",
        metavar="DAYS",
        min=0,
        max=36500,
        help="Also remove, if older than so many days, superseded policies, and trials of sources "
        "that no policy in force rests on.",
        show_default=False,
    ),
]
Copies = Annotated[
    bool,
    typer.Option(
        "--copies",
        help="Also remove damaged databases that were set aside, and backups.",
        show_default=False,
    ),
]
Dry = Annotated[
    bool,
    typer.Option("--dry-run", help="Only say what would be removed.", show_default=False),
]


@app.command()
@answers
def check(as_json: AsJson = False) -> Answer:
    """Say whether the database is sound.

    Reads all of it and changes nothing. Exit code 1 when something is wrong.
    """
    from autotune.report.upkeep import check_blocks, check_document
    from autotune.store import database_file
    from autotune_tuning_db import check_store

    found = check_store(database_file())
    return Answer(check_blocks(found), check_document(found), 0 if found.sound else 1)


@app.command()
@answers
def backup(file: Copy = None, as_json: AsJson = False) -> Answer:
    """Copy the database while others go on using it.

    No file is ever replaced.
    """
    from autotune.store import back_up

    written = back_up(file)
    return Answer([f"wrote {written}."], {"file": written, "bytes": written.stat().st_size})


@app.command()
@answers
def repair(file: Damaged = None, as_json: AsJson = False) -> Answer:
    """Save what can be read of a damaged database.

    A sound one is left as it is. A damaged one is kept beside its successor. With FILE, one that
    was set aside, its rows are added to the present database; nothing newer there is replaced.
    """
    from autotune.errors import UserError
    from autotune.report.upkeep import repair_blocks
    from autotune.settings import settings
    from autotune.store import database_file
    from autotune_tuning_db import repair_store

    if file is not None and not file.is_file():
        raise UserError(f"{file} is no file; name a database that was set aside.")
    done = repair_store(settings().database if file else database_file(), file)
    return Answer(repair_blocks(done), done)


@app.command()
@answers
def gc(
    older: Older = None, copies: Copies = False, dry_run: Dry = False, as_json: AsJson = False
) -> Answer:
    """Remove what nobody needs and give the space back.

    What killed processes left half built, and free pages; more on request. What dispatch serves
    and what the next tune goes on from stays.
    """
    from datetime import timedelta

    from autotune.report.upkeep import gc_blocks
    from autotune.store import database_file, open_tuning_db

    database_file()  # one that does not exist is not made for this
    age = timedelta(days=older) if older is not None else None
    with open_tuning_db() as store:
        done = store.collect(older=age, copies=copies, dry=dry_run)
    return Answer(gc_blocks(done, dry=dry_run), done)


@app.command()
@answers
def path(as_json: AsJson = False) -> Answer:
    """Print where the database is.

    One line, whether or not it exists yet.
    """
    from autotune.report.blocks import Verbatim
    from autotune.settings import settings

    file = settings().database
    return Answer([Verbatim(str(file))], {"database": file, "exists": file.exists()})
