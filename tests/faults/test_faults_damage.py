"""Stores with random bytes changed: nobody is surprised, nothing is overwritten, most is saved."""

from __future__ import annotations

import json
import os
from pathlib import Path

from programs import FAULTS, python


def test_random_damage_never_surprises_and_repair_saves_most(tmp_path: Path) -> None:
    rounds = 400 if os.environ.get("AUTOTUNE_TEST_FAULTS") else 8
    done = python(FAULTS / "damage.py", tmp_path, rounds, 7)
    assert done.stderr == ""
    runs = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(runs) == rounds
    assert [run for run in runs if run["wrong"]] == []
    assert sum(run["aside"] for run in runs) > rounds // 4
    assert sum(run["kept"] for run in runs) > 0.5 * 200 * rounds
