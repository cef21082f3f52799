"""The page docs/cli.md, written from the commands themselves: `python -m autotune.cli.manual`."""

from __future__ import annotations

import inspect
from typing import Any

import typer

_HEAD = """\
# The command line

This page is written by `python -m autotune.cli.manual > docs/cli.md` from what `--help` says; a
test compares the two.

What a command has to say goes to stdout, everything else (progress, warnings, mistakes) to
stderr. With `--json` stdout is one JSON document without NaN or infinity, and empty where the
command was refused or stopped.

| exit code | meaning |
|---|---|
| 0 | done |
| 1 | the tuning database, or something else that is needed, cannot be used |
| 2 | a mistake in what was asked for: one sentence on stderr names it and the remedy |
| 3 | no candidate of any problem could be measured |
| 8 to 120 | `autotune accept`: the bits of what failed or stayed open |
| 130 | stopped by Ctrl-C; what was measured is kept |
"""


def page() -> str:
    """The whole page as markdown."""
    from autotune.cli.app import app

    commands: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]
    parts = [_HEAD]
    for name, command in commands.items():
        inner = getattr(command, "commands", {})
        parts += [_section(f"{name} {each}", inner[each]) for each in inner]
        parts += [] if inner else [_section(name, command)]
    return "\n".join(parts)


def _section(name: str, command: Any) -> str:
    arguments = [each for each in command.params if each.param_type_name == "argument"]
    options = [each for each in command.params if each.param_type_name == "option"]
    options = [option for option in options if option.name != "help"]
    usage = " ".join(["autotune", name, *(each.metavar for each in arguments), "[OPTIONS]"])
    rows = [(f"`{each.metavar.strip('[]')}`", each.help) for each in arguments]
    rows += [(f"`{_cell(_spelling(option))}`", option.help) for option in options]
    table = [f"| {spelling} | {_cell(text)} |" for spelling, text in rows]
    head = ["", "| | |", "|---|---|"] if table else []
    text = inspect.cleandoc(command.help or "")
    return "\n".join([f"## {usage}", "", text, *head, *table, ""])


def _spelling(option: Any) -> str:
    metavar = f" {option.metavar}" if option.metavar else ""
    return f"{', '.join(option.opts)}{metavar}"


def _cell(text: str) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


if __name__ == "__main__":
    print(page(), end="")
