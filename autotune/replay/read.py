"""Reading recordings: tables with an index beside them, and Kernel Tuner's T4 and cache files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotune.errors import UserError
from autotune.replay.files import read_json
from autotune.replay.kernel_tuner import read_cache, read_t4
from autotune.replay.recording import Recording
from autotune.replay.table import read_table

INDEX = "index.json"
"""What describes the tables of a folder: one entry for each recording."""


def read_recordings(path: Path, left_out: list[UserError] | None = None) -> list[Recording]:
    """The recordings of a file, or all that the index of a folder names.

    Raises UserError, with file and line, for what is no recording or contradicts itself. With
    `left_out`, what is wrong with a file in a folder goes there, and its other files are read.
    """
    if path.is_dir():
        return _read_folder(path / INDEX, left_out)
    if path.name.endswith((".csv", ".csv.gz")):
        entry = _entry(path)
        return [_of_index(path.parent / INDEX, *entry) if entry else read_table(path)]
    if path.name.endswith((".json", ".json.gz")):
        document = read_json(path)
        if "results" in document:
            return [read_t4(path, document)]
        if "cache" in document:
            return [read_cache(path, document)]
        if path.name == INDEX:
            return _read_folder(path, left_out)
        raise UserError(
            f"{path} is no recording: it has neither 'results' (T4) nor 'cache' (Kernel Tuner)."
        )
    raise UserError(f"{path} is no recording; give a folder, .csv, .csv.gz, .json or .json.gz.")


def _read_folder(path: Path, left_out: list[UserError] | None) -> list[Recording]:
    found = []
    for name, about in _read_index(path).items():
        try:
            found.append(_of_index(path, name, about))
        except UserError as error:
            if left_out is None:
                raise
            left_out.append(error)
    return found


def _read_index(path: Path) -> Mapping[str, Mapping[str, Any]]:
    if not path.is_file():
        raise UserError(f"{path.parent} has no {INDEX}; name the files in it.")
    index = read_json(path)
    for name, about in index.items():
        if not isinstance(about, dict) or not isinstance(about.get("file"), str):
            raise UserError(f"{path}: the entry {name!r} names no file.")
    return index


def _entry(table: Path) -> tuple[str, Mapping[str, Any]] | None:
    """What the index beside a table says of it."""
    if not (table.parent / INDEX).is_file():
        return None
    index = _read_index(table.parent / INDEX)
    return next(((n, about) for n, about in index.items() if about["file"] == table.name), None)


def _of_index(index: Path, name: str, about: Mapping[str, Any]) -> Recording:
    return read_table(index.parent / about["file"], name=name, about=about, index=index)
