"""kill -9 in the middle of a tuning run loses nothing that was kept, and the run goes on."""

from __future__ import annotations

import json
import os
from pathlib import Path

from programs import FAULTS, python


def test_a_killed_tuning_run_loses_no_trial_that_was_kept(tmp_path: Path) -> None:
    """One moment; two hundred with AUTOTUNE_TEST_FAULTS=1."""
    rounds = 200 if os.environ.get("AUTOTUNE_TEST_FAULTS") else 1
    done = python(FAULTS / "kills.py", tmp_path, rounds, 4)
    assert done.returncode == 0, done.stderr
    *runs, after = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(runs) == rounds
    for run in runs:
        assert (run["lost"], run["sound"], run["orphans"]) == (0, True, 0), run
        assert run.get("aside", 0) == 0
    assert after == {"went_on": 0, "lost": 0, "traceback": False}
    if rounds > 20:
        assert sum(run["kept"] for run in runs) > rounds
