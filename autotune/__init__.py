"""Finds the fastest variant of an operation on a device, remembers it, serves it."""

from __future__ import annotations

import importlib
from typing import Any

__version__ = "0.1.0"

_HOMES = {
    "Choice": "autotune.model",
    "Config": "autotune.model",
    "Intermediate": "autotune.model",
    "Operation": "autotune.model",
    "Pass": "autotune.model",
    "Placement": "autotune.model",
    "PowerOfTwo": "autotune.model",
    "Problem": "autotune.model",
    "Published": "autotune.model",
    "Range": "autotune.model",
    "Requirement": "autotune.model",
    "Threads": "autotune.model",
    "Unit": "autotune.model",
    "Variant": "autotune.model",
    "dispatch": "autotune.lookup",
    "operation": "autotune.registry",
    "stats": "autotune.lookup",
    "variant": "autotune.registry",
    "AutotuneError": "autotune.errors",
    "UserError": "autotune.errors",
    "tune": "autotune.campaign",
}

__all__ = ["__version__", *sorted(_HOMES)]


def __getattr__(name: str) -> Any:
    """Public names on first use, then registered operations (`autotune.attention`)."""
    if name in _HOMES:
        if name == "variant":
            importlib.import_module("autotune.plugins")  # by which it finds an operation by name
        value = getattr(importlib.import_module(_HOMES[name]), name)
        globals()[name] = value
        return value
    if name.startswith("_"):
        raise AttributeError(name)
    from autotune.errors import UnknownNameError
    from autotune.plugins import load_plugins
    from autotune.registry import registry

    load_plugins()
    try:
        return registry.operation(name)
    except UnknownNameError as error:
        raise AttributeError(f"module 'autotune' has no attribute {name!r}: {error}") from None
