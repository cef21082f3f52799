"""Operation: what is computed, independent of how and where."""

from __future__ import annotations

import contextlib
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from autotune.errors import DeclarationError, ShapeError, UnknownNameError, UserError
from autotune.model.expression import evaluate, expression
from autotune.model.published import Published

_TENSOR = re.compile(r"(\w+)\[([\w,\s]*)\](?::(\w+))?")

type_names = {
    "half": "float16",
    "fp16": "float16",
    "bf16": "bfloat16",
    "single": "float32",
    "fp32": "float32",
    "float": "float64",
    "double": "float64",
    "fp64": "float64",
}

_KNOWN = ("float64", "float32", "float16", "bfloat16")
_NO_SIZE = 2**62


@dataclass(frozen=True, slots=True)
class Tensor:
    """An input or output: its name, its dims in order, its dtype.

    None is the problem's dtype, "accumulator" float32 for 16-bit problems and else the problem's.
    """

    name: str
    dims: tuple[str, ...]
    dtype: str | None = None

    def shape(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """Shape for the given dim sizes."""
        return tuple(sizes[dim] for dim in self.dims)

    def __str__(self) -> str:
        return f"{self.name}[{','.join(self.dims)}]" + (f":{self.dtype}" if self.dtype else "")


def parse_tensors(text: str) -> tuple[Tensor, ...]:
    """Read "q[B,H,Nq,D] k[B,Hkv,Nk,D]"; `x[N]:int32` fixes a dtype (or "accumulator")."""
    tensors = tuple(
        Tensor(name, tuple(dim.strip() for dim in dims.split(",") if dim.strip()), dtype or None)
        for name, dims, dtype in _TENSOR.findall(text)
    )
    if not tensors or _TENSOR.sub("", text).strip(" ,"):
        raise DeclarationError(f"cannot read the arrays {text!r}; write 'x[N,D] y[N]'.")
    return tensors


@dataclass(frozen=True, slots=True, eq=False)
class Operation:
    """What is computed: dims, arrays, float64 reference, tolerances, flops.

    `reference(*inputs, **flags, **scalars)` takes float64 arrays and returns the outputs in order;
    `plain` is the same in the problem's dtype and sets what error the arithmetic makes unavoidable
    (by default the reference itself, run in that dtype). An output that bears an input's name is
    updated in place. `published` are the counts of publications. `axes` say along which dims what
    was measured serves other sizes: those of the size first, `(("N",), ("M",))`; without, each
    number of the positional shape may vary, and `((),)` has none vary.
    """

    name: str
    dims: tuple[str, ...]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    reference: Callable[..., Any] = field(repr=False)
    plain: Callable[..., Any] = field(repr=False)
    shape: tuple[str, ...] = ()
    aliases: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    defaults: Mapping[str, str | int] = field(default_factory=dict)
    flags: Mapping[str, Any] = field(default_factory=dict)
    scalars: Mapping[str, str | float] = field(default_factory=dict)
    rules: tuple[str, ...] = ()
    axes: tuple[tuple[str, ...], ...] = ()
    dtypes: tuple[str, ...] = ("float32", "float64")
    flops: str | int = 0
    tolerance: Mapping[str, float] = field(default_factory=dict)
    residuals: tuple[str, ...] = ()
    sample: Callable[..., Any] | None = field(default=None, repr=False)
    published: tuple[Published, ...] = ()
    doc: str = ""

    def __post_init__(self) -> None:
        check_name("operation", self.name)
        known = set(self.dims)
        for tensor in (*self.inputs, *self.outputs):
            unknown = [dim for dim in tensor.dims if dim not in known]
            if unknown:
                raise DeclarationError(
                    f"operation {self.name}: {tensor.name} uses the undeclared dim {unknown[0]}."
                )
        values = known | set(self.flags) | {"itemsize"}
        for text in (self.flops, *self.rules, *self.defaults.values(), *self.scalars.values()):
            missing = expression(text).names - values
            if missing:
                raise DeclarationError(
                    f"operation {self.name}: the expression {text!r} uses the undeclared name "
                    f"{min(missing)}."
                )
        for count in self.published:
            count.check(self.name, known)

    def __call__(self, *arrays: Any, **flags: Any) -> Any:
        """The reference, as the decorated function was before it was declared."""
        return self.reference(*arrays, **flags)

    @property
    def updated(self) -> frozenset[str]:
        """Names of the inputs that the operation updates in place."""
        return frozenset(t.name for t in self.inputs) & frozenset(t.name for t in self.outputs)

    @property
    def varying(self) -> tuple[tuple[str, ...], ...]:
        """The axes; undeclared, the dims of each positional size, behind an empty one: any may be
        the size."""
        if self.axes:
            return self.axes
        groups = [list(self.aliases.get(name, (name,))) for name in self.shape or self.dims]
        for dim, default in self.defaults.items():
            names = expression(default).names
            for group in groups:
                if names and dim not in group and names <= set(group):
                    group.append(dim)
        return ((), *map(tuple, groups))

    @property
    def fresh_outputs(self) -> tuple[Tensor, ...]:
        """Outputs that are not inputs updated in place."""
        updated = self.updated
        return tuple(tensor for tensor in self.outputs if tensor.name not in updated)

    def sizes_from_shape(self, shape: Sequence[int]) -> dict[str, int]:
        """Sizes from a positional shape such as (2, 1, 2048, 64)."""
        names = self.shape or self.dims
        if len(shape) != len(names):
            raise ShapeError(
                f"{self.name} takes a shape of {len(names)} numbers ({', '.join(names)}), "
                f"got {len(shape)}: {tuple(shape)}."
            )
        return self.complete(dict(zip(names, shape, strict=True)))

    def sizes_from_arrays(self, shapes: Sequence[Sequence[int]]) -> dict[str, int]:
        """Sizes from the shapes of the inputs, in order; ShapeError names dims that disagree."""
        if len(shapes) != len(self.inputs):
            names = ", ".join(tensor.name for tensor in self.inputs)
            raise ShapeError(
                f"{self.name} takes {len(self.inputs)} arrays ({names}), got {len(shapes)}."
            )
        sizes: dict[str, int] = {}
        source: dict[str, str] = {}
        for tensor, shape in zip(self.inputs, shapes, strict=True):
            if len(shape) != len(tensor.dims):
                raise ShapeError(
                    f"{self.name}: {tensor} has {len(tensor.dims)} dims, got shape {tuple(shape)}."
                )
            for dim, size in zip(tensor.dims, shape, strict=True):
                if sizes.setdefault(dim, int(size)) != size:
                    there = f"{sizes[dim]} in {source[dim]}"
                    raise ShapeError(f"{self.name}: {dim} is {there} but {size} in {tensor}.")
                source.setdefault(dim, str(tensor))
        return self.complete(sizes)

    def complete(self, given: Mapping[str, int]) -> dict[str, int]:
        """All dims from some: aliases spread, defaults filled in, rules checked."""
        sizes: dict[str, int] = {}
        for name, size in given.items():
            targets = self.aliases.get(name, (name,))
            if name not in self.dims and name not in self.aliases:
                raise UnknownNameError(f"dim of {self.name}", name, (*self.dims, *self.aliases))
            if not _is_size(size):
                bound = "< 2**62" if _is_large(size) else ">= 0"
                raise ShapeError(
                    f"{self.name}: {name} must be a whole number {bound}, got {size!r}."
                )
            for target in targets:
                if name in self.dims or target not in given:
                    sizes[target] = int(size)
        for name, default in self.defaults.items():
            if name not in sizes and expression(default).names <= sizes.keys():
                sizes[name] = int(evaluate(default, sizes))
        missing = [dim for dim in self.dims if dim not in sizes]
        if missing:
            raise ShapeError(f"{self.name} also needs the dim {missing[0]}; got {dict(given)}.")
        ordered = {dim: sizes[dim] for dim in self.dims}
        for rule in self.rules:
            if not evaluate(rule, ordered):
                facts = ", ".join(f"{n}={ordered[n]}" for n in sorted(expression(rule).names))
                raise ShapeError(f"{self.name} needs {rule}, got {facts}.")
        return ordered

    def check_flags(self, flags: Mapping[str, Any]) -> tuple[tuple[str, Any], ...]:
        """Flags with defaults filled in, in declared order; unknown names raise."""
        for name in flags:
            if name not in self.flags:
                raise UnknownNameError(
                    f"flag of {self.name}", name, (*self.flags, *self.scalars, *self.dims)
                )
        return tuple(
            (name, self._flag(name, flags.get(name, default)))
            for name, default in self.flags.items()
        )

    def _flag(self, name: str, value: Any) -> Any:
        """The value of a flag as its declared type; 0 and 1 pass for false and true."""
        kind = type(self.flags[name])
        if isinstance(value, str) == (kind is str) and not (kind is bool and value not in (0, 1)):
            with contextlib.suppress(TypeError, ValueError):
                return kind(value)
        raise UserError(f"flag {name} of {self.name} is a {kind.__name__}, got {value!r}.")

    def check_dtype(self, dtype: object) -> str:
        """Canonical dtype name ("float32") for any spelling; raises when unsupported."""
        name = canonical_dtype(dtype)
        if name not in self.dtypes:
            written = dtype if isinstance(dtype, str) else name
            raise UnknownNameError(f"dtype for {self.name}", written, self.dtypes)
        return name


def check_name(kind: str, name: str) -> None:
    """DeclarationError for a name that a command line or a table would not take as one word."""
    if not name or not name.isprintable() or any(each.isspace() or each == "/" for each in name):
        raise DeclarationError(f"{kind} {name!r}: a name is one word, without spaces and '/'.")


def _is_size(value: object) -> bool:
    """Whether a value is a whole number of zero or more that a machine can index by."""
    if isinstance(value, bool | str) or not hasattr(value, "__index__"):
        return False
    return 0 <= operator.index(value) < _NO_SIZE


def _is_large(value: object) -> bool:
    return isinstance(value, int) and value >= _NO_SIZE


def canonical_dtype(dtype: object) -> str:
    """Name of a dtype in any spelling: "fp32", "<f4", numpy.float32, torch.float32; native byte
    order only."""
    if type(dtype).__module__ == "torch":
        dtype = str(dtype).removeprefix("torch.")
    if isinstance(dtype, str) and dtype.lower() in type_names:
        return type_names[dtype.lower()]
    if isinstance(dtype, str) and dtype.lower() == "bfloat16":
        return "bfloat16"
    import numpy as np

    try:
        resolved = np.dtype(dtype)  # type: ignore[call-overload]
        if dtype is None:
            raise TypeError
    except (TypeError, ValueError, SyntaxError):
        raise UnknownNameError("dtype", str(dtype), _KNOWN) from None
    if not resolved.isnative:
        raise ShapeError(f"dtype {dtype!r} is not in this machine's byte order; convert it first.")
    return str(resolved.name)
