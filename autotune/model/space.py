"""Which candidates a declaration admits for a problem on a device."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from autotune.errors import DeclarationError
from autotune.model.expression import evaluate, expression
from autotune.model.problem import Config, Problem, Value
from autotune.model.traits import fault, values, workspace_bytes
from autotune.model.tunable import Machine, Tunable
from autotune.model.variant import Variant


def concerns(variant: Variant, problem: Problem, device_kind: str) -> bool:
    """Whether the variant is made for such a device and the problem's dtype at all."""
    dtypes = variant.dtypes or problem.operation.dtypes
    return variant.device == device_kind and problem.dtype in dtypes


def why_not(
    variant: Variant,
    problem: Problem,
    device_kind: str = "cpu",
    limits: Mapping[str, int] | None = None,
) -> str | None:
    """Why no config of the variant can serve the problem on such a device, or None.

    Constraints that ask for limits are left out where `limits` are not given.
    """
    if variant.device != device_kind:
        return f"runs on {variant.device}, not on {device_kind}"
    if problem.dtype not in (variant.dtypes or problem.operation.dtypes):
        return f"does not support {problem.dtype}"
    names = values(problem, {}) | dict(limits or {})
    for text in variant.constraints:
        if expression(text).names <= names.keys() - {"threads"}:
            broken = _broken(text, names, limits or {})
            if broken is not None:
                return broken
    return variant.unavailable()


def unmet(variant: Variant, limits: Mapping[str, int]) -> str | None:
    """The first constraint on the device alone that these limits break, or None."""
    for text in variant.constraints:
        names = expression(text).names
        if names and names <= limits.keys():
            broken = _broken(text, limits, limits)
            if broken is not None:
                return broken
    return None


def violated(
    variant: Variant, problem: Problem, config: Mapping[str, Any], machine: Machine
) -> str | None:
    """The first constraint that a config breaks for the problem on the machine, or None.

    One that cannot be evaluated is broken; so is a declaration that gives no sizes.
    """
    names = {**values(problem, config), **machine.limits}
    for text in variant.constraints:
        broken = _broken(text, names, machine.limits)
        if broken is not None:
            return broken
    return fault(variant, problem, config)


def _broken(text: str, names: Mapping[str, Any], limits: Mapping[str, int]) -> str | None:
    """The constraint where it does not hold, and what the device has of the limits in it; or None.

    Where it cannot be evaluated (it divides by zero, say), at which values and why.
    """
    try:
        if evaluate(text, names):
            return None
    except DeclarationError as error:
        return str(error).removesuffix(".")
    asked = sorted(expression(text).names & limits.keys())
    here = ", ".join(f"{name}={limits[name]}" for name in asked)
    return f"needs {text} (here {here})" if here else f"needs {text}"


def _holds(texts: Sequence[str], names: Mapping[str, Any]) -> bool:
    return all(_broken(text, names, {}) is None for text in texts)


def inadmissible(
    variant: Variant, problem: Problem, config: Mapping[str, Any], machine: Machine
) -> str | None:
    """Why a stored config cannot be run here: unknown or missing tunables, values, constraints."""
    if set(config) != set(variant.tunable_names):
        return f"its tunables are now {', '.join(variant.tunable_names) or 'none'}"
    for tunable in variant.tunables:
        if config[tunable.name] not in tunable.values(machine):
            return f"{tunable.name}={config[tunable.name]} is not available here"
    return violated(variant, problem, config, machine) or too_large(
        variant, problem, config, machine
    )


def too_large(
    variant: Variant, problem: Problem, config: Mapping[str, Any], machine: Machine
) -> str | None:
    """Why a config cannot fit the memory of a device that tells how much it has, or None."""
    memory = machine.limits.get("device_memory")
    needed = needed_bytes(variant, problem, config)
    if memory is None or needed <= memory:
        return None
    return f"needs {needed} bytes at this size (the device has {memory})"


def needed_bytes(variant: Variant, problem: Problem, config: Mapping[str, Any]) -> int:
    """The bytes of inputs, outputs and workspace together."""
    arrays = (*problem.operation.inputs, *problem.operation.fresh_outputs)
    held = sum(problem.nbytes(each.dims, each.dtype) for each in arrays)
    return held + workspace_bytes(variant, problem, config)


