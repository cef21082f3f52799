"""Reports as JSON documents: plain values only, and no NaN or infinity."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Set
from pathlib import Path
from typing import Any

from autotune_tuning_db import ProblemKey


def plain(value: Any) -> Any:
    """The value as JSON can hold it: dataclasses become objects, numbers that are none null."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, ProblemKey | Path):
        return str(value)
    if isinstance(value, Mapping):
        return {str(name): plain(item) for name, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: plain(getattr(value, field.name)) for field in fields}
    if isinstance(value, Set):
        return sorted(plain(item) for item in value)
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    if hasattr(value, "item"):
        return plain(value.item())
    return str(value)


def to_json(value: Any) -> str:
    """One JSON document, indented."""
    return json.dumps(plain(value), indent=2, allow_nan=False, ensure_ascii=False)


def problem_document(key: ProblemKey) -> dict[str, Any]:
    """A problem with its parts apart."""
    return {
        "operation": key.operation,
        "dims": dict(key.dims),
        "dtype": key.dtype,
        "flags": plain(dict(key.flags)),
        "layout": key.layout,
    }
