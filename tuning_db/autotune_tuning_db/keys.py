"""The plain key of a problem: what is computed, how large, in which dtype, with which flags."""

from __future__ import annotations

import math
import operator
import re
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote

Scalar = bool | int | float | str

LAYOUTS = ("packed", "unaligned", "strided")
"""`packed`: every array is C-contiguous and begins where 16 bytes can be read at once; `unaligned`:
one begins elsewhere; `strided`: anything else."""

PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.:\-]*\Z")
_DTYPE = re.compile(r"[a-z][a-z0-9_]*\Z")
_INTEGER = re.compile(r"-?(0|[1-9][0-9]*)\Z")
_LARGEST_DIM = 2**62


@dataclass(frozen=True, slots=True)
class ProblemKey:
    """One problem as plain values; `text` is its canonical spelling and its identity.

    Two keys are equal when their texts are: `causal=True` and `causal=1` are different flags,
    although Python calls the values equal.

    Args:
        operation: the operation's name.
        dims: (name, size) pairs in the operation's order; a size is zero or more.
        dtype: canonical NumPy name, such as `float32`.
        flags: (name, value) pairs; kept sorted by name, so that their order never matters.
        layout: one of `LAYOUTS`.

    Raises:
        ValueError: a part cannot be spelled, or a name occurs twice.
    """

    operation: str = field(compare=False)
    dims: tuple[tuple[str, int], ...] = field(compare=False)
    dtype: str = field(compare=False)
    flags: tuple[tuple[str, Scalar], ...] = field(default=(), compare=False)
    layout: str = field(default="packed", compare=False)
    text: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        dims = tuple((name, _size(name, size)) for name, size in self.dims)
        flags = tuple(sorted((name, _plain(name, value)) for name, value in self.flags))
        _check_names(self.operation, dims, flags)
        if not _DTYPE.match(self.dtype):
            raise ValueError(f"dtype {self.dtype!r} is not a canonical NumPy name like 'float32'")
        if self.layout not in LAYOUTS:
            raise ValueError(f"layout {self.layout!r} is not one of {', '.join(LAYOUTS)}")
        object.__setattr__(self, "dims", dims)
        object.__setattr__(self, "flags", flags)
        parts = (self.operation, self.dims_text, self.dtype, self.flags_text, self.layout)
        object.__setattr__(self, "text", " ".join(part for part in parts if part))

    def __str__(self) -> str:
        return self.text

    @property
    def dims_text(self) -> str:
        """`B=2,H=1`, or `-` for an operation without dims."""
        return ",".join(f"{name}={size}" for name, size in self.dims) or "-"

    @property
    def flags_text(self) -> str:
        """`causal=False,scale=0.125`, or an empty text without flags."""
        return ",".join(f"{name}={_spell(value)}" for name, value in self.flags)

    def dim(self, name: str) -> int:
        """The size of one dim; raises KeyError for a dim this problem does not have."""
        return dict(self.dims)[name]

    @classmethod
    def parse(cls, text: str) -> ProblemKey:
        """The key that `text` spells; raises ValueError unless it is the canonical spelling."""
        parts = text.split(" ")
        if len(parts) == 4:
            parts.insert(3, "")
        if len(parts) != 5:
            raise ValueError(f"{text!r} is not a problem: operation dims dtype [flags] layout")
        operation_name, dims, dtype, flags, layout = parts
        key = cls(
            operation_name,
            tuple((name, _read_int(value)) for name, value in _pairs("" if dims == "-" else dims)),
            dtype,
            tuple((name, _read(value)) for name, value in _pairs(flags)),
            layout,
        )
        if key.text != text:
            raise ValueError(f"{text!r} is not in canonical spelling, which is {key.text!r}")
        return key


def _size(name: str, size: Any) -> int:
    try:
        value = operator.index(size)
    except TypeError:
        raise ValueError(f"dim {name} is {size!r}, not an integer") from None
    if not 0 <= value < _LARGEST_DIM:
        raise ValueError(f"dim {name} is {value}, out of range")
    return value


def _plain(name: str, value: Any) -> Scalar:
    """The value as a Python scalar; NumPy scalars are unwrapped."""
    if hasattr(value, "item"):
        value = value.item()
    if isinstance(value, float) and math.isnan(value):
        raise ValueError(f"flag {name} is not a number")
    if not isinstance(value, bool | int | float | str):
        raise ValueError(f"flag {name} is {value!r}, not a bool, int, float or str")
    return value


def _check_names(operation_name: str, dims: tuple[Any, ...], flags: tuple[Any, ...]) -> None:
    for kind, names in (
        ("operation", [operation_name]),
        ("dim", [name for name, _ in dims]),
        ("flag", [name for name, _ in flags]),
    ):
        for name in names:
            if not isinstance(name, str) or not PLAIN_NAME.match(name):
                raise ValueError(f"{kind} name {name!r} is not a plain name")
        if len(set(names)) != len(names):
            raise ValueError(f"a {kind} occurs twice in {', '.join(names)}")


def _spell(value: Scalar) -> str:
    return f"'{quote(value, safe='')}'" if isinstance(value, str) else repr(value)


def _pairs(text: str) -> list[tuple[str, str]]:
    if not text:
        return []
    pairs = [item.partition("=") for item in text.split(",")]
    if not all(separator for _, separator, _ in pairs):
        raise ValueError(f"{text!r} is not a list of name=value")
    return [(name, value) for name, _, value in pairs]


def _read_int(text: str) -> int:
    if not _INTEGER.match(text):
        raise ValueError(f"{text!r} is not an integer")
    return int(text)


def _read(text: str) -> Scalar:
    if text in ("True", "False"):
        return text == "True"
    if len(text) >= 2 and text[0] == text[-1] == "'":
        return unquote(text[1:-1], errors="strict")
    return int(text) if _INTEGER.match(text) else float(text)
