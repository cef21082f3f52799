"""Candidates that the gate has rejected: what gave wrong results, or took its process along."""

from __future__ import annotations

import json
from dataclasses import dataclass

from sqlite_utils import Database

from autotune_tuning_db.keys import ProblemKey
from autotune_tuning_db.rows import MEASURED, REJECTED

_GOOD, _BAD = (f"({', '.join(map(repr, each))})" for each in (MEASURED, REJECTED))
_NEVER_RIGHT = f"""
SELECT variant, fingerprint FROM trials WHERE device = ? AND operation = ? AND dtype = ?
GROUP BY variant, fingerprint
HAVING SUM(status IN {_BAD}) > 0 AND SUM(status IN {_GOOD}) = 0
"""
_HERE = f"""
SELECT variant, fingerprint, config, status FROM trials
WHERE problem = ? AND device = ? AND (status IN {_GOOD} OR status IN {_BAD}) ORDER BY id
"""


@dataclass(frozen=True, slots=True)
class Rejection:
    """A variant with the source that was tried, and a config; None stands for all of them."""

    variant: str
    fingerprint: str
    config: tuple[tuple[str, object], ...] | None = None


def rejections(db: Database, problem: ProblemKey, device: str) -> frozenset[Rejection]:
    """What is not to be served for a problem on a device.

    Candidates that were wrong, or crashed, when they were last tried on this very problem; and
    variants that were never right on any problem of its operation and dtype.
    """
    where = [device, problem.operation, problem.dtype]
    found = {Rejection(*row) for row in db.execute(_NEVER_RIGHT, where)}
    latest: dict[Rejection, str] = {}
    for variant, fingerprint, config, status in db.execute(_HERE, [problem.text, device]):
        values = tuple(sorted(json.loads(config).items()))
        latest[Rejection(variant, fingerprint, values)] = status
    return frozenset(found | {each for each, status in latest.items() if status in REJECTED})
