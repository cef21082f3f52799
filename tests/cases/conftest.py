"""The toy plugin, GPUs that are not there, and a disk that misbehaves, for the tests here."""

from __future__ import annotations

from programs import shim
from toys import have, toy

__all__ = ["have", "shim", "toy"]
