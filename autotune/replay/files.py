"""The text of recordings, compressed or not."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotune.errors import UserError


def read_text(path: Path) -> str:
    """The text of a file; UserError where it cannot be read."""
    try:
        if path.suffix == ".gz":
            with gzip.open(path, "rt", encoding="utf-8", newline="") as stream:
                return stream.read()
        return path.read_text(encoding="utf-8")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UserError(f"cannot read the recording {path}: {reason}.") from None


def read_json(path: Path) -> Mapping[str, Any]:
    """A JSON object; one that Kernel Tuner left open (it appends while it runs) is closed."""
    text = read_text(path)
    try:
        document = json.loads(text)
    except RecursionError:
        raise UserError(f"{path}, line 1: no JSON (nested too deeply).") from None
    except ValueError as error:
        try:
            document = json.loads(text.rstrip().removesuffix(",") + "}}")
        except ValueError:
            line, what = getattr(error, "lineno", 1), getattr(error, "msg", error)
            raise UserError(f"{path}, line {line}: no JSON ({what}).") from None
    if not isinstance(document, dict):
        raise UserError(f"{path}, line 1: a recording is a JSON object.")
    return document
