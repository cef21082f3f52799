"""Sweeps: each variant over sizes, one candidate over thread counts and placements."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from autotune import units
from autotune.candidates import fastest_measured, runnable_config
from autotune.device import CpuDevice, Device
from autotune.device.placement import place
from autotune.device.room import memory_left
from autotune.errors import UserError
from autotune.model import Candidate, Config, Problem, Variant
from autotune.model.problem import Value
from autotune.model.space import inadmissible, nearest_config, needed_bytes, too_large
from autotune.model.traits import predict
from autotune.registry import registry
from autotune.scaling.exponents import Point
from autotune.trials import MEASURED, Trials
from autotune_tuning_db import TrialRow

Say = Callable[[str], None]

LONGEST_SECONDS, SHORTEST_SECONDS = 10.0, 0.1
"""For sampling one candidate, whatever the budget: calls of some seconds need the longest."""


@dataclass(frozen=True, slots=True)
class Curve:
    """The points of one variant in order of size; `left_out` says why sizes are missing."""

    variant: str
    points: tuple[Point, ...]
    left_out: tuple[str, ...] = ()


class SweepStopped(KeyboardInterrupt):
    """Ctrl-C during a sweep over sizes; `curves` are what was measured until then."""

    def __init__(self, curves: list[Curve]) -> None:
        super().__init__()
        self.curves = curves


@dataclass(frozen=True, slots=True)
class Setting:
    """A thread count and placement; `placement` is "" for a variant that leaves it alone."""

    threads: int
    placement: str


@dataclass(frozen=True, slots=True)
class Swept:
    """One candidate's times over settings, and those that could not be tried, with the reason."""

    variant: str
    config: Config
    points: tuple[tuple[Setting, Point], ...]
    left_out: tuple[tuple[Setting, str], ...] = ()

    @property
    def best(self) -> tuple[Setting, Point] | None:
        """The setting with the smallest median."""
        timed = [each for each in self.points if each[1].samples]
        return min(timed, key=lambda each: _median(each[1]), default=None)

    def penalty(self, setting: Setting) -> float | None:
        """Time at a setting over the best; None if either has no time."""
        point = dict(self.points).get(setting)
        if point is None or not point.samples or self.best is None:
            return None
        return _median(point) / _median(self.best[1])


def sweep_sizes(
    trials: Trials,
    sized: Sequence[tuple[int, Problem]],
    variants: Sequence[Variant],
    *,
    budget: float,
    say: Say = lambda text: None,
) -> list[Curve]:
    """Measure each variant at each size, small sizes first, in one process.

    The config is the fastest one measured there before, or the default. A variant that fails at
    a size, or needs more memory there than is left, is not tried at larger ones; no further size is
    begun once `budget` seconds are spent, compiling apart. Raises SweepStopped at Ctrl-C.
    """
    curves = [_Curve(variant) for variant in variants]
    spent = 0.0
    try:
        for number, (size, problem) in enumerate(sized):
            seconds = _each(budget - spent, (len(sized) - number) * len(variants))
            up = f"the budget of {units.duration(budget)} is used up" if spent >= budget else ""
            for curve in curves:
                config = curve.config_at(size, problem, trials, up if number else "")
                if config is None:
                    continue
                say(f"{size}: {curve.variant.name}")
                chosen = Candidate(curve.variant.name, config)
                row = _row(trials, problem, chosen, seconds)
                spent += row.wall_seconds - (row.compile_seconds or 0.0)
                curve.add(_point(row, size, problem, chosen))
    except KeyboardInterrupt:
        raise SweepStopped([curve.done() for curve in curves]) from None
    return [curve.done() for curve in curves]


@dataclass(slots=True)
class _Curve:
    """A curve while it is measured; `given_up` is why larger sizes are not tried."""

    variant: Variant
    points: list[Point] = field(default_factory=list)
    left_out: list[tuple[int, str]] = field(default_factory=list)
    given_up: str = ""

    def config_at(self, size: int, problem: Problem, trials: Trials, up: str) -> Config | None:
        """The config to measure; None where there is none, for a reason that is kept, or `up`."""
        device = trials.device
        config, why = runnable_config(self.variant, problem, device)
        if config is not None and not self.given_up:
            config = fastest_measured(problem, device, self.variant, trials.mode) or config
            self.given_up = _no_room(self.variant, size, problem, config, device)
        why = why or self.given_up or up
        if why:
            self.left_out.append((size, why))
        return None if why else config

    def add(self, point: Point) -> None:
        """Take a point, if only as the last one."""
        self.points.append(point)
        self.given_up = "" if point.samples else "failed at a smaller size"

    def done(self) -> Curve:
        """With what is missing for one reason at several sizes in one text."""
        missing = []
        for why, group in itertools.groupby(self.left_out, key=lambda each: each[1]):
            sizes = [size for size, _ in group]
            last = f" to {sizes[-1]}" if len(sizes) > 1 else ""
            missing.append(f"{sizes[0]}{last}: {why}")
        return Curve(self.variant.name, tuple(self.points), tuple(missing))


