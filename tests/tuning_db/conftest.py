"""Rows to put into a store, and a store to put them into."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from autotune_tuning_db import PolicyRow, ProblemKey, Store, TrialRow, utc_now

PROBLEM = ProblemKey(
    "attention", (("B", 2), ("H", 1), ("N", 512)), "float32", (("causal", False), ("scale", 0.125))
)


@pytest.fixture
def problem() -> ProblemKey:
    return PROBLEM


@pytest.fixture
def make_trial() -> Callable[..., TrialRow]:
    def make(**changes: Any) -> TrialRow:
        values: dict[str, Any] = {
            "campaign": 1,
            "problem": PROBLEM,
            "device": "cpu:abc",
            "mode": "cold",
            "stage": "search",
            "variant": "fused",
            "fingerprint": "f1",
            "config": {"block": 64, "threads": 2},
            "status": "ok",
            "started": utc_now(),
            "samples": (0.002, 0.001, 0.0015),
            "median": 0.0015,
            "low": 0.001,
            "high": 0.002,
            "compile_seconds": 1.5,
            "error": 1e-6,
            "error_bound": 1e-5,
            "workspace_bytes": 4096,
            "toolchain": {"numba": "0.61"},
            "circumstances": {"load": 0.1, "cpus": [0, 1]},
            "wall_seconds": 0.5,
        }
        return TrialRow(**(values | changes))

    return make


@pytest.fixture
def make_policy() -> Callable[..., PolicyRow]:
    def make(**changes: Any) -> PolicyRow:
        values: dict[str, Any] = {
            "problem": PROBLEM,
            "device": "cpu:abc",
            "mode": "cold",
            "created": utc_now(),
            "payload": {"ranking": [1, 2]},
        }
        return PolicyRow(**(values | changes))

    return make


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "tuning.db"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with Store(path) as opened:
        yield opened
