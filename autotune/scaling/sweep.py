"""Sweeps: each variant over sizes, one candidate over thread counts and placements."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from autotune.candidates import fastest_measured, runnable_config
from autotune.device import CpuDevice, Device
from autotune.device.placement import place
from autotune.errors import UserError
from autotune.model import Candidate, Config, Problem, Variant
from autotune.model.problem import Value
from autotune.model.space import inadmissible, nearest_config
from autotune.model.traits import predict
from autotune.registry import registry
from autotune.scaling.exponents import Point
from autotune.trials import MEASURED, Trials
from autotune_tuning_db import TrialRow

Say = Callable[[str], None]

LONGEST_SECONDS, SHORTEST_SECONDS = 2.0, 0.1
"""For sampling one candidate, whatever the budget."""


@dataclass(frozen=True, slots=True)
class Curve:
    """The points of one variant in order of size; `left_out` says why sizes are missing."""

    variant: str
    points: tuple[Point, ...]
    left_out: tuple[str, ...] = ()


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
    a size is not tried at larger ones.
    """
    seconds = _each(budget, len(sized) * len(variants))
    curves: dict[str, list[Point]] = {variant.name: [] for variant in variants}
    left_out: dict[str, list[str]] = {variant.name: [] for variant in variants}
    given_up: set[str] = set()
    for size, problem in sized:
        for variant in variants:
            config, why = runnable_config(variant, problem, trials.device)
            if config is None or variant.name in given_up:
                left_out[variant.name].append(f"{size}: {why or 'failed at a smaller size'}")
                continue
            config = fastest_measured(problem, trials.device, variant) or config
            say(f"{size}: {variant.name}")
            point = _measured(trials, size, problem, Candidate(variant.name, config), seconds)
            curves[variant.name].append(point)
            if not point.samples:
                given_up.add(variant.name)
    return [Curve(name, tuple(found), tuple(left_out[name])) for name, found in curves.items()]


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
        config, why = _config_at(problem, variant, candidate.config, setting, trials.device)
        if config is None:
            left_out.append((setting, why))
            continue
        say(f"{setting.threads} threads {setting.placement}".rstrip())
        chosen = Candidate(variant.name, config)
        points.append((setting, _measured(trials, setting.threads, problem, chosen, seconds)))
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


def _config_at(
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


def _measured(
    trials: Trials, size: int, problem: Problem, candidate: Candidate, seconds: float
) -> Point:
    row = trials.measure(problem, candidate, budget=seconds, precision=0.02, min_samples=8)
    return _point(row, size, problem, candidate)


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
