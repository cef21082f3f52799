"""What scripts write into the pages of docs/ is what the result files say; links lead somewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))


def test_tables_are_those_of_the_result_files() -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "benchmarks" / "study_page.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_every_link_leads_to_a_file_or_a_heading(page: Path) -> None:
    text = page.read_text()
    for target, anchor in re.findall(r"\[[^]]+\]\(([^)#\s]*)(?:#([^)]+))?\)", text):
        if "://" in target:
            continue
        other = page.parent / target if target else page
        assert other.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", other.read_text(), re.M)
            assert anchor in {re.sub(r"[^\w -]", "", h.lower()).replace(" ", "-") for h in headings}
