"""The profiled process, on a fake GPU: one call to warm up, and one under the profiler."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

from measuring_bench import FakeGpu, lab

from autotune.profile.target import run


def test_only_the_second_call_is_profiled(fake_cupy: Any, compiled: Any, tmp_path: Path) -> None:
    seen: list[tuple[str, int]] = []

    def note(what: str) -> Any:
        return lambda: seen.append((what, len(fake_cupy.launched)))

    fake_cupy.cuda.profiler = types.SimpleNamespace(start=note("start"), stop=note("stop"))
    with lab(fake_cupy, tmp_path) as at_work:
        job = at_work.job("honest")
        described = {"problem": job.problem, "variant": job.variant, "config": dict(job.config)}
        run(described, FakeGpu())
    assert seen == [("start", 1), ("stop", 2)]