def _no_room(variant: Variant, size: int, problem: Problem, config: Config, device: Device) -> str:
    """Why a candidate cannot fit the memory that is left, or ""."""
    if device.kind != "cpu":
        return too_large(variant, problem, config, device) or ""
    needed, left = needed_bytes(variant, problem, config), memory_left()
    if needed <= left:
        return ""
    return f"needs {units.size(needed)} at {size}, and {units.size(left)} of memory are left"


def sweep_threads(
    trials: Trials,
    problem: Problem,
    candidate: Candidate,
    *,
    budget: float,
    say: Say = lambda text: None,
) -> Swept:
    """Measure a candidate with every thread count and placement of the device.

    The rest of its config stays the same as far as its constraints admit that. Raises UserError
    for a variant without a tunable `threads`.
    """
    variant = registry.variant(problem.operation, candidate.variant)
    settings = settings_of(variant, trials.device)
    seconds = _each(budget, len(settings))
    points: list[tuple[Setting, Point]] = []
    left_out: list[tuple[Setting, str]] = []
    for setting in settings:
        config, why = config_at(problem, variant, candidate.config, setting, trials.device)
        if config is None:
            left_out.append((setting, why))
            continue
        threads = "thread" if setting.threads == 1 else "threads"
        say(f"{setting.threads} {threads} {setting.placement}".rstrip())
        chosen = Candidate(variant.name, config)
        row = _row(trials, problem, chosen, seconds)
        points.append((setting, _point(row, setting.threads, problem, chosen)))
    return Swept(variant.name, candidate.config, tuple(points), tuple(left_out))


def settings_of(variant: Variant, device: Device) -> list[Setting]:
    """Every thread count with every placement that the variant can be given on the device."""
    names = variant.tunable_names
    if "threads" not in names:
        raise UserError(
            f"{variant.name} has no tunable `threads`; name a variant that has one: --variant NAME."
        )
    counts = _values(variant, "threads", device)
    placements = _values(variant, "placement", device) if "placement" in names else ("",)
    return [Setting(int(count), str(each)) for each in placements for count in counts]


def _values(variant: Variant, name: str, device: Device) -> Iterable[Value]:
    (tunable,) = (each for each in variant.tunables if each.name == name)
    return tunable.values(device)


def config_at(
    problem: Problem, variant: Variant, config: Config, setting: Setting, device: Device
) -> tuple[Config | None, str]:
    """The config at a setting: as it is, or else the admissible one nearest to it; or why none."""
    swept: dict[str, Value] = {"threads": setting.threads}
    swept |= {"placement": setting.placement} if setting.placement else {}
    moved = Config({**config, **swept})
    why = _no_place(device, setting)
    if why:
        return None, why
    why = inadmissible(variant, problem, moved, device) or ""
    if not why:
        return moved, ""
    return nearest_config(variant, problem, device, moved, fixed=tuple(swept)), why


def _no_place(device: Device, setting: Setting) -> str:
    """Why there is no room for so many threads there, or ""."""
    if not isinstance(device, CpuDevice) or not setting.placement:
        return ""
    try:
        place(device.topology, setting.threads, setting.placement)
    except ValueError as error:
        return str(error).rstrip(".")
    return ""


def _row(trials: Trials, problem: Problem, candidate: Candidate, seconds: float) -> TrialRow:
    return trials.measure(problem, candidate, budget=seconds, precision=0.02, min_samples=8)


def _point(row: TrialRow, size: int, problem: Problem, candidate: Candidate) -> Point:
    variant = registry.variant(problem.operation, candidate.variant)
    return Point(
        size=size,
        config=candidate.config,
        samples=row.samples if row.status in MEASURED else (),
        prediction=predict(variant, problem, candidate.config),
        compulsory_bytes=sum(problem.compulsory_bytes),
        status=row.status,
        reason=row.reason,
        first_call=row.first_call_seconds,
        compiling=row.compile_seconds,
    )


def _each(budget: float, count: int) -> float:
    return min(max(budget / max(count, 1), SHORTEST_SECONDS), LONGEST_SECONDS)


def _median(point: Point) -> float:
    interval = point.interval
    assert interval is not None
    return interval.median
