"""What a variant depends on in source: a walk from its functions to all that they reach."""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import hashlib
import importlib
import inspect
import sys
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, partial
from importlib import metadata, util
from pathlib import Path
from typing import Any

from autotune.cuda.source import CudaSource
from autotune.model import Operation, Variant
from autotune.native.kernel import NativeKernel
from autotune.native.source import NativeSource
from autotune.source import absolute_module, function_text, imports_in, names_in, source_file

TOOLCHAIN = frozenset({"llvmlite", "numba", "numpy", "threadpoolctl"})
"""Distributions that count in `fingerprint.toolchain` and not in a fingerprint."""

_ENGINE = frozenset({"autotune", "autotune_policies", "autotune_tuning_db"})
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis))
_MOVED = {"_collections": "collections"}
"""Where the fields of named tuples say that they are from, until Python 3.11 and since."""

_NOT_SOURCE = frozenset(
    {"name", "doc", "source", "build", "operation", "unit", "parts", "published"}
)


def reach(root: Any, *, after: Reach | None = None) -> Reach:
    """Everything that a variant, a function or a numba function depends on in source.

    With `after`, only what that walk has not met, in the packages that it followed into.
    """
    walk = Reach({_top(root)}, after)
    walk.visit(root, "root")
    return walk


@cache
def reach_of(variant: Variant) -> Reach:
    """The walk of a variant, done once."""
    return reach(variant)


