"""From `--vary N=64:8192` and the other sizes to problems in the order of the varied size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from autotune.errors import ShapeError, UserError
from autotune.model import Operation, Problem
from autotune.spelling import parse_shapes, shorten


def varied(
    operation: Operation,
    vary: str,
    shape: str | None = None,
    *,
    dtype: object = "float32",
    flags: Mapping[str, Any] | None = None,
) -> tuple[str, list[tuple[int, Problem]]]:
    """The name of the varied dim, and each of its sizes, ascending, with its problem.

    `vary` is NAME=a:b (doubling) or NAME=a:b:s (adding s); `shape` gives the other dims by name.
    Raises UserError or ShapeError, in one sentence, for what cannot be read.
    """
    name, sign, sizes = (part.strip() for part in vary.partition("="))
    if not sign or "," in vary or "x" in sizes:
        raise ShapeError(f"cannot read {shorten(vary)}; write one dim, such as N=64:8192.")
    others = [part.strip() for part in (shape or "").split(",") if part.strip()]
    if any("=" not in part for part in others):
        raise ShapeError(
            f"cannot read {shorten(shape or '')} beside --vary; write every other dim as B=2."
        )
    if name in [part.partition("=")[0].strip() for part in others]:
        raise ShapeError(f"{name} is varied; leave it out of --shape.")
    found = parse_shapes(operation, ",".join((*others, f"{name}={sizes}")))
    target = operation.aliases.get(name, (name,))[0]
    problems = _ascending(operation, found, target, dtype, flags or {})
    if len(problems) != len(found):
        raise ShapeError("only the dim after --vary may have several sizes.")
    if len(problems) < 2:
        raise UserError(f"{vary} is one size; write a range, such as {name}=64:8192.")
    if problems[0][0] < 1:
        raise ShapeError(f"{name} starts at {problems[0][0]}; an exponent needs sizes above zero.")
    return name, problems


def _ascending(
    operation: Operation,
    found: Sequence[Mapping[str, int]],
    dim: str,
    dtype: object,
    flags: Mapping[str, Any],
) -> list[tuple[int, Problem]]:
    by_size = {each[dim]: Problem.of(operation, each, dtype, **flags) for each in found}
    return sorted(by_size.items())
