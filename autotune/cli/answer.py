"""From a command's function to what it prints: its answer on stdout, all else on stderr."""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import os
import signal
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ParamSpec, TextIO

import typer

from autotune.errors import AutotuneError
from autotune.report.blocks import Block
from autotune_tuning_db import StoreError

P = ParamSpec("P")


@dataclass(frozen=True, slots=True)
class Answer:
    """What a command has to say: blocks for people, a document for programs (`--json`)."""

    blocks: Sequence[Block] = ()
    document: Any = None
    exit_code: int = 0


def answers(command: Callable[P, Answer]) -> Callable[P, None]:
    """Makes a command of a function that returns its answer.

    While the function runs, whatever writes to stdout (a plugin, a variant) writes to stderr.
    A mistake ends with one sentence and its exit code.
    """

    @functools.wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        with _one_line_warnings(), _one_line_logs():
            try:
                with _stdout_aside():
                    answer = command(*args, **kwargs)
            except KeyboardInterrupt as stop:
                say(str(stop) or "stopped by Ctrl-C.")
                raise typer.Exit(130) from None
            except (AutotuneError, StoreError) as error:
                say(str(error))
                raise typer.Exit(getattr(error, "exit_code", 1)) from None
            except OSError as error:
                where = f" {error.filename!r}" if error.filename else ""
                say(f"cannot use{where}: {error.strerror or error}; name another place.")
                raise typer.Exit(1) from None
            with printing():
                _write(answer, as_json=bool(kwargs.get("as_json")))
        if answer.exit_code:
            raise typer.Exit(answer.exit_code)

    return run


def say(message: str) -> None:
    """One line on stderr, as far as that can be written."""
    with contextlib.suppress(OSError):
        print(f"autotune: {' '.join(message.split())}", file=sys.stderr)


def hold_streams() -> None:
    """What is printed goes nowhere where the caller closed stdout or stderr, and never fails.

    Left closed, the descriptor would go to the next file that is opened: C code that prints would
    write into the database.
    """
    while (taken := os.open(os.devnull, os.O_RDWR)) < 3:
        continue
    os.close(taken)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)
    # A letter that the terminal's encoding lacks is shown by its number.
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


@contextlib.contextmanager
def printing() -> Iterator[None]:
    """Ends the command when stdout cannot be written: quietly if it is that nobody reads on."""
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        # Python flushes once more at its end; what is left must go somewhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # as `head` does: end as a shell expects it
            raise typer.Exit(128 + signal.SIGPIPE) from None
        say(f"cannot write to stdout: {error.strerror or error}.")
        raise typer.Exit(1) from None


def _write(answer: Answer, *, as_json: bool) -> None:
    if as_json:
        from autotune.report.document import to_json

        print(to_json(answer.document))
    elif answer.blocks:
        from autotune.report.blocks import render

        render(answer.blocks, sys.stdout)


@contextlib.contextmanager
def _stdout_aside() -> Iterator[None]:
    """Sends this process's stdout to stderr: Python's, and the descriptor that C code uses."""
    stdout, stderr = sys.stdout, sys.stderr
    stdout.flush()
    saved = os.dup(1) if _descriptor(stdout) == 1 and _descriptor(stderr) == 2 else None
    sys.stdout = stderr
    if saved is not None:
        os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout = stdout
        if saved is not None:
            os.dup2(saved, 1)
            os.close(saved)


def _descriptor(stream: TextIO) -> int | None:
    try:
        return stream.fileno()
    except (AttributeError, OSError, io.UnsupportedOperation):
        return None


@contextlib.contextmanager
def _one_line_warnings() -> Iterator[None]:
    """Warnings meant for users as one line each; the developers' kinds only on request (-W)."""

    def show(message: Any, *_: Any, **__: Any) -> None:
        say(str(message))

    with warnings.catch_warnings():
        if not sys.warnoptions:
            warnings.simplefilter("ignore")
            for category in (UserWarning, RuntimeWarning):
                warnings.simplefilter("default", category)
        warnings.showwarning = show
        yield


@contextlib.contextmanager
def _one_line_logs() -> Iterator[None]:
    log, handler = logging.getLogger("autotune"), _Handler(logging.WARNING)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)


class _Handler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage())
