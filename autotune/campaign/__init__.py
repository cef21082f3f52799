"""Tuning: measure the candidates of a problem on this device and store the policy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from autotune.campaign.budget import parse_budget
from autotune.campaign.campaign import Campaign, CampaignInterrupted
from autotune.campaign.events import CampaignResult, Event, Failure, Listener, ProblemResult
from autotune.campaign.session import Settings
from autotune.device import find_device
from autotune.errors import CampaignError, ShapeError, UserError
from autotune.model.operation import Operation
from autotune.model.problem import Problem
from autotune.modes import require_mode
from autotune.plugins import load_plugins
from autotune.registry import registry
from autotune.worker.protocol import Mode

if TYPE_CHECKING:
    from autotune_policies import Policy
    from autotune_tuning_db import Store

__all__ = [
    "Campaign",
    "CampaignError",
    "CampaignInterrupted",
    "CampaignResult",
    "Event",
    "Failure",
    "Listener",
    "ProblemResult",
    "Settings",
    "parse_budget",
    "tune",
]


def tune(
    operation: Operation | str,
    shape: Sequence[int] | None = None,
    *,
    dims: Mapping[str, int] | None = None,
    dtype: object = "float32",
    device: str | None = None,
    budget: str | float = "60s",
    mode: Mode = "cold",
    trials: int | None = None,
    store: Store | str | Path | None = None,
    seed: int = 0,
    progress: Listener | None = None,
    patience: float | None = None,
    **flags: Any,
) -> Policy:
    """Measure the variants of one problem on this device and store which is the fastest.

    What was measured before, with the same sources and versions, is not measured again: calling
    it twice, or after an interruption, goes on where the last call stopped. The next `dispatch` of
    this process sees the policy; kernels already handed out keep what they have.

    Args:
        operation: the operation, or its name.
        shape: the positional shape, such as (2, 1, 2048, 64); or give `dims`.
        dims: sizes by name, such as {"B": 2, "H": 1, "N": 2048, "D": 64}.
        dtype: any spelling of a dtype that the operation supports.
        device: a local device by kind or identity; by default the best.
        budget: the most time to spend, "60s", "5m" or seconds; the default config of every
            variant is measured in any case.
        mode: "cold" (caches evicted before every sample), "hot", or on a GPU "graph" (replays of a
            CUDA graph, cold).
        trials: the most candidates to measure.
        store: the tuning database, open or as a path; by default the user's.
        seed: of the search and of the random inputs.
        progress: called with every event of the campaign.
        patience: the most seconds to wait for another process that measures on the device; by
            default until it is done.
        flags: the operation's flags, such as causal=True.

    Returns:
        The policy now in force for this problem.

    Raises:
        UserError: an unknown operation, dim, dtype, flag, device or mode, or a bad budget.
        ShapeError: sizes that do not fit the operation.
        CampaignError: no candidate could be measured; an earlier policy stays.
        DeviceBusyError: another process is still measuring on the device.
        StoreUnavailableError: the tuning database cannot be used.
        KeyboardInterrupt: Ctrl-C; what was measured is kept.
    """
    from autotune.serving import refresh

    load_plugins()
    target = registry.operation(operation)
    if (shape is None) == (dims is None):
        raise ShapeError(f"tune({target.name}, ...) takes either a shape or dims={{...}}.")
    problem = Problem.of(target, dims if shape is None else shape, dtype, **flags)  # type: ignore[arg-type]
    settings = checked_settings(budget=budget, mode=mode, trials=trials, seed=seed)
    where = find_device(device)
    campaign = Campaign(
        [problem],
        device=where,
        settings=replace(settings, patience=patience),
        store=store,
        progress=progress,
    )
    (result,) = campaign.run().results
    refresh()
    assert result.policy is not None, "a campaign without any policy raises"
    return result.policy


def checked_settings(
    *, budget: str | float, mode: str, trials: int | None = None, seed: int = 0
) -> Settings:
    """Settings from what a person wrote; UserError names what does not fit."""
    require_mode(mode)
    if trials is not None and trials < 1:
        raise UserError(f"trials must be at least 1, got {trials}.")
    if not 0 <= seed < 2**31:
        raise UserError(f"seed must be a whole number from 0 to 2**31 - 1, got {seed}.")
    return Settings(budget=parse_budget(budget), mode=mode, trials=trials, seed=seed)  # type: ignore[arg-type]
