"""Plans: lists of problems to tune, from a TOML file or as the plugins propose."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.device import Device
from autotune.errors import UnknownNameError, UserError
from autotune.model.operation import Operation
from autotune.model.problem import Problem
from autotune.registry import registry
from autotune.spelling import parse_shapes

SETTINGS: Mapping[str, tuple[type, ...]] = {
    "budget": (str, int, float),
    "mode": (str,),
    "trials": (int,),
    "seed": (int,),
}
DEFAULT_BUDGET = {"cpu": "240s", "cuda": "540s"}
"""For what the plugins propose: with installing within five minutes, on a GPU within ten."""

_OWN = ("operation", "shape", "dtype")


@dataclass(frozen=True, slots=True)
class Plan:
    """Problems to tune, and the settings of its campaign that the plan gives."""

    problems: tuple[Problem, ...]
    settings: Mapping[str, Any]


def read_plan(path: Path) -> Plan:
    """The plan in a TOML file.

    `[settings]` may have budget, mode, trials and seed; every `[[problem]]` has operation, shape
    (text as on the command line, a list of sizes, or a table), dtype (one or a list) and the
    operation's flags. Raises UserError, in one sentence naming the file, for anything else.
    """
    try:
        content = tomllib.loads(path.read_text())
    except OSError as error:
        raise UserError(f"cannot read the plan {path}: {error.strerror or error}.") from None
    except (ValueError, RecursionError) as error:  # not TOML or UTF-8, endless numbers, nests
        raise UserError(f"the plan {path} is not TOML: {error}.") from None
    try:
        return _plan(content)
    except UserError as error:
        raise UserError(f"plan {path}: {error}") from None


def default_plan(device: Device) -> Plan:
    """The problems that the plugins propose for a device; UserError when none proposes any."""
    problems = registry.proposed_problems(device)
    if not problems:
        raise UserError(
            f"no plugin proposes problems for {device.kind}; name an operation or a plan."
        )
    return Plan(problems, {"budget": DEFAULT_BUDGET[device.kind]})


def _plan(content: Mapping[str, Any]) -> Plan:
    _check_keys("plan key", content, ("settings", "problem"))
    settings, entries = content.get("settings", {}), content.get("problem", [])
    if not isinstance(settings, dict) or not isinstance(entries, list):
        raise UserError("write [settings] once and [[problem]] for each problem.")
    _check_keys("plan setting", settings, tuple(SETTINGS))
    for name, value in settings.items():
        if not isinstance(value, SETTINGS[name]) or isinstance(value, bool):
            kind = "a whole number" if SETTINGS[name] == (int,) else "a text"
            raise UserError(f"the setting {name} is {value!r}, not {kind}.")
    if not entries:
        raise UserError("it lists no problem; add a [[problem]].")
    return Plan(listed_problems(entries), settings)


def listed_problems(entries: Any) -> tuple[Problem, ...]:
    """The problems of all [[problem]] of a file; UserError names the one that cannot be read."""
    if not isinstance(entries, list):
        raise UserError("write [[problem]] for each problem.")
    problems = []
    for number, entry in enumerate(entries, 1):
        try:
            problems += _problems(entry)
        except UserError as error:
            raise UserError(f"problem {number}: {error}") from None
    return tuple(dict.fromkeys(problems))


def _problems(entry: Any) -> list[Problem]:
    if not isinstance(entry, dict) or not isinstance(entry.get("operation"), str):
        raise UserError('it names no operation; write operation = "attention".')
    operation = registry.operation(entry["operation"])
    flags = {name: value for name, value in entry.items() if name not in _OWN}
    for name in operation.scalars.keys() & flags.keys():
        raise UserError(f"{name} is an argument of the call, no part of the problem; leave it out.")
    _check_keys(f"plan key for {operation.name}", flags, (*_OWN, *operation.flags))
    for name, value in flags.items():
        if type(value) is not type(operation.flags[name]):
            raise UserError(f"flag {name} is {value!r}, not like {operation.flags[name]!r}.")
    dtypes = entry.get("dtype", operation.dtypes[0])
    dtypes = dtypes if isinstance(dtypes, list) else [dtypes]
    if not dtypes or not all(isinstance(dtype, str) for dtype in dtypes):
        raise UserError(f"dtype is {entry['dtype']!r}; write a name or a list of names.")
    return [
        Problem.of(operation, sizes, dtype, **flags)
        for sizes in _shapes(operation, entry.get("shape"))
        for dtype in dtypes
    ]


def _shapes(operation: Operation, shape: Any) -> Sequence[Mapping[str, int]]:
    if isinstance(shape, list):
        return [operation.sizes_from_shape(shape)]
    if isinstance(shape, dict):
        shape = ",".join(f"{name}={size}" for name, size in shape.items())
    if not isinstance(shape, str):
        names = ",".join(f"{dim}=..." for dim in operation.shape or operation.dims)
        raise UserError(f'it has no shape; write shape = "{names}".')
    return parse_shapes(operation, shape)


def _check_keys(kind: str, given: Mapping[str, Any], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            raise UnknownNameError(kind, name, known)