class Reach:
    """A walk over live objects.

    `facts` are texts that together identify the source; `dispatchers` are the numba functions met,
    `entries` those of them that Python code calls, `homes` the packages followed into; `openmp` is
    the C compiler on whose OpenMP runtime a kernel in C or Fortran runs, if one was met.
    """

    def __init__(self, homes: Iterable[str] = (), after: Reach | None = None) -> None:
        self.facts: set[str] = set()
        self.dispatchers: list[Any] = []
        self.entries: list[Any] = []
        self.openmp = ""
        self.homes: set[str] = set(homes) - {""} - _ENGINE - TOOLCHAIN
        self._inside = 0
        self._seen: dict[int, Any] = {}
        self._picked: dict[str, set[str]] = {}
        if after is not None:
            self.homes |= after.homes
            self._seen |= after._seen
            self._picked |= {name: set(picked) for name, picked in after._picked.items()}

    @property
    def parallel(self) -> bool:
        """Whether any of the numba functions met has parallel regions."""
        return any(each.targetoptions.get("parallel") for each in self.dispatchers)

    def visit(self, value: Any, label: str) -> None:
        """Add what `value`, known under `label`, contributes."""
        if isinstance(value, _PLAIN):
            self.facts.add(f"{label} = {value!r}")
            return
        for kinds, visitor in self._containers():
            if isinstance(value, kinds):
                visitor(value, label)
                return
        if _is_dispatcher(value) and not self._inside and value not in self.entries:
            self.entries.append(value)
        if id(value) in self._seen:
            return
        self._seen[id(value)] = value  # kept alive, so that no other object gets its id
        for kinds, visitor in self._kinds():
            if isinstance(value, kinds):
                visitor(value, label)
                return
        self._visit_object(value, label)

    def _containers(self) -> tuple[tuple[Any, Callable[[Any, str], None]], ...]:
        return (
            (Mapping, self._visit_mapping),
            (tuple | list, self._visit_all),
            (set | frozenset, lambda v, label: self._visit_all(sorted(v, key=repr), label)),
            (Path, self._visit_path),
            (enum.Enum, lambda v, label: self.visit(v.value, label)),
            (types.ModuleType, lambda v, label: self.facts.update(_version(v.__name__))),
        )

    def _kinds(self) -> tuple[tuple[Any, Callable[[Any, str], None]], ...]:
        return (
            (types.FunctionType, self._visit_function),
            (types.MethodType, lambda v, label: self._visit_all((v.__func__, v.__self__), label)),
            (type, self._visit_class),
            (partial, lambda v, label: self._visit_all((v.func, v.args, v.keywords), label)),
            (Variant, self._visit_variant),
            (Operation, self._visit_operation),
            (CudaSource | NativeSource, self._visit_compiled),
            (NativeKernel, self._visit_native),
            (property, lambda v, label: self._visit_all((v.fget, v.fset, v.fdel), label)),
            (staticmethod | classmethod, lambda v, label: self.visit(v.__func__, label)),
        )

    def _visit_all(self, values: Iterable[Any], label: str) -> None:
        for position, value in enumerate(values):
            self.visit(value, f"{label}[{position}]")

    def _visit_mapping(self, value: Mapping[Any, Any], label: str) -> None:
        for key, each in value.items():
            self.visit(each, f"{label}[{key!r}]")

    def _visit_path(self, value: Path, label: str) -> None:
        if value.is_file():
            self.facts.add(f"{label} holds {hashlib.sha256(value.read_bytes()).hexdigest()}")

    def _visit_variant(self, variant: Variant, label: str) -> None:
        source = variant.source or variant.build
        self.homes |= {_top(source), _top(variant.operation.reference)}
        self.visit(variant.operation, "operation")
        self._visit_fields(variant, "variant")
        self.visit(source, label)

    def _visit_operation(self, operation: Operation, label: str) -> None:
        self.homes.add(_top(operation.reference))
        self._visit_fields(operation, label)

    def _visit_compiled(self, source: CudaSource | NativeSource, label: str) -> None:
        with contextlib.suppress(OSError):
            self.facts.add(f"{label} compiles {source.digest}")

    def _visit_native(self, kernel: NativeKernel, label: str) -> None:
        self.openmp = kernel.openmp
        self.visit(kernel.source, label)

    def _visit_fields(self, value: Any, label: str) -> None:
        self.facts.add(f"{label} is {type(value).__qualname__}")
        skip = _NOT_SOURCE if isinstance(value, Variant | Operation) else ()
        for each in dataclasses.fields(value):
            if each.name not in skip:
                self.visit(getattr(value, each.name), f"{label}.{each.name}")

    def _visit_class(self, value: type, label: str) -> None:
        if self._foreign(value.__module__):
            self._name(value, label)
            return
        self._visit_all(value.__bases__, f"{label} base")
        for name, member in vars(value).items():
            if not _mutable(member) and not self._generated(value, name, member):
                self.visit(member, f"{value.__qualname__}.{name}")

    def _generated(self, owner: type, name: str, member: Any) -> bool:
        """Whether a member is what Python, `dataclass` or `NamedTuple` put there.

        What those are differs from version to version of Python.
        """
        inner = inspect.unwrap(member) if callable(member) else member
        code = getattr(inner, "__code__", None)
        if code is None:
            return name.startswith("__")
        if not Path(code.co_filename).is_file():
            return True
        own = str(inner.__qualname__).startswith(f"{owner.__qualname__}.")
        return (own or name.startswith("__")) and self._foreign(inner.__module__)

    def _visit_object(self, value: Any, label: str) -> None:
        """A numba function, a wrapper, a value of NumPy, or an instance of some class."""
        if _is_dispatcher(value):
            options = sorted((name, _spelled(given)) for name, given in value.targetoptions.items())
            self.facts.add(f"{label} compiled with {options}")
            self.dispatchers.append(value)
            self._inside += 1
            self.visit(value.py_func, label)
            self._inside -= 1
            return
        kept = ("py_func", "__wrapped__", "_dispatcher", "_defn")
        inner = next((each for n in kept if (each := getattr(value, n, None)) is not None), None)
        if inner is not None:
            self.visit(inner, label)
        elif _top(type(value)) == "numpy":
            shown = value.tobytes().hex() if hasattr(value, "tobytes") else repr(value)
            self.facts.add(f"{label} = {type(value).__name__} {shown}")
        else:
            if dataclasses.is_dataclass(value):
                self._visit_fields(value, label)
            self.visit(type(value), f"{label} type")

    def _visit_function(self, function: types.FunctionType, label: str) -> None:
        if self._foreign(function.__module__ or ""):
            self._name(function, label)
            return
        code, scope = function.__code__, function.__globals__
        text, trees = function_text(code)
        self.facts.add(text)
        names = names_in(code)
        for name in sorted(names & scope.keys()):
            self._visit_global(code.co_filename, scope, name, names)
        for tree in trees:
            for name, module, attribute in imports_in(tree, scope.get("__package__") or ""):
                self._visit_import(name, module, attribute, names)
        given: dict[Any, Any] = dict(enumerate(function.__defaults__ or ()))
        given |= function.__kwdefaults__ or {}
        for variable, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            with contextlib.suppress(ValueError):  # a variable that is not assigned yet
                given[variable] = cell.cell_contents
        # What a mutable holds changes as the program runs (a memo, say), so it cannot count.
        self._visit_mapping({k: v for k, v in given.items() if not _mutable(v)}, label)

    def _visit_global(self, path: str, scope: dict[str, Any], name: str, names: set[str]) -> None:
        """A global by value or, if it is mutable, by the statements that made it."""
        value = scope[name]
        if not _mutable(value):
            self._pick(name, value, names)
            return
        file = source_file(path)
        for statement in file.statements.get(name, ()) if file is not None else ():
            self.facts.add(statement.text)
            module = absolute_module(
                statement.module, statement.level, scope.get("__package__") or ""
            )
            if statement.original and module in sys.modules and not self._foreign(module):
                origin = vars(sys.modules[module])
                self._visit_global(origin.get("__file__") or "", origin, statement.original, names)
            for other in sorted(statement.names & scope.keys()):
                if not _mutable(scope[other]):
                    self._pick(other, scope[other], set(statement.names))

    def _visit_import(self, name: str, module: str, attribute: str, names: set[str]) -> None:
        if self._foreign(module):
            self.facts.update(_version(module))
            return
        try:
            value: Any = importlib.import_module(module)
            if attribute and not hasattr(value, attribute):
                value = importlib.import_module(f"{module}.{attribute}")
            elif attribute:
                value = getattr(value, attribute)
        except Exception as error:
            self.facts.add(f"{name} cannot be imported: {type(error).__name__}")
            return
        self._pick(name, value, names)

    def _pick(self, name: str, value: Any, names: set[str]) -> None:
        """A value under its name; of a module, what the function's names pick out of it."""
        if not isinstance(value, types.ModuleType) or self._foreign(value.__name__):
            self.visit(value, name)
            return
        scope = vars(value)
        picked = self._picked.setdefault(value.__name__, set())
        fresh = (names & scope.keys()) - picked
        picked |= fresh
        for attribute in sorted(fresh):
            self._visit_global(scope.get("__file__") or "", scope, attribute, names)

    def _name(self, value: Any, label: str) -> None:
        module = _MOVED.get(value.__module__, value.__module__)
        self.facts.add(f"{label} is {module}.{value.__qualname__}")
        self.facts.update(_version(value.__module__ or ""))

    def _foreign(self, module: str) -> bool:
        """Whether a module lies outside of the plugin: counted by name, not followed."""
        top = module.partition(".")[0]
        if top in self.homes or top == "__main__":
            return False
        if not top or top in sys.stdlib_module_names or top in _ENGINE or top in TOOLCHAIN:
            return True
        file = getattr(sys.modules.get(module), "__file__", None) or _found(top)
        return bool({"site-packages", "dist-packages"} & set(Path(file).parts))


