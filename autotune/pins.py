"""Pins: a choice the user makes, checked against the declaration before it is kept."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.device import Device
from autotune.errors import ConstraintError, UnknownNameError, UserError
from autotune.model.operation import Operation
from autotune.model.problem import Problem
from autotune.model.space import inadmissible, why_not
from autotune.model.variant import Variant
from autotune.registry import registry
from autotune.spelling import candidate_text, problem_options
from autotune.store import open_tuning_db
from autotune_tuning_db import PinRow


def pin(
    operation: Operation,
    variant: str,
    device: Device,
    *,
    problem: Problem | None = None,
    given: Mapping[str, Any] | None = None,
) -> PinRow:
    """Keep a pin for a problem, or for the whole operation, on a device.

    `given` values complete themselves with the tunables' defaults; without any the best measured
    config is served. Raises UserError for a variant, tunable or value that cannot be served.
    """
    chosen = registry.variant(operation, variant)
    if chosen.device != device.kind:
        raise ConstraintError(
            f"{chosen.name} runs on {chosen.device}, and {device.identity} is a {device.kind}; "
            f"name another variant, or the device with --device."
        )
    config = _completed(chosen, device, given) if given else None
    if problem is not None:
        reason = why_not(chosen, problem, device.kind, device.limits)
        if reason is None and config is not None:
            reason = inadmissible(chosen, problem, config, device)
        if reason is not None:
            raise ConstraintError(f"{chosen.name} cannot serve {problem} here: {reason}.")
    key = problem.key if problem else None
    row = PinRow(operation.name, key, device.identity, chosen.name, config)
    with open_tuning_db() as store:
        store.pin(row)
    return row


def unpin(operation: Operation, device: Device, *, problem: Problem | None = None) -> PinRow:
    """Take back the pin of a problem or of an operation; UserError names the pins there are."""
    key = problem.key if problem else None
    with open_tuning_db() as store:
        pins = [row for row in store.pins() if row.device == device.identity]
        found = [row for row in pins if row.operation == operation.name and row.problem == key]
        if not found:
            listed = "; ".join(describe(row) for row in pins) or "there are none"
            what = problem.key.text if problem else f"the operation {operation.name}"
            raise UserError(f"{what} is not pinned on this device; pins: {listed}.")
        store.unpin(operation.name, key, device.identity)
    return found[0]


def describe(row: PinRow) -> str:
    """A pin in words."""
    scope = str(row.problem) if row.problem else f"every problem of {row.operation}"
    return f"{scope} to {candidate_text(row.variant, row.config)} on {row.device}"


def undo(row: PinRow) -> str:
    """How to take a pin back."""
    if row.problem is None:
        return f"take it back with: autotune unpin {row.operation}"
    problem = Problem.from_key(registry.operation(row.operation), row.problem)
    return f"take it back with: autotune unpin {row.operation} {problem_options(problem)}"


def _completed(variant: Variant, device: Device, given: Mapping[str, Any]) -> dict[str, Any]:
    for name in given:
        if name not in variant.tunable_names:
            kind = f"tunable of {variant.operation.name}/{variant.name}"
            raise UnknownNameError(kind, name, variant.tunable_names)
    config = {tunable.name: tunable.start(device) for tunable in variant.tunables}
    for tunable in variant.tunables:
        if tunable.name in given:
            values = tunable.values(device)
            if given[tunable.name] not in values:
                listed = ", ".join(map(str, values[:12])) + (", ..." if len(values) > 12 else "")
                raise UserError(
                    f"{tunable.name}={given[tunable.name]} is not available here; use {listed}."
                )
            config[tunable.name] = given[tunable.name]
    return config
