"""The tables of docs/search.md are what the result files say."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "search_page.py"


def test_the_tables_are_those_of_the_result_files() -> None:
    run = [sys.executable, str(SCRIPT), "--check"]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
