"""What `autotune replay` does: read the recordings, search them, and show."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, zip_longest
from pathlib import Path

from autotune.cli.answer import Answer, say
from autotune.errors import UnknownNameError, UserError
from autotune.model.problem import Candidate
from autotune.replay import Recording, read_recordings, replay
from autotune.report.replay import replay_blocks, replay_document
from autotune.search import METHODS, Strategy

WINNERS = 3
"""Configs that are taken from a recording of another device."""


def run(
    spaces: Sequence[Path], method: str, *, budget: int, seeds: int, elsewhere: Sequence[Path]
) -> Answer:
    """Every recording that can be read with every seed."""
    if method not in METHODS:
        raise UnknownNameError("strategy", method, METHODS)
    recordings, left_out = _read(spaces)
    starts = _winners(elsewhere, recordings)
    strategy = Strategy(method=method)
    found = []
    for recording in recordings:
        say(f"{recording.name}: {len(recording)} configs")
        found.append(
            replay(recording, budget=budget, seeds=seeds, strategy=strategy, starts=starts)
        )
    document = replay_document(found, method) | {"left_out": left_out}
    return Answer(replay_blocks(found, method), document)


def _read(places: Sequence[Path]) -> tuple[list[Recording], list[str]]:
    """The recordings that can be read, and of each that cannot, what is wrong with it.

    Those are named as well; UserError if there is no recording to read.
    """
    found: list[Recording] = []
    wrong: list[UserError] = []
    for place in places:
        try:
            found += read_recordings(place, wrong)
        except UserError as error:
            wrong.append(error)
    if not found and not wrong:
        raise UserError(f"{', '.join(map(str, places))}: the index names no recording.")
    for each in wrong if found else wrong[:-1]:
        say(f"left out: {each}")
    if not found:
        raise wrong[-1]
    return found, [str(each) for each in wrong]


def _winners(elsewhere: Sequence[Path], recordings: Sequence[Recording]) -> list[Candidate]:
    """The fastest of other recordings in turn; UserError if none is in a space to be searched."""
    others = _read(elsewhere)[0] if elsewhere else []
    ranked = zip_longest(*(other.fastest(WINNERS) for other in others))
    starts = [each for each in dict.fromkeys(chain.from_iterable(ranked)) if each is not None]
    for recording in recordings if starts else ():
        if not any(each in recording.space for each in starts):
            raise UserError(
                f"{recording.name} has none of the configs that are fastest in "
                f"{', '.join(other.name for other in others)}; give recordings of the same kernel."
            )
    return starts
