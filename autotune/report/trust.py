"""`autotune show --why`: what an entry depends on, what has changed, and what that does to it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from autotune.report.blocks import Block, Heading, Table
from autotune.report.entries import Entry, current_fingerprint, device_kind
from autotune.report.policies import shape_text

_RULES = (
    "stale: not served; the next tune measures it afresh.",
    "revalidate: served as it is; the next tune races it again.",
    "Another device, dtype, shape, flag, layout or cache mode is another entry.",
)


def field_rows(entry: Entry) -> list[dict[str, Any]]:
    """Every field the entry depends on: as measured, as it is now, and what a change does."""
    from autotune.fingerprint import toolchain

    policy = entry.policy
    if policy is None:
        return []
    loaded = toolchain(device_kind(policy.device))
    rows = []
    for choice in policy.choices:
        now = current_fingerprint(entry.key.operation, choice.variant)
        name = f"source of {choice.variant}"
        rows.append(_row(name, choice.fingerprint[:12], now[:12] if now else None, "stale"))
    for name, then in policy.toolchain.items():
        rows.append(_row(name, then, loaded.get(name), "revalidate"))
    unique = {row["field"]: row for row in reversed(rows)}
    return list(reversed(unique.values()))


def _row(field: str, then: str, now: str | None, effect: str) -> dict[str, Any]:
    return {
        "field": field,
        "measured": then,
        "now": now,
        "changed": then != now,
        "a_change_makes_it": effect,
    }


def why_blocks(entries: Sequence[Entry]) -> list[Block]:
    """One table for each entry, changed fields first, and the rules."""
    blocks: list[Block] = []
    for entry in entries:
        title = f"{entry.key.operation}  {shape_text(entry)}  {entry.key.dtype}  {entry.mode} cache"
        blocks += [Heading(f"{title}: {entry.state}")]
        if entry.state == "foreign":
            blocks += [f"  measured on {entry.device}; only that machine can tell.", ""]
            continue
        rows = sorted(field_rows(entry), key=lambda row: not row["changed"])
        cells = tuple(
            (
                row["field"],
                str(row["measured"]),
                "the same" if not row["changed"] else str(row["now"] or "gone"),
                row["a_change_makes_it"],
            )
            for row in rows
        )
        titles = ("depends on", "as measured", "now", "a change makes it")
        blocks += [Table(titles, cells) if cells else "  nothing won here", ""]
    return [*blocks, *_RULES]
