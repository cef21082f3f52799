"""How people write problems: shapes with ranges, settings, and the shortest text that names one."""

from __future__ import annotations

import itertools
import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from autotune.errors import ShapeError, UserError
from autotune.model.operation import Operation
from autotune.model.problem import Problem
from autotune.plugins import file_of

_SIZE = re.compile(r"\d{1,18}(:\d{1,18}){0,2}\Z")  # what fits in 64 bits
_MOST_DIMS, _MOST_SHAPES = 64, 10_000


def parse_shapes(operation: Operation, text: str) -> list[dict[str, int]]:
    """All sizes that a shape stands for: "B=2,H=1,N=512:4096,D=64", "1x8x1024x64", "1024".

    `a:b` doubles from a to b and `a:b:s` adds s; both ends count. Several ranges are combined.
    Raises ShapeError or UnknownNameError naming what does not fit, and ShapeError for more than
    10,000 shapes, which no one can have meant to measure.
    """
    parts = [part.strip() for part in re.split(r"[,x]" if "=" not in text else ",", text.strip())]
    if len(parts) > _MOST_DIMS:
        raise ShapeError(f"the shape {shorten(text)} gives {len(parts)} sizes, which is too many.")
    named = [part.partition("=") for part in parts]
    if any(sign for _, sign, _ in named):
        if not all(name and sign for name, sign, _ in named):
            raise ShapeError(
                f"cannot read the shape {shorten(text)}; write every dim as B=2, or none."
            )
        options = {name.strip(): _sizes(value, text) for name, _, value in named}
        if len(options) < len(named):
            raise ShapeError(f"the shape {text!r} gives a dim twice.")
        return [operation.complete(sizes) for sizes in _products(options)]
    positional = {str(index): _sizes(part, text) for index, part in enumerate(parts)}
    return [operation.sizes_from_shape(list(each.values())) for each in _products(positional)]


def _sizes(text: str, shape: str) -> Sequence[int]:
    if not _SIZE.match(text.strip()):
        raise ShapeError(
            f"cannot read the size {shorten(text)} in the shape {shorten(shape)}; write 512, "
            "512:4096 (doubling) or 512:4096:512 (adding)."
        )
    first, *rest = (int(part) for part in text.split(":"))
    if not rest:
        return [first]
    last, step = rest[0], rest[1] if len(rest) > 1 else None
    if last < first or step == 0 or (step is None and first == 0):
        raise ShapeError(f"the range {text!r} in the shape {shape!r} is empty or has no end.")
    if step is not None and last > first:
        steps = range(first, last, step)
        return steps if len(steps) > _MOST_SHAPES else [*steps, last]
    sizes = [first]
    while (after := sizes[-1] * 2) < last:
        sizes.append(after)
    return [*sizes, last] if last > first else sizes


def shorten(text: str) -> str:
    """The text in quotes, the middle of a long one left out: one sentence must stay readable."""
    return repr(text if len(text) <= 80 else f"{text[:40]}...{text[-20:]}")


def _products(options: Mapping[str, Sequence[int]]) -> Iterator[dict[str, int]]:
    count = math.prod(len(sizes) for sizes in options.values())
    if count > _MOST_SHAPES:
        raise ShapeError(f"the shape stands for {count:,} problems; name at most {_MOST_SHAPES:,}.")
    for values in itertools.product(*options.values()):
        yield dict(zip(options, values, strict=True))


def parse_settings(texts: tuple[str, ...], *, what: str = "flag") -> dict[str, Any]:
    """Values from "causal=true" and the like: truth values, numbers, else text."""
    found: dict[str, Any] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not name.strip() or not sign:
            raise UserError(f"cannot read the {what} {text!r}; write NAME=VALUE.")
        if name.strip() in found:
            raise UserError(f"the {what} {name.strip()} is given twice.")
        found[name.strip()] = parse_value(value.strip())
    return found


