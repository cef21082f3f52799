"""Stores on a disk that fails: nothing that was kept is lost, and every ending is one sentence."""

from __future__ import annotations

import json
import os
from pathlib import Path

from programs import FAULTS, Shim, python

ENDINGS = {"done", "full", "io", "busy", "missing", "unopenable", "readonly"}


def test_what_was_kept_survives_every_fault_of_the_disk(shim: Shim, tmp_path: Path) -> None:
    """Nine faults from three starts at random moments; AUTOTUNE_TEST_FAULTS=1 for more rounds."""
    rounds = 540 if os.environ.get("AUTOTUNE_TEST_FAULTS") else 9
    done = python(FAULTS / "disk.py", tmp_path, rounds, 20261130, env=shim("", tmp_path))
    assert done.stderr == ""
    runs = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(runs) == rounds
    for run in runs:
        assert run["lost"] == 0, run
        assert run["wrong"] == [], run
        assert run["wrote"] in ENDINGS, run
        assert run["read"].split()[0] in ENDINGS | {"read"}, run
    assert sum(run["kept"] for run in runs) > rounds
    assert {run["wrote"] for run in runs} >= {"done", "io"}