def default_config(variant: Variant, problem: Problem, machine: Machine) -> Config | None:
    """The variant's default config, or the admissible one that differs from it least; or None."""
    start = {tunable.name: tunable.start(machine) for tunable in variant.tunables}
    if violated(variant, problem, start, machine) is None:
        return Config(start)
    return nearest_config(variant, problem, machine, start)


def no_config(variant: Variant, problem: Problem, machine: Machine) -> str:
    """Why no config of a variant is admitted: what its default cannot evaluate, if that is it."""
    start = {tunable.name: tunable.start(machine) for tunable in variant.tunables}
    names = {**values(problem, start), **machine.limits}
    for text in variant.constraints:
        try:
            evaluate(text, names)
        except DeclarationError as error:
            return str(error).removesuffix(".")
    return fault(variant, problem, start) or "no config satisfies its constraints"


def nearest_config(
    variant: Variant,
    problem: Problem,
    machine: Machine,
    start: Mapping[str, Any],
    fixed: Sequence[str] = (),
) -> Config | None:
    """The admissible config that differs least from `start`, and not at all in what is `fixed`.

    Of several the first in the order of `configs`. Tried outwards from `start`; what cannot come
    closer than the best so far is cut.
    """
    names = _facts(variant, problem, machine)
    options = [
        (t.name, _by_distance(t, machine, start[t.name], t.name in fixed)) for t in variant.tunables
    ]
    checks = _checks_by_depth(variant, [name for name, _ in options], names)
    best: tuple[int, tuple[int, ...], Config] | None = None

    def extend(apart: int, places: tuple[int, ...], chosen: dict[str, Value]) -> None:
        nonlocal best
        depth = len(places)
        if best is not None and (apart, places) > (best[0], best[1][:depth]):
            return
        if not _holds(checks[depth], names | chosen):
            return
        if depth == len(options):
            if fault(variant, problem, chosen) is None:
                best = apart, places, Config(chosen)
            return
        name, choices = options[depth]
        for steps, place, value in choices:
            extend(apart + steps, (*places, place), {**chosen, name: value})

    extend(0, (), {})
    return best[2] if best is not None else None


def _by_distance(
    tunable: Tunable, machine: Machine, start: Any, fixed: bool
) -> list[tuple[int, int, Value]]:
    """Steps from the start, place and value of every option, the nearest first."""
    options = tunable.values(machine)
    home = options.index(start)
    steps = [
        abs(place - home) if tunable.ordered else int(place != home)
        for place in range(len(options))
    ]
    found = sorted(zip(steps, range(len(options)), options, strict=True), key=lambda each: each[:2])
    return found[:1] if fixed else found


def configs(variant: Variant, problem: Problem, machine: Machine) -> Iterator[Config]:
    """Every admissible config, depth first, cutting a branch as soon as a constraint fails."""
    names = _facts(variant, problem, machine)
    options = [(t.name, t.values(machine)) for t in variant.tunables]
    checks = _checks_by_depth(variant, [name for name, _ in options], names)

    def extend(depth: int, chosen: dict[str, Value]) -> Iterator[Config]:
        if not _holds(checks[depth], names | chosen):
            return
        if depth == len(options):
            yield Config(chosen)
            return
        name, candidates = options[depth]
        for value in candidates:
            yield from extend(depth + 1, {**chosen, name: value})

    yield from extend(0, {})


def _facts(variant: Variant, problem: Problem, machine: Machine) -> dict[str, Any]:
    """What constraints may refer to besides the tunables."""
    names = {**values(problem, {}), **machine.limits}
    if "threads" in variant.tunable_names:
        del names["threads"]
    return names


def _checks_by_depth(
    variant: Variant, order: list[str], names: Mapping[str, Any]
) -> list[list[str]]:
    """Constraints grouped by how many tunables must be fixed before they can be evaluated."""
    checks: list[list[str]] = [[] for _ in range(len(order) + 1)]
    for text in variant.constraints:
        needed = expression(text).names - names.keys()
        checks[max((order.index(name) + 1 for name in needed), default=0)].append(text)
    return checks


def size(variant: Variant, problem: Problem, machine: Machine, limit: int = 100_000) -> int:
    """Number of admissible configs, counted up to `limit`."""
    return sum(1 for _ in itertools.islice(configs(variant, problem, machine), limit))
