"""An operation whose variants all fail."""

from __future__ import annotations

from typing import Any

from autotune import operation, variant


@operation(inputs="x[N]", outputs="y[N]")
def toy_doomed(x: Any) -> Any:
    """The same as x."""
    return x


@variant(toy_doomed, "first")
def first(x: Any, y: Any) -> None:
    """Raises."""
    raise ValueError("the first never works")


@variant(toy_doomed, "second")
def second(x: Any, y: Any) -> None:
    """Leaves its output unwritten."""
