"""Why there is no exact policy: the entries that come nearest, and what differs in each."""

from __future__ import annotations

import math
from dataclasses import dataclass

from autotune_policies.policy import Policy
from autotune_policies.request import Request
from autotune_policies.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Near:
    """A policy of the same operation; `differs` has one text for each field, entry -> request."""

    policy: Policy
    differs: tuple[str, ...]


def nearest(snapshot: Snapshot, request: Request, limit: int = 3) -> tuple[Near, ...]:
    """The policies of the operation that differ in the fewest fields, then least in size.

    Those of another kind of device are not near: no variant that won there runs here.
    """
    ranked = []
    for policy in snapshot.policies:
        same = policy.problem.operation == request.problem.operation
        if same and _kind(policy.device) == _kind(request.device):
            near = Near(policy, _differs(policy, request))
            other_than_dims = sum(not text.startswith("dim ") for text in near.differs)
            ranked.append((other_than_dims, _distance(policy, request), policy.problem.text, near))
    ranked.sort(key=lambda item: item[:3])
    return tuple(item[3] for item in ranked[:limit])


def _differs(policy: Policy, request: Request) -> tuple[str, ...]:
    one, other = policy.problem, request.problem
    here, wanted = dict(one.dims), dict(other.dims)
    pairs: list[tuple[str, object, object]] = []
    pairs += [(f"dim {name}", here.get(name), wanted.get(name)) for name in {**here, **wanted}]
    had, asked = dict(one.flags), dict(other.flags)
    pairs += [(f"flag {name}", had.get(name), asked.get(name)) for name in {**had, **asked}]
    pairs += [
        ("dtype", one.dtype, other.dtype),
        ("layout", one.layout, other.layout),
        ("device", policy.device, request.device),
        ("mode", policy.mode, request.mode),
    ]
    return tuple(f"{name}: {a} -> {b}" for name, a, b in pairs if repr(a) != repr(b))


def _kind(device: str) -> str:
    """What an identity begins with: cpu, cuda."""
    return device.partition("-")[0].partition(":")[0]


def _distance(policy: Policy, request: Request) -> float:
    sizes, wanted = dict(policy.problem.dims), dict(request.problem.dims)
    shared = sizes.keys() & wanted.keys()
    return sum(abs(math.log2(max(sizes[n], 1) / max(wanted[n], 1))) for n in shared)
