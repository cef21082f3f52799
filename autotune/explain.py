"""Why dispatch answers as it does, in words; pure functions over what was resolved."""

from __future__ import annotations

from autotune import units
from autotune.device import Device
from autotune.model.problem import Problem
from autotune.model.space import concerns
from autotune.model.variant import Variant
from autotune.registry import registry
from autotune.spelling import candidate_text, problem_options, short_problem, tune_command
from autotune_policies import Choice, Near, Policy, Request, Resolution, Snapshot, nearest

_GROUNDS = {
    "pinned": "pinned by you",
    "tuned": "measured for exactly this problem on this device",
    "interpolated": "interpolated from other sizes that were measured on this device",
    "family": "taken from measurements on a device of the same family",
}


def explain_resolution(problem: Problem, device: Device, resolution: Resolution) -> str:
    """What was chosen from the policies, on what evidence, and what was passed over."""
    choice, policy = resolution.choice, resolution.policy
    chosen = candidate_text(resolution.variant, dict(resolution.config or ()))
    grounds = _GROUNDS.get(str(resolution.origin), str(resolution.origin))
    if resolution.origin == "interpolated" and policy and policy.problem == problem.key:
        grounds = (
            f"measured for exactly this problem on this device, in another mode: {policy.mode}"
        )
    if resolution.beyond > 1:
        grounds += f", {resolution.beyond:.3g} times outside their range"
    lines = [_subject(problem, device), f"{chosen}: {grounds}"]
    if choice is not None:
        measured = f"{units.seconds(choice.seconds)} ({_evidence(choice)})"
        lines.append(_where(measured, policy, resolution.origin))
    if policy is not None:
        if resolution.origin in ("tuned", "pinned"):
            lines.append(verdict_text(policy))
        lines.append(f"measured {policy.created[:10]}, {policy.mode} cache, {policy.origin}")
    return "\n".join([*lines, *(f"note: {note}" for note in resolution.notes)])


def _evidence(choice: Choice) -> str:
    """The interval and how many samples it rests on; few give none."""
    samples = units.number(choice.samples, "sample")
    if not choice.covers:
        return f"{samples}, too few for an interval"
    return f"95% interval {units.seconds(choice.low)} to {units.seconds(choice.high)}, {samples}"


def _where(measured: str, policy: Policy | None, origin: str | None) -> str:
    if policy is None or origin in ("tuned", "pinned"):
        return measured
    place = f" on {policy.device}" if origin == "family" else ""
    return f"nearest measurement: {measured} at {policy.problem}{place}"


def verdict_text(policy: Policy) -> str:
    """How sure the winner of a policy is: clear, a tie, or the only one."""
    verdict = policy.verdict
    if verdict.kind == "single":
        return f"no other variant was measured: {verdict.reason}"
    if verdict.kind == "undecided":
        return f"low confidence: {verdict.reason}"
    if verdict.kind == "tie":
        return f"a tie within {100 * verdict.band:g}%: {verdict.reason}"
    rival = policy.runner_up
    if rival is None or f" {rival.variant} " in verdict.reason:
        return f"the next variant takes {units.longer(verdict.lead)}: {verdict.reason}"
    lead = rival.seconds / policy.winner.seconds - 1  # the verdict speaks of another variant
    return f"the next variant, {rival.variant}, takes {units.longer(lead)}"


def explain_default(
    problem: Problem, device: Device, variant: Variant, seconds: float, considered: int
) -> str:
    """A choice by prediction: nothing was measured that applies."""
    among = f"the least predicted time among {units.number(considered, 'default config')}"
    return "\n".join(
        (
            _subject(problem, device),
            f"{variant.name}: predicted, nothing measured applies; {among}",
            f"the prediction orders variants ({units.seconds(seconds)} for this one) and is no "
            "measurement",
            f"measure it: {tune_command(problem)}",
        )
    )


def explain_reference(problem: Problem, device: Device) -> str:
    """No variant can serve: the operation's own reference does."""
    return "\n".join(
        (
            _subject(problem, device),
            f"reference: no variant of {problem.operation.name} can run this problem here, so its "
            "float64 reference does",
            f"why not: autotune variants {problem.operation.name} {problem_options(problem)}",
        )
    )


def miss_message(
    problem: Problem,
    device: Device,
    resolution: Resolution,
    snapshot: Snapshot,
    *,
    mode: str = "cold",
    limit: int = 2,
) -> str:
    """One message for a key that was missed: the key, the nearest entries, and what to run.

    Of one that is tuned, why nothing of its entry may serve; to tune it again helps only where a
    variant has changed since.
    """
    what = f"{short_problem(problem)} on {device.identity}"
    because = [f"{skipped.variant}: {skipped.reason}" for skipped in resolution.skipped[:2]]
    measure = f"Measure it: {tune_command(problem, mode=mode)}"
    if snapshot.find(problem.key, device.identity, mode) is not None:
        told = "; ".join([f"nothing that was measured for {what} may serve", *because])
        changed = any(each.obstacle in ("stale", "missing") for each in resolution.skipped)
        return f"{told}. {measure}" if changed else f"{told}."
    request = Request(problem.key, device.identity, device.family, mode, problem.operation.varying)
    near = [f"nearest is {near_text(each)}" for each in nearest(snapshot, request, limit=limit)]
    near = near or [f"no policy of {problem.operation.name} is cached"]
    told = "; ".join([f"nothing measured applies to {what}", *because, *near])
    return f"{told}. {nothing_to_measure(problem, device) or measure}"


def nothing_to_measure(problem: Problem, device: Device) -> str | None:
    """A sentence where no variant is made for the device and the dtype, or None."""
    operation = problem.operation
    if any(concerns(each, problem, device.kind) for each in registry.variants(operation)):
        return None
    kind = "a GPU" if device.kind == "cuda" else "a CPU"
    return (
        f"No variant of {operation.name} is made for {problem.dtype} on {kind}, so there is "
        f"nothing to measure: autotune variants {operation.name}"
    )


def gone_message(problem: Problem, gone: str, serves: str) -> str:
    """A variant that a policy rests on, and that was removed or renamed."""
    return (
        f"{gone} was measured for {short_problem(problem)} and is not registered any more; "
        f"{serves} serves. Measure again: {tune_command(problem)}"
    )


def near_text(near: Near) -> str:
    """One cached entry, and which of its fields differ from what was asked (entry -> asked)."""
    return f"{near.policy.problem} ({'; '.join(near.differs)})"


def _subject(problem: Problem, device: Device) -> str:
    return f"{short_problem(problem)} on {device.label} ({device.identity})"
