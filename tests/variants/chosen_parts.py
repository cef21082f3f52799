"""Stands in for `dispatch` where a block binds its parts: serves variants chosen by the test."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from autotune.device import local_cpu
from autotune.kernel import Kernel
from autotune.model import Problem
from autotune.model.space import default_config
from autotune.model.traits import workspace_bytes
from autotune.registry import registry
from autotune.serving import Served


def serve(chosen: Mapping[str, str]) -> Callable[..., Kernel]:
    """A dispatch that serves the variant named for an operation, else NumPy's; always its default.

    It holds that the default fits into the workspace that is asked for.
    """

    def dispatch(
        operation: str,
        *,
        dims: Mapping[str, int],
        dtype: str,
        device: str,
        deterministic: bool,
        max_workspace: int,
        **flags: Any,
    ) -> Kernel:
        assert (device, deterministic) == ("cpu", True)
        problem = Problem.of(registry.operation(operation), dims, dtype, **flags)
        variant = registry.variant(operation, chosen.get(operation, "numpy"))
        config = default_config(variant, problem, local_cpu())
        assert config is not None
        assert workspace_bytes(variant, problem, config) <= max_workspace
        served = Served(variant, config, "pinned", "", problem, local_cpu())
        return Kernel(problem, served, device=local_cpu(), scalars={}, serve_next=_raise)

    return dispatch


def _raise(failed: str, error: BaseException) -> Served:
    raise error
