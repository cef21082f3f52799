"""Recordings as tables: a line for each config, and what an index says about the columns."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from autotune.errors import DeclarationError, UserError
from autotune.model.problem import Value
from autotune.replay.files import read_text
from autotune.replay.recording import ALONE, Recording, axis, home_of, timed
from autotune.search.constraints import constraint
from autotune.search.legal import Rules, legal_points
from autotune.search.space import Axis, Space, VariantSpace

STATUS, TIME = "status", "time_ms"
OTHERS = ("std_ms", "first_ms", "compile_ms")
VARIANT = "variant"
FAILED = ("compile", "runtime", "timeout", "correctness")
_COUNTED = 2_000_000
"""Products up to which the configs that are missing are counted."""


@dataclass(frozen=True)
class _Line:
    number: int
    cells: Mapping[str, str]


@dataclass(frozen=True)
class _Table:
    """The lines of a file, and the columns that are tunables."""

    path: Path
    lines: Sequence[_Line]
    tunables: tuple[str, ...]

    def at(self, line: _Line) -> str:
        return f"{self.path}, line {line.number}"


def read_table(
    path: Path,
    *,
    name: str | None = None,
    about: Mapping[str, Any] | None = None,
    index: Path | None = None,
) -> Recording:
    """A table and what `about`, its entry in `index`, says; without one, values are as they come.

    Raises UserError with file and line for columns that are missing, lines that are there twice,
    times that are no times, values and configs that the entry excludes.
    """
    facts = about or {}
    table = _read(path, conditional="variants" in facts)
    where = f"{index}, {name!r}" if about else str(path)
    values = _values(table, facts, where)
    homes, seconds = [], {}
    for variant, lines, tunables in _by_variant(table, facts, where):
        axes = [_axis(n, values[n], facts, where) for n in tunables if n in table.tunables]
        home = _home(table, variant, lines, axes, facts)
        homes.append(home)
        seconds[variant] = np.array([_seconds(table, line) for line in lines])
    if not any(timed(times) for times in seconds.values()):
        raise UserError(f"{path}, line 2: no config has a time; there is nothing to search for.")
    missing = 0 if "variants" in facts else _checked(table, homes[0], values, facts, where)
    return Recording(
        name or path.name.split(".")[0],
        Space(tuple(homes)),
        seconds,
        str(facts.get("device", "")),
        missing,
    )


def _read(path: Path, *, conditional: bool) -> _Table:
    text = read_text(path)
    reader = csv.reader(text.splitlines())
    try:
        header = next(reader, [])
        needed = [STATUS, TIME, *([VARIANT] if conditional else [])]
        for column in needed:
            if column not in header:
                raise UserError(f"{path}, line 1: the column {column!r} is missing.")
        twice = next((name for name in header if header.count(name) > 1), None)
        if twice is not None:
            raise UserError(f"{path}, line 1: two columns are named {twice!r}.")
        lines = []
        for cells in reader:
            if len(cells) != len(header):
                count = f"{len(cells)} cells under {len(header)} columns"
                raise UserError(f"{path}, line {reader.line_num}: {count}.")
            lines.append(_Line(reader.line_num, dict(zip(header, cells, strict=True))))
    except csv.Error as error:
        raise UserError(f"{path}, line {reader.line_num}: {error}.") from None
    if not lines:
        raise UserError(f"{path}, line 1: no config follows the columns.")
    tunables = tuple(name for name in header if name not in (*needed, *OTHERS))
    return _Table(path, lines, tunables)


def _values(table: _Table, about: Mapping[str, Any], where: str) -> dict[str, list[Value]]:
    """The values of every tunable: those of the index, or those that occur."""
    if "params" not in about:
        columns = {n: [line.cells[n] for line in table.lines] for n in table.tunables}
        return {name: list(dict.fromkeys(_parsed(texts))) for name, texts in columns.items()}
    params = about["params"]
    if not isinstance(params, dict) or not all(isinstance(v, list) for v in params.values()):
        raise UserError(f"{where}: 'params' is no mapping of names to lists of values.")
    for name in table.tunables:
        if name not in params:
            raise UserError(f"{table.path}, line 1: the column {name!r} is not among the params.")
    for name, options in params.items():
        if name not in table.tunables and len(options) != 1:
            raise UserError(f"{table.path}, line 1: the column {name!r} is missing.")
    return dict(params)


def _parsed(texts: Sequence[str]) -> list[Value]:
    """Texts as numbers where all of them are."""
    for kind in (int, float):
        try:
            return [kind(text) for text in texts]
        except ValueError:
            continue
    return list(texts)


def _axis(name: str, values: Sequence[Value], about: Mapping[str, Any], where: str) -> Axis:
    ordered = about.get("ordered")
    return axis(name, values, where=where, ordered=ordered.get(name) if ordered else None)


def _by_variant(
    table: _Table, about: Mapping[str, Any], where: str
) -> list[tuple[str, list[_Line], Sequence[str]]]:
    """The lines of each variant and the names of its tunables."""
    variants = about.get("variants")
    if variants is None:
        return [(ALONE, list(table.lines), table.tunables)]
    found: dict[str, list[_Line]] = {}
    for line in table.lines:
        if line.cells[VARIANT] not in variants:
            raise UserError(f"{table.at(line)}: no variant {line.cells[VARIANT]!r} in {where}.")
        found.setdefault(line.cells[VARIANT], []).append(line)
    for name, tunables in variants.items():
        unknown = set(tunables) - set(table.tunables)
        if unknown:
            raise UserError(f"{where}: {name} has no column for {', '.join(sorted(unknown))}.")
    return [(name, lines, variants[name]) for name, lines in found.items()]


def _home(
    table: _Table,
    variant: str,
    lines: Sequence[_Line],
    axes: Sequence[Axis],
    about: Mapping[str, Any],
) -> VariantSpace:
    spelled = [{_spelling(value): value for value in each.values} for each in axes]
    configs: dict[tuple[Value, ...], _Line] = {}
    for line in lines:
        config = []
        for each, known in zip(axes, spelled, strict=True):
            text = line.cells[each.name]
            value = known.get(text, known.get(_spelling(_parsed([text])[0])))
            if value is None:
                raise UserError(f"{table.at(line)}: {each.name} has no value {text!r}.")
            config.append(value)
        twin = configs.setdefault(tuple(config), line)
        if twin is not line:
            raise UserError(f"{table.at(line)}: the same config as in line {twin.number}.")
    default = about.get("defaults", {}).get(variant)
    listed = list(configs)
    wanted = tuple(default.get(each.name) for each in axes) if default else None
    start = listed.index(wanted) if wanted in configs else None
    return home_of(variant, axes, listed, start)


def _spelling(value: Value) -> str:
    """A value as a table has it; numbers as floats, so that 8 and 8.0 are one."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return str(value)
    return str(float(value))


