"""Declares variants on CUDA whose builders are made in a loop."""

from __future__ import annotations

from typing import Any

from autotune import variant
from autotune.model import Operation


def declare(operation: Operation, name: str, build: Any, *, doc: str, **declared: Any) -> None:
    """Register a builder under a name and with a docstring of its own; the rest is `variant`'s."""
    build.__doc__ = doc
    build.__name__ = build.__qualname__ = f"{operation.name}_{name}"
    variant(operation, name, device="cuda", **declared)(build)
