"""What compilers make of one arrangement in C and in Fortran, beside numba and BLAS, in one run.

    python benchmarks/compilers_cpu.py [--threads 1] [--dtype float64] [--operations decode ...]

Gradients have a file of their own, since their largest sizes take minutes:

    python benchmarks/compilers_cpu.py --operations gated_mlp_train rmsnorm_backward \\
        --name compilers_gradients

Per operation, size and build (compiler, -O2 or -O3, for this processor or for any): the median of
hot calls with its interval, and the ratio to gcc's C at its default build, round by round, with its
interval. Tiles are at their defaults, the same for both languages. Every candidate has passed the
gate on the problem before it is timed; one that does not is listed with the reason.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from common import interleaved, median_interval, ratio_interval, write

from autotune.device import local_cpu
from autotune.execution import Executable
from autotune.fingerprint import toolchain
from autotune.model import Choice, Config, Problem, Variant
from autotune.model.space import default_config, why_not
from autotune.plugins import load_plugins
from autotune.registry import registry
from autotune.verify import Gate, call_arguments

SIZES: dict[str, list[dict[str, int]]] = {
    "decode": [{"B": 1, "H": 8, "N": n, "D": 64} for n in (1024, 8192, 65_536)],
    "attention": [{"B": 1, "H": 2, "N": n, "D": 64} for n in (256, 1024, 4096)],
    "gated_mlp": [{"N": n, "D": 64, "F": 256} for n in (64, 256, 1024, 4096, 16_384)],
    "gated_mlp_train": [{"N": 64 << i, "D": 64, "F": 256} for i in range(11)],
    "rmsnorm_backward": [{"N": n, "D": 64} for n in (256, 4096, 65_536)],
}
BESIDE = ("split", "simd_tiled", "blas_tiled", "simd_splits", "blas_splits", "tiled")
BASE = "c gcc O3 native"


def start_with(variant: Variant, problem: Problem, threads: int) -> dict[str, Any]:
    """The default config of a variant that has so many threads to choose from."""
    tunables = [
        Choice("threads", (threads,)) if t.name == "threads" else t for t in variant.tunables
    ]
    config = default_config(replace(variant, tunables=tuple(tunables)), problem, local_cpu())
    assert config is not None
    return dict(config)


def contenders(problem: Problem, threads: int) -> Iterator[tuple[str, Variant, Config]]:
    """Name, variant and config of every build, and of the variants by numba and BLAS."""
    machine = local_cpu()
    for variant in registry.variants(problem.operation):
        if why_not(variant, problem) is not None:
            continue
        start = start_with(variant, problem, threads)
        values = {tunable.name: tunable.values(machine) for tunable in variant.tunables}
        if "compiler" not in values:
            if variant.name in BESIDE:
                yield variant.name, variant, Config(start)
            continue
        language = variant.name.split("_")[0]
        for compiler in values["compiler"]:
            for optimize in values["optimize"]:
                for native in values["native"]:
                    name = f"{language} {compiler} {optimize}{' native' if native else ''}"
                    build = {"compiler": compiler, "optimize": optimize, "native": native}
                    yield name, variant, Config({**start, **build})


def compare(problem: Problem, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Check and time every contender on one problem."""
    gate = Gate(problem)
    calls: dict[str, Callable[[], Any]] = {}
    rows: list[dict[str, Any]] = []
    for name, variant, config in contenders(problem, options.threads):
        row = {"problem": problem.key.text, "build": name, "config": dict(config)}
        try:
            executable = Executable(variant, problem, config, local_cpu())
            verdict = gate.check(executable)
            reason = verdict.reason
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
        if reason:
            rows.append({**row, "failed": reason})
            print(f"{problem}  {name:22s} {reason}", flush=True)
            continue
        arguments = call_arguments(executable, gate.buffers)
        calls[name] = lambda call=executable.call, given=arguments: call(*given)
        rows.append(row)
    samples = interleaved(calls, rounds=51, seconds=options.seconds)
    for row in rows:
        if row["build"] in samples:
            mine = samples[row["build"]]
            row["ms"] = [1e3 * each for each in median_interval(mine)]
            row["ratio"] = list(ratio_interval(mine, samples[BASE])) if BASE in samples else None
            row["rounds"] = len(mine)
            ratio = "  ratio {:.2f} ({:.2f}-{:.2f})".format(*row["ratio"]) if row["ratio"] else ""
            ms = "{:.3f} ms ({:.3f}-{:.3f})".format(*row["ms"])
            print(f"{problem}  {row['build']:22s} {ms}{ratio}", flush=True)
    return rows


def main() -> None:
    load_plugins()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--dtype", default="float64")
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--operations", nargs="+", default=list(SIZES))
    parser.add_argument("--name", default="compilers_cpu")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name in options.operations:
        for sizes in SIZES[name]:
            problem = Problem.of(registry.operation(name), sizes, options.dtype)
            rows += compare(problem, options)
            write(options.name, rows, threads=options.threads, toolchain=toolchain())


if __name__ == "__main__":
    main()
