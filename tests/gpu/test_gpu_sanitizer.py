"""Nothing reads or writes out of bounds, no two threads race."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
import sanitize

pytestmark = [pytest.mark.gpu, pytest.mark.slow]


PARTS = 8


@pytest.mark.timeout(600)
@pytest.mark.parametrize("part", range(1, PARTS + 1))
@pytest.mark.parametrize("tool", sanitize.TOOLS)
def test_sanitizer_finds_nothing(tool: str, part: int, device: Any) -> None:
    if sanitize.sanitizer() is None:
        pytest.skip("needs compute-sanitizer, which comes with the CUDA toolkit")
    command = sanitize.command(tool, ("cuda_",), (part, PARTS))
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert "runs of variants" in done.stdout
