"""Measuring kernels in C: one that does not compile costs one outcome, and says why."""

from __future__ import annotations

from pathlib import Path

import pytest

from autotune.device import local_cpu
from autotune.model import Problem
from autotune.model.space import default_config
from autotune.native import NativeSource
from autotune.plugins import load_file
from autotune.registry import registry
from autotune.worker import Job, Outcome, Worker

PLUGIN = Path(__file__).parent / "native_plugin.py"


def test_a_source_that_does_not_compile_costs_one_outcome(
    c_source: NativeSource, private_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = c_source.path.parent
    (folder / "broken.c").write_text('#include "arrays.h"\nvoid scale(foo x) {}\n')
    monkeypatch.setenv("NATIVE_PLUGIN_SOURCES", str(folder))
    load_file(PLUGIN)
    problem = Problem.of(registry.operation("native_triple"), (4096,), "float32")

    def measured(worker: Worker, name: str) -> Outcome:
        config = default_config(registry.variant("native_triple", name), problem, local_cpu())
        assert config is not None
        given = dict(config) | {"placement": local_cpu().placements()[-1]}
        return worker.measure(
            Job(problem.key.text, name, given, mode="hot", budget=0.1, retries=0, time_limit=60.0)
        )

    with Worker(local_cpu()) as worker:
        broken, right = measured(worker, "broken"), measured(worker, "scale")
    assert broken.status == "failed"
    assert broken.reason.startswith(
        "broken.c does not compile (gcc -O3 -march=native): broken.c:2:"
    )
    assert right.status in ("ok", "disturbed")
    assert right.circumstances["threading_layer"] == "openmp"
    assert right.toolchain["c"]
    assert len(list((private_home / "cache" / "native").iterdir())) == 2  # with that of the threads
