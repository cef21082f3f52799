"""How fast a device does what predictions count: nominal rates, or those that ceilings give."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from autotune.model.variant import Unit


@dataclass(frozen=True, slots=True)
class Rates:
    """Per second and per worker: a core of a CPU, a multiprocessor of a GPU.

    `read` and `copy` (bytes; a copy's read and written) bound all workers together; `alone` is what
    one of them reaches by itself. `cache` are bytes from a cache that all share. `flops` has a rate
    for names such as "matrix float32". `launch` are seconds for a launch, `step` for one step of a
    worker however little it does; `resident` workers share a multiprocessor.
    """

    workers: int
    alone: float
    flops: Mapping[str, float] = field(hash=False)
    atomics: float
    launch: float
    read: float = math.inf
    copy: float = math.inf
    cache: float = math.inf
    step: float = 0.0
    resident: int = 1

    def flops_of(self, unit: Unit, dtype: str) -> float:
        """Operations per second of one worker by a unit, or by the nearest that has a rate.

        A matrix unit that is not there is made up for by the others, and where none takes 16-bit
        numbers they are computed with in float32.
        """
        for name in (unit.dtype or dtype, "float32"):
            for kind in _INSTEAD[unit.kind]:
                if f"{kind} {name}" in self.flops:
                    return self.flops[f"{kind} {name}"]
        return max(self.flops.values())

    def memory_seconds(self, read: int, written: int, workers: int) -> float:
        """To read and write so many bytes: what is read and written as a copy, the rest read."""
        copied = min(read, written)
        most = self.alone * max(workers, 1)
        return (read - copied) / min(self.read, most) + (written + copied) / min(self.copy, most)


_INSTEAD = {
    "loop": ("loop", "vector"),
    "vector": ("vector", "loop"),
    "matrix": ("matrix", "vector", "loop"),
}

CORE = Rates(
    workers=1,
    alone=6e9,
    flops=MappingProxyType(
        {
            **{"loop float64": 8e9, "loop float32": 16e9},
            **{"vector float64": 48e9, "vector float32": 96e9},
            **{"matrix float64": 60e9, "matrix float32": 120e9},
        }
    ),
    atomics=5e7,
    launch=5e-6,
)
"""Round figures for one server core with AVX2 or AVX-512; only their ratios matter."""

_SMS = 132  # of the H200 that the figures below are of

MULTIPROCESSOR = Rates(
    workers=_SMS,
    alone=4e12 / _SMS,
    flops=MappingProxyType(
        {
            **{"vector float64": 29.5e12 / _SMS, "vector float32": 53.9e12 / _SMS},
            **{"matrix float64": 65.7e12 / _SMS, "matrix tf32": 314e12 / _SMS},
            **{"matrix bfloat16": 632e12 / _SMS, "matrix float16": 632e12 / _SMS},
        }
    ),
    atomics=2e11 / _SMS,
    launch=4e-6,
    cache=5.5e12 / _SMS,
    step=0.5e-6,
    resident=4,
)
"""Of an H200: flops as benchmarks/results/ceilings_gpu.json has them, the rest round figures.

`step` is a barrier and what latency it exposes; with it the defaults of the shipped policy for that
card come out in the order in which they were measured, most of the time.
"""


def nominal_rates(kind: str) -> Rates:
    """Rates that order candidates on a device nobody has measured; never reported as times."""
    return MULTIPROCESSOR if kind == "cuda" else CORE
