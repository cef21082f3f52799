"""Time for a campaign: reading a budget, and sharing it among the problems."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median_low

from autotune.device import Device
from autotune.errors import UserError
from autotune.estimate import estimate_seconds
from autotune.model.problem import Problem
from autotune.model.space import default_config, why_not
from autotune.model.variant import Variant
from autotune.roofline import device_rates

_UNITS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(\d+\.?\d*|\.\d+)\s*(ms|s|min|m|h)?\Z")

_PREPARATION = 0.25
_PREPARED_BYTES = 1e9
_TRIAL_OVERHEAD = 0.25
_RACE = 3.0
_LOOKS = 2
"""Calls of a default that is far slower than the best."""

_CALLS = 20
_LONGEST_TRIAL = 2.0
_LONGEST_CALL = 10.0

_CAUTION = 1.2
"""What is set aside for the fixed costs to come, over what is expected of them."""

_PRIOR = 4
"""Problems that the usual one counts for, beside those that were seen."""

_FEW = 3
"""Problems before which what one costs is no rule yet."""

_MOST_OFF = 3.0
"""Times the usual fixed costs, beyond which a problem says nothing about others."""


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


@dataclass(frozen=True, slots=True)
class Expected:
    """Seconds that a problem should cost, from the declarations.

    `fixed` is spent whatever the budget: preparing, and the default of every variant. `search` is
    what a trial of every variant and a race would take if all were as fast as the best one; only
    its proportion to that of other problems matters.
    """

    fixed: float
    search: float


def expected_seconds(problem: Problem, variants: Iterable[Variant], device: Device) -> Expected:
    """What a problem should cost; what is compiled is compiled before, or beside."""
    rates = device_rates(device)
    calls = []
    for variant in variants:
        if why_not(variant, problem, device.kind, device.limits) is None:
            config = default_config(variant, problem, device)
            if config is not None:
                calls.append(estimate_seconds(variant, problem, config, rates))
    fixed = _PREPARATION + sum(problem.compulsory_bytes) / _PREPARED_BYTES
    fixed += sum(_TRIAL_OVERHEAD + _LOOKS * min(call, _LONGEST_CALL) for call in calls)
    sampled = min(_CALLS * min(calls, default=0.0), _LONGEST_TRIAL)
    return Expected(fixed, _RACE + len(calls) * (_TRIAL_OVERHEAD + sampled))


class Shares:
    """Shares a budget among problems that come one after the other.

    Each may search for its part of what is left once the fixed costs of all that are still to
    come are set aside, so that expensive ones take from all alike, not from the last. How far
    fixed costs are off is learned from the problems that are done.
    """

    def __init__(self, expected: Sequence[Expected]) -> None:
        self._expected = tuple(expected)
        self._ratios: list[float] = []

    def share(self, index: int, left: float) -> float:
        """What a problem may use in all, of the time left, when it begins."""
        factor = _factor(self._ratios)
        own = factor * self._expected[index].fixed
        aside = factor * self._rest(index)
        search = (left - own - _CAUTION * aside) * self._part(index)
        return own + search if search > 0.0 else max(left, 0.0) * own / (own + aside)

    def searching(self, index: int, left: float, fixed: float) -> float:
        """What a problem may still use once its defaults are measured, which took it `fixed`.

        While little is known, others may turn out as slow, for which half of what is theirs is
        set aside; but the first one also waits for what starts and compiles for all.
        """
        ratio, part = fixed / self._expected[index].fixed, self._part(index)
        factor = min(_factor(self._ratios), _factor([*self._ratios, ratio]))
        aside = _CAUTION * factor * self._rest(index)
        if len(self._ratios) < _FEW:
            aside = max(aside, min(ratio * self._rest(index), 0.5 * left * (1.0 - part)))
        return max(left - aside, 0.0) * part

    def learn(self, index: int, seconds: float) -> None:
        """What a problem has used besides its search."""
        self._ratios.append(seconds / self._expected[index].fixed)

    def _part(self, index: int) -> float:
        """Of the time for searching, what is this problem's."""
        return self._expected[index].search / sum(e.search for e in self._expected[index:])

    def _rest(self, index: int) -> float:
        return sum(each.fixed for each in self._expected[index + 1 :])


def _factor(ratios: Sequence[float]) -> float:
    """What fixed costs come to over what was expected: a mean, without what is far off.

    The first problem, which waits for what starts, counts until there are others.
    """
    ratios = ratios[1:] or ratios
    usual = median_low([1.0, *ratios])
    seen = sum(min(ratio, _MOST_OFF * usual) for ratio in ratios)
    return (_PRIOR * usual + seen) / (_PRIOR + len(ratios))
