"""Which variant at an untuned size: each variant's time curve between the tuned neighbours."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from autotune_policies.policy import Choice, Policy
from autotune_tuning_db import ProblemKey

Axes = tuple[tuple[str, ...], ...]

ABOVE, BELOW = 4.0, 2.0
"""Beyond the tuned sizes a curve goes on with its last slope up to this factor, then stays.

Less far below, where the costs of a call that do not shrink with its size come in sight: carried
further, the steepest curve wins, which is that of a variant that is slow at every tuned size.
"""

_LARGEST_LOG = 700.0


@dataclass(frozen=True, slots=True)
class Estimate:
    """One variant at the requested size.

    `seconds` is what its curve says. Where the neighbours differ from the request in more than
    the size (another batch, say), it is the time at the neighbours' other dims: good for comparing
    variants, not for promising a time. `choices` are the variant's choices at the tuned sizes,
    nearest first: the places to take a config from. `complete` is False for a variant that was
    not measured at one of the adjacent sizes; such variants stand behind all others.
    """

    variant: str
    seconds: float
    choices: tuple[Choice, ...]
    complete: bool


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The policies an answer is taken from, by size, and the log2 distance to the request.

    `beyond` is by what factor the request lies outside their sizes, 1 if it does not; `axes` begin
    with what varies among them, the size.
    """

    policies: tuple[Policy, ...]
    distance: float
    beyond: float
    axes: Axes


def neighbours(
    policies: Iterable[Policy], problem: ProblemKey, axes: Axes, *, mode: str
) -> Neighbours | None:
    """The tuned problems that vary in size only and lie nearest to `problem`.

    Candidates have the same operation, dtype, flags, layout and mode, and the same dims outside
    `axes`. They are grouped by everything but the size, which is the first axis; the group nearest
    in log distance is taken, where sizes outside a group's tuned range add to its distance. On an
    axis of several dims (Nq and Nk) the size is their geometric mean; their proportions belong to
    what a group has in common. Where the first axis is empty, any of the others may be the size:
    that along which the tuned problems lie nearest.
    """
    if axes and not axes[0]:
        return _along_any(tuple(policies), problem, axes[1:], mode)
    groups: dict[tuple[float, ...], list[Policy]] = {}
    for policy in policies:
        if policy.mode == mode and _alike(policy.problem, problem, axes):
            groups.setdefault(_place(policy.problem, axes), []).append(policy)
    place, size = _place(problem, axes), _size(problem, axes)
    ranked = []
    for other, members in groups.items():
        members.sort(key=lambda policy: (_size(policy.problem, axes), policy.problem.text))
        first, last = (_size(members[end].problem, axes) for end in (0, -1))
        beyond = max(first - size, size - last, 0.0)
        ranked.append((math.hypot(math.dist(other, place), beyond), other, members, beyond))
    if not ranked:
        return None
    distance, _, nearest, beyond = min(ranked, key=lambda item: item[:2])
    return Neighbours(tuple(nearest), distance, 2.0 ** min(beyond, _LARGEST_LOG), axes)


def _along_any(
    policies: Sequence[Policy], problem: ProblemKey, axes: Axes, mode: str
) -> Neighbours | None:
    """With each axis as the size in turn: the nearest, of equal ones that with most policies."""
    orders = [(axis, *(other for other in axes if other != axis)) for axis in axes]
    found = [neighbours(policies, problem, order, mode=mode) for order in orders]
    ranked = [each for each in found if each is not None]
    return min(ranked, key=lambda each: (each.distance, -len(each.policies)), default=None)


