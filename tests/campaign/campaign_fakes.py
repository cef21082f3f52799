"""A toy operation, a fake clock and a fake worker: a campaign without a process or a kernel."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from autotune.campaign import Campaign, Settings
from autotune.model import Choice, Operation, Pass, PowerOfTwo, Problem, Threads, Variant
from autotune.model.operation import parse_tensors
from autotune.registry import registry
from autotune.worker.protocol import Job, Outcome, RaceJob, RaceOutcome
from autotune_tuning_db import Store


@dataclass(frozen=True)
class FakeDevice:
    """Four threads, two placements."""

    kind: str = "cpu"
    identity: str = "cpu-fake-1"
    family: str = "cpu-fake"
    label: str = "A fake CPU"
    facts: Mapping[str, Any] = field(default_factory=dict)
    limits: Mapping[str, int] = field(default_factory=dict)
    address: str = "cpu"
    lock_name: str = "cpu-fake-1"
    unusable: str | None = None

    def thread_counts(self) -> tuple[int, ...]:
        return (1, 2, 4)

    def placements(self) -> tuple[str, ...]:
        return ("free", "compact")


class Clock:
    """Seconds that pass only when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


Answer = Callable[[Job], float | str]
"""Seconds of a candidate, or a status other than ok."""


class FakeWorker:
    """Answers from a function; every job takes `pace` seconds of the fake clock."""

    def __init__(self, answer: Answer, clock: Clock, *, pace: float = 0.1) -> None:
        self.answer, self.clock, self.pace = answer, clock, pace
        self.jobs: list[Job] = []
        self.races: list[RaceJob] = []
        self.closed = False
        self.renewed = 0
        self.compiled: list[Job] = []
        self.toolchain: dict[str, str] = {}
        self.culprits: list[int] = []
        self.load: Callable[[], float] = lambda: 1.0
        self.in_turn: Answer = answer
        self.depth = 1
        self.started: list[Job] = []
        self.compiles: Callable[[Job], Future[Outcome] | None] = lambda job: None

    def start(self, job: Job) -> Future[Outcome] | None:
        self.started.append(job)
        return self.compiles(job)

    def measure(self, job: Job) -> Outcome:
        self.jobs.append(job)
        self.clock.now += self.pace
        answer = self.answer(job)
        if isinstance(answer, str):
            return Outcome(answer, f"it {answer}\nin detail", wall_seconds=self.pace)  # type: ignore[arg-type]
        load = self.load()
        answer *= load
        dropped = job.incumbent is not None and answer > job.incumbent * (1 + job.margin)
        samples = (answer,) * (3 if dropped else 9)
        return Outcome(
            "dropped" if dropped else "ok" if load == 1.0 else "disturbed",
            "" if load == 1.0 else "other processes used 70% of the CPUs",
            samples=samples,
            median=answer,
            low=answer * 0.995,
            high=answer * 1.005,
            error=1e-7,
            error_bound=1e-6,
            workspace_bytes=0,
            wall_seconds=self.pace,
            toolchain=self.toolchain,
        )

    def race(self, job: RaceJob) -> RaceOutcome:
        self.races.append(job)
        self.clock.now += self.pace
        if self.culprits:
            return RaceOutcome("wrong", "went wrong", culprit=self.culprits.pop())
        times = []
        for name, config in job.entrants:
            seconds = self.in_turn(Job(job.problem, name, config))
            assert isinstance(seconds, float)
            times.append(seconds * self.load())
        samples = tuple(tuple(t * (1 + 1e-4 * (r % 3)) for r in range(12)) for t in times)
        busy = {"foreign_load": 0.7 if self.load() > 1.0 else 0.0}
        return RaceOutcome("ok", samples=samples, toolchain=self.toolchain, circumstances=busy)

    def compile_ahead(self, jobs: Iterable[Job], *, starting: Callable[[int], None]) -> int:
        self.compiled += jobs
        starting(len(self.compiled))
        return len(self.compiled)

    def renew(self) -> None:
        self.renewed += 1

    def close(self) -> None:
        self.closed = True


def reference(x: Any) -> Any:
    """y = 2 x."""
    return 2 * x


def _variant(operation: Operation, name: str, **fields: Any) -> Variant:
    def build(problem: Problem, config: Mapping[str, Any]) -> Any:
        raise AssertionError("a fake worker builds nothing")

    build.__qualname__ = f"build_{name}"
    flow = (Pass("all", parallel=("N",), reads=("x",), writes={"y": "owned"}),)
    return Variant(name, operation, build, passes=flow, source=build, **fields)


@contextmanager
def scale_operation(extra: tuple[Variant, ...] = ()) -> Iterator[Operation]:
    """`scale` with the variants plain (no tunables), tiled (60 configs), picky (N >= 4096 only)."""
    operation = Operation(
        name="fake_scale",
        dims=("N",),
        inputs=parse_tensors("x[N]"),
        outputs=parse_tensors("y[N]"),
        reference=reference,
        plain=reference,
        axes=(("N",),),
    )
    registry.add_operation(operation)
    tunables = (
        PowerOfTwo("tile", 1, 512, default=16),
        Threads(),
        Choice("order", ("rows", "columns")),
    )
    registry.add_variant(_variant(operation, "plain"))
    registry.add_variant(_variant(operation, "tiled", tunables=tunables))
    registry.add_variant(_variant(operation, "picky", constraints=("N >= 4096",)))
    try:
        yield operation
    finally:
        registry._operations.pop("fake_scale")
        registry._variants.pop("fake_scale")


@contextmanager
def bare_operation() -> Iterator[Operation]:
    """An operation without variants."""
    arrays = parse_tensors("x[N]"), parse_tensors("y[N]")
    operation = Operation("fake_bare", ("N",), *arrays, reference=reference, plain=reference)
    registry.add_operation(operation)
    try:
        yield operation
    finally:
        registry._operations.pop("fake_bare")
        registry._variants.pop("fake_bare")


def tiled_wins(job: Job) -> float | str:
    """tiled is the fastest at tile=128, 4 threads, columns; plain takes 1 ms."""
    if job.variant != "tiled":
        return 1e-3
    tile, threads = int(job.config["tile"]), int(job.config["threads"])
    slower = 0.2 * abs(math.log2(tile) - 7) + 0.4 * (4 - threads)
    return 4e-4 * math.exp(slower + 0.1 * (job.config["order"] == "rows"))


class Bench:
    """Runs campaigns on one store; keeps the last worker and all events."""

    def __init__(self, operation: Operation, store: Store) -> None:
        self.operation, self.store = operation, store
        self.clock = Clock()
        self.worker = FakeWorker(tiled_wins, self.clock)
        self.events: list[Any] = []

    def campaign(
        self,
        sizes: tuple[int, ...] = (1024,),
        answer: Answer = tiled_wins,
        *,
        prepare: Callable[[FakeWorker], None] = lambda worker: None,
        **settings: Any,
    ) -> Campaign:
        self.worker = FakeWorker(answer, self.clock)
        prepare(self.worker)
        return Campaign(
            [Problem.of(self.operation, (size,)) for size in sizes],
            device=FakeDevice(),
            settings=Settings(**settings),
            store=self.store,
            progress=self.events.append,
            make_worker=lambda _: self.worker,
            clock=self.clock,
        )
