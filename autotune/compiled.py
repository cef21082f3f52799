"""Keeps numba's compiled code on disk, by all it was compiled from and its module."""

from __future__ import annotations

import os
import re
import shutil
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any

from autotune.fingerprint import code_fingerprint
from autotune.locks import Lock
from autotune.private import private_cache
from autotune.reach import Reach
from autotune.settings import settings
from autotune_tuning_db import ProblemKey

KEPT = 400
"""Directories kept on disk; each takes a few hundred kilobytes."""

_lock = Lock()
_warned = False


def keep_compiled(found: Reach) -> None:
    """Let the numba functions of a walk load from and save to this project's cache.

    Numba's own cache (`cache=True`) checks only the file that a function is in, so an edited
    helper in another file goes unseen; here the directory is named after the function and all it
    calls, and after its module, which numba looks up by name when it loads: a file given as a
    plugin and the same file imported are two modules. A function's own `cache=True` is redirected
    as well. Functions called only by others are part of their callers' code and need no file of
    their own. A cache that cannot be used costs one warning and a compilation in each process.
    """
    with _lock:
        for entry in found.entries:
            if not isinstance(entry._cache, _Forgiving):
                _redirect(entry)
        for dispatcher in found.dispatchers:
            if dispatcher not in found.entries:
                _take_out(dispatcher)


def worth_keeping(found: Reach, use: str) -> bool:
    """Whether there is compiled code to put on disk for a use that is not there yet.

    Numba compiles a function once for each dtype and layout of its arguments: `use` names the
    variant with those, as `kept_for` was told.
    """
    root = settings().cache / "numba"
    if not found.entries or _directory(_name(found.entries[0])) is None:
        return False
    folders = [root / _name(each) for each in found.entries]
    return not all(_mark(each, use).exists() and any(each.rglob("*.nbc")) for each in folders)


def kept_for(found: Reach, use: str) -> None:
    """Note that the code of a use was compiled, and is on disk as far as it can be."""
    for entry in found.entries:
        folder = _directory(_name(entry))
        if folder is not None:
            try:
                _mark(folder, use).touch()
            except OSError as error:
                _warn(f"cannot keep compiled code in {folder} ({_text(error)})")


def use_of(problem: ProblemKey, variant: str) -> str:
    """What numba compiles apart: a variant for a dtype and a layout."""
    return f"{problem.operation}.{variant}.{problem.dtype}.{problem.layout}"


def _mark(folder: Path, use: str) -> Path:
    return folder / f"{_plain(use)}.kept"


def _name(entry: Any) -> str:
    """The folder of a numba function: what it was compiled from, and its module."""
    return f"{code_fingerprint(entry)}-{_plain(entry.py_func.__module__ or '')}"


def _plain(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]", "_", text)


def _redirect(dispatcher: Any) -> None:
    config: Any = import_module("numba").config
    directory = _directory(_name(dispatcher))
    if directory is None:
        _take_out(dispatcher)
        return
    before = config.CACHE_DIR
    config.CACHE_DIR = str(directory)
    try:
        dispatcher.enable_caching()
    except RuntimeError:  # a function without a source file
        _take_out(dispatcher)
        return
    finally:
        config.CACHE_DIR = before
    if Path(dispatcher._cache.cache_path).is_relative_to(directory):
        dispatcher._cache = _Forgiving(dispatcher._cache)
        _discard_loaded(dispatcher)
    else:
        _take_out(dispatcher)


def _take_out(dispatcher: Any) -> None:
    """Without a cache of its own; what came from one may be stale and is compiled again."""
    from numba.core.caching import NullCache

    if not isinstance(dispatcher._cache, NullCache | _Forgiving):
        dispatcher._cache = NullCache()
        _discard_loaded(dispatcher)


def _discard_loaded(dispatcher: Any) -> None:
    if dispatcher._cache_hits:
        dispatcher._cache_hits.clear()
        dispatcher.recompile()


class _Forgiving:
    """A numba cache whose failures (full disk, corrupt file) cost a compilation, not the call.

    What cannot be loaded is forgotten, so that what is compiled instead takes its place.
    """

    def __init__(self, cache: Any) -> None:
        self._cache = cache

    def load_overload(self, signature: Any, context: Any) -> Any:
        try:
            return self._cache.load_overload(signature, context)
        except Exception:
            self._forget()
            return None

    def _forget(self) -> None:
        try:
            self._cache.flush()
        except OSError as error:
            _warn(f"cannot replace compiled code in {self._cache.cache_path} ({_text(error)})")

    def save_overload(self, signature: Any, data: Any) -> None:
        try:
            self._cache.save_overload(signature, data)
        except Exception as error:
            _warn(f"cannot keep compiled code in {self._cache.cache_path} ({_text(error)})")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)


def _directory(name: str) -> Path | None:
    """A directory for compiled code, made and writable, or None after a warning."""
    root = settings().cache / "numba"
    directory = root / name
    try:
        private_cache()
        fresh = not directory.exists()
        directory.mkdir(parents=True, exist_ok=True)
        if not os.access(directory, os.W_OK):
            raise PermissionError(f"{directory} is not writable")
        if fresh:
            _prune(root)
        else:
            os.utime(directory)
    except OSError as error:
        _warn(f"cannot keep compiled code in {root} ({_text(error)})")
        return None
    return directory


def _prune(root: Path) -> None:
    """Remove the directories that were not used for longest."""
    kept = sorted(root.iterdir(), key=lambda each: each.stat().st_mtime, reverse=True)
    for old in kept[KEPT:]:
        shutil.rmtree(old, ignore_errors=True)


def _text(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}".splitlines()[0]


def _warn(message: str) -> None:
    global _warned
    if not _warned:
        _warned = True
        remedy = "set AUTOTUNE_HOME to a directory that can be written"
        warnings.warn(f"{message}; kernels are compiled in each process: {remedy}.", stacklevel=2)
