"""The toy operation of the acceptance tests, and rows of it as a store would have them."""

from __future__ import annotations

from pathlib import Path

PLUGIN = Path(__file__).parent / "plugins" / "toy_sum.py"
