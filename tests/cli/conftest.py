"""The toy plugin and the GPUs that are not there, for the tests of this folder."""

from __future__ import annotations

from toys import have, toy

__all__ = ["have", "toy"]
