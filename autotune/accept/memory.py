"""The second test: does it move the memory it should."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from autotune.accept.thresholds import Limits
from autotune.accept.verdict import Check, Status
from autotune.device import Device
from autotune.model import Candidate, Problem
from autotune.model.traits import predict
from autotune.profile import Profile, ProfileError
from autotune.profile import profile as profile_candidate
from autotune.registry import registry

Count = Callable[[Problem, Candidate, Device], Profile]


def count_traffic(problem: Problem, candidate: Candidate, device: Device) -> Profile:
    """Hardware counters of one call; ProfileError where there are none."""
    from autotune.plugins import plugin_files

    return profile_candidate(problem, candidate, device, plugin_files=plugin_files())


def check_memory(
    problem: Problem,
    candidate: Candidate,
    device: Device,
    limits: Limits,
    count: Count = count_traffic,
) -> Check:
    """Predicted over compulsory bytes, and counted over predicted ones where they can be counted.

    Each is held to its limit if there is one. Without counters the second is not measured, and
    then the verdict is open unless the first has failed already. What is predicted of a variant
    with parts is the least that it moves, since what its parts move is theirs: that can fail the
    first, and passes nothing.
    """
    variant = registry.variant(problem.operation, candidate.variant)
    prediction = predict(variant, problem, candidate.config)
    compulsory = sum(problem.compulsory_bytes)
    facts: dict[str, float] = {
        "predicted_bytes": prediction.bytes_moved,
        "compulsory_bytes": compulsory,
    }
    ratio = _ratio(prediction.bytes_moved, compulsory)
    if variant.passes:
        facts["predicted_over_compulsory"] = ratio
    if limits.over_compulsory is None and limits.over_predicted is None:
        return Check("not asked", "the thresholds have no limit for memory", facts)
    if not variant.passes:
        return Check("not measured", "the variant declares no passes to predict from", facts)
    declared = _within("predicted over compulsory", ratio, limits.over_compulsory)
    if declared.status == "pass" and variant.parts:
        declared = Check("not measured", f"{declared.reason}, without what its parts move")
    if limits.over_predicted is None or declared.status == "fail":
        return Check(declared.status, declared.reason, facts)
    try:
        found = count(problem, candidate, device)
    except ProfileError as error:
        return Check("not measured", f"no counters: {error}", facts)
    counted = found.bytes_read + found.bytes_written
    if not math.isfinite(counted):
        return Check("not measured", "the device has no counters of its memory's traffic", facts)
    ratio = _ratio(counted, prediction.bytes_moved)
    facts |= {"counted_bytes": counted, "counted_over_predicted": ratio}
    measured = _within("counted over predicted", ratio, limits.over_predicted)
    status = declared.status if measured.status == "pass" and declared.open else measured.status
    return Check(status, _joined(declared, measured), facts)


def _ratio(bytes_moved: float, least: float) -> float:
    """Of nothing over nothing it is 1."""
    if least:
        return bytes_moved / least
    return math.inf if bytes_moved else 1.0


def _within(what: str, ratio: float, limit: float | None) -> Check:
    if limit is None:
        return Check("not asked", f"{what} {ratio:.2f}")
    status: Status = "pass" if ratio <= limit else "fail"
    return Check(status, f"{what} {ratio:.2f}, allowed {limit:g}")


def _joined(*checks: Check) -> str:
    return "; ".join(check.reason for check in checks)


def ratio_text(facts: Mapping[str, Any]) -> str:
    """The ratio that a table shows: counted over predicted if there is one, else the other."""
    for name in ("counted_over_predicted", "predicted_over_compulsory"):
        if name in facts:
            return f"{facts[name]:.2f}"
    return "-"
