"""`autotune history`: an operation's measurements across versions, drivers and devices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from autotune import units
from autotune.accept.versions import SHORT, Version
from autotune.report.blocks import Block, Facts, Heading, Table
from autotune.report.document import problem_document
from autotune.report.entries import current_fingerprint, known_operation
from autotune.spelling import short_flags, short_shape
from autotune_tuning_db import ProblemKey


def history_blocks(found: Sequence[Version], labels: Mapping[str, str]) -> list[Block]:
    """A table for each problem, device and mode; then what the letters of toolchains stand for.

    `labels` are the names of devices. A `*` marks the source that is registered now.
    """
    if not found:
        return ["nothing of this was measured; autotune tune measures it."]
    letters = toolchain_letters(found)
    blocks: list[Block] = []
    device = ""
    for group in _groups(found):
        first = group[0]
        if first.device != device:
            device = first.device
            blocks += [f"{device} ({labels.get(device) or 'unknown'})", ""]
        blocks += [Heading(_title(first)), _table(group, letters), ""]
    return [*blocks, *_legend(letters)]


def history_document(found: Sequence[Version]) -> list[dict[str, Any]]:
    """One object for each version on a problem, device, mode and toolchain."""
    return [
        {
            "problem": problem_document(each.problem),
            "device": each.device,
            "mode": each.mode,
            "variant": each.variant,
            "fingerprint": each.fingerprint,
            "labels": list(each.labels),
            "current": is_current(each),
            "toolchain": dict(each.toolchain),
            "trials": len(each.rows),
            "first": each.first,
            "last": each.last,
            "best": _best(each),
        }
        for each in found
    ]


def is_current(version: Version) -> bool:
    """Whether its source is the one that is registered now."""
    return current_fingerprint(version.problem.operation, version.variant) == version.fingerprint


def toolchain_letters(found: Iterable[Version]) -> list[tuple[str, Mapping[str, str]]]:
    """A letter for each toolchain, in the order in which they were first used."""
    met: dict[tuple[tuple[str, str], ...], Mapping[str, str]] = {}
    for each in sorted(found, key=lambda version: version.first):
        met.setdefault(tuple(sorted(each.toolchain.items())), each.toolchain)
    return [(_letter(number), toolchain) for number, toolchain in enumerate(met.values())]


def _letter(number: int) -> str:
    """a, b, ... z, aa, ab, ..."""
    head, tail = divmod(number, 26)
    return (_letter(head - 1) if head else "") + chr(ord("a") + tail)


def _groups(found: Sequence[Version]) -> list[list[Version]]:
    groups: dict[tuple[str, str, str], list[Version]] = {}
    for each in found:
        groups.setdefault((each.device, each.problem.text, each.mode), []).append(each)
    ordered = sorted(groups.items(), key=lambda item: item[0][0])
    return [group for _, group in ordered]


def _title(version: Version) -> str:
    return f"{problem_text(version.problem)}  {version.mode} cache"


def problem_text(key: ProblemKey) -> str:
    """A stored problem in one line, short where its operation is registered."""
    operation = known_operation(key.operation)
    if operation is None:
        return key.text
    dims = dict(key.dims)
    parts = [operation.name, short_shape(operation, dims), key.dtype]
    parts += [short_flags(operation, dict(key.flags))]
    parts += [key.layout if key.layout != "packed" else ""]
    return " ".join(part for part in parts if part)


def _table(group: Sequence[Version], letters: Sequence[tuple[str, Mapping[str, str]]]) -> Table:
    rows: list[tuple[str, ...]] = []
    before: dict[str, float | None] = {}
    for each in group:
        best = each.best
        seconds = best.median if best is not None else None
        last = before.get(each.variant)
        change = seconds / last - 1.0 if seconds and last else None
        before[each.variant] = seconds or last
        rows.append(
            (
                each.variant,
                each.fingerprint[:SHORT] + ("*" if is_current(each) else ""),
                ", ".join(each.labels) or "-",
                next(letter for letter, found in letters if found == each.toolchain),
                each.last[:10],
                str(len(each.rows)),
                units.seconds(seconds),
                "-" if change is None else units.behind(change),
            )
        )
    titles = ("variant", "version", "label", "with", "last", ">trials", ">best", ">change")
    return Table(titles, tuple(rows))


def _legend(letters: Sequence[tuple[str, Mapping[str, str]]]) -> list[Block]:
    """What differs between the toolchains, and once what all have."""
    toolchains = [toolchain for _, toolchain in letters]
    names = list(dict.fromkeys(name for each in toolchains for name in each))
    same = [n for n in names if len({each.get(n) for each in toolchains}) == 1]
    rows = []
    for letter, toolchain in letters:
        own = [f"{n} {v}" for n, v in toolchain.items() if n not in same]
        rows.append((letter, ", ".join(own) if own else "-"))
    shown = [f"{n} {toolchains[0][n]}" for n in same if toolchains[0].get(n)]
    if len(letters) == 1:
        rows = [(letters[0][0], ", ".join(shown) or "versions unknown")]
    elif shown:
        rows.append(("all", ", ".join(shown)))
    return [
        Facts(tuple(rows)),
        "",
        "*: the source that is registered now. change: of the best time, from the line above of "
        "the same variant.",
    ]


def _best(version: Version) -> dict[str, Any] | None:
    row = version.best
    if row is None:
        return None
    return {
        "config": dict(row.config),
        "seconds": row.median,
        "low": row.low,
        "high": row.high,
        "samples": len(row.samples),
        "status": row.status,
        "started": row.started,
    }
