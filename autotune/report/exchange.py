"""What exporting, importing and `autotune path` report."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from autotune import units
from autotune.report.blocks import Block, Facts, Table
from autotune.settings import Settings
from autotune_tuning_db import ImportReport

VARIABLES = {
    "AUTOTUNE_HOME": "moves everything below",
    "AUTOTUNE_DB": "moves the database alone",
    "AUTOTUNE_FROZEN": "1: serve from one snapshot for the life of the process",
    "AUTOTUNE_STRICT_PLUGINS": "1: a plugin that fails to load is an error",
}
_SHOWN_REJECTIONS = 10


def export_blocks(file: Path, counts: Mapping[str, int]) -> list[Block]:
    """How many rows of each kind went into the file."""
    one = {name: name[:-1] for name in counts} | {"policies": "policy"}
    listed = ", ".join(units.number(count, one[name], name) for name, count in counts.items())
    return [f"wrote {file}: {listed}.", f"on the other machine: autotune import {file.name}"]


def shipped_blocks(file: Path, counts: Mapping[str, int]) -> list[Block]:
    """How many policies, of how many devices, the package would ship."""
    policies = units.number(counts["policies"], "policy", "policies")
    return [f"wrote {file}: {policies} of {units.number(counts['devices'], 'device')}."]


def recording_blocks(folder: Path, counts: Mapping[str, int]) -> list[Block]:
    """Which recordings were written, and how to search them."""
    rows = tuple((name, str(count)) for name, count in counts.items())
    shown = f"autotune replay {folder}"
    return [f"wrote to {folder}:", Table(("recording", ">configs"), rows), f"next: {shown}"]


def import_blocks(file: Path, report: ImportReport) -> list[Block]:
    """Counts of added and skipped rows, and each rejection with its reason."""
    names = dict.fromkeys((*report.added, *report.skipped))
    rows = [(n, str(report.added.get(n, 0)), str(report.skipped.get(n, 0))) for n in names]
    blocks: list[Block] = [f"imported {file}:"]
    blocks += [Table(("", ">added", ">already here"), tuple(rows))] if rows else ["  nothing in it"]
    blocks.append(f"rejected: {len(report.rejected)}")
    blocks += [f"  {reason}" for reason in report.rejected[:_SHOWN_REJECTIONS]]
    more = len(report.rejected) - _SHOWN_REJECTIONS
    blocks += [f"  and {more} more"] if more > 0 else []
    for device, count in report.foreign.items():
        text = units.number(count, "policy", "policies")
        blocks.append(f"{text} of {device}, which is not on this machine: kept, served only there.")
    return blocks


def places_document(places: Settings) -> dict[str, Any]:
    """Where the database and the caches are, and the variables that move them."""
    exists = places.database.exists()
    return {
        "database": str(places.database),
        "database_bytes": places.database.stat().st_size if exists else None,
        "cache": str(places.cache),
        "variables": {name: os.environ.get(name) for name in VARIABLES},
    }


def places_blocks(document: Mapping[str, Any]) -> list[Block]:
    """The places as facts, and each variable with its meaning and value."""
    bytes_ = document["database_bytes"]
    state = "does not exist yet; tuning creates it" if bytes_ is None else units.size(bytes_)
    rows = [
        ("database", document["database"]),
        ("", state),
        ("compiled kernels", document["cache"]),
    ]
    set_ = document["variables"]
    for name, meaning in VARIABLES.items():
        value = f" (now {set_[name]})" if set_[name] else ""
        rows.append((name, meaning + value))
    return [Facts(tuple(rows), indent=0)]
