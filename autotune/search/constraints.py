"""Constraints over whole columns of configs: parsed, interpreted with NumPy, never executed."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from autotune.errors import DeclarationError
from autotune.model.expression import ceil_div

Column = NDArray[Any]
"""One value for every config; what has a single value for all is an array of one."""

_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: lambda base, power: np.power(np.asarray(base, float), power),
}
_COMPARED: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_DIVIDES = (ast.Div, ast.FloorDiv, ast.Mod)
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "min": lambda *values: _pairwise(np.minimum, values),
    "max": lambda *values: _pairwise(np.maximum, values),
    "ceil_div": ceil_div,
}
_LONGEST, _MOST_NODES = 10_000, 1_000


class _DividesByZeroError(ArithmeticError):
    """A division by zero, and in which `rows` of the configs at hand."""

    def __init__(self, rows: NDArray[Any]) -> None:
        super().__init__()
        self.rows = rows


@dataclass(frozen=True)
class Constraint:
    """A condition on tunables and sizes: comparison, arithmetic, `and`, `or`, `not`, names.

    `names` are those it needs. Also read: conditional expressions, membership in a written tuple or
    list, and min, max, ceil_div. Integers are 64 bit.
    """

    text: str
    names: frozenset[str]
    tree: ast.expr

    def __call__(self, columns: Mapping[str, Column], count: int) -> NDArray[np.bool_]:
        """Which of `count` configs satisfy it; not those for which it divides by zero.

        As in Python, `and` and `or` look at their right side only where the left one leaves it
        open, so that it may guard a division. DeclarationError where text meets numbers.
        """
        rows, satisfied = np.arange(count), np.zeros(count, dtype=bool)
        while len(rows):
            try:
                with np.errstate(all="ignore"):
                    found = _truth(_value(self.tree, _only(columns, rows, count), len(rows)))
            except _DividesByZeroError as error:
                rows = np.delete(rows, error.rows)
                continue
            except (TypeError, OverflowError, np.exceptions.DTypePromotionError):
                what = f"the constraint {self.text!r} mixes text and numbers"
                raise DeclarationError(f"{what}.") from None
            satisfied[rows] = found
            break
        return satisfied


def constraint(text: str) -> Constraint:
    """Parse a constraint; DeclarationError names what it may not contain."""
    try:
        if len(text) > _LONGEST:
            raise ValueError("it is too long")
        tree = ast.parse(text.strip(), mode="eval").body
        nodes = list(ast.walk(tree))
        if len(nodes) > _MOST_NODES:
            raise ValueError("it is too long")
    except SyntaxError as error:
        raise DeclarationError(f"cannot read the constraint {text!r}: {error.msg}.") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise DeclarationError(f"cannot read the constraint {text[:60]!r}: {error}.") from None
    for node in nodes:
        _check(node, text)
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return Constraint(text, frozenset(names - _FUNCTIONS.keys()), tree)


def _check(node: ast.AST, text: str) -> None:
    if isinstance(node, ast.Constant):
        known = isinstance(node.value, bool | int | float | str)
        if not known or (isinstance(node.value, int) and abs(node.value) >= 2**63):
            raise DeclarationError(f"the constraint {text!r} may not contain {node.value!r}.")
    elif isinstance(node, ast.Call):
        named = isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS
        if not named or node.keywords or not node.args:
            raise DeclarationError(
                f"the constraint {text!r} may call only {', '.join(sorted(_FUNCTIONS))}."
            )
    elif not isinstance(node, _ALLOWED):
        raise DeclarationError(f"the constraint {text!r} may not contain {type(node).__name__}.")


_ALLOWED = (
    *(ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.Name, ast.Load),
    *(ast.Tuple, ast.List, ast.boolop, ast.Not, ast.USub, ast.UAdd, ast.In, ast.NotIn),
    *(*_BINARY, *_COMPARED),
)


def _value(node: ast.expr, columns: Mapping[str, Column], count: int) -> Any:
    """The value of a node for every config: an array of `count`, or of one."""
    match node:
        case ast.Constant(value=value):
            return np.asarray([int(value) if isinstance(value, bool) else value])
        case ast.Name(id=name):
            column = columns[name]
            return column.astype(np.int64) if column.dtype == bool else column
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return ~_truth(_value(operand, columns, count))
        case ast.UnaryOp(op=sign, operand=operand):
            value = _number(_value(operand, columns, count))
            return -value if isinstance(sign, ast.USub) else value
        case ast.BinOp(left=left, op=op, right=right):
            sides = [_number(_value(side, columns, count)) for side in (left, right)]
            if isinstance(op, _DIVIDES):
                _refuse(sides[1] == 0, count)
            elif isinstance(op, ast.Pow):
                _refuse((sides[0] == 0) & (sides[1] < 0), count)
            return _BINARY[type(op)](*sides)
        case ast.BoolOp(op=op, values=parts):
            return _joined(isinstance(op, ast.And), parts, columns, count)
        case ast.Compare(left=left, ops=ops, comparators=others):
            return _compared(left, ops, others, columns, count)
        case ast.IfExp(test=test, body=body, orelse=other):
            return _either(test, body, other, columns, count)
        case ast.Call(func=ast.Name(id=name), args=arguments):
            values = [_number(_value(each, columns, count)) for each in arguments]
            if name == "ceil_div":
                _refuse(values[-1] == 0, count)
            return _FUNCTIONS[name](*values)
    raise TypeError(f"unexpected {type(node).__name__}")


def _refuse(undefined: Any, count: int) -> None:
    """Raise for the configs whose value is not defined, where there are any."""
    if np.any(undefined):
        raise _DividesByZeroError(np.flatnonzero(np.broadcast_to(undefined, (count,))))


def _of_some(
    node: ast.expr, columns: Mapping[str, Column], rows: NDArray[Any], count: int
) -> NDArray[Any]:
    """The value of a node for some of the configs."""
    try:
        value = _value(node, _only(columns, rows, count), len(rows))
    except _DividesByZeroError as error:
        raise _DividesByZeroError(rows[error.rows]) from None
    return np.broadcast_to(value, (len(rows),))


def _joined(every: bool, parts: list[ast.expr], columns: Mapping[str, Column], count: int) -> Any:
    """`and` (every) or `or`: each part only for the configs that the ones before left open."""
    open_rows = np.arange(count)
    found = np.full(count, every)
    for part in parts:
        here = _truth(_of_some(part, columns, open_rows, count))
        found[open_rows] = here
        open_rows = open_rows[here if every else ~here]
        if not len(open_rows):
            break
    return found


def _either(
    test: ast.expr, body: ast.expr, other: ast.expr, columns: Mapping[str, Column], count: int
) -> Any:
    chosen = np.broadcast_to(_truth(_value(test, columns, count)), (count,))
    rows = np.flatnonzero(chosen), np.flatnonzero(~chosen)
    values = [
        _of_some(part, columns, each, count)
        for part, each in zip((body, other), rows, strict=True)
        if len(each)
    ]
    joined = np.concatenate(values)
    order = np.concatenate(rows)
    found = np.empty(count, joined.dtype)
    found[order] = joined
    return found


def _compared(
    left: ast.expr,
    ops: list[ast.cmpop],
    others: list[ast.expr],
    columns: Mapping[str, Column],
    count: int,
) -> Any:
    """A chain of comparisons, as a < b <= c."""
    found: Any = np.ones(1, dtype=bool)
    value = _value(left, columns, count)
    for op, other in zip(ops, others, strict=True):
        if isinstance(op, ast.In | ast.NotIn):
            if not isinstance(other, ast.Tuple | ast.List):
                raise TypeError("membership in a value")
            members = [_value(each, columns, count) for each in other.elts]
            inside = _pairwise(np.logical_or, [_equal(value, each) for each in members])
            found = found & (inside if isinstance(op, ast.In) else ~inside)
        else:
            right = _value(other, columns, count)
            if isinstance(op, ast.Eq | ast.NotEq):
                same = _equal(value, right)
                found = found & (same if isinstance(op, ast.Eq) else ~same)
            else:
                found = found & _truth(_COMPARED[type(op)](value, right))
            value = right
    return found


def _equal(one: Column, other: Column) -> Any:
    """Equality; text never equals a number."""
    kinds = {"text" if side.dtype.kind in "US" else side.dtype.kind for side in (one, other)}
    if "text" in kinds and len(kinds) > 1 and "O" not in kinds:
        return np.zeros(np.broadcast_shapes(one.shape, other.shape), dtype=bool)
    return np.asarray(one == other, dtype=bool)


def _truth(value: Any) -> Any:
    """What Python takes for true."""
    value = np.asarray(value)
    if value.dtype.kind in "US":
        return np.char.str_len(value) > 0
    return value.astype(bool)


def _number(value: Any) -> Any:
    if value.dtype.kind in "US":
        raise TypeError("text in arithmetic")
    return value.astype(np.int64) if value.dtype == bool else value


def _pairwise(function: Callable[[Any, Any], Any], values: Any) -> Any:
    found = values[0]
    for value in values[1:]:
        found = function(found, value)
    return found


def _only(columns: Mapping[str, Column], rows: NDArray[Any], count: int) -> Mapping[str, Column]:
    """The columns of some of the configs; those of one value for all stay as they are."""
    if len(rows) == count:
        return columns
    return {name: column if len(column) == 1 else column[rows] for name, column in columns.items()}
