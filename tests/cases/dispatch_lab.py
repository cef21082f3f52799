"""For the cases of dispatch: processes that have served nothing, and policies kept for them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from case_lab import (
    InProcess,
    session,
)

from autotune import serving
from autotune.campaign import Campaign
from autotune.device import local_cpu
from autotune.fingerprint import fingerprint, toolchain
from autotune.kernel import Kernel
from autotune.lookup import forget
from autotune.model import Operation, Problem
from autotune.registry import operation, registry
from autotune.store import open_tuning_db
from autotune_policies import Choice, Subject, build_policy

ONES = np.ones(8, np.float32)


@pytest.fixture(autouse=True)
def new_process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process that has served nothing yet; what it tunes, it measures itself."""
    monkeypatch.setattr(serving, "_server", None)
    made = Campaign.__init__
    here = {**made.__kwdefaults__, "make_worker": lambda _: InProcess(session())}
    monkeypatch.setattr(made, "__kwdefaults__", here)
    forget()
    yield
    forget()


def restart() -> None:
    """What a new process starts with."""
    serving._server = None
    forget()


def in_place(name: str) -> Operation:
    """A new operation that doubles its input where it is."""

    @operation(inputs="x[N]", outputs="x[N]", name=name)
    def double(x: Any) -> Any:
        """Twice x, in place."""
        return 2 * x

    return double  # type: ignore[no-any-return]


def keep(target: Operation, times: dict[str, float], size: int = 8, dtype: str = "float32") -> None:
    """Store what a campaign would have found, and let a new process see that."""
    device, problem = local_cpu(), Problem.of(target, (size,), dtype)
    choices = [
        Choice(
            name,
            (),
            *(seconds, 0.99 * seconds, 1.01 * seconds),
            workspace_bytes=0,
            error=0.0,
            deterministic=True,
            fingerprint=fingerprint(registry.variant(target, name)),
            samples=10,
        )
        for name, seconds in times.items()
    ]
    subject = Subject(
        problem.key,
        device.identity,
        device.family,
        "cold",
        toolchain(),
        "2026-01-01T00:00:00+00:00",
    )
    with open_tuning_db() as store:
        store.put_policy(build_policy(subject, choices).to_row())
    restart()


def double(x: Any, y: Any) -> None:
    """y = 2 x."""
    np.multiply(x, 2, out=y)


def double_slowly(x: Any, y: Any) -> None:
    """The same after two milliseconds."""
    time.sleep(0.002)
    np.multiply(x, 2, out=y)


def serve_by(kernel: Kernel, name: str) -> None:
    """Have a variant serve, as if it had been measured the fastest."""
    variant = registry.variant(kernel.operation, name)
    kernel._seat.served = serving.Served(
        variant, kernel.config, "tuned", "", kernel.problem, kernel.device
    )
