"""Entry point: runs the typer application and turns every kind of ending into an exit code."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import typer

from autotune.cli.answer import hold_streams, printing, say
from autotune.cli.app import app


def run(arguments: Sequence[str] | None) -> int:
    """Parse, run, and give the exit code; see `autotune.cli.main`."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    command = typer.main.get_command(app)
    hold_streams()
    try:
        with printing():
            code = command.main(given, prog_name="autotune", standalone_mode=False)
    except typer.Exit as ending:
        return ending.exit_code
    except (KeyboardInterrupt, typer.Abort):
        say("stopped by Ctrl-C.")
        return 130
    except Exception as error:
        if not hasattr(error, "format_message"):
            raise
        say(_usage(error, command))
        return int(getattr(error, "exit_code", 2))
    return code if isinstance(code, int) else 0


def _usage(error: Any, command: Any) -> str:
    """What is wrong with the command line, the nearest spelling, and where to read more."""
    import difflib

    text = str(error.format_message())
    known = list(getattr(command, "commands", {}))
    wanted = text.split("'")[1] if text.startswith("No such command") else ""
    close = difflib.get_close_matches(wanted, known, n=1, cutoff=0.5)
    if close and "Did you mean" not in text:
        text = f"{text} Did you mean {close[0]!r}?"
    text = text if text.endswith((".", "?", ")")) else f"{text}."
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "autotune"
    return f"{text} See '{path} --help'."
