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
    def address(self) -> str:
        """What `find_device` takes for this one, also among equals: `cpu`, `cuda:1`."""
        ...

    @property
    def lock_name(self) -> str:
        """Shared by all that must not be measured at the same time."""
        ...

    @property
    def unusable(self) -> str | None:
        """Why nothing can run on it, and the remedy; None when something can."""
        ...

    @property
    def limits(self) -> Mapping[str, int]:
        """What constraints may ask, by the names in MACHINE_LIMITS; empty for a CPU."""
        ...

    @property
    def last_level_cache_bytes(self) -> int:
        """Bytes that a cold measurement has to evict; 0 when unknown."""
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