def _seconds(table: _Table, line: _Line) -> float:
    """The time of a line in seconds, NaN where it failed."""
    status, text = line.cells[STATUS], line.cells[TIME]
    if status in FAILED:
        return math.nan
    if status != "ok":
        raise UserError(
            f"{table.at(line)}: status {status!r}; write ok, or of what it failed: "
            f"{', '.join(FAILED)}."
        )
    try:
        time = float(text)
    except ValueError:
        raise UserError(f"{table.at(line)}: {text!r} is no time in milliseconds.") from None
    if not 0.0 < time < math.inf:
        raise UserError(f"{table.at(line)}: {text} ms is no time; it is positive and finite.")
    return time / 1e3


def _checked(
    table: _Table,
    home: VariantSpace,
    values: Mapping[str, Sequence[Value]],
    about: Mapping[str, Any],
    where: str,
) -> int:
    """How many admissible configs are missing; UserError for a line that breaks a constraint."""
    texts = about.get("constraints", [])
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise UserError(f"{where}: 'constraints' is no list of expressions.")
    constants = {n: v[0] for n, v in values.items() if n not in table.tunables}
    options = {each.name: each.values for each in home.axes}
    try:
        conditions = [constraint(text) for text in texts]
        for each in conditions:
            unknown = each.names - values.keys()
            if unknown:
                raise DeclarationError(
                    f"the constraint {each.text!r} names {sorted(unknown)[0]!r}, which is no param."
                )
        rules = Rules(options, conditions, constants)
        for row, text in rules.broken(home.points):
            raise UserError(f"{table.at(table.lines[row])}: breaks the constraint {text!r}.")
        if math.prod(rules.sizes) > _COUNTED:
            return 0
        legal, _ = legal_points(rules, _COUNTED)
    except DeclarationError as error:
        raise UserError(f"{where}: {error}") from None
    return len(legal) - len(home) if "constraints" in about else 0
