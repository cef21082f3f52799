"""The thresholds of an acceptance test, from a TOML file."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from autotune.errors import UnknownNameError, UserError
from autotune.model import Problem
from autotune.plan import listed_problems
from autotune.registry import registry


@dataclass(frozen=True, slots=True)
class Limits:
    """What a candidate is held to.

    `edge_shapes` and `gain` (a factor of the inputs; None: as large as the dtype bears) belong to
    correctness; a gain of 1 leaves large magnitudes out. `over_compulsory` bounds predicted over
    compulsory bytes and `over_predicted` counted over predicted bytes; None: not asked.
    `slowdown` is how much slower than the baseline still passes (0.05: 5%), `seconds` the most
    time to spend on one comparison.
    """

    edge_shapes: bool = True
    gain: float | None = None
    over_compulsory: float | None = None
    over_predicted: float | None = None
    slowdown: float = 0.05
    seconds: float = 20.0


KEYS: Mapping[str, tuple[str, ...]] = {
    "correctness": ("edge_shapes", "gain"),
    "memory": ("over_compulsory", "over_predicted"),
    "performance": ("slowdown", "seconds"),
}


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Limits for all operations, those of single ones, and the problems that the file lists."""

    common: Limits = Limits()
    operations: Mapping[str, Limits] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()

    def of(self, operation: str) -> Limits:
        """The limits of an operation."""
        return self.operations.get(operation, self.common)


def read_thresholds(path: Path) -> Thresholds:
    """The thresholds in a TOML file.

    `[correctness]`, `[memory]` and `[performance]` hold for all operations,
    `[operations.NAME.memory]` and so on for one; `[[problem]]` lists problems as a plan does.
    Raises UserError, in one sentence naming the file, for anything else.
    """
    try:
        content = tomllib.loads(path.read_text())
    except OSError as error:
        raise UserError(f"cannot read the thresholds {path}: {error.strerror or error}.") from None
    except ValueError as error:
        raise UserError(f"the thresholds {path} are not TOML: {error}.") from None
    try:
        return _thresholds(content)
    except UserError as error:
        raise UserError(f"thresholds {path}: {error}") from None


def _thresholds(content: Mapping[str, Any]) -> Thresholds:
    _check_keys("thresholds key", content, (*KEYS, "operations", "problem"))
    common = _limits(Limits(), {k: v for k, v in content.items() if k in KEYS})
    sections = _table("operations", content.get("operations", {}))
    operations = {}
    for name, section in sections.items():
        registry.operation(name)
        section = _table(f"operations.{name}", section)
        _check_keys(f"thresholds key of {name}", section, tuple(KEYS))
        operations[name] = _limits(common, section)
    return Thresholds(common, operations, listed_problems(content.get("problem", [])))


def _limits(limits: Limits, sections: Mapping[str, Any]) -> Limits:
    for name, section in sections.items():
        _check_keys(f"threshold of {name}", _table(name, section), KEYS[name])
        limits = replace(limits, **{key: _value(key, value) for key, value in section.items()})
    return limits


def _table(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise UserError(f"{name} is {value!r}, not a table; write [{name}].")
    return value


def _value(key: str, value: Any) -> Any:
    if key == "edge_shapes":
        if not isinstance(value, bool):
            raise UserError(f"edge_shapes is {value!r}; write true or false.")
        return value
    number = isinstance(value, int | float) and not isinstance(value, bool)
    least = 0.0 if key == "slowdown" else math.ulp(0.0)
    if not number or not least <= value < math.inf:
        kind = "of at least 0" if key == "slowdown" else "above 0"
        raise UserError(f"{key} is {value!r}; write a number {kind}.")
    return float(value)


def _check_keys(kind: str, given: Mapping[str, Any], known: Sequence[str]) -> None:
    for name in given:
        if name not in known:
            raise UnknownNameError(kind, name, known)
