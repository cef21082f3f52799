"""What is cached for each problem: its policy, how far it can be trusted, and who fell out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from autotune.candidates import runnable_config
from autotune.device import Device
from autotune.errors import UnknownNameError
from autotune.model.operation import Operation
from autotune.model.problem import Problem
from autotune.model.space import concerns
from autotune.registry import registry
from autotune_policies import Grade, Policy, Snapshot, grade
from autotune_tuning_db import PinRow, ProblemKey, TrialRow
from autotune_tuning_db.rows import REJECTED, to_json

LOST = ("wrong", "failed", "crashed", "timeout", "unavailable")
"""Statuses of a trial that keep a candidate out of the ranking for good."""


@dataclass(frozen=True, slots=True)
class Loss:
    """A variant of which no candidate finished, or some went wrong: how, why, and how many."""

    variant: str
    status: str
    reason: str
    candidates: int = 0


@dataclass(frozen=True, slots=True)
class Entry:
    """A problem on a device in a cache mode; `policy` is None when nothing won there.

    `grade` is None for a foreign entry: only its own machine can tell. `compile_seconds` is what
    building the winner took, where it was measured; no time of a policy has it in it. `measured`
    tells whether any candidate has a time.
    """

    key: ProblemKey
    device: str
    mode: str
    policy: Policy | None
    grade: Grade | None = None
    pin: PinRow | None = None
    losses: tuple[Loss, ...] = ()
    disturbed: bool = False
    compile_seconds: float | None = None
    measured: bool = False

    @property
    def state(self) -> str:
        """fresh, revalidate, stale, foreign, unsettled, `no winner` or `not registered`."""
        if self.policy is None:
            return "unsettled" if self.measured else "no winner"
        if self.grade is None:
            return "foreign"
        if current_fingerprint(self.key.operation, self.policy.winner.variant) is None:
            return "not registered"
        return self.grade.level

    @property
    def operation(self) -> Operation | None:
        """The registered operation, None when no plugin of this process has it."""
        return known_operation(self.key.operation)

    @property
    def problem(self) -> Problem | None:
        """The problem as the registered operation sees it now, None when it no longer fits."""
        try:
            return Problem.from_key(self.operation, self.key) if self.operation else None
        except ValueError:
            return None


def known_operation(name: str) -> Operation | None:
    """The registered operation of that name, or None."""
    try:
        return registry.operation(name)
    except UnknownNameError:
        return None


def collect(
    snapshot: Snapshot,
    trials: Sequence[TrialRow],
    local: Sequence[Device],
    wanted: Callable[[ProblemKey], bool],
) -> list[Entry]:
    """Every entry whose problem is wanted, local devices first, then by operation and size."""
    devices = {device.identity: device for device in local}
    of_key: dict[tuple[ProblemKey, str, str], list[TrialRow]] = {}
    for row in trials:
        of_key.setdefault((row.problem, row.device, row.mode), []).append(row)
    policies = {(p.problem, p.device, p.mode): p for p in snapshot.policies}
    entries = [
        Entry(*place, policies.get(place), pin=snapshot.pin_for(*place[:2]))
        for place in {**policies, **of_key}
        if wanted(place[0])
    ]
    graded = grades([e.policy for e in entries if e.policy and e.device in devices])
    full = [
        _filled(entry, of_key.get((entry.key, entry.device, entry.mode), []), devices, graded)
        for entry in entries
    ]
    return sorted(full, key=partial(_order, list(devices)))


def _filled(
    entry: Entry,
    rows: Sequence[TrialRow],
    devices: Mapping[str, Device],
    graded: Mapping[int, Grade],
) -> Entry:
    device = devices.get(entry.device)
    mine = winner_rows(entry.policy, rows) if entry.policy else []
    # What `scale` or `accept` has measured since is no part of what the policy rests on.
    rested = [row for row in mine if entry.policy and row.started <= entry.policy.created]
    compiled = [row.compile_seconds for row in mine if row.compile_seconds is not None]
    return replace(
        entry,
        grade=graded.get(id(entry.policy)),
        losses=(
            *lost(entry.key, rows),
            *(skipped(entry.problem, device) if device else ()),
        ),
        disturbed=bool(rested) and rested[-1].status == "disturbed",
        compile_seconds=max(compiled, default=None),
        measured=any(row.status not in LOST for row in rows),
    )


def winner_rows(policy: Policy, rows: Iterable[TrialRow]) -> list[TrialRow]:
    """The trials of a policy's winner, oldest first."""
    wanted = (policy.winner.variant, dict(policy.winner.config))
    return [row for row in rows if (row.variant, dict(row.config)) == wanted]


def grades(policies: Sequence[Policy]) -> dict[int, Grade]:
    """By `id`, how far each winner can be trusted with what is registered and loaded now."""
    if not policies:
        return {}  # looking at the toolchain loads numba
    from autotune.fingerprint import toolchain

    return {
        id(policy): grade(
            policy,
            policy.winner,
            fingerprints=partial(current_fingerprint, policy.problem.operation),
            toolchain=toolchain(device_kind(policy.device)),
        )
        for policy in policies
    }


def device_kind(identity: str) -> str:
    """`cpu` or `cuda`, from a device's identity."""
    return identity.partition("-")[0]


def current_fingerprint(operation: str, variant: str) -> str | None:
    """The fingerprint of a variant as it is now; None when it is not registered."""
    from autotune.fingerprint import fingerprint

    try:
        return fingerprint(registry.variant(operation, variant))
    except UnknownNameError:
        return None


def lost(key: ProblemKey, rows: Iterable[TrialRow]) -> list[Loss]:
    """Variants whose present source was tried on this problem and never finished a trial.

    And those of which some candidates were wrong, or crashed, when they were last tried.
    """
    latest = {
        (row.variant, to_json(row.config)): row
        for row in rows
        if row.fingerprint in (None, current_fingerprint(key.operation, row.variant))
    }
    finished = {row.variant for row in latest.values() if row.status not in LOST}
    reasons: dict[str, Counter[tuple[str, str]]] = {}
    for row in latest.values():
        told = REJECTED if row.variant in finished else LOST
        if row.status in told:
            reasons.setdefault(row.variant, Counter())[row.status, one_line(row.reason)] += 1
    return [
        Loss(variant, *counts.most_common(1)[0][0], sum(counts.values()))
        for variant, counts in reasons.items()
    ]


def skipped(problem: Problem | None, device: Device) -> list[Loss]:
    """Variants that are not tried on this problem, each with the reason."""
    if problem is None:
        return []
    reasons = {
        each.name: runnable_config(each, problem, device)[1]
        for each in registry.variants(problem.operation)
        if concerns(each, problem, device.kind)
    }
    return [Loss(name, "skipped", reason) for name, reason in reasons.items() if reason]


def one_line(text: str, limit: int = 160) -> str:
    """A reason on one line, cut where it gets long."""
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else f"{flat[: limit - 3]}..."


def _order(local: list[str], entry: Entry) -> tuple[Any, ...]:
    home = local.index(entry.device) if entry.device in local else len(local)
    key = entry.key
    group = (key.operation, key.dtype, key.flags_text, entry.mode, key.layout)
    return (home, entry.device, *group, [size for _, size in key.dims])
