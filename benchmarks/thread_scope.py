"""What entering and leaving a thread scope costs, by threads, placement and BLAS setting.

python benchmarks/thread_scope.py
"""

from __future__ import annotations

import statistics
import time

from common import median_interval, write

from autotune.device import local_cpu
from autotune.device.placement import place
from autotune.device.threads import Scope, ThreadSettings, prepare

ROUNDS = 40
CALLS = 50


def settings() -> dict[str, ThreadSettings]:
    """The scopes to measure: what variants ask for, on one thread and on all."""
    cpu = local_cpu()
    most = cpu.max_threads
    one, every = (place(cpu.topology, threads, "compact") for threads in (1, most))
    return {
        "1 thread, free, no numba": ThreadSettings(1, numba=False),
        "1 thread, free": ThreadSettings(1),
        "1 thread, pinned": ThreadSettings(1, one),
        "1 thread, free, BLAS serial": ThreadSettings(1, blas="serial"),
        f"{most} threads, free": ThreadSettings(most),
        f"{most} threads, pinned": ThreadSettings(most, every),
        f"{most} threads, free, BLAS serial": ThreadSettings(most, blas="serial"),
        f"{most} threads, pinned, BLAS serial": ThreadSettings(most, every, blas="serial"),
        f"{most} BLAS threads, free": ThreadSettings(most, blas="parallel", numba=False),
        f"{most} BLAS threads, pinned": ThreadSettings(most, every, blas="parallel", numba=False),
    }


def one_round(scope: Scope) -> list[float]:
    """Seconds of each of CALLS entries and exits, back to back."""
    samples = []
    for _ in range(CALLS):
        start = time.perf_counter()
        scope.enter()
        scope.exit()
        samples.append(time.perf_counter() - start)
    return samples


def main() -> None:
    """Measure all scopes in turn; print microseconds and write them to the results."""
    scopes = {name: prepare(each) for name, each in settings().items()}
    samples: dict[str, list[float]] = {name: [] for name in scopes}
    for _ in range(ROUNDS):
        for name, scope in scopes.items():
            samples[name] += one_round(scope)
    print(f"{'enter and exit, microseconds':<36}{'median':>8}{'p10':>8}{'p90':>10}  pinning, layer")
    rows = []
    for name, each in samples.items():
        tenths = statistics.quantiles(each, n=10)
        median, low, high = (round(value * 1e6, 2) for value in median_interval(each))
        p10, p90 = (round(value * 1e6, 2) for value in (tenths[0], tenths[-1]))
        plan = scopes[name].plan
        print(f"{name:<36}{median:>8}{p10:>8}{p90:>10}  {plan.pinning}, {plan.layer}")
        rows.append(
            {
                "scope": name,
                "median_us": median,
                "interval_us": [low, high],
                "p10_us": p10,
                "p90_us": p90,
                "pinning": plan.pinning,
                "layer": plan.layer,
            }
        )
    write("thread_scope", rows, calls=ROUNDS * CALLS, packages=("threadpoolctl",))


if __name__ == "__main__":
    main()
