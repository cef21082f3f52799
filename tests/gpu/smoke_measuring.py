"""Smoke test of measuring on a GPU: `python tests/gpu/smoke_measuring.py`. Prints tables."""
# ruff: noqa: E501

from __future__ import annotations

import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent


@dataclass(frozen=True)
class StandIn:
    """A device until find_device knows GPUs."""

    kind: str = "cuda"
    identity: str = "cuda-standin"
    family: str = "cuda"
    label: str = "stand-in"
    index: int = 0
    card: str = "GPU-none"
    address: str = "cuda:0"
    last_level_cache_bytes: int = 50 << 20
    limits: Any = field(
        default_factory=lambda: {
            "compute": 90,
            "sms": 132,
            "shared_per_block": 232448,
            "shared_per_sm": 233472,
            "registers_per_sm": 65536,
            "max_threads_per_block": 1024,
            "warp": 32,
            "device_memory": 140 << 30,
            "l2_bytes": 50 << 20,
        }
    )

    def thread_counts(self):
        return (1,)

    def placements(self):
        return ("free",)


def line(label: str, outcome: Any) -> None:
    c = outcome.circumstances
    us = f"{outcome.median * 1e6:9.2f} us" if outcome.median else "         -   "
    print(
        f"{label:44s} {outcome.status:9s} {us} n={len(outcome.samples):3d} batch={c.get('batch')} host="
        f"{(c.get('host_seconds') or 0) * 1e6:.1f}us compile={outcome.compile_seconds or 0:.2f} first="
        f"{outcome.first_call_seconds or 0:.4f} wall={outcome.wall_seconds:.2f} err={outcome.error} {outcome.reason[:110]}",
        flush=True,
    )


def attempt(title: str, work: Any) -> Any:
    print(f"--- {title}", flush=True)
    try:
        return work()
    except Exception:
        traceback.print_exc()


def main() -> None:
    from autotune.bench import bench_for
    from autotune.device import find_device
    from autotune.fingerprint import toolchain
    from autotune.model import Problem
    from autotune.model.space import default_config, why_not
    from autotune.plugins import load_file, load_plugins
    from autotune.registry import registry
    from autotune.worker.measure import measure
    from autotune.worker.protocol import Job
    from autotune.worker.session import Session

    load_plugins()
    load_file(HERE / "gpu_plugin.py")
    print(toolchain("cuda"))
    try:
        device, known = find_device("cuda"), True
    except Exception as error:
        print("find_device:", error)
        device, known = StandIn(), False
    print(
        device.identity,
        device.label,
        getattr(device, "limits", None),
        device.last_level_cache_bytes,
    )
    session = Session(bench_for(device))

    def gates() -> None:
        from autotune.verify import Gate

        for name, shape in (
            ("attention", (2, 2, 512, 64)),
            ("attention_train", (2, 1, 512, 64)),
            ("attention_backward", (2, 1, 512, 64)),
            ("attention_train", (2, 1, 4096, 64)),
            ("decode", (2, 4, 4096, 64)),
        ):
            for dtype in ("float64", "float32", "float16", "bfloat16"):
                try:
                    problem = Problem.of(registry.operation(name), shape, dtype)
                    start = time.time()
                    gate = Gate(problem, memory=session.bench.memory)
                    bounds = {e.name: f"{e.bound:.2e}" for e in gate.expected}
                    print(
                        f"{name} {shape} {dtype}: {time.time() - start:.2f} s, reference {gate.reference_seconds:.2f} s, bounds {bounds}, damage {gate.buffers.damage()}",
                        flush=True,
                    )
                except Exception as error:
                    print(name, shape, dtype, type(error).__name__, str(error)[:200])
                    traceback.print_exc(limit=-3)

    attempt("gates", gates)

    def toy() -> None:
        for size in (1 << 12, 1 << 26):
            for mode in ("cold", "hot", "graph"):
                for config in ({"block": 256, "repeats": 1}, {"block": 256, "repeats": 200}):
                    if size > 1 << 20 and config["repeats"] > 1:
                        continue
                    job = Job(
                        f"gpu_scale N={size} float32 packed",
                        "honest",
                        config,
                        mode=mode,
                        budget=0.5,
                    )
                    outcome = measure(session, job)
                    line(f"honest N={size} {mode} x{config['repeats']}", outcome)
        print(outcome.circumstances)
        e = session.bench.evictor
        print(
            f"evictor {e.nbytes} bytes, sweep {e.seconds * 1e6:.1f} us, copy rate {e.rate / 1e12:.2f} TB/s"
        )

    attempt("toy kernels in this process", toy)

    def bad() -> None:
        for name, config in (
            ("wrong", {}),
            ("beyond", {}),
            ("uncompilable", {}),
            ("greedy", {}),
            ("honest", {"block": 2048, "repeats": 1}),
        ):
            line(
                name,
                measure(
                    session,
                    Job(
                        "gpu_scale N=65536 float32 packed",
                        name,
                        {"block": 256, **config},
                        budget=0.2,
                    ),
                ),
            )
            print(
                "   spent:",
                session.spent,
                "pool:",
                session.bench._cupy.get_default_memory_pool().total_bytes(),
            )

    attempt("bad kernels in this process", bad)

    def attention() -> None:
        for operation, shape, dtype in (
            ("attention", (2, 1, 1024, 64), "float64"),
            ("attention_train", (2, 1, 1024, 64), "float64"),
            ("attention_train", (2, 1, 1024, 64), "float32"),
            ("attention_train", (2, 1, 1024, 64), "bfloat16"),
        ):
            problem = Problem.of(registry.operation(operation), shape, dtype)
            for variant in registry.variants(problem.operation):
                if variant.device != "cuda":
                    continue
                why = why_not(variant, problem, "cuda")
                config = None if why else default_config(variant, problem, device)
                if config is None:
                    print(f"{operation} {dtype} {variant.name}: {why}")
                    continue
                job = Job(problem.key.text, variant.name, dict(config), budget=0.3, time_limit=60)
                line(f"{operation[9:] or 'fwd'} {dtype} {variant.name}", measure(session, job))
                if session.spent:
                    print("   context is gone; stopping")
                    return

    attempt("defaults of the CUDA variants of attention", attention)

    def crashes() -> None:
        from autotune.worker import Worker

        with Worker(device, plugin_files=[str(HERE / "gpu_plugin.py")]) as worker:
            for name in ("honest", "illegal", "honest", "trap", "honest", "greedy", "honest"):
                config = {"block": 256, **({"repeats": 1} if name == "honest" else {})}
                line(
                    f"worker: {name}",
                    worker.measure(
                        Job("gpu_scale N=65536 float32 packed", name, config, budget=0.2)
                    ),
                )

    if known:
        attempt("worker process", crashes)


if __name__ == "__main__":
    sys.exit(main())
