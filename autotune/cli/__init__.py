"""The command line: `autotune --help`."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line on `arguments` (default: the process's own); the exit code."""
    from autotune.cli.entry import run

    return run(arguments)
