"""How a worker comes to know the same operations and variants as the process that started it."""

from __future__ import annotations

import base64
import dataclasses
import importlib
import inspect
import pickle
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from autotune.errors import UserError
from autotune.model import Operation, Variant
from autotune.plugins import load_file, load_plugins, plugin_files
from autotune.registry import registry

_OF_CODE = frozenset({"build", "operation", "parts", "requires", "source"})
"""Fields of a variant that are, or refer to, functions: those of a copy are copies."""


def describe(files: Sequence[str] = ()) -> dict[str, Any]:
    """What a worker has to load, as plain values.

    Plugin files and importable modules go by name. What was defined in a script, a notebook or
    `python -c`, or inside a function, goes by value, so that the user's script is not run again.
    Raises UserError when that is not possible.
    """
    modules: dict[str, None] = {}
    strays: list[Operation | Variant] = []
    for operation in registry.operations():
        declared: tuple[Operation | Variant, ...] = (operation, *registry.variants(operation))
        for value in declared:
            function = _function(value)
            if _importable(function):
                modules[function.__module__] = None
            else:
                strays.append(value)
    plugins = [name for name in modules if name.startswith("autotune_plugin_")]
    return {
        "path": [entry or str(Path.cwd()) for entry in sys.path],
        "files": list(files),
        "loaded": [file for file in plugin_files() if file not in files],
        "modules": [name for name in modules if name not in plugins],
        "strays": _by_value(strays) if strays else "",
    }


def load(description: dict[str, Any]) -> None:
    """Load what `describe` described.

    Raises UserError for a plugin file that fails, if it was asked for by name; what the parent
    merely happens to have loaded is left out when it cannot be loaded again.
    """
    sys.path[:] = description["path"]
    load_plugins()
    for file in description["files"]:
        load_file(file)
    for loaded in description["loaded"]:
        _try(load_file, loaded)
    for module in description["modules"]:
        _try(importlib.import_module, module)
    if description["strays"]:
        for value in pickle.loads(base64.b64decode(description["strays"])):
            _register(value)


def _try(load_one: Callable[[str], object], name: str) -> None:
    try:
        load_one(name)
    except Exception as error:
        print(f"cannot load {name}: {type(error).__name__}: {error}", file=sys.stderr)


def _register(value: Operation | Variant) -> None:
    if isinstance(value, Operation):
        registry.add_operation(value)
        return
    if value.operation.name not in {each.name for each in registry.operations()}:
        registry.add_operation(value.operation)
    here = registry.operation(value.operation.name)
    known = {each.name: each for each in registry.variants(here)}
    if value.name not in known or not _same(known[value.name], value):
        registry.add_variant(dataclasses.replace(value, operation=here))


def _same(own: Variant, sent: Variant) -> bool:
    """Whether importing its module has declared here what was sent: then its own objects count.

    A copy stands apart from the module that it was declared in, and from what others refer to.
    """
    functions = _function(own), _function(sent)
    one, other = (getattr(each, "__code__", None) for each in functions)
    held = [[cell.cell_contents for cell in each.__closure__ or ()] for each in functions]
    names = {field.name for field in dataclasses.fields(own)} - _OF_CODE
    return (
        one is not None
        and one == other
        and held[0] == held[1]
        and all(getattr(own, name) == getattr(sent, name) for name in names)
    )


def _function(value: Operation | Variant) -> Callable[..., Any]:
    function = value.reference if isinstance(value, Operation) else value.source or value.build
    inner: Callable[..., Any] = inspect.unwrap(getattr(function, "py_func", function))
    return inner


def _importable(function: Callable[..., Any]) -> bool:
    """Whether importing the function's module in another process defines it there as well."""
    name = getattr(function, "__module__", None) or "__main__"
    module = sys.modules.get(name)
    plugin = name.startswith("autotune_plugin_")
    found = plugin or getattr(module, "__spec__", None) is not None
    return name != "__main__" and found and "<locals>" not in getattr(function, "__qualname__", "")


def _by_value(values: list[Operation | Variant]) -> str:
    cloudpickle: Any = importlib.import_module("numba.cloudpickle")
    try:
        return base64.b64encode(cloudpickle.dumps(values)).decode()
    except Exception as error:
        names = ", ".join(value.name for value in values)
        why = f"{type(error).__name__}: {error}".splitlines()[0]
        raise UserError(
            f"{names} cannot be sent to the measuring process ({why}); "
            f"define them in a module, or in a file given with --plugin."
        ) from None
