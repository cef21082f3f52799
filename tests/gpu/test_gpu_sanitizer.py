"""Nothing reads or writes out of bounds, no two threads race."""

from __future__ import annotations

import subprocess
from typing import Any

import pytest
import sanitize

pytestmark = [pytest.mark.gpu, pytest.mark.slow]


@pytest.mark.parametrize("tool", sanitize.TOOLS)
def test_sanitizer_finds_nothing(tool: str, device: Any) -> None:
    if sanitize.sanitizer() is None:
        pytest.skip("needs compute-sanitizer, which comes with the CUDA toolkit")
    command = sanitize.command(tool, ("cuda_",))
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert "variants ran" in done.stdout
