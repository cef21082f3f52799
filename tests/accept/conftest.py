"""The toy operation, registered."""

from __future__ import annotations

import pytest
from accept_bench import PLUGIN

from autotune.plugins import load_file


@pytest.fixture(autouse=True)
def toy() -> None:
    """The toy operation."""
    load_file(PLUGIN)
