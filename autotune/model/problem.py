"""Problem, Config and Candidate: what is to be run, and how."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from autotune.errors import DeclarationError, UserError
from autotune.model.expression import evaluate, number
from autotune.model.operation import Operation
from autotune_tuning_db import ProblemKey

Value = int | float | str | bool


class Config(Mapping[str, Value]):
    """One value for every tunable of a variant; immutable and hashable."""

    __slots__ = ("_hash", "_items")

    def __init__(self, values: Mapping[str, Value] | None = None, **more: Value) -> None:
        self._items = dict(values or {}, **more)
        self._hash = hash(frozenset(self._items.items()))

    def __getitem__(self, name: str) -> Value:
        return self._items[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mapping) and self._items == dict(other)

    def __str__(self) -> str:
        return " ".join(f"{name}={value}" for name, value in self._items.items()) or "-"

    def __repr__(self) -> str:
        return f"Config({self._items!r})"

    def integer(self, name: str, default: int | None = None) -> int:
        """A whole-number tunable, or `default` when the variant does not have it."""
        value = self._items.get(name, default)
        if value is None:
            raise KeyError(name)
        return int(value)


@dataclass(frozen=True, eq=False)
class Problem:
    """An operation at given sizes, dtype, flags and memory layout."""

    operation: Operation
    sizes: Mapping[str, int]
    dtype: str
    flags: Mapping[str, Any]
    layout: str = "packed"

    @classmethod
    def of(
        cls,
        operation: Operation,
        shape: Sequence[int] | Mapping[str, int],
        dtype: object = "float32",
        *,
        layout: str = "packed",
        **flags: Any,
    ) -> Problem:
        """A problem from a positional shape or a mapping of dims; every spelling checked."""
        if isinstance(shape, Mapping):
            sizes = operation.complete(shape)
        else:
            sizes = operation.sizes_from_shape(shape)
        return cls(
            operation,
            sizes,
            operation.check_dtype(dtype),
            dict(operation.check_flags(flags)),
            layout,
        )

    @classmethod
    def from_key(cls, operation: Operation, key: ProblemKey) -> Problem:
        """The problem that a stored key names."""
        return cls.of(operation, dict(key.dims), key.dtype, layout=key.layout, **dict(key.flags))

    @cached_property
    def key(self) -> ProblemKey:
        """The plain key under which this problem is stored."""
        return ProblemKey(
            self.operation.name,
            tuple(self.sizes.items()),
            self.dtype,
            tuple(self.flags.items()),
            self.layout,
        )

    @cached_property
    def itemsize(self) -> int:
        """Bytes of one element of the problem's dtype."""
        return dtype_itemsize(self.dtype)

    @cached_property
    def names(self) -> dict[str, Any]:
        """Everything an expression may refer to: dims, flags, itemsize."""
        return {**self.sizes, **self.flags, "itemsize": self.itemsize}

    @cached_property
    def flops(self) -> int:
        """Floating-point operations of the operation itself; 0 where the declaration gives none."""
        try:
            return int(number(self.operation.flops, self.names))
        except DeclarationError:
            return 0

    @cached_property
    def compulsory_bytes(self) -> tuple[int, int]:
        """Bytes (read, written) that no arrangement avoids: each input once, each output once.

        Of an array that is updated in place a call may touch little, as of a cache that a row is
        appended to: it does not count.
        """
        operation = self.operation
        read, written = (
            sum(self.nbytes(t.dims, t.dtype) for t in tensors if t.name not in operation.updated)
            for tensors in (operation.inputs, operation.outputs)
        )
        return read, written

    def nbytes(self, dims: Sequence[str], dtype: str | None = None) -> int:
        """Bytes of an array over `dims`."""
        count = dtype_itemsize(self.element_type(dtype))
        for dim in dims:
            count *= self.sizes[dim]
        return count

    def element_type(self, dtype: str | None = None) -> str:
        """What a declared dtype is here: None and "accumulator" depend on the problem's."""
        if dtype == "accumulator":
            return "float32" if self.itemsize < 4 else self.dtype
        return dtype or self.dtype

    def scalars(self, given: Mapping[str, float | None] | None = None) -> tuple[float, ...]:
        """Scalar arguments in declared order; those not given take the operation's default."""
        values = {name: value for name, value in (given or {}).items() if value is not None}
        return tuple(
            self._number(name, values[name])
            if name in values
            else float(evaluate(default, self.names))
            for name, default in self.operation.scalars.items()
        )

    def _number(self, name: str, value: Any) -> float:
        """A scalar as a float64; UserError for what is none."""
        what = f"{name} of {self.operation.name}"
        try:
            if hasattr(value, "__float__") and not isinstance(value, str):
                return float(value)
        except OverflowError:
            raise UserError(f"{what} is a number too large for float64.") from None
        except (TypeError, ValueError):
            pass
        raise UserError(f"{what} is a number, got {value!r}.")

    def __str__(self) -> str:
        return self.key.text

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Problem) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def dtype_itemsize(dtype: str) -> int:
    """Bytes of one element, without importing NumPy."""
    sizes = {"float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "int32": 4, "int64": 8}
    if dtype in sizes:
        return sizes[dtype]
    import numpy as np

    return int(np.dtype(dtype).itemsize)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A variant (by name) with a config."""

    variant: str
    config: Config

    def __str__(self) -> str:
        return f"{self.variant} [{self.config}]"
