"""An operation with variants of every temper, and policies for it without measuring."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from autotune import serving
from autotune.device import local_cpu
from autotune.fingerprint import fingerprint, toolchain
from autotune.lookup import forget
from autotune.model import Choice as Options
from autotune.model import Intermediate, Operation, Pass, Problem
from autotune.registry import operation, registry, variant
from autotune.store import open_tuning_db
from autotune_policies import Choice, Subject, build_policy


@operation(
    inputs="x[M,N] y[M,N]",
    outputs="total[M,N] peak[M]",
    residuals=("peak",),
    flags={"negate": False},
    scalars={"factor": "N"},
    axes=(("N",), ("M",)),
    name="served_sum",
)
def served_sum(x: Any, y: Any, *, negate: bool, factor: float) -> Any:
    """factor * (x + y), and the largest of each row."""
    total = factor * (x + y) * (-1 if negate else 1)
    return total, total.max(axis=1, initial=-np.inf)


OWNED = Pass("all", parallel=("M",), reads=("x", "y"), writes={"total": "owned", "peak": "owned"})
ATOMIC = Pass("all", parallel=("M", "N"), reads=("x",), writes={"peak": "atomic"})


@variant(served_sum, "plain", passes=[OWNED], tunables=[Options("order", (1, 2))])
def plain(x: Any, y: Any, total: Any, peak: Any, factor: float, negate: bool, order: int) -> None:
    total[...], peak[...] = served_sum.reference(x, y, negate=negate, factor=factor)


@variant(served_sum, "roomy", passes=[ATOMIC], intermediates=[Intermediate("room", ("M", "N", 4))])
def roomy(x: Any, y: Any, total: Any, peak: Any, room: Any, factor: float, negate: bool) -> None:
    total[...], peak[...] = served_sum.reference(x, y, negate=negate, factor=factor)


@variant(served_sum, "only64", dtypes=["float64"], deterministic=True)
def only64(x: Any, y: Any, factor: float, negate: bool) -> Any:
    return served_sum.reference(x, y, negate=negate, factor=factor)


@variant(served_sum, "breaks", deterministic=True, constraints=["M > 1"])
def breaks(x: Any, y: Any, factor: float, negate: bool) -> Any:
    raise RuntimeError("this one breaks when it is called")


@operation(inputs="x[N]", outputs="x[N]", name="served_double")
def served_double(x: Any) -> Any:
    """x doubled in place."""
    return 2 * x


@variant(served_double, "in_place", deterministic=True)
def in_place(x: Any) -> None:
    x *= 2


@dataclass
class Bench:
    """The operation, and a way to store what a campaign would have stored."""

    operation: Operation
    device: Any = field(default_factory=local_cpu)

    def arrays(self, m: int = 3, n: int = 8, dtype: str = "float32") -> list[Any]:
        rng = np.random.default_rng(0)
        return [rng.standard_normal((m, n)).astype(dtype) for _ in range(2)]

    def keep(self, shape: tuple[int, int], times: dict[str, float], **more: Any) -> None:
        """Store a policy in which each variant took so many seconds."""
        mode = more.pop("mode", "cold")
        problem = Problem.of(self.operation, shape, more.pop("dtype", "float32"), **more)
        choices = [
            Choice(
                name,
                (("order", 2),) if name == "plain" else (),
                seconds,
                0.99 * seconds,
                1.01 * seconds,
                workspace_bytes=16 * shape[0] * shape[1] if name == "roomy" else 0,
                error=1e-7 if name != "roomy" else 1e-6,
                deterministic=name != "roomy",
                fingerprint=fingerprint(registry.variant(self.operation, name)),
                samples=10,
            )
            for name, seconds in times.items()
        ]
        subject = Subject(
            problem.key,
            self.device.identity,
            self.device.family,
            mode,
            toolchain(),
            "2026-01-01T00:00:00+00:00",
        )
        with open_tuning_db() as store:
            store.put_policy(build_policy(subject, choices).to_row())


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A process that has served nothing yet, with a database of its own."""
    monkeypatch.setattr(serving, "_server", None)
    forget()
    yield Bench(served_sum)
    forget()
