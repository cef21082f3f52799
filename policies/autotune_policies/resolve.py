"""From a request to a choice: pinned, exact, interpolated, same device family; and why."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from autotune_policies.interpolate import Neighbours, estimates, neighbours
from autotune_policies.policy import Choice, Policy
from autotune_policies.request import (
    Admits,
    Config,
    Constraints,
    Fingerprints,
    Grade,
    Obstacle,
    Origin,
    Request,
    Resolution,
    Skipped,
)
from autotune_policies.snapshot import Snapshot

OTHER_MODES = {"graph": ("cold", "hot"), "cold": ("graph", "hot"), "hot": ("cold", "graph")}
"""What comes nearest to a mode that nothing was measured in."""

OUTDONE = 2.0
"""Times slower than one whose source has changed since, beyond which a choice is no answer: that
others are better is all that its policy still says, and a prediction names one of those."""


@dataclass(slots=True)
class _Search:
    """One walk through the snapshot, noting what it passes over."""

    request: Request
    admits: Admits
    fingerprints: Fingerprints
    toolchain: Mapping[str, str]
    skipped: dict[tuple[str, Config, str], Skipped] = field(default_factory=dict)

    def usable(self, choice: Choice, *, exact: bool, policy: Policy | None = None) -> bool:
        """Whether nothing keeps a choice from serving; `exact` if it was measured at this size.

        With its policy it must not be outdone there either.
        """
        obstacle = self.obstacle(choice, exact=exact)
        if obstacle is None and policy is not None:
            obstacle = self._outdone(choice, policy, exact=exact)
        if obstacle is not None:
            key = (obstacle.variant, obstacle.config, obstacle.reason)
            self.skipped.setdefault(key, obstacle)
        return obstacle is None

    def obstacle(self, choice: Choice, *, exact: bool) -> Skipped | None:
        """What keeps a choice from serving.

        The workspace of a neighbour is not the workspace at this size, so for a choice that was
        measured elsewhere `max_workspace` is left to `admits`, which knows the declaration.
        """
        if self.fingerprints(choice.variant) is None:
            return self._because(choice, "missing", "it is not registered any more")
        if self._edited(choice):
            return self._because(choice, "stale", "its source changed since it was measured")
        broken = _broken(choice, self.request.constraints, exact=exact)
        if broken is not None:
            return self._because(choice, "constraint", *broken)
        reason = self.admits(choice.variant, choice.config)
        return self._because(choice, "inadmissible", reason) if reason else None

    def _outdone(self, choice: Choice, policy: Policy, *, exact: bool) -> Skipped | None:
        edited = (c for c in policy.variants if self._edited(c) and self._wanted(c, exact=exact))
        better = min(edited, key=lambda other: other.seconds, default=choice)
        faster = choice.seconds / better.seconds
        if faster <= OUTDONE:
            return None
        reason = f"{better.variant}, whose source changed, was {faster:.3g} times as fast"
        return self._because(choice, "stale", reason)

    def _wanted(self, choice: Choice, *, exact: bool) -> bool:
        """Whether its variant could answer, in whatever config it has now."""
        broken = _broken(choice, self.request.constraints, exact=exact)
        return broken is None and self.admits(choice.variant, ()) is None

    def _edited(self, choice: Choice) -> bool:
        return self.fingerprints(choice.variant) not in (None, choice.fingerprint)

    def _because(
        self, choice: Choice, obstacle: Obstacle, reason: str, excess: float = 1.0
    ) -> Skipped:
        return Skipped(choice.variant, choice.config, obstacle, reason, excess)

    def answer(self, origin: Origin, choice: Choice, policy: Policy) -> Resolution:
        level = grade(policy, choice, fingerprints=self.fingerprints, toolchain=self.toolchain)
        asked = self.request
        pairs = (("device", policy.device, asked.device), ("mode", policy.mode, asked.mode))
        differs = [f"{name}: {one} -> {other}" for name, one, other in pairs if one != other]
        if differs:
            level = Grade("revalidate", (*differs, *level.changed))
        return Resolution(origin, choice.variant, choice.config, choice, policy, level)


def resolve(
    snapshot: Snapshot,
    request: Request,
    *,
    admits: Admits,
    fingerprints: Fingerprints,
    toolchain: Mapping[str, str],
) -> Resolution:
    """The best answer the snapshot has for a request.

    In this order: the user's pin; the policy of exactly this problem on this device; the tuned
    neighbours on this device; the same two on other devices of the family; all these again as
    measured in another mode, which counts as interpolated at best. Within each the choices are
    tried best first, and one that is not registered any more, whose source changed, that breaks a
    constraint or that `admits` refuses is passed over; and so is one that is far slower than a
    winner whose source changed.

    Args:
        snapshot: what to answer from.
        request: what is asked.
        admits: re-checks a variant and config against the problem itself, at its own size:
            everything the declaration tells, which includes the workspace.
        fingerprints: the sources as they are now.
        toolchain: the versions as they are loaded now.

    Returns:
        A resolution with `origin` None when nothing in the snapshot can serve; `closest` then
        tells what came near.
    """
    search = _Search(request, admits, fingerprints, toolchain)
    found = _pinned(snapshot, search) or _measured(snapshot, search) or Resolution()
    notes = [f"passed over {s.variant}: {s.reason}" for s in search.skipped.values()]
    if found.choice is not None and found.grade.changed:
        notes.append(f"to be measured again, changed: {'; '.join(found.grade.changed)}")
    return replace(
        found,
        notes=tuple(dict.fromkeys(notes)),
        skipped=tuple(search.skipped.values()),
        beyond=_beyond(snapshot, found, request),
    )


def _beyond(snapshot: Snapshot, found: Resolution, request: Request) -> float:
    """By what factor the request lies outside the sizes that an answer was taken from."""
    policy = found.policy
    if policy is None or policy.problem == request.problem:
        return 1.0
    others = (each for each in snapshot.policies if each.device == policy.device)
    near = neighbours(others, request.problem, request.axes, mode=policy.mode)
    return near.beyond if near is not None else 1.0


def closest(resolution: Resolution, limit: int = 3) -> tuple[Skipped, ...]:
    """What came nearest to a request that is refused: least over a limit first."""
    near = [item for item in resolution.skipped if item.obstacle in ("constraint", "inadmissible")]
    near.sort(key=lambda item: (item.obstacle != "constraint", item.excess))
    return tuple(near[:limit])


def grade(
    policy: Policy, choice: Choice, *, fingerprints: Fingerprints, toolchain: Mapping[str, str]
) -> Grade:
    """How far one choice of a policy can be trusted today, and what changed.

    Only fields the policy recorded are compared: a new field says nothing about an old run.
    """
    current = fingerprints(choice.variant)
    if current != choice.fingerprint:
        gone = f"variant {choice.variant}: not registered any more"
        edited = f"source of {choice.variant}: {choice.fingerprint[:12]} -> {(current or '')[:12]}"
        return Grade("stale", (gone if current is None else edited,))
    changed = tuple(
        f"{name}: {then} -> {toolchain.get(name, 'absent')}"
        for name, then in sorted(policy.toolchain.items())
        if toolchain.get(name) != then
    )
    return Grade("revalidate" if changed else "fresh", changed)


def _pinned(snapshot: Snapshot, search: _Search) -> Resolution | None:
    request = search.request
    pin = snapshot.pin_for(request.problem, request.device)
    if pin is None:
        return None
    wanted = tuple(sorted(pin.config.items())) if pin.config is not None else None
    for choice, exact, _ in _candidates(snapshot, request):
        known = choice.variant == pin.variant and wanted in (None, choice.config)
        if known and search.usable(choice, exact=exact):
            return Resolution("pinned", pin.variant, choice.config, choice)
    reason = _unmeasured_pin(pin.variant, wanted, search)
    if reason is None:
        return Resolution("pinned", pin.variant, wanted)
    skipped = Skipped(pin.variant, wanted or (), "inadmissible", f"it is pinned, but {reason}")
    search.skipped[(pin.variant, wanted or (), skipped.reason)] = skipped
    return None


def _unmeasured_pin(variant: str, config: Config | None, search: _Search) -> str | None:
    """Why a pin without usable evidence cannot be followed; None when it can."""
    broken = [item for item in search.skipped.values() if item.obstacle == "constraint"]
    if broken:
        return broken[0].reason
    if search.fingerprints(variant) is None:
        return "it is not registered any more"
    if search.request.constraints.max_error is not None:
        return "its error was not measured, so max_error cannot be promised"
    return search.admits(variant, config or ())


def _measured(snapshot: Snapshot, search: _Search) -> Resolution | None:
    origin: Origin
    for choice, exact, policy in _candidates(snapshot, search.request):
        if search.usable(choice, exact=exact, policy=policy):
            if policy.device != search.request.device:
                origin = "family"
            else:
                same_mode = policy.mode == search.request.mode
                origin = "tuned" if exact and same_mode else "interpolated"
            return search.answer(origin, choice, policy)
    return None


def _candidates(snapshot: Snapshot, request: Request) -> Iterator[tuple[Choice, bool, Policy]]:
    """Every choice worth trying, best first: as measured in the mode that is asked for, then in
    others."""
    for mode in (request.mode, *OTHER_MODES.get(request.mode, ())):
        yield from _in_mode(snapshot, replace(request, mode=mode))


def _in_mode(snapshot: Snapshot, request: Request) -> Iterator[tuple[Choice, bool, Policy]]:
    """This device, then others of its family."""
    yield from _on_device(snapshot, request, request.device)
    relatives: dict[str, list[Policy]] = {}
    for policy in snapshot.policies:
        if request.family == policy.family != "" and policy.device != request.device:
            relatives.setdefault(policy.device, []).append(policy)
    ranked = []
    for device, policies in relatives.items():
        found = neighbours(policies, request.problem, request.axes, mode=request.mode)
        if found is not None:
            ranked.append((found.distance, device))
    for _, device in sorted(ranked):
        yield from _on_device(snapshot, request, device)


def _on_device(
    snapshot: Snapshot, request: Request, device: str
) -> Iterator[tuple[Choice, bool, Policy]]:
    exact = snapshot.find(request.problem, device, request.mode)
    if exact is not None:
        yield from ((choice, True, exact) for choice in exact.choices)
    others = (p for p in snapshot.policies if p.device == device and p is not exact)
    found = neighbours(others, request.problem, request.axes, mode=request.mode)
    if found is not None:
        yield from _interpolated(found, request)


def _interpolated(found: Neighbours, request: Request) -> Iterator[tuple[Choice, bool, Policy]]:
    owner = {id(choice): policy for policy in found.policies for choice in policy.variants}
    for estimate in estimates(found, request.problem):
        yield from ((choice, False, owner[id(choice)]) for choice in estimate.choices)


def _apart(one: float, other: float) -> tuple[str, str]:
    """Two numbers with three digits each, or with as many as it takes to tell them apart."""
    texts = ((f"{one:.{digits}g}", f"{other:.{digits}g}") for digits in range(3, 18))
    return next((pair for pair in texts if pair[0] != pair[1]), (repr(one), repr(other)))


def _broken(choice: Choice, constraints: Constraints, *, exact: bool) -> tuple[str, float] | None:
    """The constraint a choice breaks, in words, and by what factor."""
    if constraints.deterministic and not choice.deterministic:
        return "it is not deterministic", float("inf")
    error, workspace = constraints.max_error, constraints.max_workspace
    if error is not None and not exact:
        return "its error was not measured at this size", float("inf")
    if error is not None and choice.error > error:
        reason = "its error {} is above max_error={}".format(*_apart(choice.error, error))
        return reason, choice.error / error if error else choice.error * float(2**53)
    if exact and workspace is not None and choice.workspace_bytes > workspace:
        reason = f"its workspace of {choice.workspace_bytes} bytes is above {workspace}"
        return reason, choice.workspace_bytes / max(workspace, 1)
    return None
