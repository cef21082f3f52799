"""What the writers of README and pages share: result files, markers, tables and their cells."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from common import RESULTS


def load(name: str) -> dict[str, Any] | None:
    """A result file, or None when that benchmark has not been run."""
    path = RESULTS / f"{name}.json"
    return json.loads(path.read_text()) if path.is_file() else None


def where(document: dict[str, Any]) -> str:
    """Machine, date and versions of a result file."""
    facts = document["circumstances"]
    versions = ", ".join(f"{n} {v}" for n, v in facts["versions"].items() if v != "absent")
    return f"{facts['label']}, {facts['cpus']} CPUs, {facts['date'][:10]}, {versions}"


def between(text: str, name: str, content: str) -> str:
    """Replace what stands between the markers of a part."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, rest = text.split(begin)
    after = rest.split(end)[1]
    return f"{before}{begin}\n{content}\n{end}{after}"


def table(head: Sequence[object], rows: Iterable[Sequence[object]]) -> list[str]:
    """The lines of a table; None is a dash."""
    lines = [_line(head), "|" + "---|" * len(head)]
    return [*lines, *(_line(["-" if cell is None else cell for cell in row]) for row in rows)]


def _line(cells: Sequence[object]) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def number(value: float | None) -> str | None:
    """Three digits, without an exponent."""
    if value is None:
        return None
    digits = 3 - len(str(int(abs(value)))) if abs(value) >= 1 else 3
    return f"{value:.{max(digits, 0)}f}" if abs(value) >= 0.1 else f"{value:.3g}"


def ratio(interval: Sequence[float] | None) -> str | None:
    """A ratio [median, low, high] with its interval."""
    return None if interval is None else "{:.2f} ({:.2f}-{:.2f})".format(*interval)


def over(value: float | None, other: float | None) -> float | None:
    """A ratio of two numbers, if there are both."""
    return value / other if value is not None and other else None


def source(document: dict[str, Any], name: str) -> list[str]:
    """Below a table: where its numbers come from."""
    gpu = (
        f"{document['gpu_label']}, driver {document['driver']}; " if "gpu_label" in document else ""
    )
    return [f"Ours: {gpu}{where(document)}; `benchmarks/results/{name}.json`.", ""]
