"""Size expressions: arithmetic over dims, flags and tunables, checked when declared."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import CodeType
from typing import Any

from autotune.errors import DeclarationError

_ALLOWED = (
    *(ast.Expression, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Call),
    *(ast.Name, ast.Load, ast.Constant, ast.Tuple, ast.operator, ast.unaryop, ast.boolop),
    ast.cmpop,
)


def ceil_div(numerator: int, denominator: int) -> int:
    """Number of tiles of size `denominator` that cover `numerator`."""
    return -(-numerator // denominator)


_LARGEST = 1e100
"""Far beyond every count; far within what arithmetic with floats can do."""

_FUNCTIONS: dict[str, Callable[..., Any]] = {"ceil_div": ceil_div, "min": min, "max": max}


@dataclass(frozen=True, slots=True)
class Expression:
    """A compiled expression; `names` are the values it needs."""

    text: str
    names: frozenset[str]
    code: CodeType = field(repr=False, compare=False)

    def __call__(self, values: Mapping[str, Any]) -> Any:
        """Value of the expression; DeclarationError where it has none (a division by zero)."""
        try:
            return eval(self.code, {"__builtins__": {}, **_FUNCTIONS}, dict(values))
        except (ArithmeticError, TypeError, ValueError) as error:
            raise self.fault(values, str(error)) from None

    def fault(self, values: Mapping[str, Any], why: str) -> DeclarationError:
        """What to raise where it has no value, or none of use."""
        facts = ", ".join(f"{name}={values[name]}" for name in sorted(self.names))
        where = f" at {facts}" if facts else ""
        return DeclarationError(f"cannot evaluate {self.text!r}{where}: {why}.")


@lru_cache(maxsize=4096)
def expression(text: str | int | float) -> Expression:
    """Compile `text`, e.g. "B*ceil_div(Nq, tile)"; DeclarationError if it is not arithmetic."""
    source = str(text)
    try:
        tree = ast.parse(source, mode="eval")
    except SyntaxError as error:
        raise DeclarationError(f"cannot read the expression {source!r}: {error.msg}.") from None
    for node in ast.walk(tree):
        if not isinstance(node, _ALLOWED):
            kind = type(node).__name__
            raise DeclarationError(f"the expression {source!r} may not contain {kind}.")
    names = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} - set(_FUNCTIONS)
    return Expression(source, frozenset(names), compile(tree, f"<{source}>", "eval"))


def number(text: str | int | float, values: Mapping[str, Any]) -> int | float:
    """Evaluate an expression that is to give a number; DeclarationError where it gives none."""
    value = evaluate(text, values)
    if isinstance(value, int | float) and -_LARGEST < value < _LARGEST:
        return value
    raise expression(text).fault(values, f"{str(value)[:40]} is no number of use")


def evaluate(text: str | int | float, values: Mapping[str, Any]) -> Any:
    """Evaluate an expression (numbers pass through)."""
    return text if isinstance(text, int | float) else expression(text)(values)
