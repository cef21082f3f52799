"""From the policies of a snapshot to a choice: what is registered, admitted and wanted here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune.asking import Wish
from autotune.model.problem import Problem
from autotune.model.space import default_config, inadmissible, no_config
from autotune.model.traits import is_deterministic, workspace_bytes
from autotune.model.variant import Variant
from autotune.registry import registry
from autotune.rejected import Rejects
from autotune_policies import Request, Resolution, Snapshot, resolve


def resolve_policies(
    snapshot: Snapshot,
    problem: Problem,
    device: Any,
    wish: Wish,
    admitted: Mapping[str, Variant],
    rejects: Rejects,
) -> Resolution:
    """What the policies say about a problem, of the variants that are admitted here."""
    from autotune.fingerprint import fingerprint, toolchain

    def admits(name: str, config: Any) -> str | None:
        if name not in admitted:
            return "it is not available here, or was set aside"
        variant = admitted[name]
        if wish.constraints.deterministic and not is_deterministic(variant):
            return "it is not deterministic"
        given = config or default_config(variant, problem, device)
        if given is None:
            return no_config(variant, problem, device)
        given = dict(given)
        broken = inadmissible(variant, problem, given, device)
        if broken is not None:
            return broken
        limit = wish.constraints.max_workspace
        needed = workspace_bytes(variant, problem, given) if limit is not None else 0
        if limit is not None and needed > limit:
            return f"it needs {needed} bytes of workspace at this size"
        return rejects(variant, given)

    registered = {variant.name: variant for variant in registry.variants(problem.operation)}

    def current(name: str) -> str | None:
        return fingerprint(registered[name]) if name in registered else None

    request = Request(
        problem.key,
        device.identity,
        device.family,
        wish.mode,
        problem.operation.varying,
        wish.constraints,
    )
    return resolve(
        snapshot,
        request,
        admits=admits,
        fingerprints=current,
        toolchain=toolchain(device.kind),
    )
