"""Choices and policies made from a few numbers, and requests answered from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune_policies import (
    Choice,
    Constraints,
    Policy,
    Request,
    Resolution,
    Snapshot,
    Verdict,
    resolve,
)
from autotune_policies.request import Config
from autotune_tuning_db import ProblemKey

DEVICE, FAMILY = "cpu:abc", "zen3"
TOOLCHAIN = {"numba": "0.61", "driver": "550.1"}
AXES = (("N",), ("B",))


def choice_of(variant: str = "fused", seconds: float = 1e-3, **changes: Any) -> Choice:
    values: dict[str, Any] = {
        "config": (("block", 64),),
        "low": seconds * 0.99,
        "high": seconds * 1.01,
        "workspace_bytes": 0,
        "error": 1e-6,
        "deterministic": True,
        "fingerprint": f"source of {variant}",
        "samples": 30,
    }
    return Choice(variant, seconds=seconds, **(values | changes))


def problem_of(n: int, b: int = 2, dtype: str = "float32", causal: bool = False) -> ProblemKey:
    return ProblemKey("attention", (("B", b), ("N", n)), dtype, (("causal", causal),))


def policy_of(
    problem: ProblemKey, times: Mapping[str, float] | None = None, **changes: Any
) -> Policy:
    """A policy with one choice per variant, the fastest first."""
    times = times if times is not None else {"fused": 1e-3, "separate": 2e-3}
    choices = tuple(
        choice_of(variant, times[variant], config=(("block", problem.dim("N")),))
        for variant in sorted(times, key=lambda name: times[name])
    )
    values: dict[str, Any] = {
        "problem": problem,
        "device": DEVICE,
        "family": FAMILY,
        "mode": "cold",
        "ranking": choices,
        "variants": choices,
        "verdict": Verdict("clear", 1.0, 0.01, "because"),
        "toolchain": TOOLCHAIN,
        "created": "2026-01-01T00:00:00+00:00",
    }
    return Policy(**(values | changes))


def admit_all(variant: str, config: Config) -> str | None:
    """Every candidate may run."""
    return None


def unchanged(variant: str) -> str | None:
    """The fingerprint that `choice_of` gives, for every variant."""
    return f"source of {variant}"


def request_of(problem: ProblemKey | None = None, **changes: Any) -> Request:
    """A request of this device, with constraints."""
    constraints = Constraints(**changes)
    return Request(problem or problem_of(512), DEVICE, FAMILY, "cold", AXES, constraints)


def answer(snapshot: Snapshot, request: Request | None = None, **how: Any) -> Resolution:
    """What resolves the request, by default with everything registered, unchanged and admitted."""
    given: dict[str, Any] = {
        "admits": admit_all,
        "fingerprints": unchanged,
        "toolchain": TOOLCHAIN,
    }
    return resolve(snapshot, request or request_of(), **(given | how))


def missing(*names: str) -> Any:
    """Fingerprints as when these variants are no longer registered."""
    return lambda variant: None if variant in names else unchanged(variant)
