"""An operation with variants of every temper, measured in this process: a campaign in a moment."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from autotune.bench import CpuBench
from autotune.campaign import Campaign, CampaignResult, Settings
from autotune.device import local_cpu
from autotune.model import Choice, Intermediate, Operation, Pass, Problem
from autotune.registry import operation, registry, variant
from autotune.worker.measure import measure
from autotune.worker.protocol import Job, Outcome, RaceJob, RaceOutcome
from autotune.worker.race import race
from autotune.worker.session import Session
from autotune_tuning_db import Store

MEASURED = ("ok", "dropped", "disturbed")
SIZE = 4096
OWNED = (Pass("all", parallel=("N",), reads=("x",), writes={"y": "owned"}),)
ATOMIC = (Pass("all", parallel=("N",), reads=("x",), writes={"y": "atomic"}),)
CALLS: Counter[str] = Counter()


@dataclass
class InProcess:
    """The measuring process without a process, for candidates that are harmless."""

    session: Session
    depth: int = 1
    jobs: list[Job] = field(default_factory=list)

    def start(self, job: Job) -> None:
        """Nothing."""

    def compile_ahead(self, jobs: Iterable[Job], *, starting: Callable[[int], None]) -> int:
        return 0

    def measure(self, job: Job) -> Outcome:
        self.jobs.append(job)
        return measure(self.session, job)

    def race(self, job: RaceJob) -> RaceOutcome:
        return race(self.session, job)

    def renew(self) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


def session() -> Session:
    """A new one on this machine's CPU."""
    return Session(CpuBench(local_cpu()))


def measured(
    target: Operation, name: str, at: Session | None = None, size: int = SIZE, **job: Any
) -> Outcome:
    """A variant measured here, hot unless the job says otherwise."""
    dtype = job.pop("dtype", "float32")
    key = Problem.of(target, (size,), dtype).key.text
    given: dict[str, Any] = {"mode": "hot", "budget": 0.05, "retries": 0, "config": {}}
    return measure(at or session(), Job(key, name, **{**given, **job}))


def tuned(target: Operation, store: Store, **options: Any) -> CampaignResult:
    """A whole campaign over one size, measured here."""
    worker = options.pop("worker", None) or InProcess(session())
    size = options.pop("size", SIZE)
    given: dict[str, Any] = {"budget": 2.0, "mode": "hot"}
    campaign = Campaign(
        [Problem.of(target, (size,))],
        device=local_cpu(),
        settings=Settings(**{**given, **options}),
        store=store,
        make_worker=lambda _: worker,
    )
    return campaign.run()


def doubling(name: str, **fields: Any) -> Operation:
    """y = 2 x, to hang variants on; a name that is used again starts anew."""
    registry._operations.pop(name, None)
    registry._variants.pop(name, None)

    def double(x: Any) -> Any:
        """Twice x."""
        return x * 2

    return operation(inputs="x[N]", outputs="y[N]", name=name, **fields)(double)  # type: ignore[no-any-return]


def with_variants(target: Operation, *names: str) -> Operation:
    """Some of the variants below."""
    for name in names:
        function, fields = VARIANTS[name]
        variant(target, name, **fields)(function)
    return target


def _honest(x: Any, y: Any) -> None:
    np.multiply(x, 2, out=y)


def _slow(x: Any, y: Any) -> None:
    time.sleep(0.003)
    np.multiply(x, 2, out=y)


def _compiles_first(x: Any, y: Any) -> None:
    CALLS["compiles_first"] += 1
    if CALLS["compiles_first"] == 1:
        time.sleep(0.3)  # stands for a compiler
    np.multiply(x, 2, out=y)


def _constant(x: Any, y: Any) -> None:
    y[...] = 2 * x[0]


def _zeros(x: Any) -> Any:
    return np.zeros_like(x)


def _half(x: Any, y: Any) -> None:
    np.multiply(x[: x.size // 2], 2, out=y[: x.size // 2])


def _detached(x: Any, y: Any) -> None:
    def work() -> None:
        time.sleep(0.005)
        np.multiply(x, 2, out=y)

    threading.Thread(target=work).start()


def _detached_later(x: Any, y: Any) -> None:
    CALLS["detached_later"] += 1
    if CALLS["detached_later"] > 4:
        _detached(x, y)
    else:
        np.multiply(x, 2, out=y)


def _flaky(x: Any, y: Any) -> None:
    CALLS["flaky"] += 1
    np.multiply(x, 2, out=y)
    if CALLS["flaky"] % 5 == 0:
        y[-1] += 1


def _tires(x: Any, y: Any) -> None:
    """Right to the last digit at first, and in the last digit no more later."""
    CALLS["tires"] += 1
    np.multiply(x, 2, out=y)
    if CALLS["tires"] > 5:
        y[0] = np.nextafter(y[0], np.float32(np.inf))


def _hoards(x: Any, y: Any, room: int) -> None:
    if room > 2:
        raise MemoryError(f"{room} pieces")
    np.multiply(x, 2, out=y)


VARIANTS: dict[str, tuple[Callable[..., Any], dict[str, Any]]] = {
    "honest": (_honest, {"passes": OWNED}),
    "slow": (_slow, {"passes": OWNED}),
    "compiles_first": (_compiles_first, {"passes": OWNED}),
    "constant": (_constant, {"passes": OWNED}),
    "zeros": (_zeros, {}),
    "half": (_half, {"passes": OWNED}),
    "detached": (_detached, {"passes": ATOMIC}),
    "detached_later": (_detached_later, {"passes": ATOMIC}),
    "flaky": (_flaky, {"passes": ATOMIC}),
    "tires": (_tires, {"passes": OWNED}),
    "hoards": (
        lambda x, y, scratch, room: _hoards(x, y, room),
        {
            "passes": OWNED,
            "tunables": (Choice("room", (4, 1, 2, 8, 16)),),
            "intermediates": (Intermediate("scratch", ("N", "room")),),
        },
    ),
}


@pytest.fixture(autouse=True)
def clean_registry() -> Iterator[None]:
    """Operations of one test are not there in the next, nor in a worker that it starts."""
    operations = set(registry._operations)
    yield
    for name, found in list(registry._operations.items()):
        of_plugin = str(found.reference.__module__).startswith("autotune_plugin_")
        if name not in operations and not of_plugin:  # a plugin file is loaded only once
            registry._operations.pop(name)
            registry._variants.pop(name, None)
