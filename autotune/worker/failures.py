"""What a candidate that raised comes to: a status, a line, and whether it was memory."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from errno import ENOMEM

from autotune.errors import AutotuneError, UnavailableError
from autotune.room import NoRoomError
from autotune.worker.protocol import Status

_NO_MEMORY = ("out of memory", "out_of_memory", "cannot allocate memory", "bad_alloc")


@dataclass(frozen=True, slots=True)
class Failed:
    """What a candidate that raised comes to, and whether it is memory that it lacked."""

    status: Status
    reason: str
    out_of_memory: bool = False


def failure(error: BaseException) -> Failed:
    """Status and one-line reason for what a candidate raised; lets go of its frames and arrays."""
    _forget_frames(error)
    gc.collect()
    text = next(iter(str(error).splitlines()), "")
    if is_memory(error):
        return Failed(
            "failed", f"ran out of memory ({text})" if text else "ran out of memory", True
        )
    if isinstance(error, NoRoomError | UnavailableError):
        return Failed("unavailable", text)
    if isinstance(error, AutotuneError):
        return Failed("failed", text)
    return Failed("failed", f"raised {type(error).__name__}" + (f": {text}" if text else ""))


def is_memory(error: BaseException | None) -> bool:
    """Whether an error, or one that led to it, says that memory ran out."""
    while error is not None:
        text = str(error).lower()
        lacking = any(words in text for words in _NO_MEMORY)
        if isinstance(error, MemoryError) or getattr(error, "errno", None) == ENOMEM or lacking:
            return True
        error = error.__cause__ or error.__context__
    return False


def _forget_frames(error: BaseException | None) -> None:
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__
