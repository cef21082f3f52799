"""Small recordings on disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

HEADER = "tile,unroll,kind,status,time_ms"
ROWS = [
    "1,0,a,ok,4.0",
    "1,1,a,ok,3.0",
    "2,0,a,compile,",
    "2,1,b,ok,2.0",
    "4,0,b,runtime,",
    "4,1,b,ok,1.0",
]
ABOUT: dict[str, Any] = {
    "file": "toy.csv",
    "kernel": "toy",
    "device": "a card",
    "params": {"tile": [1, 2, 4], "unroll": [0, 1], "kind": ["a", "b"], "width": [15]},
    "constraints": ["tile * unroll < width", "kind == 'a' if tile == 1 else True"],
}


def write(
    folder: Path,
    rows: list[str] = ROWS,
    *,
    header: str = HEADER,
    about: dict[str, Any] | None = ABOUT,
) -> Path:
    """A table, and an index beside it unless `about` is None."""
    table = folder / "toy.csv"
    table.write_text("\n".join([header, *rows]) + "\n")
    if about is not None:
        (folder / "index.json").write_text(json.dumps({"toy": about}))
    return table
