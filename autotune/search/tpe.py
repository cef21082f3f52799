"""The model of one variant's times: Optuna's TPE over index vectors, in memory."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from autotune.search.space import Axis

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution
    from optuna.study import Study

_STARTUP = 6


class Model:
    """Learns from measured points and suggests where the next good one may lie.

    The suggestion is an index vector of the full product: it may be inadmissible or known, the
    search takes the nearest point that is neither. A failed point counts as the slowest seen.
    Optuna is imported with the first suggestion.
    """

    def __init__(self, axes: Sequence[Axis], seed: int) -> None:
        self._axes = axes
        self._seed = seed
        self._waiting: list[tuple[list[int], float | None]] = []
        self._slowest = -math.inf

    def add(self, point: NDArray[Any], seconds: float | None) -> None:
        """A measured point, or a failed one (None)."""
        self._waiting.append((point.tolist(), seconds))
        if seconds is not None:
            self._slowest = max(self._slowest, math.log(seconds))

    def suggest(self) -> NDArray[np.int32]:
        """An index vector to try next."""
        from optuna.trial import TrialState

        self._learn()
        trial = self._study.ask(self._distributions)
        # What is measured in its place comes back through `add`; TPE ignores failed trials.
        self._study.tell(trial, state=TrialState.FAIL)
        return np.array([trial.params.get(axis.name, 0) for axis in self._axes], dtype=np.int32)

    @cached_property
    def _distributions(self) -> dict[str, BaseDistribution]:
        from optuna.distributions import CategoricalDistribution, IntDistribution

        return {
            axis.name: IntDistribution(0, len(axis.values) - 1)
            if axis.ordered
            else CategoricalDistribution(tuple(range(len(axis.values))))
            for axis in self._axes
            if len(axis.values) > 1
        }

    @cached_property
    def _study(self) -> Study:
        import optuna

        level = optuna.logging.get_verbosity()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
            sampler = optuna.samplers.TPESampler(
                seed=self._seed, multivariate=True, n_startup_trials=_STARTUP, constant_liar=False
            )
        # Only the creation is announced; the caller's own level comes back at once.
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        try:
            return optuna.create_study(sampler=sampler)
        finally:
            optuna.logging.set_verbosity(level)

    def _learn(self) -> None:
        """Hand over what was added since, as times in log seconds."""
        from optuna.trial import create_trial

        if not math.isfinite(self._slowest):
            return
        for point, seconds in self._waiting:
            named = dict(zip((axis.name for axis in self._axes), point, strict=True))
            self._study.add_trial(
                create_trial(
                    params={name: named[name] for name in self._distributions},
                    distributions=self._distributions,
                    value=self._slowest if seconds is None else math.log(seconds),
                )
            )
        self._waiting.clear()
