"""Runs a compiler: from a source file to the bytes of a shared library."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from autotune.errors import AutotuneError
from autotune.native.compilers import Compiler

SECONDS = 120.0
"""A compiler that takes longer is given up."""

_PLACE = re.compile(r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):")
_BLAME = re.compile(
    r"\b(?:error|undefined reference)\b|^\S*\bld(?:\.\w+)?: (?!warning|skipping).*[^:]$",
    re.IGNORECASE,
)
_SUMMARY = re.compile(r"\bld returned \d+ exit status|\blinker command failed")
"""What compilers say of a linker whose own lines, before it, tell the cause."""

_ERROR = re.compile(r"(?:fatal )?error: ", re.IGNORECASE)


class BuildError(AutotuneError):
    """A source that a compiler rejects: one line in the message, all that it said in `log`."""

    def __init__(self, message: str, log: str = "") -> None:
        super().__init__(message)
        self.log = log


def build_library(source: Path, compiler: Compiler, options: Sequence[str]) -> bytes:
    """Compile and link; raises BuildError with the compiler's first error.

    Two steps: a library linked with -ffast-math would, when it is loaded, change how the process
    rounds denormal numbers.
    """
    with tempfile.TemporaryDirectory(prefix="autotune-") as folder:
        compiled, linked = Path(folder) / "kernel.o", Path(folder) / "kernel.so"
        where = f"{source.name} does not compile ({compiler.name} {' '.join(options[:2])})"
        given = [*options, "-fPIC", "-fopenmp", "-c", str(source), "-o", str(compiled)]
        _run([compiler.path, *given], compiled, where)
        where = f"{source.name} does not link ({compiler.name})"
        given = ["-shared", "-fopenmp", "-Wl,-z,defs", str(compiled), "-o", str(linked), "-lm"]
        _run([compiler.path, *given], linked, where)
        return linked.read_bytes()


def _run(command: Sequence[str], product: Path, failure: str) -> None:
    """Run a compiler that is to write `product`."""
    try:
        done = subprocess.run(
            command,
            cwd=product.parent,  # where Fortran leaves its module files
            capture_output=True,
            text=True,
            errors="replace",
            timeout=SECONDS,
            env={**os.environ, "LC_ALL": "C"},
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise BuildError(f"{failure}: given up after {SECONDS:.0f} s.") from None
    except OSError as error:
        raise BuildError(f"{failure}: {command[0]} does not run ({error}).") from error
    if done.returncode:
        log = done.stdout + done.stderr
        raise BuildError(f"{failure}: {first_error(log, done.returncode)}", log)
    if not product.exists() or not product.stat().st_size:
        raise BuildError(
            f"{failure}: {command[0]} ended without an error and wrote nothing; "
            f"reinstall what it belongs to."
        )


def first_error(log: str, status: int) -> str:
    """The first error in a compiler's log, as "file:line: text".

    GCC and clang put the place before the error in one line, gfortran some lines above it.
    """
    for place, line in _placed(log):
        if _BLAME.search(line) and not _SUMMARY.search(line):
            text = _ERROR.split(line, maxsplit=1)[-1].strip()
            return f"{place}: {text}" if place else text
    said = next((line.strip() for line in log.splitlines() if line.strip()), "")
    return said or (f"ended by signal {-status}" if status < 0 else f"exit status {status}")


def _placed(log: str) -> Iterator[tuple[str, str]]:
    """Each line with the latest place above it, or in it."""
    place = ""
    for line in log.splitlines():
        found = _PLACE.match(line)
        if found:
            place = f"{Path(found['file']).name}:{found['line']}"
        yield place, line