def estimates(found: Neighbours, problem: ProblemKey) -> list[Estimate]:
    """Every variant measured at the neighbours, the fastest at `problem` first.

    Each variant's log time is a straight line in log size between two tuned sizes, so that where
    two lines cross, the answer changes. Where a variant was not measured as far as others were,
    its ratio to the best of them stays what it was at its own last size.
    """
    size = _size(problem, found.axes)
    sizes = [_size(policy.problem, found.axes) for policy in found.policies]
    best = _Curve(sizes, [math.log(_fastest(policy)) for policy in found.policies])
    adjacent = _adjacent(sizes, size)
    answers = []
    for variant in sorted({c.variant for policy in found.policies for c in policy.variants}):
        measured = {
            number: choice
            for number, policy in enumerate(found.policies)
            for choice in policy.variants
            if choice.variant == variant
        }
        own = _Curve(
            [sizes[number] for number in measured],
            [math.log(choice.seconds) for choice in measured.values()],
        )
        nearest = sorted(measured, key=lambda number: (abs(sizes[number] - size), number))
        choices = tuple(measured[number] for number in nearest)
        complete = adjacent <= measured.keys()
        answers.append(Estimate(variant, _seconds(own.at(size, best)), choices, complete))
    return sorted(answers, key=lambda answer: (not answer.complete, answer.seconds))


@dataclass(frozen=True, slots=True)
class _Curve:
    """Log time over log size at increasing points."""

    xs: Sequence[float]
    ys: Sequence[float]

    def at(self, x: float, best: _Curve) -> float:
        """The curve at `x`; where only `best` has points as far out, it keeps its ratio to it."""
        if len(self.xs) < len(best.xs):
            alone = len(self.xs) == 1
            if x < self.xs[0] and (alone or best.xs[0] < self.xs[0]):
                return self.ys[0] + best.line(x) - best.line(self.xs[0])
            if x > self.xs[-1] and (alone or best.xs[-1] > self.xs[-1]):
                return self.ys[-1] + best.line(x) - best.line(self.xs[-1])
        return self.line(x)

    def line(self, x: float) -> float:
        """Piecewise linear; see `ABOVE` for what happens beyond the points."""
        xs, ys = self.xs, self.ys
        if len(xs) == 1:
            return ys[0]
        x = min(max(x, xs[0] - math.log2(BELOW)), xs[-1] + math.log2(ABOVE))
        right = min(max(bisect_left(xs, x), 1), len(xs) - 1)
        x0, x1, y0, y1 = xs[right - 1], xs[right], ys[right - 1], ys[right]
        return y0 + (y1 - y0) * (x - x0) / (x1 - x0) if x1 > x0 else y0


def _alike(one: ProblemKey, other: ProblemKey, axes: Axes) -> bool:
    if (one.operation, one.dtype, one.flags_text, one.layout) != (
        other.operation,
        other.dtype,
        other.flags_text,
        other.layout,
    ):
        return False
    free = {name for axis in axes for name in axis}
    if [name for name, _ in one.dims] != [name for name, _ in other.dims]:
        return False
    pairs = zip(one.dims, other.dims, strict=True)
    return all(name in free or size == wanted for (name, size), (_, wanted) in pairs)


def _logs(problem: ProblemKey, names: Sequence[str]) -> list[float]:
    # An empty dim has no logarithm; it counts as size one.
    return [math.log2(max(problem.dim(name), 1)) for name in names]


def _size(problem: ProblemKey, axes: Axes) -> float:
    """Log2 of the geometric mean over the size axis; 0 for an operation without one."""
    logs = _logs(problem, axes[0]) if axes else []
    return sum(logs) / len(logs) if logs else 0.0


def _place(problem: ProblemKey, axes: Axes) -> tuple[float, ...]:
    """Everything but the size, in log2: the proportions on the size axis, and the other axes."""
    proportions = _logs(problem, axes[0]) if axes else []
    size = _size(problem, axes)
    others = [log for axis in axes[1:] for log in _logs(problem, axis)]
    return (*(round(log - size, 9) for log in proportions), *others)


def _seconds(log: float) -> float:
    """The time of a logarithm; a curve through absurd times may leave the range of floats."""
    return math.exp(min(log, _LARGEST_LOG))


def _fastest(policy: Policy) -> float:
    return min(choice.seconds for choice in policy.variants)


def _adjacent(sizes: Sequence[float], size: float) -> set[int]:
    """The tuned sizes on both sides of `size`, or the one that equals it or ends the range."""
    after = bisect_left(sizes, size)
    if after == len(sizes):
        return {after - 1}
    if sizes[after] == size or after == 0:
        return {after}
    return {after - 1, after}
