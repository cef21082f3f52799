"""An immutable set of policies and pins with a digest: what a process dispatches from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from autotune_policies.policy import Policy, PolicyError
from autotune_tuning_db import PinRow, PolicyRow, ProblemKey


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Policies and pins, one policy for each problem, device and mode.

    `digest` is a SHA-256 over their content, whatever order they came in: two processes with the
    same digest dispatch alike. `notes` tell what was left out, and are not part of the digest.
    """

    policies: tuple[Policy, ...] = ()
    pins: tuple[PinRow, ...] = ()
    notes: tuple[str, ...] = ()
    digest: str = field(init=False)
    _policy_of: Mapping[tuple[str, str, str], Policy] = field(init=False, repr=False, compare=False)
    _pin_of: Mapping[tuple[str, str, str], PinRow] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        policy_of = {(p.problem.text, p.device, p.mode): p for p in self.policies}
        pin_of = {(p.operation, _text(p.problem), p.device): p for p in self.pins}
        policies = tuple(policy_of[key] for key in sorted(policy_of))
        pins = tuple(pin_of[key] for key in sorted(pin_of))
        for name, value in (
            ("policies", policies),
            ("pins", pins),
            ("_policy_of", policy_of),
            ("_pin_of", pin_of),
            ("digest", _digest(policies, pins)),
        ):
            object.__setattr__(self, name, value)

    def find(self, problem: ProblemKey, device: str, mode: str) -> Policy | None:
        """The policy of exactly this problem on this device."""
        return self._policy_of.get((problem.text, device, mode))

    def pin_for(self, problem: ProblemKey, device: str) -> PinRow | None:
        """The user's pin for this problem, else the one for its whole operation."""
        exact = self._pin_of.get((problem.operation, problem.text, device))
        return exact or self._pin_of.get((problem.operation, "", device))

    def to_json(self) -> dict[str, Any]:
        """Plain JSON values, to freeze the processes of a job on one snapshot."""
        return {
            "policies": [policy.to_json() for policy in self.policies],
            "pins": [_pin_json(pin) for pin in self.pins],
            "digest": self.digest,
        }

    @classmethod
    def from_json(cls, data: Any) -> Snapshot:
        """Raises PolicyError when the content is damaged or does not have the digest it claims."""
        try:
            policies = [Policy.from_json(policy) for policy in data["policies"]]
            pins = [_read_pin(pin) for pin in data["pins"]]
            digest = data["digest"]
        except PolicyError:
            raise
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise PolicyError(f"The snapshot is not complete: {error!r}.") from None
        snapshot = cls(tuple(policies), tuple(pins))
        if snapshot.digest != digest:
            raise PolicyError(
                f"The snapshot has the digest {snapshot.digest[:12]}, not {str(digest)[:12]} as it "
                "says; write it again."
            )
        return snapshot


def snapshot_of(
    rows: Iterable[PolicyRow], pins: Iterable[PinRow] = (), shipped: Iterable[Policy] = ()
) -> Snapshot:
    """The snapshot of a store: its policies over the shipped ones; never raises for an entry.

    Entries that cannot be read are left out, with a note each.
    """
    policies, notes = list(shipped), []
    for row in rows:
        try:
            policies.append(Policy.from_row(row))
        except PolicyError as error:
            notes.append(f"skipped the policy of {row.problem} on {row.device}: {error}")
    return Snapshot(tuple(policies), tuple(pins), tuple(notes))


def _digest(policies: tuple[Policy, ...], pins: tuple[PinRow, ...]) -> str:
    content = [[policy.to_json() for policy in policies], [_pin_json(pin) for pin in pins]]
    return hashlib.sha256(
        json.dumps(content, sort_keys=True, separators=(",", ":")).encode()
    ).hexdigest()


def _text(problem: ProblemKey | None) -> str:
    return problem.text if problem else ""


def _pin_json(pin: PinRow) -> dict[str, Any]:
    return {**asdict(pin), "problem": _text(pin.problem)}


def _read_pin(data: Any) -> PinRow:
    problem = ProblemKey.parse(data["problem"]) if data["problem"] else None
    return PinRow(**{**data, "problem": problem})
