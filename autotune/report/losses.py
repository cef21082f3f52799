"""`autotune show --failures`: every candidate that failed, was wrong, or was not tried."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from autotune import units
from autotune.model.problem import Config
from autotune.report.blocks import Block, Facts, Heading
from autotune.report.document import problem_document
from autotune.report.entries import LOST, Entry, one_line
from autotune_tuning_db import ProblemKey, TrialRow


def failure_documents(entries: Iterable[Entry], trials: Iterable[TrialRow]) -> list[dict[str, Any]]:
    """One row for each failed trial, and one for each variant that is not tried."""
    shown = {(entry.key, entry.device, entry.mode) for entry in entries}
    rows = [
        _document(row.problem, row.device, row.mode)
        | {
            "variant": row.variant,
            "config": dict(row.config),
            "status": row.status,
            "reason": one_line(row.reason),
            "error": row.error,
            "error_bound": row.error_bound,
            "started": row.started,
        }
        for row in trials
        if row.status in LOST and (row.problem, row.device, row.mode) in shown
    ]
    for entry in entries:
        for loss in entry.losses:
            if loss.status == "skipped":
                place = _document(entry.key, entry.device, entry.mode)
                why = {"config": None, "status": "skipped", "reason": loss.reason}
                rows.append(place | {"variant": loss.variant, **why})
    return rows


def _document(key: ProblemKey, device: str, mode: str) -> dict[str, Any]:
    return {"problem": problem_document(key), "key": str(key), "device": device, "mode": mode}


def failure_blocks(documents: Sequence[Mapping[str, Any]]) -> list[Block]:
    """Grouped by problem; candidates with the same variant, status and reason on one line."""
    groups: dict[str, dict[tuple[str, str, str], list[Mapping[str, Any]]]] = {}
    for row in documents:
        title = f"{row['key']}  {row['mode']} cache"
        same = (row["variant"], row["status"], row["reason"])
        groups.setdefault(title, {}).setdefault(same, []).append(row)
    if not groups:
        return ["no candidate failed, and none was skipped."]
    blocks: list[Block] = []
    for title, reasons in groups.items():
        blocks += [""] if blocks else []
        blocks.append(Heading(title))
        for (variant, status, reason), rows in reasons.items():
            blocks.append(Facts(_facts(variant, status, reason, rows)))
    return blocks


def _facts(
    variant: str, status: str, reason: str, rows: Sequence[Mapping[str, Any]]
) -> tuple[tuple[str, str], ...]:
    configs = list(dict.fromkeys(str(Config(row["config"])) for row in rows if row["config"]))
    facts = [(f"{variant} {status}", reason or "no reason given")]
    facts += [("", config) for config in configs[:3]]
    more = len(configs) - 3
    return (*facts, *([("", f"and {units.number(more, 'other config')}")] if more > 0 else []))
