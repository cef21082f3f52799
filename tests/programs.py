"""Programs that tests start in a process of their own, and the disk that misbehaves for them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
FAULTS = TESTS / "faults"
Shim = Callable[..., dict[str, str]]


def environment(extra: Mapping[str, str] | None = None) -> dict[str, str]:
    """This process's, with the helpers of the tests importable."""
    paths = [str(TESTS), str(TESTS / "tuning_db"), *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **(extra or {})}


def python(
    *words: object,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    before: tuple[str, ...] = (),
) -> subprocess.CompletedProcess[str]:
    """This interpreter with these words, to its end; `before` stands in front of it."""
    return subprocess.run(
        [*before, sys.executable, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=1200,
        check=False,
        env=environment(env),
        cwd=cwd,
    )


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Shim:
    """The environment of a program for which what lies under a folder fails; see shim.c."""
    library = tmp_path_factory.mktemp("shim") / "shim.so"
    if not build_shim(library):
        pytest.skip("needs a C compiler to build the disk that misbehaves")

    def variables(fault: str, folder: Path, limit: int = 0) -> dict[str, str]:
        return {
            "LD_PRELOAD": str(library),
            "FAULT": fault,
            "FAULT_ROOT": str(folder),
            "FAULT_BYTES": str(limit),
        }

    return variables


def build_shim(library: Path) -> bool:
    """Compiles shim.c; False where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return False
    source = str(FAULTS / "shim.c")
    words = [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), source, "-ldl"]
    subprocess.run(words, check=True)
    return True
