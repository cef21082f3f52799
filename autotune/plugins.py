"""Finds plugins: installed packages by entry point, and files named by the user."""

from __future__ import annotations

import importlib.util
import os
import sys
import warnings
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from autotune.errors import PluginError, UserError
from autotune.locks import Lock
from autotune.private import gather_caches
from autotune.registry import registry
from autotune.settings import settings

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "autotune.plugins"

_lock = Lock()
_loaded = False
_waiting: list[EntryPoint] | None = None
_files: list[str] = []


def load_plugins() -> None:
    """Import every installed plugin once; one that fails is named in a warning and left out.

    A plugin may ask for the others while it is imported itself. With AUTOTUNE_STRICT_PLUGINS=1 a
    failing plugin raises UserError instead.
    """
    global _loaded, _waiting
    if _loaded:
        return
    with _lock:
        if _loaded:
            return
        if _waiting is not None:  # asked for by a plugin: those that are not begun yet
            _load_all(_waiting)
            return
        from importlib.metadata import entry_points

        gather_caches()
        try:
            _waiting = list(entry_points(group=GROUP))
            _load_all(_waiting)
        finally:
            _waiting = None
        _loaded = True


def _load_all(points: list[EntryPoint]) -> None:
    while points:
        point = points.pop(0)
        try:
            point.load()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            package = point.dist.name if point.dist else "?"
            why = f"{type(error).__name__}: {error}"
            message = f"plugin {point.name!r} of package {package!r} failed to load ({why})"
            if settings().strict_plugins:
                raise UserError(f"{message}; repair or uninstall it.") from error
            warnings.warn(f"{message}; its operations are missing.", stacklevel=3)


registry.load = load_plugins


def load_files(paths: Iterable[str | os.PathLike[str]]) -> None:
    """Import plugin files; one that fails is named in a warning, and what it declared taken back.

    With AUTOTUNE_STRICT_PLUGINS=1, and for what is no file at all, UserError is raised instead.
    """
    for path in paths:
        try:
            load_file(path)
        except PluginError as error:
            if settings().strict_plugins:
                raise
            told = str(error).removesuffix(".")
            warnings.warn(f"{told}; its operations and variants are missing.", stacklevel=2)


def load_file(path: str | os.PathLike[str]) -> None:
    """Import a Python file that declares operations or variants.

    UserError if there is none, PluginError (a UserError) if it fails; nothing that it declared
    stays behind.
    """
    try:
        file = Path(path).resolve()
        found = file.is_file()
    except OSError as error:
        raise UserError(f"cannot read the plugin file {str(path)!r}: {error.strerror}.") from None
    if not found:
        what = "is no file" if file.exists() else "does not exist"
        raise UserError(f"plugin file {str(path)!r} {what}; give a path to a .py file.")
    name = f"autotune_plugin_{file.stem}"
    with _lock:
        if str(file) in _files:
            return
        gather_caches()
        while name in sys.modules:  # another folder's file of that name
            name += "_"
        spec = importlib.util.spec_from_file_location(name, file)
        if spec is None or spec.loader is None:
            raise UserError(f"plugin file {str(path)!r} is not a Python file.")
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        sys.path.insert(0, str(file.parent))
        try:
            spec.loader.exec_module(module)
        except BaseException as error:
            registry.forget(name)
            del sys.modules[name]
            if isinstance(error, KeyboardInterrupt):
                raise
            why = f"{type(error).__name__}: {error}"
            raise PluginError(f"plugin file {str(path)!r} failed to load ({why}).") from error
        finally:
            sys.path.remove(str(file.parent))
        _files.append(str(file))


def plugin_files() -> tuple[str, ...]:
    """Files loaded by `load_file`, so that a worker process can load the same."""
    return tuple(_files)


def file_of(module: str) -> str | None:
    """The plugin file that was imported as a module; None for other modules."""
    file = getattr(sys.modules.get(module), "__file__", None)
    return file if file in _files else None
