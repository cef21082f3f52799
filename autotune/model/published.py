"""Published: what a publication itself counts for an operation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autotune.errors import DeclarationError
from autotune.model.expression import expression, number


@dataclass(frozen=True, slots=True)
class Published:
    """A publication's own count, kept beside the count that follows from declared passes.

    `moved` are the elements read and written, and `read` and `written` its parts where the
    publication has them (else None); `atomics` are the additions. All are expressions over the
    operation's dims, and elements are of the problem's dtype. `variants` names the variants that
    are the arrangement counted, `without` says what the publication leaves out.
    """

    name: str
    source: str
    moved: str | int
    read: str | int | None = None
    written: str | int | None = None
    atomics: str | int | None = None
    variants: tuple[str, ...] = ()
    without: str = ""

    def check(self, operation: str, names: set[str]) -> None:
        """Raise DeclarationError for an expression that uses other names than these."""
        for text in (self.moved, self.read, self.written, self.atomics):
            unknown = set() if text is None else expression(text).names - names
            if unknown:
                raise DeclarationError(
                    f"operation {operation}: the published count {self.name!r} uses the "
                    f"undeclared name {min(unknown)}."
                )

    def count(self, names: Mapping[str, Any]) -> PublishedCount:
        """The counts for a problem's `names`; bytes by its itemsize.

        DeclarationError where they cannot be evaluated.
        """

        def value(text: str | int | None, scale: int = 1) -> int | None:
            return None if text is None else int(number(text, names)) * scale

        itemsize = int(names["itemsize"])
        return PublishedCount(
            name=self.name,
            source=self.source,
            bytes_moved=int(number(self.moved, names)) * itemsize,
            bytes_read=value(self.read, itemsize),
            bytes_written=value(self.written, itemsize),
            atomics=value(self.atomics),
            variants=self.variants,
            without=self.without,
        )


@dataclass(frozen=True, slots=True)
class PublishedCount:
    """A published count at one problem, in bytes and additions; None where nothing is published."""

    name: str
    source: str
    bytes_moved: int
    bytes_read: int | None
    bytes_written: int | None
    atomics: int | None
    variants: tuple[str, ...]
    without: str
