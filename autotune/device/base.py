"""What every device is, whatever runs on it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol


class Device(Protocol):
    """Something kernels are measured on."""

    @property
    def kind(self) -> str:
        """`cpu` or `cuda`."""
        ...

    @property
    def identity(self) -> str:
        """Stable key of the silicon and the visible part of it; never the marketing name."""
        ...

    @property
    def family(self) -> str:
        """Key shared by devices whose measurements are worth trying on each other."""
        ...

    @property
    def label(self) -> str:
        """The name people know it by; shown, never compared."""
        ...

    @property
    def facts(self) -> Mapping[str, Any]:
        """What there is to say about it, as plain values in the order to show them."""
        ...

    def thread_counts(self) -> tuple[int, ...]:
        """Thread counts worth trying, ascending."""
        ...

    def placements(self) -> tuple[str, ...]:
        """Thread placements that differ here; the first is the default."""
        ...
