"""How commands end that tests run in their own process."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Result:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Stdout as JSON; NaN and infinity are no JSON."""

        def refuse(constant: str) -> None:
            raise AssertionError(f"{constant} in a JSON document")

        return json.loads(self.out, parse_constant=refuse)

    @property
    def flat(self) -> str:
        """Stdout with its line breaks and alignment as single spaces."""
        return " ".join(self.out.split())


Run = Callable[..., Result]
