"""The answer when no policy applies: the default that predictions favour, then the reference."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from autotune.errors import ConstraintError
from autotune.estimate import estimate_seconds
from autotune.explain import explain_default, explain_reference
from autotune.libraries import library_of
from autotune.model.operation import Operation
from autotune.model.problem import Config, Problem
from autotune.model.space import default_config, too_large
from autotune.model.traits import is_deterministic, workspace_bytes
from autotune.model.variant import Run, Variant
from autotune.quiet import quietly
from autotune.rejected import Rejects
from autotune.roofline import device_rates
from autotune_policies import Constraints, Resolution, closest

_CLOSEST = 3


def choose_default(
    problem: Problem,
    device: Any,
    constraints: Constraints,
    *,
    admitted: Mapping[str, Variant],
    rejects: Rejects,
    resolution: Resolution,
) -> tuple[Variant, Config, str, str]:
    """Variant, config, origin and explanation of an answer that rests on no measurement.

    What the gate has rejected before is no answer, however fast it is said to be.
    Raises ConstraintError when constraints are given and nothing meets them; the reference
    implementation answers only a request without constraints.
    """
    options: list[tuple[float, Variant, Config]] = []
    near = [
        (item.excess, item.variant, item.reason)
        for item in closest(resolution, limit=len(admitted))
        if item.obstacle == "constraint"
    ]
    rates = device_rates(device)
    for variant in admitted.values():
        config = default_config(variant, problem, device)
        if config is None:
            continue
        reason = too_large(variant, problem, config, device) or rejects(variant, config)
        broken = (math.inf, reason) if reason else _breaks(constraints, variant, problem, config)
        if broken is not None:
            near.append((broken[0], variant.name, broken[1]))
        else:
            options.append((estimate_seconds(variant, problem, config, rates), variant, config))
    if options:
        seconds, variant, config = min(options, key=lambda one: (one[0], not one[1].passes))
        text = explain_default(problem, device, variant, seconds, len(options))
        return variant, config, "predicted", text
    if constraints != Constraints():
        raise ConstraintError(
            f"nothing for {problem} meets {constraint_text(constraints)}; closest: {_told(near)}."
        )
    text = explain_reference(problem, device)
    return reference_variant(problem.operation), Config(), "reference", text


def _told(near: list[tuple[float, str, str]]) -> str:
    """The closest few in words: by what factor each is off, its variant, and why; each once."""
    best: dict[str, str] = {}
    for _, variant, reason in sorted(near):
        best.setdefault(variant, f"{variant} ({reason})")
    return "; ".join(list(best.values())[:_CLOSEST]) or "no variant is available here"


def _breaks(
    wanted: Constraints, variant: Variant, problem: Problem, config: Config
) -> tuple[float, str] | None:
    """By what factor, and how, an unmeasured candidate breaks a constraint; or None."""
    if wanted.deterministic and not is_deterministic(variant):
        return math.inf, "it is not deterministic"
    needed, limit = workspace_bytes(variant, problem, config), wanted.max_workspace
    if limit is not None and needed > limit:
        return needed / max(limit, 1), f"it needs {needed} bytes of workspace"
    if wanted.max_error is not None:
        return math.inf, "its error is not measured; tune the problem first"
    return None


def constraint_text(wanted: Constraints) -> str:
    """The constraints as a caller would write them."""
    parts = ["deterministic=True"] if wanted.deterministic else []
    if wanted.max_workspace is not None:
        parts.append(f"max_workspace={wanted.max_workspace}")
    if wanted.max_error is not None:
        parts.append(f"max_error={float(wanted.max_error)!r}")
    return ", ".join(parts)


def reference_variant(operation: Operation) -> Variant:
    """The operation's float64 reference as a variant, its result cast to the problem's dtype."""

    def build(problem: Problem, config: Config) -> Run:
        return _run_reference(problem)

    return Variant("reference", operation, build, deterministic=True, source=operation.reference)


def _run_reference(problem: Problem) -> Run:
    operation = problem.operation
    inputs = [tensor.name for tensor in operation.inputs]
    fresh = [tensor.name for tensor in operation.fresh_outputs]

    def run(*arguments: Any) -> None:
        named = dict(zip((*inputs, *fresh, *operation.scalars), arguments, strict=True))
        wide = [library_of(named[name]).widened(named[name]) for name in inputs]
        scalars = {name: named[name] for name in operation.scalars}
        results = operation.reference(*wide, **problem.flags, **scalars)
        results = results if isinstance(results, tuple) else (results,)
        for tensor, result in zip(operation.outputs, results, strict=True):
            library_of(named[tensor.name]).store(named[tensor.name], result)

    return quietly(run)
