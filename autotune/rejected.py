"""What the gate has rejected on this device: dispatch serves none of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from autotune.model.problem import Problem
from autotune.model.variant import Variant
from autotune.store import stored_rejections

if TYPE_CHECKING:
    from autotune_tuning_db.rejections import Rejection

Rejects = Callable[[Variant, Mapping[str, Any]], str | None]
"""Why a candidate is not to be served, though its declaration admits it; None if it may."""


class Rejected:
    """The rejections of a problem on a device, read when the first candidate is asked about."""

    def __init__(self, problem: Problem, identity: str) -> None:
        self._problem, self._identity = problem, identity

    def __call__(self, variant: Variant, config: Mapping[str, Any]) -> str | None:
        if not self._found:
            return None
        from autotune.fingerprint import fingerprint
        from autotune_tuning_db.rejections import Rejection

        source = fingerprint(variant)
        if Rejection(variant.name, source) in self._found:
            return "it has given nothing but wrong results here, or crashed"
        if Rejection(variant.name, source, tuple(sorted(config.items()))) in self._found:
            return "it was wrong on this problem, or crashed"
        return None

    @cached_property
    def _found(self) -> frozenset[Rejection]:
        return stored_rejections(self._problem.key, self._identity)
