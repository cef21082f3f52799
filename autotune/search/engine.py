"""Optuna as the engine of a search: a study over a space, in memory, and its samplers.

A trial is a variant and, for each of its tunables, the index of a value. Optuna's own samplers
know nothing of constraints and repeat themselves: what they suggest is a point of the product.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, IntDistribution
from optuna.samplers import BaseSampler
from optuna.trial import TrialState, create_trial

from autotune.search.space import Axis, Space, VariantSpace

if TYPE_CHECKING:
    from optuna.study import Study
    from optuna.trial import FrozenTrial, Trial

VARIANT = "variant"
_STARTUP = 6

Point = Sequence[int]
"""The index of a value for each axis of a variant."""

Choose = Callable[[], tuple[VariantSpace, Point]]


class Choosing(BaseSampler):
    """A sampler that takes a trial's whole point from `choose`, which knows the admissible ones."""

    def __init__(self, choose: Choose) -> None:
        self._choose = choose
        self._chosen: Mapping[str, Any] = {}

    def before_trial(self, study: Study, trial: FrozenTrial) -> None:
        home, point = self._choose()
        self._chosen = _params(home, point)

    def infer_relative_search_space(
        self, study: Study, trial: FrozenTrial
    ) -> dict[str, BaseDistribution]:
        return {}

    def sample_relative(
        self, study: Study, trial: FrozenTrial, search_space: dict[str, BaseDistribution]
    ) -> dict[str, Any]:
        return {}

    def sample_independent(
        self,
        study: Study,
        trial: FrozenTrial,
        param_name: str,
        param_distribution: BaseDistribution,
    ) -> Any:
        return self._chosen[param_name]


def tpe(seed: int) -> BaseSampler:
    """Optuna's tree-structured Parzen estimator, over all tunables of a variant together."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        return optuna.samplers.TPESampler(
            seed=seed, multivariate=True, group=True, n_startup_trials=_STARTUP
        )


def random(seed: int) -> BaseSampler:
    """Optuna's random sampler."""
    return optuna.samplers.RandomSampler(seed=seed)


class Engine:
    """A study over a space."""

    def __init__(self, space: Space, sampler: BaseSampler) -> None:
        self._homes = {home.variant: home for home in space.variants}
        self._distributions = {home.variant: _distributions(home) for home in space.variants}
        level = optuna.logging.get_verbosity()
        # Only the creation is announced; the caller's own level comes back at once.
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        try:
            self._study = optuna.create_study(sampler=sampler)
        finally:
            optuna.logging.set_verbosity(level)

    def ask(self) -> tuple[Trial, VariantSpace, Point]:
        """A new trial and the point it stands for; it may be inadmissible or known."""
        trial = self._study.ask()
        names = tuple(self._homes)
        chosen = trial.suggest_categorical(VARIANT, names) if len(names) > 1 else names[0]
        home = self._homes[chosen]
        return trial, home, [_suggested(trial, home, axis) for axis in home.axes]

    def tell(self, trial: Trial, value: float | None) -> None:
        """What a trial came to; None: it failed."""
        state = TrialState.FAIL if value is None else None
        self._study.tell(trial, value, state=state)

    def add(self, home: VariantSpace, point: Point, value: float | None) -> None:
        """A point that was measured without being asked for."""
        state = TrialState.FAIL if value is None else TrialState.COMPLETE
        self._study.add_trial(
            create_trial(
                params=_params(home, point, len(self._homes) > 1),
                distributions=self._of(home),
                value=value,
                state=state,
            )
        )

    def _of(self, home: VariantSpace) -> dict[str, BaseDistribution]:
        own = self._distributions[home.variant]
        if len(self._homes) == 1:
            return own
        return {VARIANT: CategoricalDistribution(tuple(self._homes)), **own}


def _params(home: VariantSpace, point: Point, named: bool = True) -> dict[str, Any]:
    """A point as the parameters of a trial."""
    params: dict[str, Any] = {VARIANT: home.variant} if named else {}
    for axis, index in zip(home.axes, point, strict=True):
        if len(axis.values) > 1:
            params[f"{home.variant}.{axis.name}"] = int(index)
    return params


def _distributions(home: VariantSpace) -> dict[str, BaseDistribution]:
    return {
        f"{home.variant}.{axis.name}": IntDistribution(0, len(axis.values) - 1)
        if axis.ordered
        else CategoricalDistribution(tuple(range(len(axis.values))))
        for axis in home.axes
        if len(axis.values) > 1
    }


def _suggested(trial: Trial, home: VariantSpace, axis: Axis) -> int:
    """The index of an axis; one with a single value leaves no choice."""
    name, count = f"{home.variant}.{axis.name}", len(axis.values)
    if count == 1:
        return 0
    if axis.ordered:
        return trial.suggest_int(name, 0, count - 1)
    return int(trial.suggest_categorical(name, tuple(range(count))))
