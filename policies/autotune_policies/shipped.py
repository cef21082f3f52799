"""The policy files that come with the package, one JSON file per device family."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path

from autotune_policies.policy import Policy, PolicyError
from autotune_tuning_db.files import write_whole

FORMAT = "onf-autotune-policies"
VERSION = 1


def load_shipped(folder: Traversable | None = None) -> tuple[list[Policy], list[str]]:
    """Every policy in the `*.json` files of `folder`, the package's own by default, and notes.

    A file or entry that cannot be read is left out with a note; it never raises.
    """
    policies: list[Policy] = []
    notes: list[str] = []
    source = folder if folder is not None else files(__package__).joinpath("data")
    if not source.is_dir():
        return policies, notes
    for file in sorted(source.iterdir(), key=lambda item: item.name):
        if not file.name.endswith(".json"):
            continue
        try:
            entries = _entries(file)
        except (OSError, ValueError, RecursionError) as error:
            notes.append(f"skipped the policy file {file.name}: {error}")
            continue
        for number, entry in enumerate(entries, 1):
            try:
                policies.append(replace(Policy.from_json(entry), origin="shipped"))
            except PolicyError as error:
                notes.append(f"skipped entry {number} of {file.name}: {error}")
    return policies, notes


def write_shipped(policies: Iterable[Policy], file: Path) -> None:
    """Writes a policy file, whole or not at all, sorted so that changes show as small diffs."""
    ordered = sorted(policies, key=lambda policy: (policy.problem.text, policy.device))
    content = {
        "format": FORMAT,
        "version": VERSION,
        "policies": [replace(policy, origin="shipped").to_json() for policy in ordered],
    }
    write_whole(json.dumps(content, indent=1, allow_nan=False) + "\n", file)


def _entries(file: Traversable) -> list[object]:
    content = json.loads(file.read_text(encoding="utf-8"))
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise PolicyError("it is not a policy file")
    if content.get("version") != VERSION:
        raise PolicyError(f"it has version {content.get('version')!r}, not {VERSION}")
    if not isinstance(content.get("policies"), list):
        raise PolicyError("it has no list of policies")
    return list(content["policies"])
