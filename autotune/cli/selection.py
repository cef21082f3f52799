"""From the words of a command line to operations, problems and devices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from autotune.cli.answer import say
from autotune.device import Device
from autotune.errors import UserError
from autotune.model.operation import Operation
from autotune.model.problem import Problem
from autotune.spelling import parse_settings, parse_shapes


@dataclass(frozen=True, slots=True)
class Words:
    """What was written after --shape, --dtype and --set."""

    shapes: tuple[str, ...] = ()
    dtypes: tuple[str, ...] = ()
    settings: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        shapes: Sequence[str] | None,
        dtypes: Sequence[str] | None,
        settings: Sequence[str] | None,
    ) -> Words:
        """From options that may be absent; several dtypes may be joined by commas."""
        names = [part.strip() for text in dtypes or () for part in text.split(",")]
        return cls(tuple(shapes or ()), tuple(filter(None, names)), tuple(settings or ()))

    def __bool__(self) -> bool:
        return bool(self.shapes or self.dtypes or self.settings)


def load_registry(plugins: Sequence[str] | None) -> None:
    """Load the installed plugins, then the files named by `--plugin`."""
    from autotune.plugins import load_files, load_plugins

    load_plugins()
    load_files(plugins or ())


def measuring_device(name: str | None) -> Device:
    """The device to measure on; which GPU that is, or which is left out and why, goes to stderr."""
    from autotune.device import described, find_device, local_devices

    device = find_device(name)
    if device.kind != "cpu":
        say(f"on {described(device)}.")
        _require_compiler(device)
    elif name is None:
        for each in local_devices():
            if each.unusable is not None:
                say(f"{described(each)} is not used: {each.unusable}.")
    return device


def _require_compiler(device: Device) -> None:
    """One sentence for a card that the compiler does not know, in place of one for each variant."""
    from autotune.cuda import nvrtc

    compute = device.limits.get("compute")
    if compute is not None:
        nvrtc.require_architecture(compute, str(device.facts.get("driver") or ""))


def find_operation(name: str) -> Operation:
    """The registered operation; UnknownNameError with the nearest spelling."""
    from autotune.registry import registry

    return registry.operation(name)


def chosen_problems(operation: Operation, words: Words) -> list[Problem]:
    """Every problem that the options name: all shapes times all dtypes (default: the first)."""
    flags = flag_values(operation, words.settings)
    sizes = [each for text in words.shapes for each in parse_shapes(operation, text)]
    names = words.dtypes or operation.dtypes[:1]
    found = [Problem.of(operation, each, dtype, **flags) for each in sizes for dtype in names]
    return list(dict.fromkeys(found))


def one_problem(operation: Operation, words: Words) -> Problem:
    """The one problem that the options name; UserError when it is none or several."""
    if not words.shapes:
        raise UserError(f"give the sizes of {operation.name}: --shape {example_shape(operation)}.")
    found = chosen_problems(operation, words)
    if len(found) != 1:
        raise UserError(f"this asks about one problem, and the options name {len(found)}.")
    return found[0]


def scope(operation: Operation, words: Words) -> Problem | None:
    """The one problem that the options name, or None for the whole operation."""
    if words and not words.shapes:
        raise UserError("--dtype and --set name a problem only together with --shape.")
    return one_problem(operation, words) if words else None


def example_shape(operation: Operation) -> str:
    """How a shape of the operation is written."""
    return ",".join(f"{dim}=..." for dim in operation.shape or operation.dims)


def flag_values(operation: Operation, settings: tuple[str, ...]) -> dict[str, Any]:
    """The values of `--set`, each of its flag's type."""
    given = parse_settings(settings)
    for name, value in given.items():
        if name in operation.scalars:
            raise UserError(
                f"{name} is an argument of the call, not a part of the problem; leave --set "
                f"{name}={value} out."
            )
        default = operation.flags.get(name)
        if name in operation.flags and not _fits(value, default):
            kind = "true or false" if isinstance(default, bool) else type(default).__name__
            raise UserError(f"flag {name} of {operation.name} takes {kind}, not {value!r}.")
    return {name: value for name, value in operation.check_flags(given) if name in given}


def _fits(value: Any, default: Any) -> bool:
    if isinstance(default, bool):
        return isinstance(value, bool) or value in (0, 1)
    if isinstance(default, int | float):
        return isinstance(value, int | float) and not isinstance(value, bool)
    return True
