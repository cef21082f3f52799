"""The C and Fortran compilers of this machine: which there are, and their versions."""

from __future__ import annotations

import os
import shutil
import subprocess
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

from autotune.errors import AutotuneError
from autotune.model import Requirement

Language = Literal["c", "fortran"]

COMPILERS: dict[Language, tuple[str, ...]] = {"c": ("gcc", "clang"), "fortran": ("gfortran",)}
"""Commands that are looked for, the default first; each is also the name of its package."""

OPENMP_C = {"gcc": "gcc", "clang": "clang", "gfortran": "gcc"}
"""By compiler, the C compiler whose code runs on the same OpenMP runtime."""

_SPELLED = {"c": "C", "fortran": "Fortran"}
_SECONDS = 20.0


@dataclass(frozen=True, slots=True)
class Compiler:
    """A compiler: the command, its file, and the first line of what `--version` prints."""

    name: str
    path: str
    version: str


def find(name: str) -> Compiler | None:
    """The compiler of that name on the PATH; None where it is not, or does not run."""
    path = shutil.which(name)
    if path is None:
        return None
    try:
        status = os.stat(path)  # noqa: PTH116 (asked for each look at what is available)
    except OSError:
        return None
    version = _version(path, status.st_mtime_ns, status.st_size)
    return Compiler(name, path, version) if version else None


def the_compiler(name: str) -> Compiler:
    """The compiler of that name; raises AutotuneError with the package to install."""
    found = find(name)
    if found is None:
        raise AutotuneError(f"{name} is not on the PATH; install the package {name}.")
    return found


def found_for(language: Language) -> tuple[str, ...]:
    """Names of a language's compilers that are here with what their OpenMP needs."""
    return tuple(
        name
        for name in COMPILERS[language]
        if find(name) is not None and find(OPENMP_C[name]) is not None
    )


def missing(language: Language) -> str | None:
    """Why nothing in a language can be built here, and what to install; None if it can."""
    if found_for(language):
        return None
    default = COMPILERS[language][0]
    if find(default) is not None:
        beside = OPENMP_C[default]
        return f"{default} is here without the C compiler beside it; install the package {beside}"
    return f"no {_SPELLED[language]} compiler is on the PATH; install the package {default}"


def needs_compiler(language: Language) -> Requirement:
    """The requirement of a variant in a language ("c" or "fortran")."""
    return Requirement(f"{_SPELLED[language]} compiler", lambda: missing(language))


def compiler_versions() -> dict[str, str]:
    """By language, the compilers here with their versions; empty where there are none."""
    return {
        language: "; ".join(found.version for name in names if (found := find(name)) is not None)
        for language, names in COMPILERS.items()
    }


@lru_cache(maxsize=32)
def _version(path: str, _changed: int, _size: int) -> str:
    """The first line of `--version`; an empty text when the command fails."""
    try:
        done = subprocess.run(
            [path, "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            env={**os.environ, "LC_ALL": "C"},
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return next(iter(done.stdout.splitlines()), Path(path).name).strip()
