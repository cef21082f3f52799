"""Kernel Tuner's files as recordings: results in the T4 format, and its caches.

T4 is the output format of the auto-tuning schema (github.com/odgaard/TuningSchema, results-schema
1.0.0). A cache maps "v1,v2,..." to what was measured, an error by its class's name.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from autotune.errors import UserError
from autotune.replay.recording import ALONE, Recording, axis, home_of
from autotune.search.space import Space

_UNITS = {"": 1e-3, "ms": 1e-3, "milliseconds": 1e-3, "s": 1.0, "seconds": 1.0, "us": 1e-6}
_ILLEGAL = "InvalidConfig"
_ERRORS = (_ILLEGAL, "CompilationFailedConfig", "RuntimeFailedConfig", "ErrorConfig")
_OLD_ERROR = 1e20
"""The time of a failed config in caches of old versions."""

Entry = tuple[str, Mapping[str, Any], float]
"""Where it stands, the config, and the time in seconds (NaN: it failed)."""


def read_t4(path: Path, document: Mapping[str, Any]) -> Recording:
    """Results in the T4 format; UserError says which of them is none."""
    results = document["results"]
    if not isinstance(results, list) or not all(isinstance(each, dict) for each in results):
        raise UserError(f"{path}, line 1: 'results' is no list of objects.")
    unit = str((document.get("metadata") or {}).get("timeunit", "ms"))
    return _recording(path, _t4_entries(path, results, unit), None, "")


def read_cache(path: Path, document: Mapping[str, Any]) -> Recording:
    """A cache file, complete or left open; UserError says which entry is none."""
    names = document.get("tune_params_keys")
    entries = document["cache"]
    if not isinstance(names, list) or not isinstance(entries, dict):
        raise UserError(f"{path}, line 1: 'tune_params_keys' or 'cache' is missing.")
    objective = document.get("objective", "time")
    objective = objective if isinstance(objective, str) else "time"
    values = document.get("tune_params")
    return _recording(
        path,
        _cache_entries(path, names, entries, objective),
        values if isinstance(values, dict) else None,
        str(document.get("device_name", "")),
    )


def _t4_entries(path: Path, results: Sequence[Mapping[str, Any]], unit: str) -> Iterable[Entry]:
    for number, result in enumerate(results, start=1):
        where = f"{path}, result {number}"
        config, validity = result.get("configuration"), result.get("invalidity", "correct")
        if not isinstance(config, dict):
            raise UserError(f"{where}: 'configuration' is missing.")
        if validity == "constraints":
            continue
        if validity != "correct":
            yield where, config, math.nan
            continue
        wanted = (result.get("objectives") or ["time"])[0]
        measured = next(
            (each for each in result.get("measurements", []) if each.get("name") == wanted), None
        )
        if measured is None:
            raise UserError(f"{where}: no measurement is named {wanted!r}.")
        scale = _UNITS.get(str(measured.get("unit") or unit))
        if scale is None:
            raise UserError(f"{where}: {wanted!r} in {measured.get('unit')!r} is no time.")
        yield where, config, scale * _time(measured.get("value"), where)


def _cache_entries(
    path: Path, names: Sequence[str], entries: Mapping[str, Any], objective: str
) -> Iterable[Entry]:
    for key, entry in entries.items():
        where = f"{path}, entry {key!r}"
        if not isinstance(entry, dict) or not set(names) <= set(entry):
            raise UserError(f"{where}: the value of a tunable is missing.")
        config = {name: entry[name] for name in names}
        marks = {v for n, v in entry.items() if n not in config and isinstance(v, str)}
        error = entry.get("__error__") or next((e for e in _ERRORS if e in marks), None)
        if error == _ILLEGAL:
            continue
        if error is not None or entry.get(objective) == _OLD_ERROR:
            yield where, config, math.nan
            continue
        if objective not in entry:
            raise UserError(f"{where}: {objective!r} is missing.")
        yield where, config, 1e-3 * _time(entry[objective], where)


def _time(value: Any, where: str) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0.0 < value < math.inf:
        raise UserError(f"{where}: {value!r} is no time; it is positive and finite.")
    return float(value)


def _recording(
    path: Path, entries: Iterable[Entry], values: Mapping[str, Any] | None, device: str
) -> Recording:
    """The recording of entries, each config once."""
    configs: dict[tuple[Any, ...], str] = {}
    seconds: list[float] = []
    names: tuple[str, ...] = ()
    for where, config, time in entries:
        names = names or tuple(config)
        if set(config) != set(names):
            raise UserError(f"{where}: its tunables are not {', '.join(names)}.")
        point = tuple(config[name] for name in names)
        try:
            twin = configs.setdefault(point, where)
        except TypeError:
            raise UserError(f"{where}: the value of a tunable is no number or text.") from None
        if twin is not where:
            raise UserError(f"{where}: the same config as in {twin.removeprefix(f'{path}, ')}.")
        seconds.append(time)
    if all(math.isnan(time) for time in seconds):
        raise UserError(f"{path}: no config has a time; there is nothing to search for.")
    axes = [
        axis(name, _options(name, column, values), where=str(path))
        for name, column in zip(names, zip(*configs, strict=True), strict=True)
    ]
    home = home_of(ALONE, axes, list(configs), None)
    name = path.name.removesuffix(".gz").removesuffix(".json")
    return Recording(name, Space((home,)), {ALONE: np.array(seconds)}, device)


def _options(name: str, column: Sequence[Any], values: Mapping[str, Any] | None) -> list[Any]:
    """The values of a tunable as they were declared, and what else occurs."""
    declared = (values or {}).get(name)
    return list(dict.fromkeys([*(declared if isinstance(declared, list) else []), *column]))
