"""From the words of `autotune accept` to subjects and a baseline, from verdicts to an answer."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune.accept import (
    PREVIOUS,
    Place,
    Subject,
    Thresholds,
    accept,
    baselines,
    exit_code,
    is_file,
    read_thresholds,
    subjects,
    tuned_problems,
    with_baselines,
)
from autotune.cli.answer import Answer, say
from autotune.cli.selection import Words, chosen_problems, example_shape, find_operation
from autotune.device import Device
from autotune.errors import UserError
from autotune.fingerprint import toolchain
from autotune.model import Operation, Problem
from autotune.modes import require_mode
from autotune.registry import registry
from autotune.report.acceptance import acceptance_blocks, acceptance_document, junit
from autotune.trials import trials_on
from autotune.worker.protocol import Mode


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for on the command line."""

    operations: tuple[str, ...]
    words: Words
    variants: tuple[str, ...]
    mode: str
    against: str | None
    force: bool
    label: str | None


def run(
    request: Request, device: Device, *, thresholds: Path | None, junit_file: Path | None
) -> Answer:
    """Judge, print, and write the XML."""
    require_mode(request.mode, device.kind)
    if junit_file is not None:
        _check_can_write(junit_file)
    limits = read_thresholds(thresholds) if thresholds else Thresholds()
    problems = _problems(request, device, limits)
    _check_names(request, problems)
    chosen, skipped = subjects(problems, device, request.mode, request.variants)
    found = _judged(request, device, limits, chosen)
    circumstances = {
        "device": device.identity,
        "mode": request.mode,
        "baseline": request.against,
        "label": request.label,
    }
    if junit_file is not None:
        junit_file.write_text(junit(found, skipped, circumstances), encoding="utf-8")
    document = acceptance_document(found, skipped, circumstances)
    return Answer(acceptance_blocks(found, skipped), document, exit_code(found, skipped))


def _judged(
    request: Request, device: Device, limits: Thresholds, chosen: Sequence[Subject]
) -> list[Any]:
    """Find every baseline first: a mistake must not come to light after an hour."""
    mode: Mode = request.mode  # type: ignore[assignment]
    place = Place(device, mode, toolchain(device.kind), request.label or "")
    with ExitStack() as stack:
        named = None
        if request.against is not None:
            named = stack.enter_context(baselines(request.against, place, force=request.force))
        asked = with_baselines(chosen, named)
        if not asked:
            return []
        trials = stack.enter_context(
            trials_on(device, command="accept", mode=mode, label=place.label, waiting=say)
        )
        return accept(asked, trials, limits, say=say)


def _problems(request: Request, device: Device, limits: Thresholds) -> tuple[Problem, ...]:
    """Those of the command line, of the thresholds, or those that are tuned here."""
    operations = [find_operation(name) for name in request.operations]
    if request.words:
        return _named(operations, request.words)
    listed = [p for p in limits.problems if not operations or p.operation in operations]
    found = tuple(listed) or tuned_problems(device, request.mode, operations)
    if not found:
        names = " and ".join(each.name for each in operations) or "anything"
        raise UserError(
            f"no problem of {names} is tuned on this device or listed in the thresholds; name one: "
            "autotune accept OP --shape SHAPE."
        )
    return found


def _named(operations: Sequence[Operation], words: Words) -> tuple[Problem, ...]:
    if len(operations) != 1:
        raise UserError("--shape, --dtype and --set belong to one operation: name just one.")
    (operation,) = operations
    if not words.shapes:
        raise UserError(f"give the sizes too: --shape {example_shape(operation)}.")
    return tuple(chosen_problems(operation, words))


def _check_names(request: Request, problems: Iterable[Problem]) -> None:
    """A label must be found again by --against, and neither of them be an unset variable."""
    label = request.label
    for option, name in (("--against", request.against), ("--label", label)):
        if name is not None and not name.strip():
            raise UserError(f"{option} is empty; name something, or leave it out.")
    if label == PREVIOUS:
        raise UserError(
            f"--against {PREVIOUS} stands for the version before the present one, so that nothing "
            "can be labelled so; give another --label."
        )
    operations = {problem.operation for problem in problems}
    taken = {each.name for operation in operations for each in registry.variants(operation)}
    if label is not None and (label in taken or is_file(label)):
        what = "a variant" if label in taken else "a file"
        raise UserError(f"--against {label} means {what} of that name; give another --label.")


def _check_can_write(file: Path) -> None:
    """Before anything is measured, since the file is written at the end; leaves nothing behind.

    What exists is only asked for its rights: opening a pipe would end its reader.
    """
    try:
        if not file.parent.is_dir():
            raise UserError(f"the folder {file.parent} does not exist; make it first.")
        if file.is_dir():
            raise UserError(f"{file} is a folder; name a file for --junit.")
        if not file.exists():
            made = file.resolve()  # a link may lead to where nothing is yet
            made.touch(exist_ok=False)
            made.unlink()
        elif not os.access(file, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
    except OSError as error:
        reason = error.strerror or error
        raise UserError(f"cannot write {file}: {reason}; name another file.") from None
