"""The tables of docs/compilers.md, and of C against Fortran in docs/study.md."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import published
from tables import load, number, ratio, source, table

NAME, GRADIENTS = "compilers_cpu", "compilers_gradients"
C, FORTRAN = "c gcc O3 native", "fortran gfortran O3 native"


def _size(row: Mapping[str, Any]) -> int:
    matched = re.search(r"\bNk?=(\d+)", row["problem"])
    assert matched
    return int(matched[1])


def _of(document: Mapping[str, Any], operation: str) -> dict[str, dict[int, dict[str, Any]]]:
    """Rows by build and size."""
    found: dict[str, dict[int, dict[str, Any]]] = {}
    for row in document["rows"]:
        if row["problem"].startswith(f"{operation} "):
            found.setdefault(row["build"], {})[_size(row)] = row
    return found


def table_of_builds() -> list[str]:
    """Per operation: the time of gcc's C by size, and every build's ratio to it."""
    document = load(NAME)
    if document is None:
        return []
    lines = [
        f"{document['threads']} thread, hot, float64. Milliseconds with the 95% interval of the"
    ]
    lines += [
        f"median for `{C}`, for all others the ratio to it, round by round, with its interval."
    ]
    lines += [*_builds(document), *source(document, NAME)]
    return [*lines, *_gradients(), *_with_vector_types()]


def _builds(document: Mapping[str, Any]) -> list[str]:
    """A table for each operation; of many sizes every other one."""
    lines: list[str] = []
    for operation in dict.fromkeys(row["problem"].split()[0] for row in document["rows"]):
        builds = _of(document, operation)
        sizes = sorted({n for at in builds.values() for n in at})
        sizes = sizes[:: 2 if len(sizes) > 6 else 1]
        base = [_milliseconds(builds[C].get(n)) for n in sizes]
        rows: list[tuple[object, ...]] = [(f"{C}, ms", *base)]
        for build, at in builds.items():
            if build != C:
                rows.append((build, *(ratio(at.get(n, {}).get("ratio")) for n in sizes)))
        lines += ["", f"`{operation}`:", "", *table(("", *(f"N={n}" for n in sizes)), rows)]
    return [*lines, ""]


def _gradients() -> list[str]:
    """The operations with gradients, from a run of their own."""
    document = load(GRADIENTS)
    if document is None:
        return []
    return ["With gradients:", *_builds(document), *source(document, GRADIENTS)]


def _with_vector_types() -> list[str]:
    """The builds of clang again, from a later run."""
    document = load("compilers_clang")
    if document is None:
        return []
    lines = [
        "clang once more, now that its products are written with vector types; over the same base"
    ]
    lines += ["of the same run, on a machine that others used meanwhile:"]
    for operation in dict.fromkeys(row["problem"].split()[0] for row in document["rows"]):
        builds = _of(document, operation)
        sizes = sorted({n for at in builds.values() for n in at})
        rows = [
            (build, *(ratio(at.get(n, {}).get("ratio")) for n in sizes))
            for build, at in builds.items()
            if "clang" in build
        ]
        lines += ["", f"`{operation}`:", "", *table(("", *(f"N={n}" for n in sizes)), rows)]
    return [*lines, "", *source(document, "compilers_clang")]


def _milliseconds(row: Mapping[str, Any] | None) -> str | None:
    if row is None or "ms" not in row:
        return None
    median, low, high = (number(each) for each in row["ms"])
    return f"{median} ({low}-{high})"


def fortran() -> list[str]:
    """The study's MLP with gradients: Fortran over C by size, and ours."""
    file, operation, what = _mlp()
    document = load(file)
    if document is None:
        return []
    builds = _of(document, operation)
    rows = []
    for n, theirs in published.FORTRAN_OVER_C.items():
        plain = [builds.get(name.removesuffix(" native"), {}).get(n) for name in (FORTRAN, C)]
        ours = builds.get(FORTRAN, {}).get(n, {}).get("ratio")
        if ours:
            rows.append((n, f"{theirs:.2f}", _quotient(*plain), ratio(ours)))
    head = ("N", "study: Fortran / C", "ours, any processor", "ours, this processor")
    return [f"{what}:", "", *table(head, rows), "", *source(document, file)]


def _mlp() -> tuple[str, str, str]:
    """Where our MLP's times are, of which operation, and that in words; with gradients if any."""
    for name in (GRADIENTS, NAME):
        if _of(load(name) or {"rows": []}, "gated_mlp_train"):
            return name, "gated_mlp_train", "Ours with gradients"
    return NAME, "gated_mlp", "Ours forward only"


def _quotient(one: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> str | None:
    if one is None or other is None or "ms" not in one or "ms" not in other:
        return None
    return f"{one['ms'][0] / other['ms'][0]:.2f}"
