"""Campaigns as recordings: a table for each problem, device and mode, and an index of them."""

from __future__ import annotations

import csv
import io
import json
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from autotune.campaign.evidence import seconds_of
from autotune.errors import UserError
from autotune.model.problem import Value
from autotune.registry import registry
from autotune.replay.files import read_json
from autotune.replay.read import INDEX
from autotune.replay.table import OTHERS, STATUS, TIME, VARIANT
from autotune_tuning_db import TrialRow
from autotune_tuning_db.files import write_whole

_FAILED = {"timeout": "timeout", "wrong": "correctness"}
"""How a status is called in a recording; all other failures are `runtime`."""

_SEARCH = "search"

Key = tuple[str, str, str]
"""Problem, device and mode."""


def write_recordings(rows: Iterable[TrialRow], folder: Path) -> dict[str, int]:
    """Write what the rows' searches measured into a folder; the configs in each file.

    The latest trial of a config under the latest sources of its variant counts. An index that is
    there keeps its other entries. Raises UserError where nothing was measured, or where the folder
    holds something else or cannot be written.
    """
    by_problem: dict[Key, list[TrialRow]] = {}
    for row in rows:
        if row.stage == _SEARCH:
            by_problem.setdefault((row.problem.text, row.device, row.mode), []).append(row)
    measured = {key: _latest(trials) for key, trials in by_problem.items()}
    measured = {k: v for k, v in measured.items() if any(seconds_of(row) for row in v)}
    if not measured:
        raise UserError("the store has no measured search to export; tune first.")
    index = _known(folder)
    counts = {}
    try:
        folder.mkdir(exist_ok=True)
        for key, trials in measured.items():
            name = _name(key)
            index[name] = _about(name, key, trials)
            write_whole(_table(index[name], trials), folder / index[name]["file"])
            counts[index[name]["file"]] = len(trials)
        write_whole(json.dumps(index, indent=1, allow_nan=False) + "\n", folder / INDEX)
    except OSError as error:
        raise UserError(f"cannot write {folder}: {error.strerror or error}.") from None
    return counts


def _known(folder: Path) -> dict[str, Any]:
    """The index of a folder of recordings; of a new or empty one, nothing."""
    if folder.exists() and not folder.is_dir():
        raise UserError(f"{folder} is a file; recordings go into a folder.")
    if not folder.parent.is_dir():
        raise UserError(f"the folder {folder.parent} does not exist; make it first.")
    if (folder / INDEX).is_file():
        return dict(read_json(folder / INDEX))
    if folder.is_dir() and any(folder.iterdir()):
        raise UserError(f"{folder} holds something else; name a new folder for recordings.")
    return {}


def _latest(trials: Sequence[TrialRow]) -> list[TrialRow]:
    """The last trial of every config, of the sources that each variant was last measured with.

    In the order in which the configs were first tried.
    """
    sources = {row.variant: row.fingerprint for row in trials}
    found: dict[tuple[str, tuple[tuple[str, Value], ...]], TrialRow] = {}
    for row in trials:
        if row.fingerprint == sources[row.variant]:
            found[row.variant, tuple(sorted(row.config.items()))] = row
    return list(found.values())


def _about(name: str, key: Key, trials: Sequence[TrialRow]) -> dict[str, Any]:
    """The entry of the index: what columns mean. The first trial of a variant is its default."""
    problem, device, mode = key
    variants: dict[str, list[str]] = {}
    defaults: dict[str, dict[str, Value]] = {}
    params: dict[str, list[Value]] = {}
    for row in trials:
        variants.setdefault(row.variant, list(row.config))
        defaults.setdefault(row.variant, dict(row.config))
        for tunable, value in row.config.items():
            options = params.setdefault(tunable, [])
            if value not in options:
                options.append(value)
    return {
        "file": f"{name}.csv",
        "kernel": trials[0].problem.operation,
        "problem": problem,
        "device": device,
        "mode": mode,
        "variants": variants,
        "defaults": defaults,
        "params": {tunable: _sorted(options) for tunable, options in params.items()},
        "ordered": _ordered(trials, params),
        "measured": max(row.started for row in trials),
    }


def _sorted(options: list[Value]) -> list[Value]:
    numbers = all(isinstance(each, int | float) for each in options)
    return sorted(options) if numbers else options


def _ordered(trials: Sequence[TrialRow], params: Mapping[str, Any]) -> dict[str, bool]:
    """Which tunables are ordered, as far as their variants are registered here."""
    operation = trials[0].problem.operation
    names = {row.variant for row in trials}
    registered = operation in {each.name for each in registry.operations()}
    known = registry.variants(operation) if registered else ()
    declared = {t.name: t.ordered for v in known if v.name in names for t in v.tunables}
    return {name: declared[name] for name in params if name in declared}


def _table(about: Mapping[str, Any], trials: Sequence[TrialRow]) -> str:
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([VARIANT, *about["params"], STATUS, TIME, *OTHERS])
    for row in trials:
        config = [row.config.get(name, "") for name in about["params"]]
        writer.writerow([row.variant, *config, *_measured(row)])
    return stream.getvalue()


def _measured(row: TrialRow) -> list[object]:
    """Status, and the times in milliseconds: median, spread, first sample, compiling."""
    compiling = _milliseconds(row.compile_seconds)
    seconds = seconds_of(row)
    if seconds is None:
        return [_FAILED.get(row.status, "runtime"), "", "", "", compiling]
    spread = statistics.stdev(row.samples) if len(row.samples) > 1 else None
    first = row.samples[0] if row.samples else None
    return ["ok", *map(_milliseconds, (seconds, spread, first)), compiling]


def _milliseconds(seconds: float | None) -> object:
    return "" if seconds is None else float(f"{1e3 * seconds:.9g}")


def _name(key: Key) -> str:
    """A file name that tells problem, device and mode apart."""
    problem, device, mode = (re.sub(r"[^A-Za-z0-9.=-]+", "_", part) for part in key)
    return f"{problem}__{device}__{mode}"
