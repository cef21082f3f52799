"""Damaged files from outside: every reader answers, or says in one sentence why not."""

from __future__ import annotations

import logging
import os
import time
from collections import Counter
from pathlib import Path

import pytest
from fuzz import Fuzz


def test_damaged_imports_policies_plans_and_keys_never_surprise(
    toy: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Some seconds; ten minutes with AUTOTUNE_TEST_FAULTS=1."""
    seconds = 600.0 if os.environ.get("AUTOTUNE_TEST_FAULTS") else 1.0
    caplog.set_level(logging.CRITICAL)
    fuzz, started, done = Fuzz(tmp_path, seed=20261130), time.monotonic(), Counter[str]()
    while time.monotonic() - started < seconds or len(done) < 5:
        done[fuzz.step()] += 1
        caplog.clear()
    assert len(done) == 5
