"""The typer application: its commands, and what `autotune` alone does."""

from __future__ import annotations

from typing import Annotated

import typer

from autotune.cli import (
    accept,
    db,
    exchange,
    history,
    pins,
    predict,
    profile,
    registry,
    replay,
    scale,
    show,
    threads,
    tune,
)

app = typer.Typer(
    name="autotune",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 80},
)


def _version(wanted: bool) -> None:
    if wanted:
        from autotune import __version__

        typer.echo(f"autotune {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def root(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option("--version", help="Print the version.", callback=_version, is_eager=True),
    ] = False,
) -> None:
    """Measures which variant of an operation is fastest here, remembers it, and serves it."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


app.command()(tune.tune)
app.command()(show.show)
app.command()(registry.variants)
app.command()(registry.devices)
app.command()(predict.predict)
app.command()(profile.profile)
app.command()(accept.accept)
app.command()(history.history)
app.command()(scale.scale)
app.command()(threads.threads)
app.command()(replay.replay)
app.command()(exchange.export)
app.command(name="import")(exchange.import_)
app.command()(pins.pin)
app.command()(pins.unpin)
app.command()(exchange.path)
app.add_typer(db.app, name="db")
