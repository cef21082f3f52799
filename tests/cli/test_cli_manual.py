"""docs/cli.md says what the commands say."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer
from command_line import Run

from autotune.cli.app import app
from autotune.cli.manual import page

PAGE = Path(__file__).resolve().parents[2] / "docs" / "cli.md"
COMMANDS: dict[str, Any] = typer.main.get_command(app).commands  # type: ignore[attr-defined]


def test_the_page_is_what_the_commands_say() -> None:
    assert PAGE.read_text() == page(), "run: python -m autotune.cli.manual > docs/cli.md"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_has_help(run: Run, name: str) -> None:
    command = COMMANDS[name]
    assert len(command.help.splitlines()[0]) > 12
    for parameter in command.params:
        assert parameter.help, f"{name} {parameter.name}"
    shown = run(name, "--help")
    assert shown.code == 0
    assert " ".join(command.help.split()) in shown.flat
    assert f"## autotune {name}" in PAGE.read_text()


def test_the_overview_cuts_no_sentence(run: Run) -> None:
    assert "..." not in run("--help").out.replace("[ARGS]...", "")
