"""Stores filled without measuring."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from autotune.device import local_cpu
from autotune.fingerprint import fingerprint, toolchain
from autotune.model import Problem
from autotune.registry import registry
from autotune.store import open_tuning_db
from autotune_policies import Choice, Policy, Subject, build_policy
from autotune_tuning_db import DeviceRow, TrialRow, utc_now

PLUGIN = Path(__file__).parent / "cli" / "plugins" / "toy_scale.py"


def choice(variant: str, seconds: float, **changes: Any) -> Choice:
    """A measured choice of the toy operation."""
    registered = registry.variant("toy_scale", variant)
    given = {
        "config": tuple((tunable.name, 1) for tunable in registered.tunables),
        "seconds": seconds,
        "low": seconds * 0.99,
        "high": seconds * 1.01,
        "workspace_bytes": 0,
        "error": 1e-7,
        "deterministic": True,
        "fingerprint": fingerprint(registered),
        "samples": 20,
    }
    return Choice(variant, **(given | changes))


def keep(problem: Problem, *choices: Choice, device: str = "", **changes: Any) -> Policy:
    """Put a policy of these choices into the store."""
    cpu = local_cpu()
    given = {"mode": "cold", "toolchain": toolchain(), "created": utc_now(), "family": cpu.family}
    identity = device or cpu.identity
    subject = Subject(problem=problem.key, device=identity, **(given | changes))
    policy = build_policy(subject, choices)
    label = cpu.label if not device else "Some other CPU"
    with open_tuning_db() as store:
        store.add_device(DeviceRow(identity, "cpu", subject.family, label, {}))
        store.put_policy(policy.to_row())
    return policy


def measured(problem: Problem, choice: Choice, status: str = "ok", **changes: Any) -> None:
    """Put the trial of a choice into the store."""
    times = {"median": choice.seconds, "low": choice.low, "high": choice.high}
    given = {"config": dict(choice.config), "samples": (choice.seconds,), **times}
    lose(problem, choice.variant, status, "", **(given | changes))


def lose(problem: Problem, variant: str, status: str, reason: str, **changes: Any) -> None:
    """Put a trial that failed into the store."""
    registered = registry.variant(problem.operation, variant)
    with open_tuning_db() as store:
        campaign = store.start_campaign(local_cpu().identity, {})
        store.add_trial(
            TrialRow(
                campaign=campaign,
                problem=problem.key,
                device=local_cpu().identity,
                mode="cold",
                variant=variant,
                fingerprint=fingerprint(registered),
                status=status,
                reason=reason,
                toolchain={},
                circumstances={},
                **({"config": {}, "stage": "search", "started": utc_now()} | changes),
            )
        )


def toy_problem(size: int = 1024, dtype: str = "float32", **flags: Any) -> Problem:
    """A problem of the toy operation."""
    return Problem.of(registry.operation("toy_scale"), (size,), dtype, **flags)
