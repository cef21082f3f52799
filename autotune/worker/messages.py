"""Jobs and outcomes as lines of JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from autotune.worker.protocol import Job, Outcome, RaceJob, RaceOutcome

Message = Mapping[str, Any]
Ask = Job | RaceJob
Answer = Outcome | RaceOutcome

_KINDS = {kind.__name__: kind for kind in (Job, Outcome, RaceJob, RaceOutcome)}


def to_line(message: Message) -> bytes:
    """One message as one line; a number that JSON does not have becomes null."""
    return json.dumps(_plain(message), allow_nan=False).encode() + b"\n"


def from_line(line: bytes) -> dict[str, Any]:
    """The message in a line; raises ValueError when it is none."""
    message = json.loads(line)
    if not isinstance(message, dict):
        raise ValueError(f"not a message: {line[:80]!r}")
    return message


def pack(value: Ask | Answer) -> dict[str, Any]:
    """A job or outcome as plain values."""
    return {"kind": type(value).__name__, **asdict(value)}


def unpack(fields: Mapping[str, Any]) -> Any:
    """The job or outcome that `pack` was given."""
    values = {name: _frozen(value) for name, value in fields.items() if name != "kind"}
    return _KINDS[fields["kind"]](**values)


def _frozen(value: Any) -> Any:
    return tuple(_frozen(each) for each in value) if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if hasattr(value, "item"):
        return _plain(value.item())
    return value
