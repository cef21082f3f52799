"""Blocks of a report, and their rendering by rich: paragraphs, facts, tables, commands to copy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from io import StringIO
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table as RichTable

WIDTH = 80
"""Columns of a report that goes into a pipe or a file."""

_LONGEST_NAME = 32


@dataclass(frozen=True, slots=True)
class Heading:
    """A line that starts a part of the report."""

    text: str


@dataclass(frozen=True, slots=True)
class Verbatim:
    """A line to copy: never wrapped."""

    text: str


@dataclass(frozen=True, slots=True)
class Facts:
    """Names and values, aligned; a name may repeat as "" to add a line to the one above."""

    rows: tuple[tuple[str, str], ...]
    indent: int = 2


@dataclass(frozen=True, slots=True)
class Table:
    """Rows under titles; a title that starts with ">" belongs to a column of numbers."""

    titles: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    indent: int = 2


Block = str | Heading | Verbatim | Facts | Table
"""A plain string is a paragraph, wrapped between words; an empty one is an empty line."""


def render(blocks: Iterable[Block], stream: TextIO, *, width: int | None = None) -> None:
    """Write blocks to a stream; colour and the terminal's width only when it is a terminal."""
    from rich.console import Console

    if not stream.isatty():
        stream.write(to_text(blocks, width=width or WIDTH))
        return
    console = Console(file=stream, width=width, highlight=False, markup=False, emoji=False)
    for block in blocks:
        _print(console, block)


def to_text(blocks: Iterable[Block], *, width: int = WIDTH) -> str:
    """The blocks as plain text, without spaces at the ends of lines."""
    from rich.console import Console

    plain = Console(
        file=StringIO(),
        width=width,
        highlight=False,
        markup=False,
        emoji=False,
        force_terminal=False,
        no_color=True,
    )
    with plain.capture() as captured:
        for block in blocks:
            _print(plain, block)
    return "".join(line.rstrip() + "\n" for line in captured.get().splitlines())


def _print(console: Console, block: Block) -> None:
    if isinstance(block, Heading):
        console.print(block.text, style="bold", overflow="fold")
    elif isinstance(block, Verbatim):
        console.print(block.text, soft_wrap=True)
    elif isinstance(block, Facts):
        console.print(_grid(block))
    elif isinstance(block, Table):
        console.print(_table(block, console.width))
    else:
        _paragraph(console, block)


def _paragraph(console: Console, text: str) -> None:
    """Wrap between words; continuation lines keep the indentation of the first."""
    from rich.padding import Padding
    from rich.text import Text

    body = text.lstrip(" ")
    if not body:
        console.print()
        return
    padding = (0, 0, 0, len(text) - len(body))
    console.print(Padding(Text(body, overflow="fold"), padding, expand=False))


def _grid(facts: Facts) -> RichTable:
    from rich.table import Table as RichTable

    grid = RichTable.grid(padding=(0, 2, 0, 0))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in facts.rows:
        grid.add_row(" " * facts.indent + name, value)
    return grid


def _table(table: Table, width: int) -> RichTable:
    """Columns two apart where they fit, else one; numbers are folded rather than cut off."""
    from rich.table import Table as RichTable

    least = sum(_least_widths(table))
    apart = 2 if least + 2 * len(table.titles) <= width else 1
    fits = least + len(table.titles) <= width
    shown = RichTable(box=None, padding=(0, apart, 0, 0), pad_edge=False, header_style="bold")
    for index, title in enumerate(table.titles):
        indent = " " * table.indent if index == 0 else ""
        shown.add_column(
            indent + title.lstrip(">"),
            justify="right" if title.startswith(">") else "left",
            no_wrap=fits and _is_kept_whole(table, index),
            overflow="fold",
        )
    for row in table.rows:
        shown.add_row(*_indented(row, table.indent))
    return shown


def _is_kept_whole(table: Table, index: int) -> bool:
    return table.titles[index].startswith(">") or (index == 0 and _names_are_short(table))


def _least_widths(table: Table) -> list[int]:
    """What each column needs at least; those that may fold get by with their longest word."""
    widths = []
    for index, title in enumerate(table.titles):
        cells = [title.lstrip(">"), *(row[index] for row in table.rows)]
        if not _is_kept_whole(table, index):
            cells = [word[:_LONGEST_NAME] for cell in cells for word in cell.split()]
        widths.append(max(map(len, cells), default=0) + (table.indent if index == 0 else 0))
    return widths


def _names_are_short(table: Table) -> bool:
    """The first column names the row: it folds only where it is very long."""
    return all(len(row[0]) + table.indent <= _LONGEST_NAME for row in table.rows)


def _indented(row: Sequence[str], indent: int) -> tuple[str, ...]:
    return (" " * indent + row[0], *row[1:])