def parse_value(text: str) -> bool | int | float | str:
    """true, false, a whole number, a number, or else the text itself."""
    if text.lower() in ("true", "false", "yes", "no"):
        return text.lower() in ("true", "yes")
    for kind in (int, float):
        try:
            value = kind(text)
        except ValueError:
            continue
        if not isinstance(value, float) or math.isfinite(value) or len(text) < 10:
            return value
    return text  # digits beyond what a number can hold are no infinity


def short_shape(operation: Operation, sizes: Mapping[str, int]) -> str:
    """The shortest text that `parse_shapes` reads as these sizes: B=2,H=1,N=2048,D=64."""
    shown = dict(sizes)
    for alias, targets in operation.aliases.items():
        if len({sizes[name] for name in targets}) == 1:
            items = [(alias if n == targets[0] else n, s) for n, s in shown.items()]
            candidate = {n: s for n, s in items if n == alias or n not in targets}
            if _means(operation, candidate, sizes):
                shown = candidate
    for name in operation.defaults:
        candidate = {n: s for n, s in shown.items() if n != name}
        if _means(operation, candidate, sizes):
            shown = candidate
    return ",".join(f"{name}={size}" for name, size in shown.items())


def _means(operation: Operation, given: Mapping[str, int], sizes: Mapping[str, int]) -> bool:
    try:
        return operation.complete(given) == dict(sizes)
    except UserError:
        return False


def short_flags(operation: Operation, flags: Mapping[str, Any]) -> str:
    """The flags that differ from their defaults: causal=True; "" when none does."""
    given = {n: v for n, v in flags.items() if v != operation.flags.get(n)}
    return ",".join(f"{name}={value}" for name, value in given.items())


def candidate_text(variant: str, config: Mapping[str, Any] | None) -> str:
    """A variant with its config: online [block_q=64 threads=2]; the name alone without one."""
    values = " ".join(f"{name}={value}" for name, value in (config or {}).items())
    return f"{variant} [{values}]" if values else variant


def short_problem(problem: Problem) -> str:
    """One line for people: attention B=2,H=1,N=2048,D=64 float32 causal=True."""
    operation = problem.operation
    parts = [operation.name, short_shape(operation, problem.sizes), problem.dtype]
    parts += [short_flags(operation, problem.flags)]
    parts += [problem.layout if problem.layout != "packed" else ""]
    return " ".join(part for part in parts if part)


def problem_options(problem: Problem) -> str:
    """The options of the command line that name this problem."""
    operation = problem.operation
    shape = short_shape(operation, problem.sizes)
    words = [f"--shape {shape}"] if shape else []
    words.append(f"--dtype {problem.dtype}")
    for name, value in problem.flags.items():
        if value != operation.flags.get(name):
            shown = str(value).lower() if isinstance(value, bool) else value
            words.append(f"--set {name}={shown}")
    return " ".join(words)


def tune_command(problem: Problem, *, mode: str = "cold") -> str:
    """The command that measures this problem."""
    other = f" --mode {mode}" if mode != "cold" else ""
    file = file_of(problem.operation.reference.__module__)
    plugin = f" --plugin {shlex.quote(file)}" if file is not None else ""
    return f"autotune tune {problem.operation.name} {problem_options(problem)}{other}{plugin}"


def dispatch_call(problem: Problem, *, mode: str = "cold") -> str:
    """The line of Python that serves this problem."""
    operation = problem.operation
    names = operation.shape or operation.dims
    sizes = {**problem.sizes}
    for alias, targets in operation.aliases.items():
        sizes[alias] = problem.sizes[targets[0]]
    shape = tuple(sizes[name] for name in names)
    flags = "".join(f", {n}={v!r}" for n, v in problem.flags.items() if v != operation.flags.get(n))
    other = f', mode="{mode}"' if mode != "cold" else ""
    if operation.sizes_from_shape(shape) != dict(problem.sizes):
        short = short_shape(operation, problem.sizes)
        spec = f"dims=dict({short})"
        return f"dispatch({operation.name!r}, {spec}, dtype={problem.dtype!r}{flags}{other})"
    return f"dispatch({operation.name!r}, {shape}, dtype={problem.dtype!r}{flags}{other})"
