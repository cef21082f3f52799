"""Plans: which problems to tune, from a TOML file or from what the plugins propose."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.campaign.budget import parse_budget
from autotune.device import Device
from autotune.errors import ShapeError, UnknownNameError, UserError
from autotune.model.operation import Operation
from autotune.model.problem import Problem
from autotune.registry import registry
from autotune.spelling import parse_shapes
from autotune.worker.protocol import Mode

DEFAULT_BUDGET = 240.0
"""Seconds for the problems that the plugins propose: `make tune` ends within five minutes."""

_SECTIONS = ("settings", "problem")
_SETTINGS = ("budget", "mode", "trials", "seed")
_PROBLEM = ("operation", "shape", "dims", "dtype")


@dataclass(frozen=True, slots=True)
class Plan:
    """Problems to tune in order, and the settings that the plan fixes (None: it does not)."""

    problems: tuple[Problem, ...]
    budget: float | None = None
    mode: Mode | None = None
    trials: int | None = None
    seed: int | None = None


def default_plan(device: Device) -> Plan:
    """What the plugins propose for a device; UserError when none proposes anything."""
    problems = registry.proposed_problems(device)
    if not problems:
        raise UserError(
            f"no plugin proposes problems for {device.kind}; name an operation and a shape, or "
            "give a plan."
        )
    return Plan(problems, budget=DEFAULT_BUDGET)


def load_plan(path: str | Path) -> Plan:
    """Read a plan file; UserError in one sentence for whatever is wrong with it."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise UserError(f"cannot read the plan {str(path)!r}: {why}.") from None
    return parse_plan(text, str(path))


def parse_plan(text: str, name: str = "the plan") -> Plan:
    """A plan from TOML.

    Each `[[problem]]` has `operation`, `shape` (a text such as "B=2,H=1,N=512:4096,D=64", or
    several) or a table `dims` (sizes, ranges, or lists of them), `dtype` (one or a list), and the
    operation's flags. `[settings]` has `budget`, `mode`, `trials` and `seed`.

    Raises:
        UserError: not TOML, an unknown key, a value of the wrong kind, or no problem.
        ShapeError: sizes that do not fit the operation.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{name} is not TOML: {error}.") from None
    _check_keys("plan section", document, _SECTIONS)
    settings = _settings(document.get("settings", {}), name)
    entries = document.get("problem", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise UserError(f"{name}: write every problem under [[problem]], with double brackets.")
    problems = [problem for entry in entries for problem in _problems(entry)]
    if not problems:
        raise UserError(f"{name} has no [[problem]].")
    return Plan(tuple(dict.fromkeys(problems)), **settings)


def _settings(table: Any, name: str) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise UserError(f"{name}: write the settings under [settings].")
    _check_keys("plan setting", table, _SETTINGS)
    found: dict[str, Any] = dict(table)
    if "budget" in found:
        if isinstance(found["budget"], bool) or not isinstance(found["budget"], str | int | float):
            raise UserError(f"{name}: cannot read the budget {found['budget']!r}; write '60s'.")
        found["budget"] = parse_budget(found["budget"])
    if found.get("mode", "cold") not in ("cold", "hot"):
        raise UnknownNameError("mode", str(found["mode"]), ("cold", "hot"))
    for key, least in (("trials", 1), ("seed", 0)):
        value = found.get(key, least)
        if isinstance(value, bool) or not isinstance(value, int) or value < least:
            raise UserError(f"{name}: {key} must be a whole number from {least} on, got {value!r}.")
    return found


def _problems(entry: Mapping[str, Any]) -> Iterator[Problem]:
    """Every problem that one table stands for."""
    if "operation" not in entry:
        raise UserError("a [[problem]] of the plan lacks its operation.")
    operation = registry.operation(str(entry["operation"]))
    known = (*_PROBLEM, *operation.flags)
    _check_keys(f"plan key for {operation.name}", entry, known)
    flags = {key: _flag(operation, key, entry[key]) for key in entry if key in operation.flags}
    dtypes = _several(entry.get("dtype", operation.dtypes[0]))
    for sizes, dtype in itertools.product(_sizes(operation, entry), dtypes):
        yield Problem.of(operation, sizes, dtype, **flags)


def _sizes(operation: Operation, entry: Mapping[str, Any]) -> list[dict[str, int]]:
    if ("shape" in entry) == ("dims" in entry):
        if operation.dims or "shape" in entry:
            raise ShapeError(f"a [[problem]] for {operation.name} takes either shape or dims.")
        return [{}]
    if "shape" in entry:
        texts = _several(entry["shape"])
        if texts and all(isinstance(each, int) for each in texts):
            return [operation.sizes_from_shape(texts)]
        return [sizes for text in texts for sizes in parse_shapes(operation, str(text))]
    dims = entry["dims"]
    if not isinstance(dims, dict):
        raise ShapeError(f"dims of {operation.name} is a table: dims = {{B = 2, N = '512:4096'}}.")
    options = [[(name, each) for each in _several(value)] for name, value in dims.items()]
    products = itertools.product(*options)
    texts = [",".join(f"{name}={value}" for name, value in each) for each in products]
    return [sizes for text in texts for sizes in parse_shapes(operation, text)]


def _several(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _flag(operation: Operation, key: str, value: Any) -> Any:
    default = operation.flags[key]
    if isinstance(default, bool) != isinstance(value, bool):
        kind = "true or false" if isinstance(default, bool) else type(default).__name__
        raise UserError(f"flag {key} of {operation.name} takes {kind}, not {value!r}.")
    return value


def _check_keys(kind: str, table: Mapping[str, Any], known: Sequence[str]) -> None:
    for key in table:
        if key not in known:
            raise UnknownNameError(kind, key, known)
