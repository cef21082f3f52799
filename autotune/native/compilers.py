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
    """The compiler of that name on the PATH; None where it is not, or does not work."""
    path, version, trouble = _look(name)
    return Compiler(name, path, version) if path and not trouble else None


def the_compiler(name: str) -> Compiler:
    """The compiler of that name; raises AutotuneError with what to install."""
    found = find(name)
    if found is None:
        raise AutotuneError(f"{_why_not(name)}.")
    return found


def _why_not(name: str) -> str:
    """Why a compiler that is not found cannot be used, and what to install."""
    path, _, trouble = _look(name)
    if path:
        return f"{name} at {path} does not work ({trouble}); reinstall the package {name}"
    return f"{name} is not on the PATH; install the package {name}"


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
    for name in COMPILERS[language]:
        path, _, trouble = _look(name)
        if trouble:
            return _why_not(name)
        if path:
            beside = OPENMP_C[name]
            return f"{name} is here without the C compiler beside it: {_why_not(beside)}"
    default = COMPILERS[language][0]
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


def _look(name: str) -> tuple[str, str, str]:
    """The file of that name on the PATH, its version, and why it does not work; "" for none."""
    path = shutil.which(name)
    if path is None:
        return "", "", ""
    try:
        status = os.stat(path)  # noqa: PTH116 (asked for each look at what is available)
    except OSError:
        return "", "", ""
    return path, *_version(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=32)
def _version(path: str, _changed: int, _size: int) -> tuple[str, str]:
    """The first line of `--version`, and why the command does not work, or ""."""
    try:
        done = subprocess.run(
            [path, "--version"],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_SECONDS,
            env={**os.environ, "LC_ALL": "C"},
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "", f"--version had no answer in {_SECONDS:.0f} s"
    except (OSError, subprocess.SubprocessError) as error:
        return "", str(error)
    if done.returncode:
        return "", f"--version ended with {_ending(done.returncode)}"
    return next(iter(done.stdout.splitlines()), Path(path).name).strip(), ""


def _ending(status: int) -> str:
    return f"signal {-status}" if status < 0 else f"exit status {status}"
