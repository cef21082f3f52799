"""A worker that knows the plugin of good and bad variants."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from worker_bench import PLUGIN, Bench

from autotune.device import local_cpu
from autotune.plugins import load_file
from autotune.worker import Worker


@pytest.fixture(scope="session")
def bench() -> Iterator[Bench]:
    load_file(PLUGIN)
    with Worker(local_cpu()) as worker:
        yield Bench(worker)
