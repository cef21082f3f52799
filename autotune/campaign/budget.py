"""Time for a campaign: reading a budget, and sharing it among the problems."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

from autotune.device import Device
from autotune.errors import UserError
from autotune.estimate import estimate_seconds
from autotune.model.problem import Problem
from autotune.model.space import default_config, why_not
from autotune.model.variant import Variant
from autotune.roofline import device_rates

_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+\.?\d*|\.\d+)\s*(ms|s|min|m|h)?\Z")

_TRIAL_OVERHEAD = 0.25
_RACE = 3.0
_CALLS = 20
_LONGEST_TRIAL = 2.0


def parse_budget(text: str | float) -> float:
    """Seconds from "60s", "5m", "1.5h", "60" or a number; UserError unless positive and finite."""
    if isinstance(text, str):
        found = _DURATION.match(text.strip().lower())
        seconds = float(found[1]) * _UNITS[found[2] or "s"] if found else math.nan
    else:
        seconds = float(text)
    if not 0.0 < seconds < math.inf:
        raise UserError(f"cannot read the budget {text!r}; write 60s, 5m or 1h.")
    return seconds


def expected_seconds(problem: Problem, variants: Iterable[Variant], device: Device) -> float:
    """What the default of every variant and a race should cost, from the declarations.

    Only the proportions between problems matter: a share of the budget follows them. What is
    compiled is compiled before, or beside.
    """
    total, rates = _RACE, device_rates(device)
    for variant in variants:
        if why_not(variant, problem, device.kind, device.limits) is None:
            config = default_config(variant, problem, device)
            if config is not None:
                call = estimate_seconds(variant, problem, config, rates)
                total += _TRIAL_OVERHEAD + min(_CALLS * call, _LONGEST_TRIAL)
    return total


def share(left: float, weights: Sequence[float]) -> float:
    """The part of the time left that the first of the problems still to come may use."""
    return max(left, 0.0) * weights[0] / sum(weights)
