"""What `autotune db` reports: a check, a repair, what was removed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from autotune import units
from autotune.report.blocks import Block, Facts
from autotune.report.document import plain
from autotune_tuning_db import Checked, Collected, Repaired

_SHOWN = 10


def check_blocks(found: Checked) -> list[Block]:
    """The file as facts, then whether it is sound, or what is wrong and the remedy."""
    rows: list[tuple[str, str]] = [
        ("size", units.size(found.size_bytes)),
        ("rows", _counts(found.rows) or "none that can be counted"),
    ]
    if found.schema:
        rows.append(("schema", f"{found.schema}, journal {found.journal}"))
    rows += [("beside it", file.name) for file in found.beside]
    blocks: list[Block] = [str(found.path), Facts(tuple(rows))]
    if found.sound:
        return [*blocks, "sound."]
    blocks += [f"damaged: {text}" for text in found.damage[:_SHOWN]]
    blocks += [f"cannot be read: {text}" for text in found.unreadable[:_SHOWN]]
    more = len(found.damage) + len(found.unreadable) - 2 * _SHOWN
    blocks += [f"and {more} more"] if more > 0 else []
    return [*blocks, "autotune db repair saves what can still be read."]


def check_document(found: Checked) -> dict[str, Any]:
    """The same as plain values."""
    return {"sound": found.sound, **plain(found)}


def repair_blocks(done: Repaired) -> list[Block]:
    """What was kept and lost, and where the damaged file is."""
    if done.aside is None and done.source == done.path:
        return [f"{done.path} is sound; nothing was changed."]
    kept = _counts(done.kept) or "nothing that is not there already"
    blocks: list[Block] = [
        f"brought {kept} back from {done.source}."
        if done.aside is None
        else f"{done.path} is new, with {kept} of the damaged one."
    ]
    if done.lost:
        blocks.append(f"lost: {_counts(done.lost)}.")
    if done.aside is not None:
        blocks.append(f"the damaged file is kept as {done.aside.name}.")
    return blocks


def gc_blocks(done: Collected, *, dry: bool) -> list[Block]:
    """What was removed, or would be."""
    removed = [_counts(done.rows)] if done.rows else []
    removed += [file.name for file in done.files]
    verb, freed = ("would remove", "would free") if dry else ("removed", "freed")
    what = f"{verb} {', '.join(removed)}" if removed else "nothing to remove"
    return [f"{what}; {freed} {units.size(done.freed_bytes)}."]


def _counts(rows: Mapping[str, int]) -> str:
    named = ((count, table.removesuffix("s"), table) for table, count in rows.items() if count)
    return ", ".join(
        units.number(count, "policy" if table == "policies" else one, table)
        for count, one, table in named
    )
