"""`autotune show`: the cached policies, one line for each problem."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from autotune import units
from autotune.pins import describe
from autotune.report.blocks import Block, Heading, Table
from autotune.report.document import problem_document
from autotune.report.entries import Entry, Loss
from autotune.spelling import short_flags, short_shape
from autotune_policies import Policy
from autotune_tuning_db import DeviceRow, PinRow

_LEGEND = {
    "stale": "the source that was measured has changed; not served, tune again",
    "revalidate": "another version of a library or driver is loaded; served, raced again at the "
    "next tune",
    "not registered": "no plugin of this process has the winner; load it with --plugin FILE",
    "foreign": "measured on another device; served only there",
    "shipped": "came with the package",
    "imported": "came from another machine's export",
    "pinned": "you chose another variant: `autotune unpin` takes that back",
    "undecided": "too noisy to tell the winner from another variant; tune again when it is quiet",
    "tie": "another variant is within the equivalence band",
    "disturbed": "other programs were busy while it was measured; tune again when it is quiet",
    "no winner": "no candidate finished",
    "unsettled": "measured, and not tuned to the end of a race; `autotune tune` settles it",
}


def entry_document(entry: Entry) -> dict[str, Any]:
    """An entry with all its evidence as plain values."""
    policy = entry.policy
    pin = entry.pin
    return {
        "problem": problem_document(entry.key),
        "device": entry.device,
        "mode": entry.mode,
        "state": entry.state,
        "changed": list(entry.grade.changed) if entry.grade else [],
        "disturbed": entry.disturbed,
        "compile_seconds": entry.compile_seconds,
        "origin": policy.origin if policy else None,
        "pinned": {"variant": pin.variant, "config": pin.config} if pin else None,
        "winner": policy.winner.to_json() if policy else None,
        "verdict": policy.verdict if policy else None,
        "ranking": [choice.to_json() for choice in policy.ranking] if policy else [],
        "variants": [choice.to_json() for choice in policy.variants] if policy else [],
        "created": policy.created if policy else None,
        "toolchain": dict(policy.toolchain) if policy else {},
        "out": list(entry.losses),
    }


def pin_document(pin: PinRow) -> dict[str, Any]:
    """A pin to which no entry belongs: of an operation, or of a problem nobody measured."""
    return {
        "problem": problem_document(pin.problem) if pin.problem else {"operation": pin.operation},
        "device": pin.device,
        "state": "pinned",
        "pinned": {"variant": pin.variant, "config": pin.config},
        "winner": None,
    }


def pin_blocks(pins: Sequence[PinRow]) -> list[Block]:
    """A line for each pin to which no entry belongs."""
    return ["", Heading("pins"), *(f"  {describe(pin)}" for pin in pins)] if pins else []


def list_blocks(entries: Sequence[Entry], devices: Mapping[str, str]) -> list[Block]:
    """One part per device, one table per operation, dtype, flags and mode; a legend at the end."""
    blocks: list[Block] = []
    words: set[str] = set()
    for identity, mine in groupby(entries, key=lambda entry: entry.device):
        blocks += [""] if blocks else []
        blocks.append(Heading(_device_line(identity, devices)))
        for title, group in groupby(mine, key=_title):
            members = list(group)
            blocks += ["", Heading(title), Table(*_rows(members, words))]
            blocks += [f"  {line}" for line in loss_lines(members)]
    used = [word for word in _LEGEND if word in words]
    if used:
        blocks += ["", *(f"{word}: {_LEGEND[word]}" for word in used)]
    return blocks


def device_labels(rows: Iterable[DeviceRow], local: Iterable[Any]) -> dict[str, str]:
    """Names people know, by identity; of stored devices and of this machine's."""
    labels = {row.identity: row.label for row in rows}
    return labels | {device.identity: f"{device.label}, this machine" for device in local}


def _device_line(identity: str, labels: Mapping[str, str]) -> str:
    label = labels.get(identity, "")
    return f"{identity} ({label})" if label else identity


def _title(entry: Entry) -> str:
    operation = entry.operation
    flags = short_flags(operation, dict(entry.key.flags)) if operation else entry.key.flags_text
    layout = "" if entry.key.layout == "packed" else entry.key.layout
    parts = (entry.key.operation, entry.key.dtype, flags, layout, f"{entry.mode} cache")
    return "  ".join(part for part in parts if part)


def _rows(
    entries: Iterable[Entry], words: set[str]
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    rows = []
    for entry in entries:
        notes = _notes(entry)
        words.update(note.partition(" to ")[0] for note in notes)
        rows.append((shape_text(entry), *_winner_cells(entry.policy), ", ".join(notes)))
    return ("shape", "winner", ">time", ">lead", "note"), tuple(rows)


def _winner_cells(policy: Policy | None) -> tuple[str, str, str]:
    if policy is None:
        return "-", "-", "-"
    verdict = policy.verdict
    lead = units.lead(verdict.lead) if verdict.kind == "clear" else "-"
    return policy.winner.variant, units.seconds(policy.winner.seconds), lead


def _notes(entry: Entry) -> list[str]:
    policy = entry.policy
    notes = [] if entry.state == "fresh" else [entry.state]
    if policy is not None:
        notes += [policy.origin] if policy.origin != "tuned" else []
        notes += [policy.verdict.kind] if policy.verdict.kind in ("tie", "undecided") else []
        notes += ["disturbed"] if entry.disturbed else []
    return notes + ([f"pinned to {entry.pin.variant}"] if entry.pin else [])


def shape_text(entry: Entry) -> str:
    """The shape as it can be given to --shape."""
    operation = entry.operation
    if operation is None or entry.problem is None:
        return entry.key.dims_text
    return short_shape(operation, dict(entry.key.dims)) or "-"


def loss_lines(entries: Iterable[Entry]) -> list[str]:
    """A line for each variant that is not in the ranking, over all the problems together."""
    seen: dict[tuple[str, str, str], int] = {}
    for entry in entries:
        for loss in entry.losses:
            place = (loss.variant, loss.status, loss.reason)
            seen[place] = seen.get(place, 0) + max(loss.candidates, 1)
    return [loss_line(Loss(*place, count)) for place, count in seen.items()]


def loss_line(loss: Loss) -> str:
    """One variant that fell out, and why."""
    times = (
        f" ({loss.candidates} candidates)"
        if loss.candidates > 1 and loss.status != "skipped"
        else ""
    )
    return f"{loss.variant} {loss.status}{times}: {loss.reason or 'no reason given'}"