def _is_dispatcher(value: Any) -> bool:
    """Whether a value is a function compiled by numba; asks without importing numba."""
    return hasattr(value, "targetoptions") and hasattr(value, "py_func")


def _spelled(value: Any) -> str:
    """`repr`, with the elements of a set (such as fastmath flags) in order."""
    return repr(sorted(value, key=repr)) if isinstance(value, set | frozenset) else repr(value)


def _mutable(value: Any) -> bool:
    """Whether what a value holds may change as the program runs."""
    return isinstance(value, list | dict | set | bytearray) or (
        _top(type(value)) == "numpy" and type(value).__name__ == "ndarray"
    )


def _top(function: Any) -> str:
    inner = getattr(function, "py_func", function)
    return str(getattr(inner, "__module__", None) or "").partition(".")[0]


def _found(top: str) -> str:
    """Where an installed, not yet imported package lies; an empty text if nowhere."""
    try:
        spec = util.find_spec(top)
    except (ImportError, ValueError):
        return ""
    return (spec.origin or "") if spec is not None else ""


def _version(module: str) -> Iterator[str]:
    """The version of an installed distribution, unless the toolchain has it already."""
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names or top in _ENGINE or top in TOOLCHAIN:
        return
    try:
        yield f"{top} {metadata.version(top)}"
    except (metadata.PackageNotFoundError, ValueError):
        return
