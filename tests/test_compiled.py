"""Compiled code on disk: used again, never stale, never in the way."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

V = """
    import numba, helper
    @numba.njit(parallel=CACHE, cache=CACHE)
    def kernel(x, y):
        for i in numba.prange(x.size):
            y[i] = helper.scale(x[i])
"""
HELPER = """
    import numba
    @numba.njit(cache=CACHE)
    def scale(x):
        return inner.factor() * x
    import inner
"""
INNER = """
    import numba
    @numba.njit(cache=CACHE)
    def factor():
        return FACTOR
"""
RUN = """
    import json, sys, warnings
    warnings.simplefilter("always")
    import numpy as np
    BEFORE
    v = sys.modules.get("autotune_plugin_v") or __import__("v")
    from autotune.device import local_cpu
    from autotune.execution import Executable
    from autotune.model import Operation, Problem, Variant
    from autotune.model.operation import parse_tensors
    tensors = parse_tensors("x[N]"), parse_tensors("y[N]")
    operation = Operation("thing", ("N",), *tensors, reference=print, plain=print)
    variant = Variant("v", operation, lambda problem, config: v.kernel, source=v.kernel)
    executable = Executable(variant, Problem.of(operation, (8,), "float64"), {}, local_cpu())
    x, y = np.ones(8), np.zeros(8)
    executable(x, y)
    hits = sum(v.kernel.stats.cache_hits.values())
    print(json.dumps({"y": y[0], "hits": hits}))
"""


def run(
    folder: Path, *, factor: float = 2.0, cache: bool = False, home: Path, before: str = ""
) -> dict[str, Any]:
    texts = {"v": V, "helper": HELPER, "inner": INNER, "run": RUN}
    for name, text in texts.items():
        filled = textwrap.dedent(text).replace("CACHE", str(cache)).replace("FACTOR", str(factor))
        filled = filled.replace("BEFORE", before)
        (folder / f"{name}.py").write_text(filled)
    environment = {**os.environ, "AUTOTUNE_HOME": str(home), "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("NUMBA_CACHE_DIR", None)
    done = subprocess.run(
        [sys.executable, "run.py"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return {**json.loads(done.stdout), "stderr": done.stderr}


@pytest.mark.parametrize("cache", [False, True])
def test_a_second_process_does_not_compile_and_an_edited_helper_is_not_missed(
    tmp_path: Path, cache: bool
) -> None:
    home = tmp_path / "home"
    first = run(tmp_path, cache=cache, home=home)
    second = run(tmp_path, cache=cache, home=home)
    assert (first["y"], first["hits"]) == (2.0, 0)
    assert (second["y"], second["hits"]) == (2.0, 1)
    edited = run(tmp_path, factor=3.0, cache=cache, home=home)
    assert (edited["y"], edited["hits"]) == (3.0, 0)
    assert list(home.rglob("*.nbc"))
    assert not list((tmp_path / "__pycache__").glob("*.nb?"))


@pytest.mark.parametrize("damaged", ["*.nbi", "*.nbc"])
def test_code_that_cannot_be_read_is_compiled_and_kept_again(tmp_path: Path, damaged: str) -> None:
    home = tmp_path / "home"
    run(tmp_path, home=home)
    for file in home.rglob(damaged):
        file.write_bytes(file.read_bytes()[:20])
    again = run(tmp_path, home=home)
    assert (again["y"], again["hits"]) == (2.0, 0)
    assert again["stderr"] == ""
    assert run(tmp_path, home=home)["hits"] == 1


def test_a_cache_that_cannot_be_written_costs_a_warning_and_nothing_else(tmp_path: Path) -> None:
    blocked = tmp_path / "blocked"
    blocked.write_text("")
    unwritable = run(tmp_path, home=blocked)
    assert unwritable["y"] == 2.0
    assert unwritable["stderr"].count("set AUTOTUNE_HOME") == 1


@pytest.mark.parametrize("first", ["plugin", "module"])
def test_a_file_loaded_as_a_plugin_and_imported_keeps_the_code_of_both(
    tmp_path: Path, first: str
) -> None:
    home = tmp_path / "home"
    second = "plugin" if first == "module" else "module"
    loads = {"plugin": "from autotune.plugins import load_file; load_file('v.py')", "module": ""}
    ran = [run(tmp_path, home=home, before=loads[each]) for each in (first, second, first, second)]
    assert [each["stderr"] for each in ran] == [""] * 4
    assert [each["y"] for each in ran] == [2.0] * 4
    assert [each["hits"] for each in ran] == [0, 0, 1, 1]


def test_old_fingerprints_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from autotune import compiled

    monkeypatch.setattr(compiled, "KEPT", 3)
    monkeypatch.setenv("AUTOTUNE_HOME", str(tmp_path))
    for number in range(5):
        directory = compiled._directory(f"f{number}")
        assert directory is not None
        os.utime(directory, (number, number))
    kept = {each.name for each in (tmp_path / "cache" / "numba").iterdir()}
    assert kept == {"f2", "f3", "f4"}
